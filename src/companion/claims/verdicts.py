"""The verdicts on all claims, and the results in the README."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..accuracy import Accuracy
from ..display import Link, Note, Table, png_of
from ..figures import claim as draw_claim
from ..heads import heads_of
from ..runs.record import RunRecord
from ..runs.select import Records
from ..specs import TABLE_4
from ..store import REPOSITORY, write_file
from ..studies.freed import claims as moving_heads
from ..studies.freed.figures import TIER
from ..studies.freed.measures import lemma_3_residual_by_layer
from ..studies.scaling.measures import SETTINGS
from ..tables import summary
from ..training.quick import best_run
from .paper import CLAIMS
from .rules import Claim, Finding, finding, listed, over_runs

RULE = "rule (and commit)"
NAME = "name"
SAMPLE = "sample, and verdict by seed"
#: The tiers from which the claims about the quadratic model are judged, by tier.
VARIANTS = {"small": "20 epochs"} | {t: SETTINGS[t] for t in ("small-long", "small-tokens")}


def claims_tables(records: Records) -> tuple[Table, Table]:
    """Return a table of the claims judged in either tier, and a folded table of the others."""
    judged, others = [], []
    for claim in CLAIMS:
        small, paper = (finding(claim, records.at(tier)) for tier in ("small", "paper"))
        if results := [each.found for each in (small, paper) if each.is_judged]:
            row = {
                "claim": claim.text,
                "small tier": small.verdict,
                "paper tier": paper.verdict,
                "result (small tier; paper tier)": "; ".join(results),
                RULE: f"{claim.rule} ({claim.fixed})",
                "figure or table, and runs": _evidence(claim, records),
                SAMPLE: small.sure,
                NAME: claim.name,
                "section of the paper": claim.place,
            }
            judged.append(row)
        else:
            row = {
                "claim": claim.text,
                "small tier": _why_not(small),
                "paper tier": _why_not(paper),
                "missing runs": "; ".join(_missing(claim, records)),
                RULE: f"{claim.rule} ({claim.fixed})",
                NAME: claim.name,
                "section of the paper": claim.place,
            }
            others.append(row)
    source = "Source: the rules in companion/claims/paper.py"
    caption = (
        f"Verdicts on {len(judged)} of the {len(CLAIMS)} experimental claims, judged by rules from"
        f" the runs of each tier. The samples are those of the small tier, with the accuracy's"
        f" standard deviation (±). {source} and the run records in data/runs."
    )
    folds = {"shown": 4, "more": "rule, runs and sample"}
    first = Table.of("claims", caption, judged, stacked=True, **folds)
    folded = f"The other {len(others)} claims, their rules and the missing runs"
    caption = f"Claims that cannot be judged yet because runs are missing. {source}."
    return first, Table.of("open-claims", caption, others, folded=folded, stacked=True)


def _evidence(claim: Claim, records: Records) -> tuple[Link, ...]:
    """Return links to the evidence for a claim and to the commands that repeat its runs."""
    chapter, _, anchor = claim.shown.partition("#")
    kind, _, number = anchor.partition("-")
    shown = f"Figure {number}" if kind == "fig" and number.isdigit() else f"chapter {chapter[:2]}"
    chapter_link = Link(shown, f"../notebooks/{chapter}.html#{anchor}")
    return chapter_link, *_runs(claim, records, "small"), *_runs(claim, records, "paper")


def _runs(claim: Claim, records: Records, tier: str) -> Iterator[Link]:
    """Yield links to the commands that repeat the runs behind a claim."""
    for run in records.at(tier).of(*claim.needs):
        name = f"{run.info.parameters['model']} {run.info.parameters['seed']}"
        yield Link(name, f"../book/records.html#run-{run.name}")


def _missing(claim: Claim, records: Records) -> list[str]:
    """Return the commands for the missing runs that a claim needs in each tier."""
    tiers = [records.at(tier) for tier in (("paper",) if claim.not_small else ("small", "paper"))]
    return [at.command(model) for at in tiers for model in claim.needs if not at.of(model)]


def tally(records: Records, tier: str = "small") -> Counter[str]:
    """Count the paper's claims by their verdict in a tier."""
    return Counter(finding(claim, records.at(tier)).verdict for claim in CLAIMS)


def _why_not(unjudged: Finding) -> str:
    return f"{unjudged.verdict}: {unjudged.found}".replace(": not run", "")


def variants_table(records: Records) -> Table:
    """Return a table of the claims about the quadratic model alone, judged from each variant."""
    rows = []
    for claim in CLAIMS:
        if claim.needs == ("sa-quadratic",) and not claim.not_small:
            found = {name: finding(claim, records.at(tier)) for tier, name in VARIANTS.items()}
            row = {"claim": claim.text} | {name: each.verdict for name, each in found.items()}
            row |= {f"result, {name}": each.found for name, each in found.items()}
            rows.append(row | {f"sample, {name}": each.sure for name, each in found.items()})
    caption = (
        "Verdicts on the claims about the quadratic model, from the small tier (8 × 8 tokens, 20"
        " epochs) and from runs that differ from it in one respect. Source: the run records in"
        " data/runs."
    )
    folded = "The claims about the quadratic model, judged from each variant of the small tier"
    return Table.of("variants", caption, rows, folded=folded, stacked=True)


