"""Chapter 11: the accuracy that trained networks keep when their attention is replaced.

`python -m attnconv ablate` stores the result with a network's run record. The rules were written
before the first trained network was measured.
"""

from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict
from torch import nn

from attnconv.ablation import MEAN_MAP, ONE_OFFSET, UNIFORM, ablate_attention

from ..claims.claim import NOT_RUN, Claims, Runs, Verdict
from ..claims.rules import minus
from ..data import Dataset
from ..display import Numbers, Table
from ..figures.style import finish, line_plots
from ..runs.record import RunRecord, provenance
from ..runs.select import Records
from ..runs.weights import stored_result, weights_sha256
from ..specs import SPECS
from ..store import write_file

ABLATION_FILE = "ablation.json"
PLACE = "chapter 11"


class Ablation(BaseModel):
    """The accuracy that a trained network keeps when its attention is replaced.

    `scores` has a list for each layer whose attention alone is replaced and a last one for all
    layers, with the test accuracy for each of the `replacements`; see `AblationReport`.
    """

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    command: str
    date: date
    weights_sha256: str
    dataset: dict[str, Any]  # name, fingerprint of the images
    test_images: int  # the first ones of the test set
    unchanged: float
    layers: list[str]
    replacements: list[str]
    scores: list[list[float]]
    git_commit: str | None
    versions: dict[str, str]
    hardware: dict[str, Any]

    def of(self, replacement: str) -> list[float]:
        """Return the accuracy with each layer replaced alone, and last with all replaced."""
        column = self.replacements.index(replacement)
        return [scores[column] for scores in self.scores]

    def lost(self, replacement: str) -> float:
        """Return the accuracy that is lost if the attention of all layers is replaced."""
        return minus(self.unchanged, self.of(replacement)[-1])


def measure(
    model: nn.Module, folder: Path, dataset: Dataset, images: int, command: str
) -> Ablation:
    """Replace the attention of a trained network and measure its accuracy on test images.

    The first `images` test images are used. The result is also written to `folder`, which contains
    the network's run record; `command` is the command that repeats it.
    """
    inputs = dataset.normalise(dataset.test_images[:images])
    report = ablate_attention(model, inputs, dataset.test_labels[:images])
    found = Ablation(
        command=command,
        date=date.today(),
        weights_sha256=weights_sha256(folder),
        dataset={"name": dataset.name, "fingerprint": dataset.fingerprint},
        test_images=report.images,
        unchanged=round(report.unchanged, 6),
        layers=list(report.layers),
        replacements=list(report.replacements),
        scores=[[round(score, 6) for score in scores] for scores in report.scores.tolist()],
        **provenance(torch.device("cpu"), processes=1),
    )
    write_file(folder / ABLATION_FILE, (found.model_dump_json(indent=1) + "\n").encode())
    return found


def command_of(record: RunRecord) -> str:
    """Return the arguments of `python -m attnconv` that repeat a record's ablation."""
    given = record.info.parameters
    return f"ablate --model {given['model']} --tier {record.tier} --seed {given['seed']}"


def load_ablation(record: RunRecord) -> Ablation | None:
    """Load the result of `measure` from a record's folder, or return None if there is none.

    Raises DamagedFile if the file is damaged or belongs to different weights.
    """
    return stored_result(record, ABLATION_FILE, Ablation, command_of(record))


# --- the claims -----------------------------------------------------------------------------------

# The rules were fixed in this commit, before the first trained network was measured.
FIXED = "092b786"
CLAIMS = Claims(FIXED, "small")
STARTED = Claims(FIXED, "vit-10k")
#: The small tier's attention networks with stored weights; only the last one attends to content.
SMALL = (
    *("sa-quadratic", "sa-quadratic-16", "sa-generalized", "sa-learned"),
    "sa-learned-content",
)
VIT = "vit-convolution"
CONVOLUTION = "3 x 3"


def _keeps(
    runs: Runs, replacement: str, yes: str, no: str, little: float = 0.01, some: float = 0.05
) -> Verdict:
    ((model, records),) = runs.items()
    for record in records:
        if found := load_ablation(record):
            lost, control = found.lost(replacement), found.lost(UNIFORM)
            measured = (
                f"{found.of(replacement)[-1]:.4f} with the {replacement} in all layers, unchanged"
                f" {found.unchanged:.4f} ({-lost:+.4f}); uniform attention: {-control:+.4f}"
            )
            verdict = _graded(lost, control, little, some, yes, no)
            return Verdict(verdict, measured, f"{model}: {record.name}")
    return Verdict(NOT_RUN, "no ablation is stored")


def _graded(lost: float, control: float, little: float, some: float, yes: str, no: str) -> str:
    if control <= some:
        return "undecided"
    if lost <= little:
        return yes
    return "partly" if lost <= some else no


