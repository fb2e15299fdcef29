"""The paper's experimental claims as rules over run records, written before the runs: what was found, how sure, and a verdict.

A rule takes the runs of each model it needs, `{name: [RunRecord, ...]}`, and answers with what it found and a verdict:
`reproduced`, `partly`, `differs`, `exceeded` or `undecided`. Without those runs the verdict is `not run`, whatever else is known.
"""

import io
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .data import REPOSITORY
from .heads import Heads, heads_of, lemma_3_residual
from .maps import single_maps
from .pages import Note, Records
from .published import TABLE_4
from .runs import RunRecord
from .store import write_file
from .tables import Accuracy, Table, cost_in_table, summary

Runs = Mapping[str, Sequence[RunRecord]]
ABSOLUTE = "an accuracy of the paper's network"  # which a smaller one, trained for less, cannot have
SIZE = "a size of the paper's networks, which needs no run"
TOLERANCE = 0.005  # of accuracies: half a percentage point


@dataclass(frozen=True)
class Claim:
    """One claim: where the paper makes it, its words in short, the rule in words, the models it needs, and the rule.

    `not_small`: why the rule cannot be asked of small networks; "" if it can.
    """

    place: str
    text: str
    rule: str
    needs: tuple[str, ...]
    judge: Callable[[Runs], tuple[str, str]]
    not_small: str = ""


def _accuracy(runs: Sequence[RunRecord]) -> float:
    return Accuracy.of(runs).last


def _minus(ours: float, other: float) -> float:
    """A difference of accuracies, which are multiples of 1e-4: free of rounding, so that 0.943 is within 0.005 of 0.938."""
    return round(ours - other, 6)


def _grade(share: float, enough: float, some: float) -> str:
    return "reproduced" if share >= enough else "partly" if share >= some else "differs"


# --- accuracy -------------------------------------------------------------------------------------------------------


def published_accuracy(model: str) -> Claim:
    published = TABLE_4[model].accuracy

    def judge(runs: Runs) -> tuple[str, str]:
        difference = _minus(_accuracy(runs[model]), published)
        verdict = "reproduced" if abs(difference) <= TOLERANCE else "exceeded" if difference > 0 else "differs"
        return f"{Accuracy.of(runs[model])}, {difference:+.4f} from the published {published:.3f}", verdict

    rule = f"within {TOLERANCE} of the published accuracy, after the last epoch, mean over the seeds"
    return Claim("Table 4", f"{TABLE_4[model].label}: accuracy {published:.3f}", rule, (model,), judge, ABSOLUTE)


def _as_accurate(runs: Runs) -> tuple[str, str]:
    difference = _minus(_accuracy(runs["sa-quadratic"]), _accuracy(runs["resnet18"]))
    return f"quadratic minus ResNet18: {difference:+.4f}", "reproduced" if difference >= -TOLERANCE else "differs"


def _no_gain(runs: Runs) -> tuple[str, str]:
    difference = _minus(_accuracy(runs["sa-generalized"]), _accuracy(runs["sa-quadratic"]))
    return f"generalised minus quadratic: {difference:+.4f}", "reproduced" if difference <= TOLERANCE else "differs"


def _pruning_hurts(runs: Runs) -> tuple[str, str]:
    parents = [record.info.parent for record in runs["sa-generalized-pruned"]]
    before, after = (_mean([parent[name] for parent in parents]) for name in ("test_accuracy", "test_accuracy_after_pruning"))
    return f"before {before:.4f}, just after pruning {after:.4f}", "reproduced" if after < before else "differs"


def _pruning_recovers(runs: Runs) -> tuple[str, str]:
    change = _minus(
        _accuracy(runs["sa-generalized-pruned"]),
        _mean([record.info.parent["test_accuracy"] for record in runs["sa-generalized-pruned"]]),
    )
    return f"at the end {change:+.4f} from before pruning", "reproduced" if change >= -TOLERANCE else "differs"


