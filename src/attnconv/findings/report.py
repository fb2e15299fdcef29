"""The report's tables: every claim judged, by tier; and what the runs came to as a whole."""

from collections.abc import Sequence

from ..records.heads import heads_of, lemma_3_residual
from ..records.record import RunRecord
from ..records.select import Note, Records
from ..training.quick import best_run
from .claims import CLAIMS, finding, freed
from .claims.claim import over_runs
from .tables import Accuracy, Table
from .tables.freed import TIER


def claims_tables(records: Records) -> tuple[Table, Table]:
    """The experimental claims that have been judged, in the small tier or the paper tier; and,
    folded, those that have not."""
    judged, others = [], []
    for claim in CLAIMS:
        small, paper = (finding(claim, records.at(tier)) for tier in ("small", "paper"))
        if small.is_judged or paper.is_judged:
            cells = [
                claim.text,
                small.verdict,
                paper.verdict,
                small.found,
                paper.found if paper.is_judged else "-",
            ]
            judged.append([*cells, claim.rule, small.sure, claim.place])
        else:
            why = [
                f"{tier.verdict}: {tier.found}".replace(": not run", "") for tier in (small, paper)
            ]
            others.append([claim.text, *why, claim.rule, claim.place])
    header = [
        "claim",
        "small tier",
        "paper tier",
        "found, small tier",
        "found, paper tier",
        "rule, fixed before the runs",
    ]
    header += [
        "on how much, small tier: seeds, epochs, standard deviation of the accuracy",
        "place",
    ]
    caption = (
        f"{len(judged)} of the {len(CLAIMS)} experimental claims, those that have been judged."
    )
    caption += " Source: the rules in findings/claims over the run records in data/runs."
    first = Table("claims", caption, header, judged, stacked=True)
    header = ["claim", "small tier", "paper tier", "rule, fixed before the runs", "place"]
    folded = f"The other {len(others)} claims, their rules, and which runs are missing"
    caption = "Claims that no run has judged. Source: the rules in findings/claims."
    return first, Table("open-claims", caption, header, others, folded, stacked=True)


def long_run_table(records: Records) -> Table:
    """The claims that need the quadratic model's runs alone: by the short runs, and by the long
    one."""
    rows = []
    for claim in CLAIMS:
        if claim.needs == ("sa-quadratic",) and not claim.not_small:
            short, long = (finding(claim, records.at(tier)) for tier in ("small", "small-long"))
            rows.append(
                [claim.text, short.verdict, long.verdict, short.found, long.found, long.sure]
            )
    header = [
        "claim",
        "short runs",
        "long run",
        "found, short runs",
        "found, long run",
        "on how much, long run",
    ]
    caption = "Short runs and the long one. Source: the run records in data/runs."
    return Table("long-run", caption, header, rows, stacked=True)


def freed_table(records: Records) -> Table:
    """Chapter 15's questions, answered by rules that were written before its runs."""
    rows = []
    for claim in freed.CLAIMS:
        answer = finding(claim, records.at(TIER))
        rows.append([claim.text, answer.verdict, answer.found, claim.rule, answer.sure])
    header = ["question", "answer", "found", "rule, fixed before the runs"]
    header += ["on how much: seeds, epochs, standard deviation of the accuracy"]
    caption = "A trained CNN, set free (chapter 15). Source: the rules in findings/claims/freed.py"
    caption += " over the run records in data/runs."
    return Table("freed", caption, header, rows, stacked=True)


def trained_heads(records: Records) -> Note:
    """What the trained quadratic model's layers are, measured against a convolution: one line for
    the first page."""
    runs = records.of("sa-quadratic") or [best_run(records, "sa-quadratic")]
    covered = over_runs([heads.covered(3) for heads in heads_of(record)] for record in runs)
    residuals = over_runs(
        [
            lemma_3_residual(encoding, *record.grid).max().item()
            for encoding in record.history.encodings()
        ]
        for record in runs
    )
    close = sum(residual < 0.1 for residual in residuals)
    counts = ", ".join(f"{count:.3g}" for count in covered)
    return Note.of(
        f"Found here, in the quadratic model of the {runs[0].tier} tier"
        f" ({Accuracy.of(runs).conditions}): of the nine shifts of a 3 × 3 kernel, {counts} have a"
        " head with at least half of its mass there, layer by layer, on average over the seeds."
        " The residual of Lemma 3 at interior queries, 0 for a layer that can be every such"
        " convolution and up to about 1"
        f" where it misses a shift, is {min(residuals):.2f} to {max(residuals):.2f} by layer:"
        f" {close or 'none'} of the {len(residuals)} layers came near to being every 3 × 3"
        " convolution."
    )


def compute_table(runs: Sequence[RunRecord]) -> Table:
    """The computing time of the records, by machine."""
    rows = []
    for device in sorted({record.info.hardware["device"] for record in runs}):
        mine = [record.info for record in runs if record.info.hardware["device"] == device]
        hours = sum(info.wall_seconds * info.hardware["processes"] for info in mine) / 3600
        rows.append(
            [device, str(len(mine)), str(sum(info.epochs_done for info in mine)), f"{hours:.2f}"]
        )
    header = [
        "device",
        "runs",
        "epochs",
        "hours of the runs, several of which may have shared the machine",
    ]
    rows = rows or [["none", "0", "0", "0.00"]]
    return Table(
        "compute",
        "Computing time of the runs on CIFAR-10, without pilots and trials. Source: the run records"
        " in data/runs.",
        header,
        rows,
    )
