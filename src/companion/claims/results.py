"""The tables and notes of the Results page: verdicts on the paper's claims, and trained heads."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from ..accuracy import Accuracy
from ..display import Cell, Link, Note, Table
from ..heads import heads_of
from ..runs.record import RunRecord
from ..runs.select import Records
from ..studies.freed.measures import lemma_3_residual_by_layer
from ..studies.scaling.measures import SETTINGS
from ..training.quick import best_run
from .claim import NOT_RUN, Claim, Verdict
from .paper import CLAIMS
from .rules import listed, over_runs

#: The tiers from which the claims about the quadratic model are judged, with their labels.
VARIANTS = {"small": "20 epochs"} | {t: SETTINGS[t] for t in ("small-long", "small-tokens")}


def claims_tables(records: Records) -> tuple[Table, Table]:
    """Return a table of the claims judged in either tier, and a folded table of the others."""
    judged = []
    others = []
    for claim in CLAIMS:
        small, paper = claim.judge(records)
        if small.is_judged or paper.is_judged:
            judged.append(_judged_row(claim, small, paper, records))
        else:
            others.append(_open_row(claim, small, paper, records))
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


def _judged_row(claim: Claim, small: Verdict, paper: Verdict, records: Records) -> dict[str, Cell]:
    results = [each.measured for each in (small, paper) if each.is_judged]
    return {
        "claim": claim.text,
        "small tier": small.verdict,
        "paper tier": paper.verdict,
        "result (small tier; paper tier)": "; ".join(results),
        "rule (and commit)": f"{claim.rule} ({claim.fixed})",
        "figure or table, and runs": _evidence(claim, records),
        "sample, and verdict by seed": small.sample or "-",
        "name": claim.name,
        "section of the paper": claim.place,
    }


def _open_row(claim: Claim, small: Verdict, paper: Verdict, records: Records) -> dict[str, Cell]:
    return {
        "claim": claim.text,
        "small tier": _why_not(small),
        "paper tier": _why_not(paper),
        "missing runs": "; ".join(_missing(claim, records)),
        "rule (and commit)": f"{claim.rule} ({claim.fixed})",
        "name": claim.name,
        "section of the paper": claim.place,
    }


def _evidence(claim: Claim, records: Records) -> tuple[Link, ...]:
    """Return links to the evidence for a claim and to the commands that repeat its runs."""
    chapter, _, anchor = claim.shown.partition("#")
    kind, _, number = anchor.partition("-")
    shown = f"Figure {number}" if kind == "fig" and number.isdigit() else f"chapter {chapter[:2]}"
    chapter_link = Link(shown, f"../notebooks/{chapter}.html#{anchor}")
    return chapter_link, *run_links(claim, records)


def run_links(claim: Claim, records: Records) -> Iterator[Link]:
    """Yield links to the commands that repeat the runs behind a claim."""
    for run in chain(*(records.at(tier).of(*claim.models) for tier in claim.where)):
        name = f"{run.info.parameters['model']} {run.info.parameters['seed']}"
        yield Link(name, f"../book/records.html#run-{run.name}")


def _missing(claim: Claim, records: Records) -> list[str]:
    """Return the commands for the missing runs that a claim needs."""
    at_tiers = [
        (model, records.at(tier))
        for model, tier in claim.runs
        if tier == "paper" or not claim.not_small
    ]
    return [at_tier.command(model) for model, at_tier in at_tiers if not at_tier.of(model)]


def tally(records: Records, tier: str = "small") -> Counter[str]:
    """Count the paper's claims by their verdict in a tier."""
    return Counter(claim.judge_in(tier, records).verdict for claim in CLAIMS)


def _why_not(unjudged: Verdict) -> str:
    # a model that has simply not been run is named once
    return f"{unjudged.verdict}: {unjudged.measured}".replace(f": {NOT_RUN}", "")


def variants_table(records: Records) -> Table:
    """Return a table of the claims about the quadratic model alone, judged from each variant."""
    rows = []
    for claim in CLAIMS:
        if claim.models == ("sa-quadratic",) and not claim.not_small:
            found = {name: claim.judge_in(tier, records) for tier, name in VARIANTS.items()}
            row = {"claim": claim.text} | {name: each.verdict for name, each in found.items()}
            row |= {f"result, {name}": each.measured for name, each in found.items()}
            row |= {f"sample, {name}": each.sample or "-" for name, each in found.items()}
            rows.append(row)
    caption = (
        "Verdicts on the claims about the quadratic model, from the small tier (8 × 8 tokens, 20"
        " epochs) and from runs that differ from it in one respect. Source: the run records in"
        " data/runs."
    )
    folded = "The claims about the quadratic model, judged from each variant of the small tier"
    return Table.of("variants", caption, rows, folded=folded, stacked=True)


def judge_from(records: Records, tier: str, begins: str) -> Verdict:
    """Judge the claim whose text starts with `begins` from the runs of a tier."""
    (claim,) = (claim for claim in CLAIMS if claim.text.startswith(begins))
    return claim.judge_in(tier, records)


def answer(records: Records, tier: str, begins: str) -> str:
    """Return a tier's result and verdict for the claim whose text starts with `begins`."""
    found = judge_from(records, tier, begins)
    return f"{found.measured} ({found.verdict})"


def kernel_positions(runs: Sequence[RunRecord]) -> list[float]:
    """Return how many positions of a 3 x 3 kernel each layer covers, averaged over runs.

    A position is covered if a head puts at least half of its attention there.
    """
    return over_runs([heads.offsets_with_mass(3) for heads in heads_of(run)] for run in runs)


def trained_heads(records: Records) -> Note:
    """Return a note on how close the trained quadratic model comes to a convolution."""
    runs = records.of("sa-quadratic") or [best_run(records, "sa-quadratic")]
    largest = over_runs(lemma_3_residual_by_layer(record) for record in runs)
    close = sum(residual < 0.1 for residual in largest)
    covered = listed(kernel_positions(runs), 2)
    ends = f"{min(largest):.2f} to {max(largest):.2f}"
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
