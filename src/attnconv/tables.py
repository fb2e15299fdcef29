"""One function per table of the paper, and those beyond it: published beside measured, each with its source.

A table shows itself as HTML in a page and as Markdown elsewhere. Numbers are computed or read from run records; `-` stands for
what does not exist, a word for what has not been run.
"""

import html
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from . import encodings
from .config import MOMENTUM, OF_THE_NETWORK, RunParameters, build_network
from .cost import Cost, cost_of
from .data import IMAGE_SIZES, REPOSITORY
from .grid import axis_shifts, relative_shifts
from .heads import heads_of, lemma_3_residual
from .models import build_model
from .pages import Records
from .published import TABLE_1, TABLE_2, TABLE_4
from .runs import RunRecord, find_runs, heads_left
from .weights import FILE as WEIGHTS


@dataclass(frozen=True)
class Table:
    """Cells of text under a header. `name` is its anchor in a page, `caption` ends with its source.

    `folded`: a line to open the table by in a page, where it is of use to few; "" shows it. `stacked`: cells of sentences, which
    a page sets one below another on a narrow screen.
    """

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: str = ""
    stacked: bool = False

    def _repr_html_(self) -> str:
        if self.folded:
            return f"<details><summary>{html.escape(self.folded)}</summary>{replace(self, folded='')._repr_html_()}</details>"
        kind = "table stacked" if self.stacked else "table"
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in self.header)
        body = "".join(self._line(row) for row in self.rows)
        return (
            f'<figure class="made-table" id="{self.name}"><div class="table-scroll" tabindex="0" role="region"'
            f' aria-label="{html.escape(self.name)}"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
            f"</table></div><figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )

    def _line(self, row: Sequence[str]) -> str:
        first, *others = (html.escape(cell) for cell in row)
        return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>"

    def markdown(self) -> str:
        """The table in Markdown, its caption below."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines) + f"\n{self.caption}\n"

    def __repr__(self) -> str:
        return self.markdown()


# --- Tables 1 and 4: accuracy and cost ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy:
    """Of a model's runs: mean test accuracy after the last epoch, its sample standard deviation, mean of the best epochs'."""

    last: float
    spread: float | None
    best: float
    seeds: int
    epochs: str

    @classmethod
    def of(cls, runs: Sequence[RunRecord]) -> "Accuracy | None":
        if not runs:
            return None
        last = [record.info.final_test_accuracy for record in runs]
        best = [record.info.best_test_accuracy for record in runs]
        epochs = sorted({record.info.epochs_done for record in runs})
        spread = statistics.stdev(last) if len(runs) > 1 else None
        return cls(statistics.mean(last), spread, statistics.mean(best), len(runs), " or ".join(map(str, epochs)))

    @property
    def conditions(self) -> str:
        return f"{self.seeds} seed{'s' * (self.seeds > 1)}, {self.epochs} epochs"

    def __str__(self) -> str:
        return f"{self.last:.4f}" + (f" ± {self.spread:.4f}" if self.spread is not None else "")


@cache
def cost_in_table(model: str, heads: tuple[int, ...] | None = None) -> Cost:
    """The cost of a model of Table 4, for 32 x 32 images; `heads` per layer where a run pruned other heads than the paper."""
    return cost_of(build_model(model, **({"num_heads": heads} if heads else {})))


def table_1(records: Records) -> Table:
    """Table 1: test accuracy on CIFAR-10 and model sizes."""
    return _accuracies("Table 1", "Test accuracy on CIFAR-10 and model sizes", TABLE_1, records)


def table_4(records: Records) -> Table:
    """Table 4: accuracy, parameters and FLOPs of all models; and of the one of appendix F, for which the paper prints none."""
    return _accuracies("Table 4", "Accuracy, parameters and FLOPs per model", tuple(TABLE_4), records)


def _accuracies(name: str, what: str, models: Sequence[str], records: Records) -> Table:
    header = ["model", "published", "replication", "measured", "difference", "best", "conditions"]
    header += ["parameters", "FLOPs, G", "all FLOPs, G"]
    rows = [_accuracy_row(model, records) for model in models]
    what += "; in brackets as printed, all FLOPs with every product"
    what += "; measured: after the last epoch, mean over the seeds ± standard deviation; best: of all epochs"
    source = "Source: the paper; the run records in data/runs"
    source += "; the replication of Varma and Prabhu (2020), one seed; cost_of"
    return Table(name.lower().replace(" ", "-"), f"{name}. {what}. {source}.", header, rows)


def _accuracy_row(model: str, records: Records) -> list[str]:
    published, runs = TABLE_4[model], records.of(model)
    ours, state = Accuracy.of(runs), records.state(model)
    cost = cost_in_table(model, heads_left(runs[0]) if runs and model == "sa-generalized-pruned" else None)
    accuracy = f"{published.accuracy:.3f}" if published.accuracy else "-"
    replicated = f"{published.replicated:.4f}" if published.replicated else "-"
    size, flops = (f" ({text})" if text else "" for text in (published.parameters, published.flops))
    cost_cells = [f"{cost.parameters:,}{size}", f"{cost.flops_paper / 1e9:.3f}{flops}", f"{cost.flops / 1e9:.2f}"]
    if not ours:
        return [published.label, accuracy, replicated, state, "-", "-", "-", *cost_cells]
    difference = f"{ours.last - published.accuracy:+.4f}" if published.accuracy else "-"
    measured = f"{ours} ({state})" if state else str(ours)
    return [
        published.label,
        accuracy,
        replicated,
        measured,
        difference,
        f"{ours.best:.4f}",
        ours.conditions,
        *cost_cells,
    ]


def summary(records: Records) -> Table:
    """The README's table: published accuracy, and measured in the paper and the small tier; size."""
    rows = []
    for model, published in TABLE_4.items():
        accuracy = f"{published.accuracy:.3f}" if published.accuracy else "-"
        tiers = [records.at("paper"), records.at("small")]
        sizes = [f"{_parameter_count(tier, model):,}" for tier in tiers]
        rows.append([published.label, model, accuracy, *(_measured(tier, model) for tier in tiers), " / ".join(sizes)])
    caption = (
        "Test accuracy on CIFAR-10: as published (one seed), and measured here after the last epoch, mean ± standard deviation"
        " over n seeds. Paper tier: the paper's sizes and recipe. Small tier: the same networks made narrower and trained on two"
        " cores; compare its accuracies with each other, not with the published ones. Source: the run records in data/runs."
    )
    header = ["model", "name", "published", "paper tier", "small tier", "parameters, paper / small"]
    return Table("summary", caption, header, rows)


def _measured(records: Records, model: str) -> str:
    ours = Accuracy.of(records.of(model))
    return f"{ours} (n = {ours.seeds}, {ours.epochs} epochs)" if ours else records.state(model)


def _parameter_count(records: Records, model: str) -> int:
    """Of a model's first run, or else as it would be."""
    if runs := records.of(model):
        return runs[0].info.parameter_count
    parameters = RunParameters.check({"model": model, "dataset": "cifar10", "tier": records.tier})
    return sum(parameter.numel() for parameter in build_network(parameters.model_dump()).parameters())


def small_table(records: Records) -> Table:
    """The small tier's counterpart of Table 4: accuracy over seeds, size, cost, time."""
    rows = []
    for model in TABLE_4:
        for tier in ("small", "small-long"):
            if tier == "small" or records.at(tier).of(model):
                rows.append(_small_row(records.at(tier), model))
    caption = (
        "Small tier: test accuracy on all of CIFAR-10 after the last epoch, mean over the seeds ± standard deviation; FLOPs of"
        " one image, as the paper counts them and with every product; minutes of one run. Source: the run records in data/runs."
    )
    header = ["model", "test accuracy", "seeds", "epochs", "parameters", "FLOPs, M", "all FLOPs, M", "minutes", "on"]
    return Table("table-4-small", caption, header, rows)


def _small_row(records: Records, model: str) -> list[str]:
    runs, label = records.of(model), TABLE_4[model].label
    if not (ours := Accuracy.of(runs)):
        return [label, records.state(model), *["-"] * 7]
    cost = cost_of(build_network(runs[0].info.parameters, heads_left(runs[0])))
    minutes = statistics.mean(record.info.wall_seconds for record in runs) / 60
    on = sorted({f"{record.info.hardware['device']}, {record.info.hardware['threads']} threads" for record in runs})
    costs = [f"{cost.parameters:,}", f"{cost.flops_paper / 1e6:.1f}", f"{cost.flops / 1e6:.1f}"]
    return [label, str(ours), str(ours.seeds), ours.epochs, *costs, f"{minutes:.0f}", "; ".join(on)]


def quick_results(runs: Sequence[RunRecord]) -> Table:
    """The quick tier's counterpart of Table 4: what was trained on digits while the book was built."""
    rows = [
        [
            TABLE_4[record.info.parameters["model"]].label,
            f"{record.info.final_test_accuracy:.3f}",
            str(record.info.epochs_done),
            f"{record.info.parameter_count:,}",
            f"{record.info.wall_seconds:.0f} s",
        ]
        for record in runs
    ]
    settings = runs[0].info
    caption = (
        "Quick tier: test accuracy on scikit-learn's digits after a few epochs, one seed. It says that the seven models run and"
        f" learn, nothing about the paper's numbers. Source: trained here, on {settings.hardware['device']}."
    )
    return Table("quick-results", caption, ["model", "test accuracy", "epochs", "parameters", "training"], rows)


# --- Table 2: hyper-parameters --------------------------------------------------------------------------------------


def table_2(records: Records) -> Table:
    """Table 2: the self-attention networks' parameters as printed, as this project's recipe has them, and as used in runs."""
    recipe = RunParameters.check({"model": "sa-quadratic", "dataset": "cifar10"})
    model = build_model("sa-quadratic")
    elsewhere = {
        "number of heads": str(model.attentions[0].num_heads),
        "layer normalization epsilon": f"{model.blocks[0].attention_norm.eps:g}",
        "momentum": f"{MOMENTUM:g}",
    }
    columns = {name: records.of(name)[0] for name in TABLE_4 if name != "resnet18" and records.of(name)}
    rows = []
    for label, printed, parameter in TABLE_2:
        ours = f"{getattr(recipe, parameter)}" if parameter else elsewhere[label]
        used = [_used(record, label, parameter) for record in columns.values()]
        rows.append([label, printed, ours, *used])
    caption = (
        "Table 2. Parameters of the self-attention networks. Source: the paper; config.PAPER_RECIPE and the model itself; "
        + ("the run records; - stands for what no record holds." if columns else "no run record yet.")
    )
    return Table("table-2", caption, ["parameter", "paper", "recipe here", *columns], rows)


def _used(record: RunRecord, label: str, parameter: str | None) -> str:
    if parameter:
        return str(record.info.parameters[parameter])
    if label == "number of heads":
        counts = [len(heads.maps) for heads in heads_of(record)]
        return str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))
    return "-"  # the code's, in no record


