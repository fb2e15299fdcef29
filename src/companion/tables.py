"""The paper's tables, with published and measured values, and further tables.

Numbers are computed or read from run records. `-` marks a value that does not exist. Where
a run is missing, the cell reads "not run" or gives the reason.
"""

import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from torch import nn

from attnconv.cost import Cost, cost_of
from attnconv.layers.encodings import LearnedAbsoluteEncoding, LearnedOffsetEmbedding
from attnconv.networks import SelfAttentionNet, build_model
from attnconv.theory.encodings import quadratic_encoding, sinusoidal_encoding
from attnconv.theory.grid import axis_offsets, relative_offsets

from .accuracy import Accuracy, with_seeds
from .build import build_network
from .display import Table
from .heads import heads_of, lemma_3_residual
from .runs.parameters import MOMENTUM, Network, RunParameters
from .runs.record import RunRecord, find_runs
from .runs.select import Records
from .runs.weights import WEIGHTS_FILE
from .specs import MODELS, SPECS, TABLE_1, TABLE_2, TABLE_4
from .store import REPOSITORY
from .tiers import TIERS

# --- Tables 1 and 4, and their counterparts in other tiers ----------------------------------------


@cache
def cost_in_table(model: str, heads: tuple[int, ...] | None = None) -> Cost:
    """Return the size of a model in Table 4 and its FLOPs for one image of 32 x 32 pixels.

    `heads` lists the number of heads in each layer, for a run that did not prune the same heads as
    the paper.
    """
    return cost_of(build_model(model, **({"num_heads": heads} if heads else {})))


def table_1(records: Records) -> Table:
    """Return Table 1: test accuracy on CIFAR-10 and model sizes."""
    return _accuracies("Table 1", "Test accuracy on CIFAR-10 and model sizes", TABLE_1, records)


def table_4(records: Records) -> Table:
    """Return Table 4: accuracy, parameters and FLOPs, including the models of appendix F."""
    return _accuracies("Table 4", "Accuracy, parameters and FLOPs per model", TABLE_4, records)


def _accuracies(name: str, what: str, models: Sequence[str], records: Records) -> Table:
    caption = (
        f"{name}. {what}, published and measured. Measured accuracies are those after the last"
        ' epoch (mean ± standard deviation over seeds) and, in the column "best", after the best'
        ' one. Numbers in brackets are as printed; "all FLOPs" counts every product. Source: the'
        " paper; data/runs; the replication by Varma and Prabhu (2020), one seed; cost_of."
    )
    rows = [_accuracy_row(model, records) for model in models]
    return Table.of(name.lower().replace(" ", "-"), caption, rows)


def _accuracy_row(model: str, records: Records) -> dict[str, str]:
    spec = MODELS[model]
    published = spec.published
    runs = records.of(model)
    ours = Accuracy.of(runs) if runs else None
    state = records.state(model)
    cost = cost_in_table(model, runs[0].heads_left if runs and spec.parent else None)
    size, flops = (f" ({text})" if text else "" for text in (published.parameters, published.flops))
    difference = ours.last - published.accuracy if ours and published.accuracy else None
    return {
        "model": spec.label,
        "published": _published(model),
        "replication": f"{published.replicated:.4f}" if published.replicated else "-",
        "measured": (f"{ours} ({state})" if state else str(ours)) if ours else state,
        "difference": "-" if difference is None else f"{difference:+.4f}",
        "best": f"{ours.best:.4f}" if ours else "-",
        "conditions": ours.conditions if ours else "-",
        "parameters": f"{cost.parameters:,}{size}",
        "FLOPs, G": f"{cost.flops_paper / 1e9:.3f}{flops}",
        "all FLOPs, G": f"{cost.flops / 1e9:.3f}",
    }


def _published(model: str) -> str:
    accuracy = MODELS[model].published.accuracy
    return f"{accuracy:.3f}" if accuracy else "-"


