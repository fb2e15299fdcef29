"""The script that checks the proofs finds what is wrong with them. `make proofs` runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "book" / "ext"))
import machinechecked


@pytest.fixture
def proofs(tmp_path):
    """A copy of the proofs, and a Coq that accepts nothing."""
    shutil.copytree(ROOT / "proofs", tmp_path / "proofs")
    (tmp_path / "bin").mkdir()
    coqc = tmp_path / "bin" / "coqc"
    coqc.write_text("#!/bin/sh\necho this is no proof\nexit 1\n")
    coqc.chmod(0o755)
    return tmp_path / "proofs"


def check(proofs, *words, with_coq=True):
    path = str(proofs.parent / "bin") + os.pathsep + os.defpath if with_coq else "/nowhere"
    return subprocess.run(
        [sys.executable, str(proofs / "check.py"), *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("file", "find", "replace", "message"),
    [
        ("Lemma1.v", "Qed.", "Admitted.", "Lemma1.v contains 'Admitted'"),
        ("Lemma2.v", "Section ", "Axiom free : False.\nSection ", "Lemma2.v contains 'Axiom'"),
        (
            "Lemma3.v",
            "End Lemma3.",
            "Theorem new : True.\nEnd Lemma3.",
            "does not list the theorem new",
        ),
        ("Theorem2.v", "theorem_2_converse", "theorem_3", "no file states the theorem theorem_2_c"),
        (
            "Lemma2.v",
            "Section Encoding",
            "Variable propositional_extensionality : False.\nSection Encoding",
            "Lemma2.v contains 'Variable' outside all sections",
        ),
        (
            "Lemma2.v",
            "End Lemma2.",
            "End Lemma2. Context (free : False).",
            "Lemma2.v contains 'Context' outside all sections",
        ),
        ("Lemma3.v", "Qed.", "Qed. (* said anew *)", "this is no proof"),
    ],
)
def test_what_is_wrong_is_named(proofs, file, find, replace, message):
    source = proofs / file
    assert find in source.read_text()
    source.write_text(source.read_text().replace(find, replace))
    run = check(proofs)
    assert run.returncode == 1 and message in run.stderr, run.stdout + run.stderr


needs_coq = pytest.mark.skipif(
    not shutil.which("coqc") and os.environ.get("ATTNCONV_PROOFS") != "required",
    reason="needs Coq",
)


def with_real_coq(proofs, source, main):
    """Leave one file of proofs, whose theorems are `main`, and the Coq that is installed."""
    for path in proofs.glob("*.v"):
        path.unlink()
    (proofs / "Evasion.v").write_text(f"From mathcomp Require Import boolp.\n{source}\n")
    script = proofs / "check.py"
    text = re.sub(r'MAIN = """.*?"""', f'MAIN = """{main}"""', script.read_text(), flags=re.S)
    script.write_text(text)
    (proofs.parent / "bin" / "coqc").unlink()
    (proofs.parent / "bin" / "coqc").symlink_to(shutil.which("coqc"))
    return script


@needs_coq
@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("Variable propositional_extensionality : False.", "local-declaration"),
        (
            "Context (propositional_extensionality : False).",
            "stolen rests on Evasion.propositional_extensionality, which is not in ALLOWED",
        ),
    ],
)
def test_an_axiom_does_not_pass_under_an_allowed_name(proofs, declaration, message):
    """Even where the script does not read the file itself: Coq's warning is an error, and axioms
    are compared by their qualified names."""
    theorem = "Theorem stolen : False.\nProof. exact propositional_extensionality. Qed."
    script = with_real_coq(proofs, f"{declaration}\n{theorem}", "stolen")
    script.write_text(re.sub(r"SECTIONS = .*", 'SECTIONS = "(no such word)"', script.read_text()))
    run = check(proofs)
    assert run.returncode == 1 and message in run.stderr, run.stdout + run.stderr


@needs_coq
def test_a_theorem_needs_no_more_axioms_than_recorded(proofs):
    """Coq is asked once for all theorems that are recorded alike, so one that needs an axiom shows
    in all of them, and the record is no longer what the files say."""
    source = """Theorem plain : True. Proof. exact I. Qed.
