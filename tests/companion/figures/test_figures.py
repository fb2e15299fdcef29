"""Every figure draws what it is given; numbers are checked, not pixels."""

import base64
import inspect
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from helpers import ROOT
from helpers.synthetic import attention_of, write_record
from helpers.ways import content_probabilities

from attnconv import attention_probabilities, build_model, figures, inspect_attention, load_model
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.networks import PUBLISHED_HEADS_LEFT
from attnconv.theory.grid import offset_set
from companion.data import load_dataset, load_photograph
from companion.explorer import source
from companion.figures.paper import FIGURE_2, FIGURE_13
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.studies.cost import Measured

HEADS = QuadraticEncoding.from_alpha(offset_set((3, 3)).float(), alpha=1.5)
MAPS = attention_probabilities(HEADS, 7, 8)


@pytest.fixture(scope="module")
def runs(paper_records):
    return {path.name.partition("--")[0]: load_run(path) for path in paper_records.iterdir()}


# From records, by the figure's name: the models that it is drawn of. Then what is drawn of other
# things.
OF_RECORDS = {
    "figure_2": FIGURE_2,
    "figure_13": FIGURE_13,
    "figure_3": ["sa-quadratic", "sa-generalized"],
    "figure_4": ["sa-quadratic", "sa-generalized-pruned"],
    "figure_5": ["sa-learned"],
    "figure_6": ["sa-learned-content"],
    "figure_7": ["sa-learned-content"],
    "figure_8": ["sa-learned-content"],
    "figure_9": ["sa-learned-content"],
    "figure_10": ["sa-learned-content"],
    "figure_12": ["sa-generalized"],
    "figure_14": ["sa-quadratic-16"],
    "head_locality": ["sa-quadratic", "sa-learned", "sa-learned-content"],
    "exactness": ["sa-quadratic", "sa-quadratic-16"],
}
DRAWINGS = {
    "figure_1": lambda: figures.figure_1(torch.rand(7, 8, 3), MAPS, (3, 4)),
    "figure_11": lambda: figures.figure_11(
        torch.randn(6, 9), torch.rand(9, 56), torch.randn(6, 9), torch.rand(9, 56)
    ),
    "image_grid": lambda: figures.image_grid(
        [torch.rand(7, 8, 3), torch.randn(7, 8), torch.zeros(7, 8)], list("abc")
    ),
    "claim": figures.claim,
    "still": figures.still,
    "descent_still": figures.descent_still,
    "network_still": lambda: figures.network_still(load_model("cnn"), load_model("sa-quadratic")),
    "gaps": lambda: figures.gaps(Records.read()),
    "accuracy_kept": lambda: figures.accuracy_kept(Records.read()),
    "scaling": lambda: figures.scaling(Records.read()),
    "starts": lambda: figures.starts(Records.read()),
    "sums_of_cosines": lambda: figures.sums_of_cosines((4, 12), (-2, 3), 1.5),
    "attention_report": lambda: figures.attention_report(inspect_attention(MAPS[None])),
    "network": lambda: figures.network(build_model("sa-learned-content", num_layers=2), 32),
    "score_maps": lambda: figures.score_maps(torch.randn(2, 7, 8), ["a", "b"], (1, 2)),
    "attention_maps": lambda: figures.attention_maps(MAPS, (3, 4), columns=5),
    "alpha_curves": lambda: figures.alpha_curves(
        [1, 2], {"float32": [1.0, 0.0]}, {"float32": 1.5}, "gap"
    ),
    "head_paths": lambda: figures.head_paths(torch.randn(5, 9, 2)),
    "curves": lambda: figures.curves({"a": [1, 2], "b": [2, 1]}, "x", "y", log="y"),
    "cost_curves": lambda: figures.cost_curves(
        {
            "a": {8: Measured(1e3, 0.1, 2.0), 16: Measured(4e3, 0.3, 0.0)},
            "b": {8: Measured(1e5, 0.2, 1.0)},
        }
    ),
    "head_maps": lambda: figures.head_maps(torch.rand(5, 7, 8), "kernels", columns=3),
    "offset_grid": lambda: figures.offset_grid([torch.rand(3, 3)], ["a"]),
}