# --- the small tier -------------------------------------------------------------------------------------------------


def tier_recipe() -> Table:
    """What the small tier has otherwise than the paper tier, per parameter, for attention and for the ResNet18."""
    models = {"attention": "sa-quadratic", "ResNet18": "resnet18", "pruned": "sa-generalized-pruned"}
    chosen = {
        (label, tier): RunParameters.check({"model": model, "dataset": "cifar10", "tier": tier}).identity()
        for label, model in models.items()
        for tier in ("paper", "small")
    }
    rows = []
    for name in chosen["attention", "paper"]:
        alike: dict[tuple[str, str], list[str]] = {}
        for label in filter(lambda label: _matters(label, name), models):
            alike.setdefault((str(chosen[label, "paper"][name]), str(chosen[label, "small"][name])), []).append(label)
        rows += [[name, ", ".join(labels), *tiers] for tiers, labels in alike.items() if name != "tier" and len(set(tiers)) > 1]
    caption = "What the small tier's recipe has otherwise than the paper's. Source: config.PAPER_RECIPE and config.SMALL_RECIPE."
    return Table("tier-recipe", caption, ["parameter", "of", "paper tier", "small tier"], rows)


def _matters(label: str, parameter: str) -> bool:
    of_attention = parameter in OF_THE_NETWORK or parameter == "position_rate"
    return parameter != "width" if label != "ResNet18" else not of_attention