def summary(records: Records) -> Table:
    """Return a table of each model's published accuracy, accuracy in two tiers, and size."""
    paper = records.at("paper")
    small = records.at("small")
    rows = [
        {
            "model": MODELS[model].label,
            "name": model,
            "published": _published(model),
            "paper tier": _measured(paper, model),
            "small tier": _measured(small, model),
            "parameters, paper / small": f"{_size(paper, model)} / {_size(small, model)}",
        }
        for model in TABLE_4
    ]
    caption = (
        "Test accuracy on CIFAR-10, as published (one seed) and as measured here after the last"
        " epoch (mean ± standard deviation over n seeds). The paper tier has the paper's sizes and"
        " recipe. The small tier has narrower networks, so its accuracies can be compared only with"
        " each other. The pruned model's epochs include its parent's. Source: data/runs."
    )
    return Table.of("summary", caption, rows)


def _measured(records: Records, model: str) -> str:
    if not (runs := records.of(model)):
        return records.state(model)
    ours = Accuracy.of(runs)
    parent = runs[0].parent
    epochs = parent["epochs"] + runs[0].info.epochs_done if parent else ours.epochs
    return f"{ours} (n = {ours.seeds}, {epochs} epochs)"


def _size(records: Records, model: str) -> str:
    """Return a model's number of parameters, from its first run if there is one, or its recipe."""
    if runs := records.of(model):
        return f"{runs[0].info.parameter_count:,}"
    given = RunParameters.check({"model": model, "dataset": "cifar10", "tier": records.tier})
    return f"{sum(p.numel() for p in build_network(given.model_dump()).parameters()):,}"


def small_table(records: Records) -> Table:
    """Return the small tier's version of Table 4: accuracy, size, cost and training time."""
    tiers = records.at("small"), records.at("small-long")
    rows = [
        _small_row(at_tier, model)
        for model in TABLE_4
        for at_tier in tiers
        if at_tier.of(model) or at_tier.tier == "small"
    ]
    caption = (
        "Test accuracy of the small tier, trained on all of CIFAR-10, after the last epoch (mean ±"
        " standard deviation over the seeds). FLOPs are for one image, counted as in the paper;"
        ' "all FLOPs" counts every product. Minutes are for one run. Source: records in data/runs.'
    )
    return Table.of("table-4-small", caption, rows)


def _small_row(records: Records, model: str) -> dict[str, str]:
    row = {"model": MODELS[model].label}
    if not (runs := records.of(model)):
        return row | {"test accuracy": records.state(model)}
    ours = Accuracy.of(runs)
    cost = cost_of(build_network(runs[0].info.parameters, runs[0].heads_left))
    minutes = statistics.mean(record.info.wall_seconds for record in runs) / 60
    return row | {
        "test accuracy": str(ours),
        "seeds": str(ours.seeds),
        "epochs": ours.epochs,
        "parameters": f"{cost.parameters:,}",
        "FLOPs, M": f"{cost.flops_paper / 1e6:.1f}",
        "all FLOPs, M": f"{cost.flops / 1e6:.1f}",
        "minutes": f"{minutes:.0f}",
        "hardware": "; ".join(sorted({_hardware(record) for record in runs})),
    }


def _hardware(record: RunRecord) -> str:
    device, threads = (record.info.hardware[name] for name in ("device", "threads"))
    return f"{device}, {threads} thread{'s' if threads > 1 else ''}"


def quick_results(runs: Sequence[RunRecord]) -> Table:
    """Return Table 4 for the quick tier, whose networks were trained while the book was built."""
    rows = [
        {
            "model": MODELS[record.info.parameters["model"]].label,
            "test accuracy": f"{record.accuracy:.3f}",
            "epochs": str(record.info.epochs_done),
            "parameters": f"{record.info.parameter_count:,}",
            "training": f"{record.info.wall_seconds:.0f} s",
        }
        for record in runs
    ]
    caption = (
        "Quick tier: all seven models run and learn. The test accuracy is that of one seed on"
        " scikit-learn's digits after a few epochs, and says nothing about the paper's results."
        f" Source: networks trained during the build, on {runs[0].info.hardware['device']}."
    )
    return Table.of("quick-results", caption, rows)


