"""The paper's experimental claims as rules over run records, written before the runs: what was found, how sure, and a verdict.

A rule takes the runs of each model it needs, `{name: [RunRecord, ...]}`, and answers with what it found and a verdict:
`reproduced`, `partly`, `differs` or `exceeded`. Without those runs the verdict is `not run`, whatever else is known.
"""

import io
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .data import REPOSITORY
from .heads import Heads, heads_of
from .models import MODELS, PUBLISHED_HEADS_LEFT
from .pages import Records, command
from .published import TABLE_4
from .runs import RunRecord
from .store import write_file
from .tables import Accuracy, Table, cost_in_table, heads_left, summary

Runs = Mapping[str, Sequence[RunRecord]]
TOLERANCE = 0.005  # of accuracies: half a percentage point, several times what one seed differs from another


@dataclass(frozen=True)
class Claim:
    """One claim: where the paper makes it, its words in short, the rule in words, the models it needs, and the rule."""

    place: str
    text: str
    rule: str
    needs: tuple[str, ...]
    judge: Callable[[Runs], tuple[str, str]]


def _accuracy(runs: Sequence[RunRecord]) -> float:
    return Accuracy.of(runs).last


def _grade(share: float, enough: float, some: float) -> str:
    return "reproduced" if share >= enough else "partly" if share >= some else "differs"


# --- accuracy -------------------------------------------------------------------------------------------------------


def published_accuracy(model: str) -> Claim:
    published = TABLE_4[model].accuracy

    def judge(runs: Runs) -> tuple[str, str]:
        difference = _accuracy(runs[model]) - published
        verdict = "reproduced" if abs(difference) <= TOLERANCE else "exceeded" if difference > 0 else "differs"
        return f"{Accuracy.of(runs[model])}, {difference:+.4f} from the published {published:.3f}", verdict

    rule = f"within {TOLERANCE} of the published accuracy, after the last epoch, mean over the seeds"
    return Claim("Table 4", f"{TABLE_4[model].label}: accuracy {published:.3f}", rule, (model,), judge)


def _as_accurate(runs: Runs) -> tuple[str, str]:
    difference = _accuracy(runs["sa-quadratic"]) - _accuracy(runs["resnet18"])
    return f"quadratic minus ResNet18: {difference:+.4f}", "reproduced" if difference >= -TOLERANCE else "differs"


def _no_gain(runs: Runs) -> tuple[str, str]:
    difference = _accuracy(runs["sa-generalized"]) - _accuracy(runs["sa-quadratic"])
    return f"generalised minus quadratic: {difference:+.4f}", "reproduced" if difference <= TOLERANCE else "differs"


def _pruning_recovers(runs: Runs) -> tuple[str, str]:
    changes = [record.info.final_test_accuracy - record.info.parent["test_accuracy"] for record in runs["sa-generalized-pruned"]]
    after = [record.info.parent["test_accuracy_after_pruning"] for record in runs["sa-generalized-pruned"]]
    found = f"just after pruning {statistics.mean(after):.4f}; at the end {statistics.mean(changes):+.4f} from before pruning"
    return found, "reproduced" if statistics.mean(changes) >= -TOLERANCE else "differs"


def _content_is_harder(runs: Runs) -> tuple[str, str]:
    difference = _accuracy(runs["sa-learned-content"]) - _accuracy(runs["sa-learned"])
    return f"with content minus without: {difference:+.4f}", "reproduced" if difference < -TOLERANCE else "differs"


def _converges_faster(runs: Runs, level: float = 0.9) -> tuple[str, str]:
    reached = {}
    for model, records in runs.items():
        first = [next((e["epoch"] for e in record.metrics if e["test_accuracy"] >= level), None) for record in records]
        reached[model] = statistics.mean(epochs) if (epochs := [epoch for epoch in first if epoch]) else float("inf")
    found = ", ".join(f"{TABLE_4[model].label} reaches {level} in epoch {epoch:.0f}" for model, epoch in reached.items())
    return found, "reproduced" if reached["resnet18"] < reached["sa-quadratic"] else "differs"


# --- what the heads do ----------------------------------------------------------------------------------------------


def _layers(runs: Runs, model: str) -> list[list[Heads]]:
    """By run, then by layer."""
    return [heads_of(record) for record in runs[model]]


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values)


def _grid_in_layer_4(runs: Runs) -> tuple[str, str]:
    single = []
    for layers in _layers(runs, "sa-quadratic"):
        hard = layers[3].mass >= 0.5
        single.append(len({tuple(shift) for shift in layers[3].shifts[hard].tolist()}))
    count = len(layers[3].mass)
    found = f"in layer 4, {_mean(single):.1f} of {count} heads hold at least half of their mass on one pixel, each on its own"
    return found, _grade(_mean(single) / count, 7 / 9, 4 / 9)