Theorem classical : True = (True /\\ True).
Proof. apply propositional_extensionality; tauto. Qed."""
    recorded = {"plain": {"axioms": []}, "classical": {"axioms": []}}
    with_real_coq(proofs, source, "plain classical")
    (proofs / "statements.json").write_text(json.dumps(recorded))
    (proofs / "goals.py").write_text("def record_goals(sources, ask):\n    return {}\n")
    run = check(proofs)
    assert run.returncode == 1 and "statements.json is not what the files say" in run.stderr
    assert "plain: boolp.propositional_extensionality" in run.stdout
    assert check(proofs, "--write").returncode == 0
    run = check(proofs)
    assert run.returncode == 0 and "plain: no axioms" in run.stdout, run.stdout + run.stderr


def test_without_coq_it_says_that_nothing_was_verified(proofs):
    assert "NOTHING WAS VERIFIED" in check(proofs, with_coq=False).stdout
    run = check(proofs, "--required", with_coq=False)
    assert run.returncode == 1 and "nothing was verified" in run.stderr


def main_theorems():
    main = re.search(r'MAIN = """(.*?)"""', (ROOT / "proofs" / "check.py").read_text(), re.S)
    return set(main[1].split())


def test_the_pages_show_every_theorem_once_as_the_files_state_it():
    page = "\n".join(page.read_text() for page in ROOT.glob("book/proofs*.md"))
    shown = [
        name for line in re.findall(r"\{machine-checked\} (.*)", page) for name in line.split()
    ]
    statements = json.loads((ROOT / "proofs" / "statements.json").read_text())
    assert sorted(shown) == sorted(statements) == sorted(main_theorems())
    for theorem in statements.values():
        assert theorem["statement"] in (ROOT / theorem["file"]).read_text()


def test_what_is_quoted_is_proved():
    quoting = [*ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("src/**/*.py")]
    names = set()
    for path in quoting:
        for line in path.read_text().splitlines():
            if "proofs/" in line:
                names |= set(re.findall(r"`((?:theorem|lemma|eq)_\w+)`", line))
    assert {"theorem_1_gap", "theorem_1_alpha"} <= names <= main_theorems()


def test_the_graph_has_each_theorem_and_its_lines_lead_to_what_each_rests_on():
    statements = json.loads((ROOT / "proofs" / "statements.json").read_text())
    pages = machinechecked.pages()
    drawn = machinechecked.graph(statements, pages)
    svg = ET.fromstring(drawn.replace(" hidden>", ">")).find("svg")
    addresses = [link.get("href").split("#") for link in svg.iter("a")]
    names = [name for _, name in addresses]
    assert [page for page, _ in addresses] == [pages[name] for name in names]
    assert len(set(pages.values())) == 3 and pages["theorem_2"] == "proofs-lemma-3.html"
    assert names == [link.find("text").text for link in svg.iter("a")] == list(statements)
    row = {
        float(link.find("text").get("y")): name
        for link, name in zip(svg.iter("a"), names, strict=True)
    }
    rests = {name: set() for name in names}
    for edge in svg.findall("path"):
        numbers = [float(n) for n in re.findall(r"[\d.]+", edge.get("d"))]
        used = row[numbers[1]]
        user = row[numbers[-1]]
        rests[user] |= {used} | rests[used]
    assert {name: sorted(used) for name, used in rests.items()} == {
        name: theorem["theorems"] for name, theorem in statements.items()
    }
    marks = [
        [float(n) for n in re.findall(r"[\d.]+", edge.get("d"))] for edge in svg.findall("path")
    ]
    for x, y, passes, *_ in marks:  # a line goes by no other mark
        assert not any(
            link.find("circle") is not None
            and float(link.find("circle").get("cx")) == x
            and y < float(link.find("circle").get("cy")) < passes
            for link in svg.iter("a")
        )
    lines = sum(len(used) for used in rests.values())
    assert 20 < len(svg.findall("path")) < lines  # a chain is not drawn twice
    upside_down = dict(reversed(statements.items()))
    with pytest.raises(ValueError, match="theorem_2_one_factor_refuted stands above theorem_2"):
        machinechecked.graph(upside_down, pages)
