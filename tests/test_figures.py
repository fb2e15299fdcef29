"""Every figure draws what it is given; numbers are checked, not pixels."""

import inspect

import numpy as np
import pytest
import torch

from attnconv import attention_probabilities, figures
from attnconv.encodings import QuadraticEncoding
from attnconv.grid import shift_set

HEADS = QuadraticEncoding.from_alpha(shift_set((3, 3)).float(), alpha=1.5)
MAPS = attention_probabilities(HEADS, 7, 8)
CENTERS, ALPHA = torch.randn(3, 9, 2), torch.rand(3, 9) + 0.1
DRAWINGS = {
    "figure_1": lambda: figures.figure_1(torch.rand(7, 8, 3), MAPS, (3, 4)),
    "figure_3": lambda: figures.figure_3(CENTERS, ALPHA, ["a", "b", "c"]),
    "figure_4": lambda: figures.figure_4(CENTERS, ALPHA),
    "figure_11": lambda: figures.figure_11(torch.randn(6, 9), torch.rand(9, 56), torch.randn(6, 9), torch.rand(9, 56)),
    "image_grid": lambda: figures.image_grid([torch.rand(7, 8, 3), torch.randn(7, 8), torch.zeros(7, 8)], list("abc")),
    "claim": lambda: figures.claim(torch.rand(7, 8, 3), shift_set((3, 3)), (3, 4), torch.randn(7, 8), torch.randn(7, 8)),
    "score_maps": lambda: figures.score_maps(torch.randn(2, 7, 8), ["a", "b"], (1, 2)),
    "attention_maps": lambda: figures.attention_maps(MAPS, (3, 4), columns=5),
    "alpha_curves": lambda: figures.alpha_curves([1, 2], {"float32": [1.0, 0.0]}, {"float32": 1.5}, "gap"),
    "head_paths": lambda: figures.head_paths(torch.randn(5, 9, 2)),
    "curves": lambda: figures.curves({"a": [1, 2], "b": [2, 1]}, "x", "y", log="y"),
    "head_maps": lambda: figures.head_maps(torch.rand(5, 7, 8), "kernels", columns=3),
    "residual_grid": lambda: figures.residual_grid([torch.rand(3, 3)], ["a"]),
}


def test_every_figure_is_listed_here():
    public = {
        name
        for name, function in inspect.getmembers(figures, inspect.isfunction)
        if function.__module__ == figures.__name__ and not name.startswith("_")
    }
    assert public == set(DRAWINGS) | {"mass_threshold"}


@pytest.mark.parametrize("name", list(DRAWINGS))
def test_it_draws(name, tmp_path):
    figure = DRAWINGS[name]()
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 3000
    assert not figures.plt.get_fignums(), "a figure left open would be shown twice in a notebook"


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_mass_threshold_holds_the_share(share):
    p = np.random.default_rng(0).random(200)
    p /= p.sum()
    level = figures.mass_threshold(p, share)
    assert p[p >= level].sum() >= share > p[p > level].sum()


def test_heads_stand_where_their_centres_are():
    figure = figures.figure_3(CENTERS[:1], ALPHA[:1], ["now"])
    dots = [line.get_xydata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    expected = CENTERS[0].flip(1).clamp(-4.5, 4.5).numpy()  # columns are x, rows are y
    assert np.allclose(dots, expected, atol=0.05)