def _not_below_learned(runs: Runs) -> tuple[str, str]:
    difference = _minus(_accuracy(runs["sa-quadratic"]), _accuracy(runs["sa-learned"]))
    return f"quadratic minus learned: {difference:+.4f}", "reproduced" if difference >= -TOLERANCE else "differs"


def _content_is_harder(runs: Runs) -> tuple[str, str]:
    difference = _minus(_accuracy(runs["sa-learned-content"]), _accuracy(runs["sa-learned"]))
    return f"with content minus without: {difference:+.4f}", "reproduced" if difference < -TOLERANCE else "differs"


def _converges_faster(runs: Runs, level: float = 0.9) -> tuple[str, str]:
    reached = {}
    for model, records in runs.items():
        first = [next((e["epoch"] for e in record.metrics if e["test_accuracy"] >= level), math.inf) for record in records]
        reached[model] = _mean(first)  # never, as soon as one seed never does
    words = {model: f"in epoch {epoch:.0f}" if epoch < math.inf else "never" for model, epoch in reached.items()}
    found = ", ".join(f"{TABLE_4[model].label} reaches {level} {when}" for model, when in words.items())
    if min(reached.values()) == math.inf:
        return found, "undecided"
    return found, "reproduced" if reached["resnet18"] < reached["sa-quadratic"] else "differs"


# --- what the heads do ----------------------------------------------------------------------------------------------