def _add(claims: Claims, models: Sequence[str], name: str, text: str, rule: str, **words: str):
    """Add a claim about each of the models, judged by `_keeps`."""
    for model in models:
        claims.add(
            partial(_keeps, **words),
            PLACE,
            f"{model}: {text}",
            f"{{yes}}: the test accuracy falls by at most {{little}} if {rule} (partly: by at most"
            " {some}; otherwise: {no}); undecided if it falls by at most {some} with uniform"
            " attention as well",
            model,
            name=f"{name}-{model}",
        )


for _claims, _models in ((CLAIMS, SMALL), (STARTED, (VIT,))):
    _add(
        _claims,
        _models,
        "convolves",
        "the attention of all layers can be replaced by 3 × 3 convolutions",
        "each head of each layer is replaced by its nearest 3 × 3 convolution",
        replacement=CONVOLUTION,
        yes="convolves",
        no="does not convolve",
    )
    _add(
        _claims,
        _models[-1:],
        "positions-suffice",
        "attention need not depend on the image",
        "each head of each layer is replaced by its mean map over the test images",
        replacement=MEAN_MAP,
        yes="positions suffice",
        no="content is needed",
    )
CLAIMS.extend(STARTED)


# --- the chapter's figure, table and numbers ------------------------------------------------------


def ablations(records: Records) -> dict[str, Ablation]:
    """Return the stored ablations of the networks that the claims are about, by model."""
    found: dict[str, Ablation] = {}
    for tier, models in (("small", SMALL), ("vit-10k", (VIT,))):
        for record in records.at(tier).of(*models):
            ablation = load_ablation(record)
            if ablation is not None:
                found.setdefault(record.info.parameters["model"], ablation)
    return found


def accuracy_kept(records: Records) -> Figure:
    """Plot the accuracy that each network keeps, by replacement, for each layer and for all layers.

    Thin lines are single layers, from the first (dark) to the last (light), and the thick line is
    all layers together. The dashed line is the unchanged network.
    """
    found = ablations(records)
    figure, axes = line_plots(2, 3, 9.5, 6, sharey=True)
    for ax in axes.flat[len(found) :]:
        ax.set_axis_off()
    for ax, (model, ablation) in zip(axes.flat, found.items(), strict=False):
        _draw_kept(ax, ablation)
        ax.set_title(SPECS[model].label, fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("test accuracy")
    if found:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return finish(figure)


def _draw_kept(ax: Axes, ablation: Ablation) -> None:
    order = _from_control(ablation)
    *layers, together = [
        [scores[ablation.replacements.index(name)] for name in order] for scores in ablation.scores
    ]
    for number, scores in enumerate(layers):
        ends = {0: "first layer alone", len(layers) - 1: "last layer alone"}
        color = colormaps["cividis"](number / max(1, len(layers) - 1) * 0.9)
        ax.plot(scores, color=color, lw=1, marker=".", label=ends.get(number))
    ax.plot(together, color="#D55E00", lw=2.5, marker="o", ms=4, label="all layers")
    ax.axhline(ablation.unchanged, color="0.3", ls="--", lw=0.9, label="unchanged network")
    ax.set_xticks(range(len(order)), [name.replace(" x ", " × ") for name in order], fontsize=7)
    ax.tick_params(axis="x", rotation=60)
    ax.set_ylim(0, 1)


def _from_control(ablation: Ablation) -> list[str]:
    """Return the replacements from the control to the one that is nearest to the network."""
    convolutions = [name for name in ablation.replacements if " x " in name]
    return [UNIFORM, ONE_OFFSET, *convolutions, MEAN_MAP]


def ablation_table(records: Records) -> Table:
    """Return a table of the accuracy that each network keeps with all of its layers replaced."""
    rows = []
    for model, found in ablations(records).items():
        row = {"network": SPECS[model].label, "images": f"{found.test_images:,}"}
        row |= {"unchanged": f"{found.unchanged:.3f}"}
        row |= {
            name.replace(" x ", " × "): f"{found.of(name)[-1]:.3f}"
            for name in reversed(_from_control(found))
        }
        rows.append(row)
    caption = (
        "Test accuracy with the attention of all layers replaced, on the first test images. Source:"
        " ablation.json in the folders of the run records (seed 0)."
    )
    return Table.of("ablation", caption, rows or [{"network": "not run"}])


def numbers(records: Records) -> Numbers:
    """Return the numbers that chapter 11 quotes about the ablation."""
    found = ablations(records)
    images = [each.test_images for each in found.values()] or [0]
    result: Numbers = {
        "ablation-networks": len(found),
        "ablation-images": min(images),
        "ablation-images-most": max(images),
    }
    for model, each in found.items():
        result[f"ablation-{model}-unchanged"] = each.unchanged
        result[f"ablation-{model}-one-layer"] = each.unchanged - min(each.of(CONVOLUTION)[:-1])
        for name in each.replacements:
            result[f"ablation-{model}-{name.replace(' ', '-')}"] = each.of(name)[-1]
    return result