# --- Table 2 and other recipes: how the models are trained ----------------------------------------


def table_2(records: Records) -> Table:
    """Return Table 2: the attention networks' parameters in the paper, our recipe and our runs."""
    recipe = RunParameters.check({"model": "sa-quadratic", "dataset": "cifar10"})
    model = cast(SelfAttentionNet, build_model("sa-quadratic"))
    norm = cast(nn.LayerNorm, model.get_submodule("blocks.0.attention_norm"))
    elsewhere = {
        "number of heads": str(model.attentions[0].num_heads),
        "layer normalization epsilon": f"{norm.eps:g}",
        "momentum": f"{MOMENTUM:g}",
    }
    columns = {
        name: records.of(name)[0] for name in TABLE_4 if MODELS[name].attention and records.of(name)
    }
    rows = []
    for label, printed, parameter in TABLE_2:
        ours = f"{getattr(recipe, parameter)}" if parameter else elsewhere[label]
        used = [_used(record, label, parameter) for record in columns.values()]
        rows.append([label, printed, ours, *used])
    used = "the run records (-: not recorded)." if columns else "no run records yet."
    caption = (
        "Table 2. Parameters of the self-attention networks. Source: the paper;"
        f" companion.tiers.PAPER_RECIPE; the model itself; {used}"
    )
    return Table("table-2", caption, ["parameter", "paper", "recipe here", *columns], rows)


def _used(record: RunRecord, label: str, parameter: str | None) -> str:
    if parameter:
        return str(record.info.parameters[parameter])
    if label == "number of heads":
        counts = [str(len(heads.maps)) for heads in heads_of(record)]
        return ", ".join(counts if len(set(counts)) > 1 else counts[:1])
    return "-"  # set in the code, not in a record


#: One model for each kind of recipe.
KINDS = {"attention": "sa-quadratic", "ResNet18": "resnet18", "pruned": "sa-generalized-pruned"}


def tier_recipe() -> Table:
    """Return a table of the parameters that differ between the paper tier and the small tier."""
    recipes = {
        kind: [_recipe(model, tier) for tier in ("paper", "small")] for kind, model in KINDS.items()
    }
    rows = []
    for name in recipes["attention"][0]:
        kinds: dict[tuple[str, str], list[str]] = {}
        for kind in recipes:
            if _matters(kind, name):
                paper, small = (str(recipe[name]) for recipe in recipes[kind])
                kinds.setdefault((paper, small), []).append(kind)
        for (paper, small), alike in kinds.items():
            if name != "tier" and paper != small:
                rows.append([name, ", ".join(alike), paper, small])
    caption = (
        "Differences between the small tier's recipe and the paper's. Source: PAPER_RECIPE and"
        " SMALL_RECIPE in companion.tiers."
    )
    header = ["parameter", "applies to", "paper tier", "small tier"]
    return Table("tier-recipe", caption, header, rows)


def _recipe(model: str, tier: str) -> dict[str, Any]:
    """Return a model's parameters in a tier, on the device for which the tier is intended."""
    parameters = RunParameters.check({"model": model, "dataset": "cifar10", "tier": tier})
    epochs = {"parent_epochs": parameters.parent().epochs} if MODELS[model].parent else {}
    return parameters.on("cuda" if TIERS[tier].needs_gpu else "cpu").identity() | epochs


def _matters(kind: str, parameter: str) -> bool:
    """Return whether networks of a kind ("attention", "pruned", "ResNet18") have a parameter."""
    of_attention = parameter in Network.names() or parameter == "position_rate"
    return parameter != "width" if kind != "ResNet18" else not of_attention


def pilot_table() -> Table:
    """Return a table of the pilot runs from which the small tier's recipe was chosen."""
    folders = sorted((REPOSITORY / "data" / "pilot").iterdir())
    rows = [_pilot_row(path.name, record) for path in folders for record in find_runs(path)[0]]
    caption = (
        "Pilot runs with seed 0: accuracy on 5,000 held-out training images after each epoch. The"
        " learning rate decreases to zero over the epochs of a run. Each run used one thread, and"
        " several runs shared two cores. Source: the records in data/pilot."
    )
    return Table.of("pilot", caption, rows)


