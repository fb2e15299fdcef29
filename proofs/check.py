"""Compiles the proofs and checks that they are whole: no gaps, no axioms but the allowed ones.

    python proofs/check.py [--required] [--write]

Works on copies in `_build/proofs`; only what has changed is compiled again. Exits 1 with one
message if something is wrong, 0 if all is well, or if Coq is not installed (unless --required),
where it says that nothing was verified. What the page on the proofs shows, `statements.json` and
the goals in `goals/`, must be what the files say; --write writes it.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from goals import record_goals
from sources import describe, needs, statement, without_comments

SOURCE = Path(__file__).resolve().parent
BUILD = SOURCE.parent / "_build" / "proofs"
# classical logic, as mathcomp-analysis takes it for its real numbers; the algebra needs none. By
# qualified name, as a constant of ours may have the same last name
ALLOWED = {
    "mathcomp.classical.boolp.propositional_extensionality",
    "mathcomp.classical.boolp.functional_extensionality_dep",
    "mathcomp.classical.boolp.constructive_indefinite_description",
}
MAIN = """
    eq_6 eq_12 lemma_1_outputs lemma_1 lemma_1_padded lemma_1_printed_symmetric lemma_1_printed_sign
    lemma_1_printed_sign_refuted eq_10_border_refuted lemma_1_border_refuted
    eq_14 lemma_2 lemma_2_limit lemma_2_sign_refuted lemma_2_printed_refuted
    nearly_hard_heads theorem_1_gap theorem_1_alpha theorem_1_any_kernel theorem_1
    hyper_parameters hyper_parameters_torch
    bound_is_sharp alpha_constant_refuted
    lemma_2_margin lemma_2_two_numbers lemma_2_limit_two_numbers theorem_1_two_numbers
    lemma_2_one_number_refuted
    eq_7_quadratic theorem_1_absolute
    rotary_head rotary_axial rotary_gap rotary_gamma rotary_attention
    theorem_1_rotary_gap theorem_1_rotary_alpha theorem_1_rotary
    axial_separates slow_frequencies_separate one_frequency_per_axis
    rotary_common_period rotary_one_pair_refuted rotary_sign_refuted
    rank_value_matrix any_Dh_outputs few_inputs head_dimension_refuted rank_printed_refuted
    lemma_3 lemma_3_needs_K2_heads lemma_3_fewer_heads_refuted lemma_3_printed_refuted
    one_more_head K2_heads_refuted lemma_3_printed_softmax_refuted
    rank_plus_one_heads rank_heads_needed K2_heads_needed
    float_one_hot float_layer_is_convolution hard_alphas finite_formats
    theorem_2 theorem_2_converse theorem_2_one_factor_refuted