def texts(figure):
    return [text.get_text() for text in figure.findobj(plt.Text)]


def test_every_figure_is_listed_here():
    public = {
        name
        for name, function in inspect.getmembers(figures, inspect.isfunction)
        if function.__module__.startswith("companion.")
    }
    chapter_15 = {"arm_accuracies", "heads_before_and_after", "layer_paths", "over_training"}
    elsewhere = {"mass_threshold"} | chapter_15  # see tests/companion/studies/freed/test_claims.py
    assert public == set(DRAWINGS) | set(OF_RECORDS) | elsewhere
    assert {f"figure_{number}" for number in range(1, 15)} <= public


def check_drawn(figure, tmp_path):
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 3000
    assert not plt.get_fignums(), "a figure left open would be shown twice in a notebook"


@pytest.mark.parametrize("name", list(DRAWINGS))
def test_it_draws(name, tmp_path):
    check_drawn(DRAWINGS[name](), tmp_path)


@pytest.mark.parametrize(
    ("name", "model"), [(name, model) for name, models in OF_RECORDS.items() for model in models]
)
def test_it_draws_a_record_and_names_it(name, model, runs, tmp_path):
    draw = getattr(figures, name)
    figure = draw([runs[model]] if name in ("figure_2", "figure_13") else runs[model])
    check_drawn(figure, tmp_path)
    assert any(runs[model].name in text and "an imagined GPU" in text for text in texts(figure)), (
        "the source stands below"
    )