#: The parameters that differ between the pilots.
VARIED = (
    *("learning_rate", "optimizer", "weight_decay"),
    *("hidden", "intermediate", "pooling", "width"),
)


def _pilot_row(name: str, record: RunRecord) -> dict[str, str]:
    info = record.info
    kind = "attention" if MODELS[info.parameters["model"]].attention else "ResNet18"
    used = [f"{each} {info.parameters[each]}" for each in VARIED if _matters(kind, each)]
    return {
        "pilot": name,
        "applies to": kind,
        "parameters": ", ".join(used),
        "epochs": f"{info.epochs_done} of {info.parameters['epochs']}",
        "held-out accuracy": ", ".join(f"{entry['test_accuracy']:.3f}" for entry in record.metrics),
        "minutes": f"{info.wall_seconds / 60:.0f}",
    }


# --- Table 3 --------------------------------------------------------------------------------------

#: By author: the input, an x for each kind of encoding that is used, and names in `encodings`.
ENCODING_USERS: dict[str, tuple[str, ...]] = {
    "Vaswani et al. (2017)": ("text", "x---", "sinusoidal_encoding"),
    "Radford et al. (2018)": ("text", "-x--", "LearnedAbsoluteEncoding"),
    "Devlin et al. (2018)": ("text", "-x--", "LearnedAbsoluteEncoding"),
    "Dai et al. (2019)": ("text", "x--x", "sinusoidal_encoding of offsets"),
    "Yang et al. (2019)": ("text", "x--x", "sinusoidal_encoding of offsets"),
    "Bello et al. (2019)": ("images", "-x-x", "LearnedOffsetEmbedding"),
    "Ramachandran et al. (2019)": ("images", "-x-x", "LearnedOffsetEmbedding"),
    "the paper": ("images", "-xxx", "LearnedOffsetEmbedding", "quadratic_encoding"),
}


def table_3() -> Table:
    """Return Table 3: the types of positional encoding, with the shape of an example of each."""
    shifts = relative_offsets(4, 4)
    made = {
        "sinusoidal_encoding": sinusoidal_encoding(6, dim=8),
        # r_delta: the vector of the offset, not of the position
        "sinusoidal_encoding of offsets": sinusoidal_encoding(11, dim=8)[axis_offsets(6) + 5],
        "LearnedAbsoluteEncoding": LearnedAbsoluteEncoding(6, dim=8)(),
        "LearnedOffsetEmbedding": LearnedOffsetEmbedding(4, 4, 4)(shifts),
        "quadratic_encoding": quadratic_encoding(shifts.float()),
    }
    rows = []
    for user, (what, marks, *names) in ENCODING_USERS.items():
        shapes = (f"{name}: {' × '.join(map(str, made[name].shape))}" for name in names)
        kinds = zip(("sinusoids", "learned", "quadratic", "relative"), marks, strict=True)
        row = {"model": user, "applied to": what}
        row |= {kind: "yes" if mark == "x" else "-" for kind, mark in kinds}
        rows.append(row | {"implemented in encodings as": "; ".join(shapes)})
    caption = (
        "Table 3. Types of positional encoding. The last column, computed here, gives the shape of"
        " the encoding of six words or 4 × 4 pixels; relative encodings cover all pairs. Source:"
        " the paper."
    )
    return Table.of("table-3", caption, rows)


# --- single records -------------------------------------------------------------------------------