def _deeper_is_further(runs: Runs) -> tuple[str, str]:
    by_run = [[heads.distance.mean().item() for heads in layers] for layers in _layers(runs, "sa-quadratic")]
    distances = [_mean(layer) for layer in zip(*by_run, strict=True)]
    near, far = max(distances[:2]), distances[2:]
    found = "mean distance looked, by layer: " + ", ".join(f"{distance:.1f}" for distance in distances) + " pixels"
    return found, _grade(sum(distance > near for distance in far) / len(far), 1.0, 0.5)


def _no_overlap(runs: Runs) -> tuple[str, str]:
    shares = [
        len({tuple(shift) for shift in heads.shifts.tolist()}) / len(heads.mass)
        for layers in _layers(runs, "sa-quadratic-16")
        for heads in layers
    ]
    return f"distinct best shifts: {_mean(shares):.0%} of the heads of a layer", _grade(_mean(shares), 0.9, 0.6)


def _single_pixels(runs: Runs) -> tuple[str, str]:
    by_run = [[int((heads.mass >= 0.5).sum()) for heads in layers] for layers in _layers(runs, "sa-learned")]
    counts = [_mean(layer) for layer in zip(*by_run, strict=True)]
    found = "heads with at least half of their mass on one pixel, by layer: " + ", ".join(f"{count:.1f}" for count in counts)
    met = (counts[0] >= 3) + (counts[1] >= 3) + (counts[2] >= 1)
    return found, _grade(met / 3, 1.0, 1 / 3)


def _mirrored(heads: Heads) -> Tensor:
    """How much each map equals its mirror image about the query's column, `(N_h,)`: the cosine of the two."""
    column = heads.query[1]
    reach = min(column, heads.maps.shape[2] - 1 - column)
    maps = heads.maps[:, :, column - reach : column + reach + 1]
    return torch.cosine_similarity(maps.flatten(1), maps.flip(2).flatten(1))


def _symmetric_patterns(runs: Runs) -> tuple[str, str]:
    counts = [
        sum(int(((heads.mass < 0.5) & (_mirrored(heads) >= 0.9)).sum()) for heads in layers)
        for layers in _layers(runs, "sa-learned")
    ]
    return f"heads with wide maps that equal their mirror image to 0.9: {_mean(counts):.1f} of 54", _grade(_mean(counts), 3, 1)


def _constant_shift(runs: Runs) -> tuple[str, str]:
    by_run = [record.attention["shift_probabilities"].flatten(2).amax(dim=2) for record in runs["sa-learned-content"]]
    counts = (torch.stack(by_run) >= 0.5).sum(dim=2).double().mean(dim=0).tolist()
    found = "heads whose mean probability of one shift, over images and queries, is at least 0.5, by layer: "
    found += ", ".join(f"{count:.1f}" for count in counts)
    return found, _grade((counts[1] >= 1) + (counts[2] >= 1), 2, 1)


def _non_isotropic(runs: Runs) -> tuple[str, str]:
    by_run = []
    for record in runs["sa-generalized"]:
        values = [torch.linalg.svdvals(encoding.root.double()) for encoding in record.encodings()]
        by_run.append([(value[:, 0] / value[:, 1].clamp(min=1e-9)).median().item() for value in values])
    ratios = [_mean(layer) for layer in zip(*by_run, strict=True)]
    found = "median ratio of a head's axes, by layer: " + ", ".join(f"{ratio:.1f}" for ratio in ratios)
    there, above = max(ratios) >= 2, _mean(ratios[3:]) > _mean(ratios[:3])
    return found, _grade(there + above, 2, 1)


def _local_heads_first(runs: Runs) -> tuple[str, str]:
    by_run = [[int((heads.mass >= 0.5).sum()) for heads in layers] for layers in _layers(runs, "sa-quadratic-16")]
    counts = [_mean(layer) for layer in zip(*by_run, strict=True)]
    found = "heads with at least half of their mass on one pixel, by layer: " + ", ".join(f"{count:.1f}" for count in counts)
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
    pruned = runs.get("sa-generalized-pruned")
    whole, left = cost_in_table("sa-generalized"), heads_left(pruned[0]) if pruned else PUBLISHED_HEADS_LEFT
    after = cost_in_table("sa-generalized-pruned", left)
    saved = [1 - after.parameters / whole.parameters, 1 - after.flops_paper / whole.flops_paper]
    found = f"{saved[0]:.1%} of the parameters, {saved[1]:.1%} of the FLOPs as published, with heads per layer {list(left)}"
    return found, "reproduced" if min(saved) >= 0.225 else "differs"


