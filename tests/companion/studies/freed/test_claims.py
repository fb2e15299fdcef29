"""Chapter 15's measures, rules, table and figures, on records made by hand."""

import matplotlib.pyplot as plt
import pytest
import torch
from helpers.synthetic import write_record

from attnconv import attention_probabilities, expresses_convolution, figures
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.grid import offset_set
from companion.runs.select import Records
from companion.studies.freed import tables
from companion.studies.freed.arms import STARTS
from companion.studies.freed.claims import CLAIMS
from companion.studies.freed.measures import (
    centers_of,
    distance_moved,
    distinct_pixels_by_layer,
    growth,
    kernel_layers,
    lemma_3_residual_by_layer,
    mass_on_nearest_pixel,
    mean_mass_on_nearest_pixel,
    pixels_occupied,
)

GRID = offset_set((3, 3)).float()


def attention(ends=GRID, start=GRID, alpha=4.0):
    """A layer of 2 x 2 and two of 3 x 3, whose heads go from `start` to `ends`, of one or each."""
    first = torch.stack([offset_set((2, 2)).float()] * 2)
    tensors = {"epochs": torch.tensor([0, 5]), "layer1.centers": first}
    tensors["layer1.alpha"] = torch.full((2, 4), alpha)
    for layer, end in zip((2, 3), ends.expand(2, 9, 2), strict=True):
        tensors[f"layer{layer}.centers"] = torch.stack([start, end])
        tensors[f"layer{layer}.alpha"] = torch.full((2, 9), alpha)
    return tensors


def write(folder, arm, accuracy=0.8, seed=0, ends=GRID, start=GRID, alpha=4.0, as_cnn=0.7):
    origin = {"run": "cnn--cifar10-small-free--seed0", "epochs": 8, "test_accuracy": 0.81}
    origin |= {"test_accuracy_at_start": 0.79}
    if STARTS[arm].heads:
        origin |= {"distances": [0.1, 0.2, 0.3], "test_accuracy_as_convolutions": as_cnn}
    heads = attention(ends, start, alpha) if STARTS[arm].heads else {}
    given = {"tier": "small-free", "attention": heads, "parent": origin}
    return write_record(folder, arm, accuracy, seed, **given)


@pytest.fixture
def record(tmp_path):
    ends = GRID.clone()
    ends[0] += torch.tensor([3.0, 4.0])  # leaves its pixel
    ends[1] += 0.25
    return write(tmp_path, "freed-100", ends=ends)


def test_what_is_followed(record):
    centers = kernel_layers(record, "centers")
    assert pixels_occupied(centers).tolist() == [[9, 8], [9, 8]]
    ways = distance_moved(centers)[0]
    assert ways[0].sum() == 0 and ways[1, 0] == 5 and ways[1, 8] == 0
    mass = mass_on_nearest_pixel(centers, kernel_layers(record, "alpha"))
    assert mass.shape == (2, 2, 9)
    maps = attention_probabilities(QuadraticEncoding.from_alpha(GRID.double(), 4.0), 17, 17)
    peaks = maps[:, 8, 8].flatten(1).amax(dim=1)
    assert torch.allclose(mass[0, 0], peaks, atol=1e-9)
    assert mean_mass_on_nearest_pixel([record], 0) == pytest.approx(peaks.mean().item())


def test_a_grid_that_grew_leaves_the_kernel_and_still_takes_nine_pixels(tmp_path):
    record = write(tmp_path, "freed-0", ends=1.6 * GRID)
    centers = centers_of([record])[0]
    assert pixels_occupied(centers)[0].tolist() == [9, 1]
    assert distinct_pixels_by_layer(record) == [9, 9]
    factor, share = growth(centers)
    assert factor[1].tolist() == pytest.approx([1, 1.6]) and share[1, -1] == pytest.approx(1)
    write(tmp_path, "freed-0", seed=1, ends=1.2 * GRID + 0.2)
    write(tmp_path, "random-freed", ends=2 * GRID)  # no grid at the start
    table = tables.growth_table(Records.read(tmp_path))
    shares = 1, 12 / (12 + 18)  # of 0.2 squared: the pixels' squares, and nine times two
    assert table.header == ["network", "layer 1", "layer 2"]
    assert table.rows == [["freed before training", *[f"1.40, {sum(shares) / 2:.0%}, 9.0"] * 2]]


def test_the_residual_is_lemma_3s(tmp_path):
    record = write(tmp_path, "freed-0", alpha=2.0)
    maps = attention_probabilities(QuadraticEncoding.from_alpha(GRID.double(), 2.0), *record.grid)
    expected = expresses_convolution(maps, 3).residual.max().item()
    assert lemma_3_residual_by_layer(record) == pytest.approx([expected] * 2, abs=1e-6)
    assert expected > 0.01


def question(text):
    (claim,) = [claim for claim in CLAIMS if text in claim.text]
    return claim


def verdict(folder, text):
    (found,) = question(text).judge(Records.read(folder))
    return found.verdict


@pytest.mark.parametrize(
    ("ends", "answer"),
    [(GRID + 0.4, "stay"), (GRID + 0.6, "leave"), (GRID * 3, "leave"), (GRID.flip(0), "stay")],
)
def test_heads_stay_or_leave(tmp_path, ends, answer):
    write(tmp_path, "freed-100", ends=ends)
    assert verdict(tmp_path, "freed after training: the heads stay") == answer


