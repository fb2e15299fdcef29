"""Table 2, and the small tier's recipe: how the models are trained."""

from pathlib import Path
from typing import Any, cast

from torch import nn

from ...measures.heads import heads_of
from ...models import MODELS, SelfAttentionNet, build_model
from ...models.specs import TABLE_2, TABLE_4
from ...runs.parameters import MOMENTUM, Network, RunParameters
from ...runs.record import RunRecord, find_runs
from ...runs.select import Records
from ...store import REPOSITORY
from .table import Table


def table_2(records: Records) -> Table:
    """Table 2: the self-attention networks' parameters as printed, as this project's recipe has
    them, and as used in runs."""
    recipe = RunParameters.check({"model": "sa-quadratic", "dataset": "cifar10"})
    model = cast(SelfAttentionNet, build_model("sa-quadratic"))
    norm = cast(nn.LayerNorm, model.get_submodule("blocks.0.attention_norm"))
    elsewhere = {
        "number of heads": str(model.attentions[0].num_heads),
        "layer normalization epsilon": f"{norm.eps:g}",
        "momentum": f"{MOMENTUM:g}",
    }
    columns = {
        name: records.of(name)[0] for name in TABLE_4 if MODELS[name].encoding and records.of(name)
    }
    rows = []
    for label, printed, parameter in TABLE_2:
        ours = f"{getattr(recipe, parameter)}" if parameter else elsewhere[label]
        used = [_used(record, label, parameter) for record in columns.values()]
        rows.append([label, printed, ours, *used])
    caption = (
        "Table 2. Parameters of the self-attention networks. Source: the paper;"
        " models.specs.PAPER_RECIPE, the model itself; "
        + (
            "the run records; - stands for what no record holds."
            if columns
            else "no run record yet."
        )
    )
    return Table("table-2", caption, ["parameter", "paper", "recipe here", *columns], rows)


def _used(record: RunRecord, label: str, parameter: str | None) -> str:
    if parameter:
        return str(record.info.parameters[parameter])
    if label == "number of heads":
        counts = [len(heads.maps) for heads in heads_of(record)]
        return str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))
    return "-"  # the code's, in no record


def tier_recipe() -> Table:
    """What the small tier has otherwise than the paper tier, per parameter, for attention and for
    the ResNet18."""
    models = {
        "attention": "sa-quadratic",
        "ResNet18": "resnet18",
        "pruned": "sa-generalized-pruned",
    }
    chosen = {
        (label, tier): _chosen(model, tier)
        for label, model in models.items()
        for tier in ("paper", "small")
    }
    rows = []
    for name in chosen["attention", "paper"]:
        alike: dict[tuple[str, str], list[str]] = {}
        for label in filter(lambda label: _matters(label, name), models):
            alike.setdefault(
                (str(chosen[label, "paper"][name]), str(chosen[label, "small"][name])), []
            ).append(label)
        rows += [
            [name, ", ".join(labels), *tiers]
            for tiers, labels in alike.items()
            if name != "tier" and len(set(tiers)) > 1
        ]
    caption = (
        "What the small tier's recipe has otherwise than the paper's. Source: PAPER_RECIPE and"
        " SMALL_RECIPE of models.specs."
    )
    return Table("tier-recipe", caption, ["parameter", "of", "paper tier", "small tier"], rows)


def _chosen(model: str, tier: str) -> dict[str, Any]:
    """A tier's parameters of a model, where it is meant to be trained: on a GPU or a CPU."""
    parameters = RunParameters.check({"model": model, "dataset": "cifar10", "tier": tier})
    epochs = {"parent_epochs": parameters.parent().epochs} if MODELS[model].parent else {}
    return parameters.on("cuda" if tier == "paper" else "cpu").identity() | epochs


def _matters(label: str, parameter: str) -> bool:
    of_attention = parameter in Network.names() or parameter == "position_rate"
    return parameter != "width" if label != "ResNet18" else not of_attention


def pilot_table(folder: str | Path = "") -> Table:
    """The runs on held-out training images by which the small tier's recipe was chosen: one folder
    each in `data/pilot`."""
    folders = sorted((Path(folder) if folder else REPOSITORY / "data" / "pilot").iterdir())
    rows = [_pilot_row(path.name, record) for path in folders for record in find_runs(path)[0]]
    caption = (
        "Pilot runs, seed 0: accuracy on 5,000 held-out training images after each epoch. The"
        " schedule falls to zero within the epochs asked for. Minutes on one thread, several runs"
        " sharing two cores. Source: the records in data/pilot."
    )
    return Table.of("pilot", caption, rows)


def _pilot_row(name: str, record: RunRecord) -> dict[str, str]:
    info, kind = record.info, _kind(record)
    varied = ["learning_rate", "optimizer", "weight_decay", "hidden", "intermediate", "pooling"]
    varied += ["width"]
    used = [f"{name} {info.parameters[name]}" for name in varied if _matters(kind, name)]
    return {
        "pilot": name,
        "of": kind,
        "parameters": ", ".join(used),
        "epochs": f"{info.epochs_done} of {info.parameters['epochs']}",
        "held-out accuracy": ", ".join(f"{entry['test_accuracy']:.3f}" for entry in record.metrics),
        "minutes": f"{info.wall_seconds / 60:.0f}",
    }


def _kind(record: RunRecord) -> str:
    return "attention" if MODELS[record.info.parameters["model"]].encoding else "ResNet18"
