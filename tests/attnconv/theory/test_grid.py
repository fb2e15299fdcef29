import pytest
import torch

from attnconv.theory.grid import axis_offsets, offset_set, pixels, relative_offsets


def test_pixels_are_row_major():
    assert pixels(2, 3).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert pixels(3).tolist() == [[0], [1], [2]]


def test_pixels_refuses_empty_grids():
    with pytest.raises(ValueError, match="positive integers"):
        pixels(3, 0)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, [0]), (2, [0, 1]), (3, [-1, 0, 1]), (4, [-1, 0, 1, 2]), (7, list(range(-3, 4)))],
)
def test_offset_set_of_one_axis(size, expected):
    assert offset_set([size]).flatten().tolist() == expected


def test_offset_set_matches_a_loop():
    expected = [[2 * i, 3 * j] for i in (-1, 0, 1) for j in (-1, 0, 1, 2)]
    assert offset_set((3, 4), (2, 3)).tolist() == expected


def test_relative_offsets_match_a_loop():
    delta = relative_offsets(3, 4)
    assert delta.shape == (3, 4, 3, 4, 2)
    for q in pixels(3, 4).tolist():
        for k in pixels(3, 4).tolist():
            assert delta[*q, *k].tolist() == [k[0] - q[0], k[1] - q[1]]
    assert torch.equal(axis_offsets(4), delta[0, :, 0, :, 1])