def test_some_leave(tmp_path):
    ends = GRID.clone()
    ends[:2] = 0  # seven pixels of nine
    write(tmp_path, "freed-25", ends=ends)
    write(tmp_path, "freed-25", seed=1)
    assert verdict(tmp_path, "freed at 25 % of training: the heads stay") == "some leave"


@pytest.mark.parametrize(
    ("ends", "answer"),
    [(GRID, "return"), (GRID * torch.tensor([1.0, 0]), "some return"), (0 * GRID, "do not return")],
)
def test_heads_return_or_do_not(tmp_path, ends, answer):
    write(tmp_path, "random-freed", start=0 * GRID, ends=ends)
    assert verdict(tmp_path, "heads at random positions return") == answer


@pytest.mark.parametrize(
    ("ways", "answer"),
    [((3, 2, 1, 0), "reproduced"), ((3, 1, 2, 0), "partly"), ((1, 2, 3, 4), "differs")],
)
def test_the_later_the_nearer(tmp_path, ways, answer):
    for arm, way in zip(("freed-0", "freed-25", "freed-50", "freed-100"), ways, strict=True):
        write(tmp_path, arm, ends=GRID + way)
    assert verdict(tmp_path, "the later a network is freed") == answer


@pytest.mark.parametrize(
    ("text", "ours", "other", "words"),
    [
        ("helps a trained CNN", "freed-100", "grid-100", ("helps", "harms")),
        ("widths help a trained CNN", "freed-100", "places-100", ("help", "harm")),
        ("helps from the start", "freed-0", "grid-0", ("helps", "harms")),
        ("the grid is needed", "grid-0", "random-freed", ("needed", "in the way")),
        ("random positions must be freed", "random-freed", "random-fixed", ("must", "must not")),
        ("being attention costs", "cnn-on", "grid-100", ("costs", "gains")),
    ],
)
def test_comparisons(tmp_path, text, ours, other, words):
    answers = (words[0], "below the threshold", words[1])
    for more, answer in zip((0.01, 0.0099, -0.01), answers, strict=True):
        write(tmp_path, ours, 0.8 + more)
        write(tmp_path, other, 0.8)
        assert verdict(tmp_path, text) == answer


@pytest.mark.parametrize(
    ("as_cnn", "answer"), [(0.5, "no more"), (0.75, "partly"), (0.795, "still one")]
)
def test_a_convolution_no_more(tmp_path, as_cnn, answer):
    write(tmp_path, "freed-100", as_cnn=as_cnn)
    assert verdict(tmp_path, "is no longer a 3 × 3 convolution") == answer


@pytest.mark.parametrize(
    ("factors", "answer"),
    [((1.11, 1.3), "grow"), ((1.09, 1.11), "some grow"), ((0.9, 1.09), "do not grow")],
)
def test_grids_grow_without_wider_heads(tmp_path, factors, answer):
    write(tmp_path, "freed-100", ends=1.2 * GRID)
    write(tmp_path, "places-100", ends=torch.tensor(factors).view(2, 1, 1) * GRID)
    assert verdict(tmp_path, "grids grow without wider heads") == answer


def test_what_is_not_run_says_so(tmp_path):
    table = tables.freed_table(Records.read(tmp_path))
    assert len(table.rows) == len(CLAIMS) == 15
    assert {row[1] for row in table.rows} == {"not run"}
    assert {row[1] for row in tables.arms_table(Records.read(tmp_path)).rows} == {"not run"}


def test_the_table_and_the_figures(tmp_path, record):
    for arm in ("cnn-on", "grid-0", "freed-0", "random-freed"):
        for seed in (0, 1):
            write(tmp_path, arm, 0.8 + seed / 100, seed)
    records = Records.read(tmp_path)
    rows = {row[0]: row[1:] for row in tables.arms_table(records).rows}
    assert rows["freed before training"] == [
        *("8 epochs", "0.8100", "0.7900", "0.8050 ± 0.0071", "2 seeds, 3 epochs", "0.7000"),
        *("9.00", "0.00", "0.93", "0.03"),
    ]
    assert rows["freed after training"][6:8] == ["8.00", "0.00"]
    assert rows["CNN, trained further"][1:3] == ["0.8100", "-"], "it never becomes attention"
    assert rows["CNN, trained further"][5:] == ["-"] * 5
    paths = figures.layer_paths(record)
    first, second = paths.axes[:2]
    assert first.lines[1].get_xdata().tolist() == [-1, 3]  # head 1, columns
    assert first.lines[1].get_ydata().tolist() == [-1, 2]
    assert [ax.get_title() for ax in (first, second)] == ["3 × 3 layer 1", "3 × 3 layer 2"]
    maps = figures.heads_before_and_after(record, 1)
    assert len(maps.axes) == 18 and maps.axes[8].images[0].get_array().shape == (7, 7)
    assert maps.axes[17].images[0].get_array()[4, 4] > 0.9  # head 9 in the end
    bars = figures.arm_accuracies(records)
    assert bars.axes[0].lines[0].get_xdata() == pytest.approx([0.8, 0.81])
    lines = figures.over_training(records, ["freed-0", "random-freed", "grid-100"])
    for number, figure in enumerate((paths, maps, bars, lines)):
        figure.savefig(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 3000
    assert not plt.get_fignums(), "a figure left open would be shown twice in a notebook"
    assert len(lines.axes[0].lines) == 2 and lines.axes[1].lines[0].get_ydata()[-1] == 0