def _by_layer(runs: Runs, model: str, measure: Callable[[Heads], float], moment: int = -1) -> list[float]:
    """A measure of each layer, averaged over the runs."""
    by_run = [[measure(heads) for heads in heads_of(record, moment)] for record in runs[model]]
    return [_mean(layer) for layer in zip(*by_run, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _on_one_pixel(heads: Heads) -> int:
    return int((heads.mass >= 0.5).sum())


def _grid_in_layer_4(runs: Runs) -> tuple[str, str]:
    def on_the_grid(heads: Heads) -> float:
        near = heads.shifts.abs().amax(dim=1) <= 3
        return ((heads.mass >= 0.5) & heads.alone & near).double().mean().item()

    share = _by_layer(runs, "sa-quadratic", on_the_grid)[3]
    return f"in layer 4, {share:.0%} of the heads do", _grade(share, 7 / 9, 4 / 9)


def _deeper_is_further(runs: Runs) -> tuple[str, str]:
    start, end = (_by_layer(runs, "sa-quadratic", lambda heads: heads.distance.mean().item(), moment) for moment in (0, -1))
    further = [now > max(*end[:2], then) for now, then in zip(end[2:], start[2:], strict=True)]
    return f"mean distance looked, by layer: {_listed(end)} pixels; at the start {_listed(start)}", _grade(
        _mean(further), 1.0, 0.5
    )


def _no_overlap(runs: Runs) -> tuple[str, str]:
    start, end = (
        _mean(_by_layer(runs, "sa-quadratic-16", lambda heads: heads.alone.double().mean().item(), moment)) for moment in (0, -1)
    )
    verdict = _grade(end, 0.9, 0.6) if end > start else "differs"
    return (
        f"{end:.0%} of the heads, averaged over the layers, have a best shift that no other has; at the start {start:.0%}",
        verdict,
    )


def _single_pixels(runs: Runs) -> tuple[str, str]:
    counts = _by_layer(runs, "sa-learned", _on_one_pixel)
    met = (counts[0] >= 3) + (counts[1] >= 3) + (1 <= counts[2] < min(counts[:2]))
    found = f"heads with a mean probability of at least 0.5 at one shift, by layer: {_listed(counts)}"
    return found, _grade(met / 3, 1.0, 1 / 3)


def mirrored(heads: Heads) -> Tensor:
    """How much each map, less its mean, equals its mirror image about the query's column, `(N_h,)`: the cosine of the two."""
    column = heads.query[1]
    reach = min(column, heads.maps.shape[2] - 1 - column)
    maps = heads.maps[:, :, column - reach : column + reach + 1]
    maps = maps - maps.mean(dim=(1, 2), keepdim=True)
    return torch.cosine_similarity(maps.flatten(1), maps.flip(2).flatten(1))


def _symmetric_patterns(runs: Runs) -> tuple[str, str]:
    def wide_and_mirrored(heads: Heads) -> int:
        return int(((heads.mass < 0.5) & (mirrored(heads) >= 0.9)).sum())

    start, end = (sum(_by_layer(runs, "sa-learned", wide_and_mirrored, moment)) for moment in (0, -1))
    return f"{end:.1f} heads of all layers; at the start {start:.1f}", _grade(end - start, 3, 2)


def _constant_shift(runs: Runs) -> tuple[str, str]:
    counts = _by_layer(runs, "sa-learned-content", _on_one_pixel)
    found = f"heads with a mean probability of at least 0.5 at one shift, over images and queries, by layer: {_listed(counts)}"
    return found, _grade((counts[1] >= 1) + (counts[2] >= 1), 2, 1)


def _content_is_used(runs: Runs) -> tuple[str, str]:
    counts = []
    for record in runs["sa-learned-content"]:
        maps = single_maps(record.attention, "image").double()  # (images, L, N_h, Q, H, W)
        apart = (maps - maps.mean(dim=0)).abs().sum(dim=(-2, -1)).mean(dim=(0, 3)) / 2  # total variation, (L, N_h)
        counts.append(int((apart >= 0.3).sum()))
    return f"{_mean(counts):.1f} heads move at least 0.3 of their mass from image to image", _grade(_mean(counts), 3, 1)


def _non_isotropic(runs: Runs) -> tuple[str, str]:
    by_run = []
    for record in runs["sa-generalized"]:
        values = [torch.linalg.svdvals(encoding.root.double()) for encoding in record.encodings()]
        by_run.append([(value[:, 0] / value[:, 1].clamp(min=1e-9)).median().item() for value in values])
    ratios = [_mean(layer) for layer in zip(*by_run, strict=True)]
    there, above = max(ratios) >= 2, _mean(ratios[3:]) > _mean(ratios[:3])
    return f"median ratio of a head's axes, by layer: {_listed(ratios)}", _grade(there * (1 + above), 2, 1)


def _local_heads_first(runs: Runs) -> tuple[str, str]:
    counts = _by_layer(runs, "sa-quadratic-16", _on_one_pixel)
    found = f"heads with a mean probability of at least 0.5 at one shift, by layer: {_listed(counts)}"
    return found, "reproduced" if sum(counts[:3]) > sum(counts[3:]) else "differs"


# --- size and cost, which need no run -------------------------------------------------------------------------------


def as_printed(number: float, like: str) -> str:
    """A number rounded as `like` is printed: 12,086,844 like "12.1M" is "12.1M"."""
    unit = {"M": 1e6, "B": 1e9}[like[-1]]
    digits = len(like[:-1].partition(".")[2])
    return f"{number / unit:.{digits}f}{like[-1]}"


def _sizes(runs: Runs) -> tuple[str, str]:
    cells = []
    for model, row in TABLE_4.items():
        if row.parameters:
            cost = cost_in_table(model)
            cells += [as_printed(cost.parameters, row.parameters) == row.parameters]
            cells += [as_printed(cost.flops_paper, row.flops) == row.flops]
    return f"{sum(cells)} of {len(cells)} printed numbers are ours, rounded alike", _grade(sum(cells) / len(cells), 1.0, 0.5)


def _by_a_fourth(runs: Runs) -> tuple[str, str]:
    before, after = cost_in_table("sa-generalized"), cost_in_table("sa-generalized-pruned")
    saved = [1 - after.parameters / before.parameters, 1 - after.flops_paper / before.flops_paper]
    found = f"{saved[0]:.1%} of the parameters, {saved[1]:.1%} of the FLOPs as published, for the paper's own heads"
    return found, "reproduced" if min(saved) >= 0.225 else "differs"


# In the paper's order.
CLAIMS = (
    *(published_accuracy(model) for model, row in TABLE_4.items() if row.accuracy),
    Claim("Table 4", "parameters and FLOPs of the six models", "rounded as printed they are equal", (), _sizes, SIZE),
    Claim(
        "4.1, Figure 2",
        "ResNet18 is faster to converge",
        "it reaches accuracy 0.9 in an earlier epoch than the quadratic model",
        ("resnet18", "sa-quadratic"),
        _converges_faster,
    ),
    Claim(
        "4.1, Table 1",
        "self-attention with the quadratic encoding is as accurate as ResNet18",
        f"not more than {TOLERANCE} below it",
        ("resnet18", "sa-quadratic"),
        _as_accurate,
    ),
    Claim(
        "Section 3",
        "the quadratic encoding performs similarly to the learned one, or better",
        f"not more than {TOLERANCE} below it",
        ("sa-quadratic", "sa-learned"),
        _not_below_learned,
    ),
    Claim(
        "4.1",
        "with content, attention is harder to train",
        f"more than {TOLERANCE} below the learned encoding without content",
        ("sa-learned", "sa-learned-content"),
        _content_is_harder,
    ),
    Claim(
        "4.2, Figure 3",
        "the heads of layer 4 attend to single pixels that form a grid around the query",
        "at least 7 of 9 heads put half of their mass on one shift of up to 3 pixels that no other head has (partly: 4)",
        ("sa-quadratic",),
        _grid_in_layer_4,
    ),
    Claim(
        "4.2, Figure 4",
        "layers 1 and 2 are local, layers 3 to 6 also look further",
        "each of layers 3 to 6 looks further, averaged over its heads, than layers 1 and 2 and than at the start (partly: half)",
        ("sa-quadratic",),
        _deeper_is_further,
    ),
    Claim(
        "4.2, Figure 14",
        "16 heads do not overlap",
        "on average over the layers 90 % of the heads, and more than at the start, have a best shift of their own (partly: 60 %)",
        ("sa-quadratic-16",),
        _no_overlap,
    ),
    Claim(
        "4.3, Figure 5",
        "with a learned encoding some heads of layers 1 and 2, and fewer of layer 3, attend to single pixels",
        "at least 3, 3 and 1 heads, fewest in layer 3, put half of their mass on one shift (partly: one of these)",
        ("sa-learned",),
        _single_pixels,
    ),
    Claim(
        "4.3, Figure 5",
        "other heads attend to horizontally symmetric, not localised patterns",
        "3 heads more than at the start put less than half on one shift and are mirrored, cosine 0.9 less the mean (partly: 2)",
        ("sa-learned",),
        _symmetric_patterns,
    ),
    Claim(
        "4.3, Figures 6, 7",
        "with content, some heads of layers 2 and 3 attend to one shift whatever image and query",
        "in both layers a head gives one shift a mean probability of 0.5 (partly: in one)",
        ("sa-learned-content",),
        _constant_shift,
    ),
    Claim(
        "4.3, Figures 8 to 10",
        "other heads use the content",
        "at least 3 heads move 0.3 of their mass between single images, total variation from their mean map (partly: 1)",
        ("sa-learned-content",),
        _content_is_used,
    ),
    Claim(
        "Appendix E, Figure 12",
        "heads of the generalised encoding become non-isotropic, especially in high layers",
        "a layer's median ratio of axes reaches 2, and layers 4 to 6 exceed layers 1 to 3 (partly: the first alone)",
        ("sa-generalized",),
        _non_isotropic,
    ),
    Claim(
        "Appendix E",
        "non-isotropic heads bring no improvement",
        f"not more than {TOLERANCE} above the quadratic model",
        ("sa-quadratic", "sa-generalized"),
        _no_gain,
    ),
    Claim(
        "Appendix E",
        "pruning initially hurts",
        "the accuracy just after it is lower than before",
        ("sa-generalized-pruned",),
        _pruning_hurts,
    ),
    Claim(
        "Appendix E, Figure 13",
        "the pruned model recovers the accuracy of the unpruned one",
        f"not more than {TOLERANCE} below its parent",
        ("sa-generalized-pruned",),
        _pruning_recovers,
    ),
    Claim("Appendix E", "pruning reduces size and cost by a fourth", "by 22.5 % or more", (), _by_a_fourth, SIZE),
    Claim(
        "Appendix F, Figure 14",
        "with 16 heads, local ones are more frequent in the first layers",
        "more heads with half of their mass on one shift in layers 1 to 3 than in 4 to 6",
        ("sa-quadratic-16",),
        _local_heads_first,
    ),
)


@dataclass(frozen=True)
class Finding:
    """What a claim came to in one tier: what was found, on how much, and the verdict."""

    found: str
    sure: str
    verdict: str

    @property
    def is_judged(self) -> bool:
        return self.verdict not in ("not run", "not asked")


def finding(claim: Claim, records: Records) -> Finding:
    """Judge a claim by one tier's records."""
    if records.tier != "paper" and claim.not_small:
        return Finding(claim.not_small, "-", "not asked")
    runs = {model: records.of(model) for model in claim.needs}
    if missing := [model for model in claim.needs if not runs[model]]:
        return Finding("; ".join(f"{model}: {records.state(model)}" for model in missing), "-", "not run")
    found, verdict = claim.judge(runs)
    return Finding(found, "; ".join(f"{model}: {_how_sure(used)}" for model, used in runs.items()) or "exact", verdict)


def _how_sure(runs: Sequence[RunRecord]) -> str:
    accuracy = Accuracy.of(runs)
    return accuracy.conditions + (f", ± {accuracy.spread:.4f}" if accuracy.spread is not None else "")


def claims_tables(records: Records) -> tuple[Table, Table]:
    """The experimental claims that have been judged, in the small tier or the paper tier; and, folded, those that have not."""
    judged, others = [], []
    for claim in CLAIMS:
        small, paper = (finding(claim, records.at(tier)) for tier in ("small", "paper"))
        if small.is_judged or paper.is_judged:
            cells = [claim.text, small.verdict, paper.verdict, small.found, paper.found if paper.is_judged else "-"]
            judged.append([*cells, claim.rule, small.sure, claim.place])
        else:
            why = [f"{tier.verdict}: {tier.found}".replace(": not run", "") for tier in (small, paper)]
            others.append([claim.text, *why, claim.rule, claim.place])
    header = ["claim", "small tier", "paper tier", "found, small tier", "found, paper tier", "rule, fixed before the runs"]
    header += ["on how much, small tier: seeds, epochs, standard deviation of the accuracy", "place"]
    caption = f"{len(judged)} of the {len(CLAIMS)} experimental claims, those that have been judged."
    caption += " Source: the rules of report.py over the run records in data/runs."
    first = Table("claims", caption, header, judged, stacked=True)
    header = ["claim", "small tier", "paper tier", "rule, fixed before the runs", "place"]
    folded = f"The other {len(others)} claims, their rules, and which runs are missing"
    caption = "Claims that no run has judged. Source: the rules of report.py."
    return first, Table("open-claims", caption, header, others, folded, stacked=True)


def long_run_table(records: Records) -> Table:
    """The claims that need the quadratic model's runs alone: by the short runs, and by the long one."""
    rows = []
    for claim in CLAIMS:
        if claim.needs == ("sa-quadratic",) and not claim.not_small:
            short, long = (finding(claim, records.at(tier)) for tier in ("small", "small-long"))
            rows.append([claim.text, short.verdict, long.verdict, short.found, long.found, long.sure])
    header = ["claim", "short runs", "long run", "found, short runs", "found, long run", "on how much, long run"]
    caption = "Short runs and the long one. Source: the run records in data/runs."
    return Table("long-run", caption, header, rows, stacked=True)


def trained_heads(records: Records) -> Note:
    """What the trained quadratic model's layers are, measured against a convolution: one line for the first page."""
    runs = records.of("sa-quadratic") or [records.run("sa-quadratic")]
    layers = list(zip(*(heads_of(record) for record in runs), strict=True))
    covered = [_mean([heads.covered(3) for heads in layer]) for layer in layers]
    by_run = [[lemma_3_residual(encoding, *record.grid).max().item() for encoding in record.encodings()] for record in runs]
    residuals = [_mean(layer) for layer in zip(*by_run, strict=True)]
    close = sum(residual < 0.1 for residual in residuals)
    return Note.of(
        f"Found here, in the quadratic model of the {runs[0].tier} tier ({Accuracy.of(runs).conditions}): of the nine shifts of"
        f" a 3 × 3 kernel, {min(covered):.1f} to {max(covered):.1f} per layer have a head with at least half of its mass there."
        " The residual of Lemma 3, 0 for a layer that can be every such convolution and up to about 1 where it misses a shift,"
        f" is {min(residuals):.2f} to {max(residuals):.2f}: {close or 'none'} of the {len(residuals)} layers came near to one."
    )


def compute_table(runs: Sequence[RunRecord]) -> Table:
    """The computing time of the records, by machine."""
    rows = []
    for device in sorted({record.info.hardware["device"] for record in runs}):
        mine = [record.info for record in runs if record.info.hardware["device"] == device]
        hours = sum(info.wall_seconds * info.hardware["processes"] for info in mine) / 3600
        rows.append([device, str(len(mine)), str(sum(info.epochs_done for info in mine)), f"{hours:.2f}"])
    header = ["device", "runs", "epochs", "device hours, evaluation included"]
    rows = rows or [["none", "0", "0", "0.00"]]
    return Table("compute", "Computing time of the runs on CIFAR-10. Source: the run records in data/runs.", header, rows)


# --- the README's part ----------------------------------------------------------------------------------------------

README, PICTURE = REPOSITORY / "README.md", REPOSITORY / "book" / "claim.png"
MARKS = "<!-- results: written by `python -m attnconv readme` -->", "<!-- end of results -->"


def readme_part(records: Records) -> str:
    """What stands in the README between the marks."""
    done = {tier: sum(bool(records.at(tier).of(model)) for model in TABLE_4) for tier in ("small", "paper")}
    state = " ".join(f"{tier.capitalize()} tier: {count} of {len(TABLE_4)} rows run." for tier, count in done.items())
    small, paper = (records.at(tier).command("sa-quadratic") for tier in ("small", "paper"))
    state += f" A row is repeated by `{small}`, or with a GPU by `{paper}`."
    return f"{MARKS[0]}\n\n{summary(records).markdown()}\n{state}\n\n{MARKS[1]}"


def update_readme(records: Records, path: Path | None = None) -> bool:
    """Write the part anew; whether it had to change. ValueError when the marks are not there."""
    path = path or README
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(
            f"{path} lacks the marks {MARKS[0]} and {MARKS[1]} between which its table is written; restore it from git"
        )
    new = pattern.sub(lambda match: readme_part(records), text)
    if new != text:
        write_file(path, new.encode())
    return new != text


def update_picture(path: Path | None = None) -> None:
    """Draw the README's picture anew: the theorem on a photograph."""
    from .figures import claim  # the one file that needs matplotlib

    content = io.BytesIO()
    claim().savefig(content, format="png", metadata={"Software": None})
    write_file(path or PICTURE, content.getvalue())