def pilot_table(folder: str | Path = "") -> Table:
    """The runs on held-out training images by which the small tier's recipe was chosen: one folder each in `data/pilot`."""
    rows = []
    for path in sorted((Path(folder) if folder else REPOSITORY / "data" / "pilot").iterdir()):
        for record in find_runs(path)[0]:
            info = record.info
            names = ("learning_rate", "optimizer", "weight_decay", "hidden", "intermediate", "pooling", "width")
            used = [f"{name} {info.parameters[name]}" for name in names if _matters(_kind(record), name)]
            accuracies = ", ".join(f"{entry['test_accuracy']:.3f}" for entry in record.metrics)
            epochs = f"{info.epochs_done} of {info.parameters['epochs']}"
            rows.append([path.name, _kind(record), ", ".join(used), epochs, accuracies, f"{info.wall_seconds / 60:.0f}"])
    caption = (
        "Pilot runs, seed 0: accuracy on 5,000 held-out training images after each epoch. The schedule falls to zero within the"
        " epochs asked for. Minutes on one thread, several runs sharing two cores. Source: the records in data/pilot."
    )
    header = ["pilot", "of", "parameters", "epochs", "held-out accuracy", "minutes"]
    return Table("pilot", caption, header, rows)


def _kind(record: RunRecord) -> str:
    return "ResNet18" if record.info.parameters["model"] == "resnet18" else "attention"