def lemma_1_table(record: RunRecord) -> Table:
    """Return a table of how close each layer's heads are to attending to a single offset (Lemma 1).

    It also gives each layer's residual of Lemma 3, except for models with content, because the
    residual is defined only for attention that does not depend on the image.
    """
    trained = record.history.encodings()
    residuals = [f"{lemma_3_residual(e, *record.grid).max():.2f}" for e in trained]
    rows = []
    for number, heads in enumerate(heads_of(record)):
        row = {
            "layer": str(number + 1),
            "heads with mass ≥ 0.9": f"{int((heads.mass >= 0.9).sum())} of {len(heads.mass)}",
            "heads with mass ≥ 0.5": f"{int((heads.mass >= 0.5).sum())} of {len(heads.mass)}",
            "median mass": f"{heads.mass.median():.2f}",
            "median effective pixels": f"{heads.entropy.exp().median():.1f}",
            "kernel positions covered (of 9)": str(heads.offsets_with_mass(3)),
        }
        if heads.centers is not None:
            row["centre to nearest pixel, median"] = f"{heads.off_pixel.median():.2f}"
        if residuals:
            row["largest residual of Lemma 3"] = residuals[number]
        rows.append(row)
    caption = (
        "How closely each layer meets the conditions of Lemmas 1 and 3. Mass is a head's"
        " probability at its best offset (among offsets of up to half the image), averaged over the"
        " queries for which this offset stays inside the image. A kernel position is covered"
        " if some head has at least half of its mass there. The effective pixels are those of the"
        " middle query's map or, with content, of its mean over 100 test images, which is blurred."
        f" The residual covers queries whose kernel lies inside the image. Source: {record.source}."
    )
    return Table.of(f"lemma-1-{record.name}", caption, rows)


def model_cards(records: Records) -> Table:
    """Return a table of the models with stored weights, with their accuracies and file sizes.

    They are the models of the small tier and the vision transformer of chapter 17 that starts
    as a convolution.
    """
    caption = (
        "Models with stored weights. The weights are those of seed 0; accuracies are given for this"
        " seed and averaged over all seeds. Source: the run records in data/runs."
    )
    rows = [_model_card(records.at("small"), model) for model in (*TABLE_4, "cnn")]
    rows.append(_model_card(records.at("vit-10k"), "vit-convolution"))
    return Table.of("model-cards", caption, rows)


def _model_card(records: Records, model: str) -> dict[str, str]:
    card = {"model": SPECS[model].label, "name": model}
    runs = records.of(model)
    kept = [record for record in runs if (record.folder / WEIGHTS_FILE).exists()]
    if not kept:
        why = records.state(model) or "not kept"
        return card | {"test accuracy": f"no weights yet: {why}"}
    info = kept[0].info
    return card | {
        "test accuracy": f"{info.final_test_accuracy:.4f}",
        "mean over seeds": with_seeds(runs),
        "parameters": f"{info.parameter_count:,}",
        "file": f"{(kept[0].folder / WEIGHTS_FILE).stat().st_size / 1e6:.2f} MB",
        "epochs": str(info.epochs_done),
        "commit": info.git_commit[:10] if info.git_commit else "-",
    }


def records_table(runs: Sequence[RunRecord], name: str) -> Table:
    """Return a table of runs, with the result, hardware and code commit of each.

    `display.commands_of` lists the commands that repeat the runs.
    """
    caption = "Run records. A + marks uncommitted changes. Source: the run.json of each record."
    return Table.of(name, caption, [_record_row(record) for record in runs])


def _record_row(record: RunRecord) -> dict[str, str]:
    info = record.info
    commit = info.git_commit
    state = "" if info.status == "finished" else f", {info.status}"
    short = commit[:10] + "+" * commit.endswith("+") if commit else "not known"
    return {
        "record": record.name,
        "epochs": f"{info.epochs_done} of {info.parameters['epochs']}" + state,
        "test accuracy, last (best)": (
            f"{record.accuracy:.4f} ({record.best_accuracy:.4f})" if info.epochs_done else "-"
        ),
        "images/s": f"{info.images_per_second:,.0f}" if info.images_per_second else "-",
        "minutes": f"{info.wall_seconds / 60:.1f}",
        "hardware": f"{info.hardware['device']}, torch {info.versions['torch']}",
        "data": f"{info.dataset['name']} {info.dataset['fingerprint'][:8]}",
        "commit": short,
    }