def judge_from(records: Records, tier: str, begins: str) -> Finding:
    """Judge the claim whose text starts with `begins` from the runs of a tier."""
    (claim,) = (claim for claim in CLAIMS if claim.text.startswith(begins))
    return finding(claim, records.at(tier))


def answer(records: Records, tier: str, begins: str) -> str:
    """Return a tier's result and verdict for the claim whose text starts with `begins`."""
    result = judge_from(records, tier, begins)
    return f"{result.found} ({result.verdict})"


def freed_table(records: Records) -> Table:
    """Return a table that answers chapter 15's questions by rules written before its runs."""
    rows = []
    for claim in moving_heads.CLAIMS:
        answer = finding(claim, records.at(TIER))
        row = {
            "question": claim.text,
            "answer": answer.verdict,
            "result": answer.found,
            "runs": tuple(_runs(claim, records, TIER)),
            RULE: f"{claim.rule} ({claim.fixed})",
            SAMPLE: answer.sure,
            NAME: claim.name,
        }
        rows.append(row)
    caption = (
        "How freed heads move, and what this does to accuracy (chapter 15). Source: the rules in"
        " companion/studies/freed/claims.py and the run records in data/runs."
    )
    folded = f"All {len(rows)} questions, with answers, results, rules and samples"
    return Table.of("freed", caption, rows, folded=folded, stacked=True)


def kernel_positions(runs: Sequence[RunRecord]) -> list[float]:
    """Return how many positions of a 3 x 3 kernel each layer covers, averaged over runs.

    A position is covered if a head puts at least half of its attention there.
    """
    return over_runs([heads.shifts_with_mass(3) for heads in heads_of(run)] for run in runs)


def trained_heads(records: Records) -> Note:
    """Return a note on how close the trained quadratic model comes to a convolution."""
    runs = records.of("sa-quadratic") or [best_run(records, "sa-quadratic")]
    largest = over_runs(lemma_3_residual_by_layer(record) for record in runs)
    close = sum(residual < 0.1 for residual in largest)
    covered, ends = listed(kernel_positions(runs), 2), f"{min(largest):.2f} to {max(largest):.2f}"
    return Note.of(
        f"In the quadratic model of the {runs[0].tier} tier ({Accuracy.of(runs).conditions}),"
        f" layers 1 to {len(largest)} cover {covered} of the nine positions of a 3 × 3 kernel,"
        " averaged over seeds. A position is covered if a head puts at least half of its attention"
        f" there. {close or 'None'} of the {len(largest)} layers can approximately express every"
        f" 3 × 3 convolution: the residuals of Lemma 3 range from {ends}. The residual is 0 for a"
        " layer that can express all of them and about 1 for one whose heads, even combined, do not"
        " come close to some position."
    )


def compute_table(runs: Sequence[RunRecord]) -> Table:
    """Return a table of the computing time of the given runs, by device."""
    rows = []
    for device in sorted({record.info.hardware["device"] for record in runs}):
        mine = [record.info for record in runs if record.info.hardware["device"] == device]
        hours = sum(info.wall_seconds * info.hardware["processes"] for info in mine) / 3600
        row = {
            "device": device,
            "runs": str(len(mine)),
            "epochs": str(sum(info.epochs_done for info in mine)),
            "hours": f"{hours:.2f}",
        }
        rows.append(row)
    caption = (
        "Computing time of the runs on CIFAR-10, excluding pilots and trials. Several runs may have"
        " shared the machine. Source: the run records in data/runs."
    )
    rows = rows or [{"device": "none", "runs": "0", "epochs": "0"}]
    return Table.of("compute", caption, rows, folded="Computing time, by device")


README, PICTURE = REPOSITORY / "README.md", REPOSITORY / "book" / "claim.png"
MARKS = "<!-- results: written by `python -m attnconv readme` -->", "<!-- end of results -->"

README_CAPTION = (
    "Test accuracy on CIFAR-10 after the last epoch (mean ± standard deviation over n seeds) and as"
    " published (one seed). The small tier has narrower networks, coarser tokens and another"
    " recipe; compare its accuracies only with each other."
)


def readme_part(records: Records) -> str:
    """Return the results part of the README, including the two `MARKS` that enclose it."""
    table, state = summary(records), README_CAPTION
    for tier in ("small", "paper"):
        mine = records.at(tier)
        count = sum(bool(mine.of(model)) for model in TABLE_4)
        state += f" {mine.name}: {count} of {len(TABLE_4)} models run."
    # only these columns, so that the README fits on two screens
    shown = ("model", "published", "paper tier", "small tier")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    short = Table.of("readme", state, [{name: row[name] for name in shown} for row in rows])
    return f"{MARKS[0]}\n\n{short.markdown()}\n{MARKS[1]}"


def update_readme(records: Records, path: Path | None = None) -> bool:
    """Rewrite the results in the README and return whether they changed.

    Raises ValueError if the README lacks the markers that enclose the results.
    """
    path = path or README
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(
            f"{path} lacks the marks {MARKS[0]} and {MARKS[1]} between which its table is written;"
            " restore it from git"
        )
    new = pattern.sub(lambda match: readme_part(records), text)
    if new != text:
        write_file(path, new.encode())
    return new != text


def update_picture(path: Path | None = None) -> None:
    """Redraw the README's picture, which illustrates Theorem 1 with a photograph."""
    write_file(path or PICTURE, png_of(draw_claim()))