def model_cards(records: Records) -> Table:
    """One line for each model whose weights are kept: what it is, its accuracy, and its file."""
    rows = []
    for model, published in TABLE_4.items():
        runs = records.of(model)
        kept = [record for record in runs if (record.folder / WEIGHTS).exists()]
        if not kept:
            rows.append([published.label, model, "no weights yet: " + (records.state(model) or "not kept"), *["-"] * 5])
            continue
        info, ours = kept[0].info, Accuracy.of(runs)
        size = f"{(kept[0].folder / WEIGHTS).stat().st_size / 1e6:.2f} MB"
        cells = [f"{info.final_test_accuracy:.4f}", f"{ours} (n = {ours.seeds})", f"{info.parameter_count:,}", size]
        rows.append([published.label, model, *cells, str(info.epochs_done), info.git_commit[:10] if info.git_commit else "-"])
    caption = (
        "The weights that are kept: of seed 0; the accuracy over all seeds beside its own. Source: the run records in data/runs."
    )
    header = ["model", "name", "test accuracy", "over the seeds", "parameters", "file", "epochs", "commit"]
    return Table("model-cards", caption, header, rows)


# --- Table 3: who uses which encoding -------------------------------------------------------------------------------


def _sinusoids() -> torch.Tensor:
    return encodings.sinusoidal_encoding(6, dim=8)


def _relative_sinusoids() -> torch.Tensor:
    return encodings.sinusoidal_encoding(11, dim=8)[axis_shifts(6) + 5]  # r_delta: the vector of the shift, not of the place


def _learned() -> torch.Tensor:
    return encodings.LearnedAbsoluteEncoding(6, dim=8)()


def _learned_relative() -> torch.Tensor:
    return encodings.LearnedShiftEmbedding(4, 4, 4)(relative_shifts(4, 4))


def _quadratic() -> torch.Tensor:
    return encodings.quadratic_encoding(relative_shifts(4, 4).float())


# Model, what it encodes, then: sinusoids, learned, quadratic, relative as in Table 3; and what makes such an encoding here.
ENCODING_USERS: tuple[tuple[str, str, str, tuple[tuple[str, Callable[[], torch.Tensor]], ...]], ...] = (
    ("Vaswani et al. (2017)", "text", "x---", (("sinusoidal_encoding", _sinusoids),)),
    ("Radford et al. (2018)", "text", "-x--", (("LearnedAbsoluteEncoding", _learned),)),
    ("Devlin et al. (2018)", "text", "-x--", (("LearnedAbsoluteEncoding", _learned),)),
    ("Dai et al. (2019)", "text", "x--x", (("sinusoidal_encoding of shifts", _relative_sinusoids),)),
    ("Yang et al. (2019)", "text", "x--x", (("sinusoidal_encoding of shifts", _relative_sinusoids),)),
    ("Bello et al. (2019)", "images", "-x-x", (("LearnedShiftEmbedding", _learned_relative),)),
    ("Ramachandran et al. (2019)", "images", "-x-x", (("LearnedShiftEmbedding", _learned_relative),)),
    (
        "the paper",
        "images",
        "-xxx",
        (("LearnedShiftEmbedding", _learned_relative), ("quadratic_encoding", _quadratic)),
    ),
)


def table_3() -> Table:
    """Table 3: types of positional encoding, each made here: the last column is the shape of what the named function returned."""
    rows = []
    for user, what, marks, made in ENCODING_USERS:
        executed = "; ".join(f"{name}: {' × '.join(map(str, make().shape))}" for name, make in made)
        rows.append([user, what, *("yes" if mark == "x" else "-" for mark in marks), executed])
    caption = (
        "Table 3. Types of positional encoding. Source: the paper; the last column is executed, a shape for six words or for"
        " 4 × 4 pixels, shifts between all pairs where the encoding is relative."
    )
    header = ["model", "applied to", "sinusoids", "learned", "quadratic", "relative", "made here by encodings.py"]
    return Table("table-3", caption, header, rows)