""".split()  # noqa: SIM905
# the library's real numbers are not an empty notion: Coq's own are an instance
REALS = """From mathcomp Require Import reals Rstruct.
Check (real_realType : realType).
"""
SECTIONS = r"(?:^|\.\s)\s*(Section|End|Variables?|Hypothes[ie]s|Context)\b"
GAPS = r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|bypass_check|\w+ Checking)\b"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles the proofs and checks them.")
    parser.add_argument("--required", action="store_true", help="fail where Coq is not installed")
    parser.add_argument("--write", action="store_true", help="write what the page shows")
    arguments = parser.parse_args()
    if not shutil.which("coqc"):
        if arguments.required:
            sys.exit(
                "proofs: nothing was verified, coqc is not installed;"
                " on Debian: apt-get install coq libcoq-mathcomp-analysis"
            )
        return print(
            "proofs: NOTHING WAS VERIFIED, and no recorded goals were compared:"
            " coqc is not installed"
        )
    sources = {path.stem: path.read_text() for path in sorted(SOURCE.glob("*.v"))}
    for name, text in sources.items():
        if gap := re.search(GAPS, without_comments(text)):
            sys.exit(f"{name}.v contains {gap[0]!r}; a proof must have no gaps and add no axioms")
        if gap := assumed_by_all(text):
            sys.exit(f"{name}.v contains {gap!r} outside all sections, which makes it an axiom")
    for theorem in MAIN:
        if not any(statement(text, theorem) for text in sources.values()):
            sys.exit(f"no file states the theorem {theorem}, which MAIN in check.py lists")
    stated = {t for text in sources.values() for t in re.findall(r"^Theorem (\w+)", text, re.M)}
    if forgotten := sorted(stated - set(MAIN)):
        sys.exit(f"MAIN in check.py does not list the theorem {forgotten[0]}, which a file states")
    newest = compile_all(sources)
    axioms, types = questions(sources, newest, one_by_one=arguments.write)
    for theorem in MAIN:
        print(f"{theorem}: {', '.join(map(short, axioms[theorem])) or 'no axioms'}")
        if foreign := set(axioms[theorem]) - ALLOWED:
            sys.exit(f"{theorem} rests on {', '.join(sorted(foreign))}, which is not in ALLOWED")
    answers("RealNumbers", REALS, newest)
    shown: dict[Path, object] = {
        SOURCE / "statements.json": describe(MAIN, sources, BUILD, axioms, types)
    }
    goals = record_goals(sources, lambda name, text: answers(f"Goals{name}", text, newest))
    shown |= {SOURCE / "goals" / f"{name}.json": steps for name, steps in goals.items()}
    for path, record in shown.items():
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        if arguments.write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.name} is not what the files say; write it: check.py --write")
    print(f"{len(goals)} proofs replayed: the recorded goals are what Coq shows")


def assumed_by_all(text: str) -> str | None:
    """A variable or hypothesis outside all sections: an axiom, whatever it is called."""
    depth = 0
    for word in re.findall(SECTIONS, without_comments(text), re.M):
        depth += {"Section": 1, "End": -1}.get(word, 0)
        if depth <= 0 and word not in ("Section", "End"):
            return word
    return None


def short(axiom: str) -> str:
    return ".".join(axiom.split(".")[-2:])


def compile_all(sources: dict[str, str]) -> float:
    """In the order of dependence; a file again if it has changed, or one that it needs is newer."""
    BUILD.mkdir(parents=True, exist_ok=True)
    results: dict[str, float] = {}  # when each was compiled

    def visit(name: str) -> float:
        if name not in results:
            copy, result = BUILD / f"{name}.v", BUILD / f"{name}.vo"
            newest = max((visit(other) for other in needs(sources[name])), default=0)
            made = result.stat().st_mtime if result.exists() else -1
            if made < newest or copy.read_text() != sources[name]:
                result.unlink(missing_ok=True)
                copy.write_text(sources[name])
                compiled(name)
            results[name] = result.stat().st_mtime
        return results[name]

    return max(map(visit, sources))


def compiled(name: str) -> str:
    project = (SOURCE / "_CoqProject").read_text().replace("-arg ", "").split()
    run = subprocess.run(["coqc", *project, f"{name}.v"], cwd=BUILD, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"Coq does not accept {name}.v:\n{run.stdout}{run.stderr}")
    return run.stdout


def answers(name: str, text: str, newest: float) -> str:
    """Return what Coq answers to a file of questions; it is asked only if the file or the compiled
    proofs are new."""
    asked, answered = BUILD / f"{name}.v", BUILD / f"{name}.txt"
    made = answered.stat().st_mtime if answered.exists() else -1
    if made < newest or asked.read_text() != text:
        asked.write_text(text)
        answered.write_text(compiled(name))
    return answered.read_text()


def questions(
    sources: dict[str, str], newest: float, one_by_one: bool
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """For each theorem its axioms, and its full type: with what its section assumes.

    Coq looks for axioms for seconds. Unless `one_by_one`, it is asked only once for all theorems
    with the same recorded axioms; each of them is then said to need what any of them needs.
    """
    lines = ["From mathcomp Require Import all_ssreflect all_algebra reals sequences exp trigo."]
    lines += [f"From AttnConv Require Import {' '.join(sources)}.", "Open Scope ring_scope."]
    for axiom in sorted(ALLOWED):  # what Coq means by the short name that it prints
        lines += [f'Goal True. idtac "@@ {axiom}". Abort.', f"Locate {short(axiom)}."]
    for theorem in MAIN:
        lines += [f'Goal True. idtac "@@ {theorem}". Abort.', f"Check @{theorem}."]
    groups = [[theorem] for theorem in MAIN] if one_by_one else by_recorded_axioms()
    for number, group in enumerate(groups):
        lines += [f"Definition group_{number} := ({', '.join(f'@{t}' for t in group)})."]
        lines += [f'Goal True. idtac "@@ group_{number}". Abort.']
        lines += [f"Print Assumptions group_{number}."]
    answer_text = answers("Questions", "\n".join(lines) + "\n", newest)
    axioms, types = {}, {}
    meant: dict[str, str] = {}
    for answer in answer_text.split("@@ ")[1:]:
        theorem, _, text = answer.partition("\n")
        if theorem in ALLOWED:
            if text.startswith(f"Constant {theorem}\n"):
                meant[short(theorem)] = theorem
        elif theorem in MAIN:
            types[theorem] = re.sub(r"^.*?\n?\s+: ", "", text, count=1).strip()
        else:
            closed = text.startswith("Closed under the global context")
            lines = [] if closed else re.findall(r"^\S+", text.removeprefix("Axioms:"), flags=re.M)
            found = sorted(meant.get(line, line) for line in lines)
            axioms |= dict.fromkeys(groups[int(theorem.removeprefix("group_"))], found)
    return axioms, types


def by_recorded_axioms() -> list[list[str]]:
    """Group the theorems by the axioms in `statements.json`, new ones each by itself."""
    file = SOURCE / "statements.json"
    recorded = json.loads(file.read_text()) if file.exists() else {}
    groups: dict[str, list[str]] = {}
    for theorem in MAIN:
        label = str(recorded[theorem]["axioms"]) if theorem in recorded else theorem
        groups.setdefault(label, []).append(theorem)
    return [*groups.values()]


if __name__ == "__main__":
    main()