def test_the_attention_report_marks_the_best_offset_of_each_head():
    layers = [MAPS, MAPS[:4, :5, :5, :5, :5]]
    layers[1] = layers[1] / layers[1].sum(dim=(-2, -1), keepdim=True)
    report = inspect_attention(layers)
    figure = figures.attention_report(report, "a source")
    assert {"layer 1", "layer 2", "a source"} <= set(texts(figure))
    shown = [ax for ax in figure.axes if ax.images]
    heads = [(layer, head) for layer in report.layers for head in range(len(layer.maps))]
    for ax, (layer, head) in zip(shown, heads, strict=True):
        image = ax.images[0].get_array()
        (column,), (row,) = ax.lines[0].get_data()
        assert image[int(row), int(column)] == image.max() == float(layer.heads.mass[head])
        middle = [int(row) - image.shape[0] // 2, int(column) - image.shape[1] // 2]
        assert middle == offset_set((3, 3))[head].tolist()
        assert ax.get_title() == f"{head + 1}: {float(layer.heads.mass[head]):.2f}"
    with pytest.raises(ValueError, match="report without layers"):
        figures.attention_report(inspect_attention([]))


def test_the_network_is_drawn_with_its_own_sizes():
    found = texts(
        figures.network(build_model("sa-generalized-pruned", hidden=40, intermediate=7), 32)
    )
    heads = " or ".join(map(str, sorted(set(PUBLISHED_HEADS_LEFT))))
    assert {
        "6 blocks\n16 × 16 × 40",
        f"attention\n{heads} heads",
        "perceptron\n40 → 7\n→ 40",
    } <= set(found)


def test_figures_1_and_11_need_nothing(tmp_path):
    check_drawn(figures.figure_1(), tmp_path)
    figure = figures.figure_11()
    check_drawn(figure, tmp_path)
    by_conv, by_attention = (figure.axes[index].images[0].get_array() for index in (0, 3))
    assert np.allclose(by_conv, by_attention, atol=1e-12), "the two products are equal"
    sizes = [text for text in texts(figure) if " × " in text]
    assert len(sizes) == 6 and "5 × 24" in "".join(sizes) and "6 × 4" in "".join(sizes)


@pytest.mark.parametrize("name", ["figure_3", "figure_5", "figure_6", "figure_8", "exactness"])
def test_the_wrong_model_is_refused_by_name(name, runs):
    with pytest.raises((ValueError, KeyError), match="resnet18--cifar10--seed0 has no"):
        getattr(figures, name)(runs["resnet18"])


def test_lines_are_svg_and_the_same_each_time(runs):
    first, second = (figures.figure_4(runs["sa-quadratic"])._repr_svg_() for _ in range(2))
    assert first == second and first.lstrip().startswith("<?xml") and len(first) < 1_000_000
    assert not hasattr(figures.figure_5(runs["sa-learned"]), "_repr_svg_"), "maps are PNG"


def test_accuracy_curves_show_the_published_and_what_was_not_run(runs, tmp_path):
    figure = figures.figure_2(
        [runs["resnet18"], write_record(tmp_path, "resnet18", accuracy=0.94, seed=1)]
    )
    ax = figure.axes[0]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == [
        "ResNet18 (2 seeds)",
        "SA quadratic: not run",
        "SA learned: not run",
        "SA learned + content: not run",
    ]
    triangles = [float(line.get_ydata()[0]) for line in ax.lines if line.get_marker() == 4]
    assert triangles == [0.938, 0.938, 0.918, 0.871]
    mean = next(line for line in ax.lines if line.get_label().startswith("ResNet18"))
    assert np.allclose(mean.get_ydata()[-1], (0.9 + 0.94) / 2)
    empty = figures.figure_13([])
    assert sum("not run" in text for text in texts(empty)) == 6
    pruned = figures.figure_13([runs["sa-generalized-pruned"]]).axes[0]
    assert any(np.array_equal(line.get_xdata(), [10, 11, 12]) for line in pruned.lines), (
        "it goes on after nine epochs"
    )


def test_figure_5_orders_heads_by_locality(runs):
    figure = figures.figure_5(runs["sa-learned"])
    values = [float(ax.get_title().partition(": ")[2]) for ax in figure.axes]
    assert len(values) == 54 and all(
        values[i : i + 9] == sorted(values[i : i + 9], reverse=True) for i in range(0, 54, 9)
    )
    assert figure.axes[0].images[0].get_array().shape == (7, 7)


def test_figure_7_has_another_query_than_figure_6(runs):
    first, second = (
        draw(runs["sa-learned-content"]) for draw in (figures.figure_6, figures.figure_7)
    )
    squares = [figure.axes[0].patches[0].get_xy() for figure in (first, second)]
    assert squares[0] == (7.5, 7.5) and squares[1] == (2.5, 2.5)
    shown = first.axes[10].images[0].get_array()  # layer 2, head 2
    assert np.allclose(
        shown, runs["sa-learned-content"].attention["mean_maps"][1, 1, 4].float().numpy()
    )


def test_single_images_are_pictures_if_the_weights_are_stored():
    """The maps against those that are captured in the forward pass of all layers."""
    record = load_run(ROOT / "data" / "runs" / "sa-learned-content--cifar10-small--seed0")
    figure = figures.figure_9(record)
    horse = load_photograph("horse")
    assert any(text.startswith("picture: horse |") for text in texts(figure))
    model = load_model("sa-learned-content")
    inputs = model.transform((255 * horse).byte().numpy())[None]
    middle = [maps[0, :, 4, 4] for maps in content_probabilities(model, inputs)]
    shown = np.stack([ax.images[0].get_array() for ax in figure.axes[1:]])
    assert np.allclose(shown, torch.cat(middle).numpy(), atol=1e-6)
    side = min(horse.shape[:2])
    left = (horse.shape[1] - side) // 2
    ink = figure.axes[0].images[0].get_array().mean()
    assert ink == pytest.approx(horse[:, left : left + side].mean().item(), abs=1e-3)


def test_single_images_are_test_images_without_weights(runs, tmp_path, monkeypatch):
    digits = load_dataset("digits")
    for at_hand in (None, digits):  # other data than the record's are not shown as its own
        monkeypatch.setattr(
            "companion.figures.trained_heads.dataset_at_hand", lambda name, found=at_hand: found
        )
        figure = figures.figure_9(runs["sa-learned-content"])
        assert any(
            text.startswith("test image 2 of cifar10, which is not") for text in texts(figure)
        )
        assert (figure.axes[0].images[0].get_array() == 1).all()
    data = {
        "name": "digits",
        "fingerprint": digits.fingerprint,
        "train_images": 1437,
        "test_images": 360,
    }
    record = write_record(
        tmp_path, "sa-learned-content", dataset=data, attention=attention_of("sa-learned-content")
    )
    own = figures.figure_9(record)
    assert any(text.startswith("test image 2 of digits |") for text in texts(own))
    assert np.allclose(own.axes[0].images[0].get_array(), digits.test_images[1, :, :, 0] / 255)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_mass_threshold_holds_the_share(share):
    p = np.random.default_rng(0).random(200)
    p /= p.sum()
    level = figures.mass_threshold(p, share)
    assert p[p >= level].sum() >= share > p[p > level].sum()


def test_heads_stand_where_their_centres_are(runs):
    record = runs["sa-quadratic"]
    figure = figures.figure_4(record)
    dots = [line.get_xydata()[0] for line in figure.axes[2].lines if line.get_marker() in "osx"]
    # columns are x, rows are y
    expected = record.attention["layer3.centers"][-1].flip(1).clamp(-4.5, 4.5).numpy()
    assert np.allclose(dots, expected, atol=0.05)


def test_the_darkness_behind_the_heads_is_the_sum_of_their_attention(runs):
    record = runs["sa-quadratic"]
    (drawn,) = (
        each
        for each in figures.figure_4(record).axes[2].collections
        if each.get_cmap().name == "Greys"
    )
    maps = attention_probabilities(record.history.encodings()[2], 11, 11)[:, 5, 5]
    assert np.allclose(drawn.get_array(), maps.sum(dim=0), atol=1e-5)
    assert (*drawn.get_coordinates()[5, 5], *drawn.get_coordinates()[6, 6]) == (
        -0.5,
        -0.5,
        0.5,
        0.5,
    )


def test_figure_3_shows_the_fourth_layer_from_the_first_epoch_to_the_last(runs):
    figure = figures.figure_3(runs["sa-quadratic"])
    *panels, bar = figure.axes
    assert [ax.get_title() for ax in panels] == ["epoch 0", "epoch 1", "epoch 3"]
    assert "summed over the heads" in bar.get_ylabel()
    assert any(
        text.startswith("layer 4, paper tier: sa-quadratic--cifar10--seed0")
        for text in texts(figure)
    )


def test_the_explorers_palette_is_matplotlibs():
    kept = json.loads(source("palette.json"))
    theirs = plt.get_cmap("cividis")(np.arange(256), bytes=True)[:, :3].tobytes()
    assert base64.b64decode(kept["amounts"]) == theirs and len(theirs) == 3 * 256


def test_the_stills_say_what_their_captions_do():
    """The heads find all nine positions, and soft heads are less sure of the cat."""
    titles = [ax.get_title() for ax in DRAWINGS["descent_still"]().axes[:4]]
    found = [int(title.partition(": ")[2][0]) for title in titles]
    assert found == sorted(found) and found[0] < found[-1] == 9
    bars = DRAWINGS["network_still"]().axes[2]
    cat = [label.get_text() for label in bars.get_yticklabels()].index("cat")
    cnn, exact, soft = (container.datavalues for container in bars.containers)
    assert cnn.argmax() == exact.argmax() == cat and cnn == pytest.approx(exact, abs=1e-4)
    assert soft[cat] < 0.6 * cnn[cat]