# --- beyond the paper -----------------------------------------------------------------------------------------------


def lemma_1_table(record: RunRecord) -> Table:
    """Per layer: how many heads nearly meet Lemma 1, how many shifts of a 3 x 3 kernel they cover, and Lemma 3's residual.

    The residual is of attention that does not depend on the image; with content there is none.
    """
    header = ["layer", "heads with mass ≥ 0.9", "with mass ≥ 0.5", "median mass", "median effective pixels"]
    header += ["centre to nearest pixel, median", "of 9 shifts, covered", "largest residual of Lemma 3"]
    rows, encodings_then = [], record.encodings()
    for number, heads in enumerate(heads_of(record)):
        off = f"{heads.off_pixel.median():.2f}" if heads.centers is not None else "-"
        residual = f"{lemma_3_residual(encodings_then[number], *record.grid).max():.2f}" if encodings_then else "-"
        counts = [f"{int((heads.mass >= share).sum())} of {len(heads.mass)}" for share in (0.9, 0.5)]
        middle = [f"{heads.mass.median():.2f}", f"{heads.entropy.exp().median():.1f}", off]
        rows.append([str(number + 1), *counts, *middle, str(heads.covered(3)), residual])
    caption = (
        "How close each layer is to Lemmas 1 and 3. Mass: a head's mean probability of its best shift, over the query pixels; a"
        " shift of the 3 × 3 kernel is covered by a head with at least half of its mass there. Effective pixels: of the map from"
        f" the middle pixel; with content, of its mean over 100 test images, which blurs. Source: {record.source}."
    )
    return Table(f"lemma-1-{record.name}", caption, header, rows)


def pruning_table(record: RunRecord) -> Table:
    """What pruning degenerate heads removes and costs, from the record of a pruned run."""
    parent, parameters = record.info.parent, record.info.parameters
    size, left = IMAGE_SIZES[parameters["dataset"]], heads_left(record)
    whole, pruned = (cost_of(build_network(parameters, heads), size) for heads in ([9] * len(left), left))
    rows = [["test accuracy", f"{parent['test_accuracy']:.4f}", f"{parent['test_accuracy_after_pruning']:.4f}"]]
    rows[0].append(f"{record.info.final_test_accuracy:.4f}")
    for name, before, after in (
        ("heads", 9 * len(left), sum(left)),
        ("parameters", whole.parameters, pruned.parameters),
        ("FLOPs as published", whole.flops_paper, pruned.flops_paper),
        ("FLOPs, every product", whole.flops, pruned.flops),
    ):
        rows.append([name, f"{before:,}", f"{after:,}", f"{after:,} ({after / before - 1:+.1%})"])
    caption = (
        f"Pruning heads with a condition number above {parent['max_condition']:g} or a largest eigenvalue below"
        f" {parent['min_eigenvalue']:g}; heads removed per layer: {[9 - kept for kept in left]}. Source: {record.source}."
    )
    after = f"after {record.info.epochs_done} more epochs"
    return Table(f"pruning-{record.name}", caption, ["quantity", "before", "just after", after], rows)


# --- the records themselves -----------------------------------------------------------------------------------------


def records_table(runs: Sequence[RunRecord], name: str) -> Table:
    """Every run: how it went, on what, and from which code. `pages.commands_of` has the commands that repeat them."""
    header = ["record", "epochs", "test accuracy, last (best)", "images/s", "minutes", "on", "data", "commit"]
    rows = []
    for record in runs:
        info = record.info
        speed = f"{info.images_per_second:,.0f}" if info.images_per_second else "-"
        commit = info.git_commit[:10] + "+" * info.git_commit.endswith("+") if info.git_commit else "not known"
        accuracy = f"{info.final_test_accuracy:.4f} ({info.best_test_accuracy:.4f})" if info.epochs_done else "-"
        epochs = f"{info.epochs_done} of {info.parameters['epochs']}"
        data = f"{info.dataset['name']} {info.dataset['fingerprint'][:8]}"
        where = f"{info.hardware['device']}, torch {info.versions['torch']}"
        rows.append([record.name, epochs, accuracy, speed, f"{info.wall_seconds / 60:.1f}", where, data, commit])
    return Table(name, "Run records. A commit with + had changes on top. Source: run.json of each.", header, rows)