# In the paper's order.
CLAIMS = (
    *(published_accuracy(model) for model, row in TABLE_4.items() if row.accuracy),
    Claim("Table 4", "parameters and FLOPs of the six models", "rounded as printed they are equal", (), _sizes),
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
        "4.1",
        "with content, attention is harder to train",
        f"more than {TOLERANCE} below the learned encoding without content",
        ("sa-learned", "sa-learned-content"),
        _content_is_harder,
    ),
    Claim(
        "4.2, Figure 3",
        "the heads of layer 4 attend to single pixels that form a grid around the query",
        "at least 7 of 9 heads put half of their mass on one pixel, no two on the same (partly: 4)",
        ("sa-quadratic",),
        _grid_in_layer_4,
    ),
    Claim(
        "4.2, Figure 4",
        "layers 1 and 2 are local, layers 3 to 6 also look further",
        "each of layers 3 to 6 looks further, on average over its heads, than layers 1 and 2 (partly: half of them)",
        ("sa-quadratic",),
        _deeper_is_further,
    ),
    Claim(
        "4.2, Figure 14",
        "16 heads do not overlap",
        "at least 90 % of a layer's heads have a best shift of their own (partly: 60 %)",
        ("sa-quadratic-16",),
        _no_overlap,
    ),
    Claim(
        "4.3, Figure 5",
        "with a learned encoding some heads of layers 1 and 2, and fewer of layer 3, attend to single pixels",
        "at least 3, 3 and 1 heads put half of their mass on one pixel (partly: one of these)",
        ("sa-learned",),
        _single_pixels,
    ),
    Claim(
        "4.3, Figure 5",
        "other heads attend to horizontally symmetric, not localised patterns",
        "at least 3 heads whose largest probability is below 0.5 and whose map equals its mirror image, cosine 0.9 (partly: 1)",
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
        "Appendix E, Figure 12",
        "heads of the generalised encoding become non-isotropic, especially in high layers",
        "a layer's median ratio of axes reaches 2, and layers 4 to 6 exceed layers 1 to 3 (partly: one of both)",
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
        "Appendix E, Figure 13",
        "the pruned model recovers the accuracy of the unpruned one",
        f"not more than {TOLERANCE} below its parent",
        ("sa-generalized-pruned",),
        _pruning_recovers,
    ),
    Claim("Appendix E", "pruning reduces size and cost by a fourth", "by 22.5 % or more", (), _by_a_fourth),
    Claim(
        "Appendix F, Figure 14",
        "with 16 heads, local ones are more frequent in the first layers",
        "more heads with half of their mass on one pixel in layers 1 to 3 than in 4 to 6",
        ("sa-quadratic-16",),
        _local_heads_first,
    ),
)


def claims_table(records: Records) -> Table:
    """Every experimental claim: what we ran, what we found, how sure, the verdict."""
    rows = []
    for claim in CLAIMS:
        runs = {model: records.of(model) for model in claim.needs or MODELS}
        missing = [model for model in claim.needs if not runs[model]]
        if missing:
            found, verdict, ran = "-", "not run", "; ".join(f"{model}: {records.state(model)}" for model in missing)
        else:
            found, verdict = claim.judge(runs)
            used = [f"{model}, {Accuracy.of(runs[model]).conditions}" for model in claim.needs]
            ran = ", ".join(used) or "computed, no training needed"
        rows.append([claim.text, claim.place, claim.rule, ran, found, verdict])
    header = ["claim", "place", "rule, fixed before the runs", "what we ran", "what we found", "verdict"]
    return Table(
        "claims", "The experimental claims. Source: the rules of report.py over the run records in data/runs.", header, rows
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
    return Table("compute", "Computing time of the paper tier. Source: the run records in data/runs.", header, rows)


# --- the README's part ----------------------------------------------------------------------------------------------

README, PICTURE = REPOSITORY / "README.md", REPOSITORY / "book" / "claim.png"
MARKS = "<!-- results: written by `python -m attnconv readme` -->", "<!-- end of results -->"


def readme_part(records: Records) -> str:
    """What stands in the README between the marks."""
    done = [model for model in TABLE_4 if records.of(model)]
    if len(done) == len(TABLE_4):
        state = "All rows have been run."
    else:
        state = f"Run so far: {len(done)} of {len(TABLE_4)} rows. A row that has not been run says so."
    one = command(model="sa-quadratic", dataset="cifar10")
    return f"{MARKS[0]}\n\n{summary(records).markdown()}\n{state} With a GPU, a row's record is made by `{one}`.\n\n{MARKS[1]}"


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
