"""The report's tables: every claim judged, by tier; and what the runs came to as a whole."""

from collections.abc import Sequence

from ..measures.heads import heads_of, lemma_3_residual
from ..runs.record import RunRecord
from ..runs.select import Records
from ..training.quick import best_run
from .claims import CLAIMS, finding, freed
from .claims.claim import over_runs
from .notes import Note
from .tables import Accuracy, Table
from .tables.freed import TIER

RULE = "rule, fixed before the runs"
ON_HOW_MUCH = "on how much: seeds, epochs, standard deviation of the accuracy, verdicts by seed"


def claims_tables(records: Records) -> tuple[Table, Table]:
    """The experimental claims that have been judged, in the small tier or the paper tier; and,
    folded, those that have not."""
    judged, others = [], []
    for claim in CLAIMS:
        small, paper = (finding(claim, records.at(tier)) for tier in ("small", "paper"))
        if small.is_judged or paper.is_judged:
            row = {
                "claim": claim.text,
                "small tier": small.verdict,
                "paper tier": paper.verdict,
                "found, small tier": small.found,
                "found, paper tier": paper.found if paper.is_judged else "-",
                RULE: claim.rule,
                ON_HOW_MUCH.replace(":", ", small tier:"): small.sure,
                "place": claim.place,
            }
            judged.append(row)
        else:
            row = {
                "claim": claim.text,
                "small tier": f"{small.verdict}: {small.found}".replace(": not run", ""),
                "paper tier": f"{paper.verdict}: {paper.found}".replace(": not run", ""),
                RULE: claim.rule,
                "place": claim.place,
            }
            others.append(row)
    caption = (
        f"{len(judged)} of the {len(CLAIMS)} experimental claims, those that have been judged."
    )
    caption += " Source: the rules in findings/claims over the run records in data/runs."
    first = Table.of("claims", caption, judged, stacked=True)
    folded = f"The other {len(others)} claims, their rules, and which runs are missing"
    caption = "Claims that no run has judged. Source: the rules in findings/claims."
    return first, Table.of("open-claims", caption, others, folded=folded, stacked=True)


def long_run_table(records: Records) -> Table:
    """The claims that need the quadratic model's runs alone: by the short runs, and by the long
    one."""
    rows = []
    for claim in CLAIMS:
        if claim.needs == ("sa-quadratic",) and not claim.not_small:
            short, long = (finding(claim, records.at(tier)) for tier in ("small", "small-long"))
            row = {
                "claim": claim.text,
                "short runs": short.verdict,
                "long run": long.verdict,
                "found, short runs": short.found,
                "found, long run": long.found,
                "on how much, long run": long.sure,
            }
            rows.append(row)
    caption = "Short runs and the long one."
    if records.at("small-long").of("sa-quadratic"):
        apart = sum(row["short runs"] != row["long run"] for row in rows)
        caption += f" They disagree on {apart} of {len(rows)} claims."
    caption += " Source: the run records in data/runs."
    return Table.of("long-run", caption, rows, stacked=True)


def freed_table(records: Records) -> Table:
    """Chapter 15's questions, answered by rules that were written before its runs."""
    rows = []
    for claim in freed.CLAIMS:
        answer = finding(claim, records.at(TIER))
        row = {
            "question": claim.text,
            "answer": answer.verdict,
            "found": answer.found,
            RULE: claim.rule,
            ON_HOW_MUCH: answer.sure,
        }
        rows.append(row)
    caption = "A trained CNN, set free (chapter 15). Source: the rules in findings/claims/freed.py"
    caption += " over the run records in data/runs."
    return Table.of("freed", caption, rows, stacked=True)


def trained_heads(records: Records) -> Note:
    """What the trained quadratic model's layers are, measured against a convolution: one line for
    the first page."""
    runs = records.of("sa-quadratic") or [best_run(records, "sa-quadratic")]
    covered = over_runs(
        [heads.shifts_with_mass(3) for heads in heads_of(record)] for record in runs
    )
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
        row = {
            "device": device,
            "runs": str(len(mine)),
            "epochs": str(sum(info.epochs_done for info in mine)),
            "hours of the runs, several of which may have shared the machine": f"{hours:.2f}",
        }
        rows.append(row)
    caption = "Computing time of the runs on CIFAR-10, without pilots and trials."
    caption += " Source: the run records in data/runs."
    return Table.of("compute", caption, rows or [{"device": "none", "runs": "0", "epochs": "0"}])
