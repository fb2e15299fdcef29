"""Table 3: who uses which positional encoding."""

from collections.abc import Callable

import torch

from ...theory import encodings
from ...theory.grid import axis_shifts, relative_shifts
from .table import Table


def _sinusoids() -> torch.Tensor:
    return encodings.sinusoidal_encoding(6, dim=8)


def _relative_sinusoids() -> torch.Tensor:
    # r_delta: the vector of the shift, not of the place
    return encodings.sinusoidal_encoding(11, dim=8)[axis_shifts(6) + 5]


def _learned() -> torch.Tensor:
    return encodings.LearnedAbsoluteEncoding(6, dim=8)()


def _learned_relative() -> torch.Tensor:
    return encodings.LearnedShiftEmbedding(4, 4, 4)(relative_shifts(4, 4))


def _quadratic() -> torch.Tensor:
    return encodings.quadratic_encoding(relative_shifts(4, 4).float())


# Model, what it encodes, then: sinusoids, learned, quadratic, relative as in Table 3; and what
# makes such an encoding here.
ENCODING_USERS: tuple[
    tuple[str, str, str, tuple[tuple[str, Callable[[], torch.Tensor]], ...]], ...
] = (
    ("Vaswani et al. (2017)", "text", "x---", (("sinusoidal_encoding", _sinusoids),)),
    ("Radford et al. (2018)", "text", "-x--", (("LearnedAbsoluteEncoding", _learned),)),
    ("Devlin et al. (2018)", "text", "-x--", (("LearnedAbsoluteEncoding", _learned),)),
    (
        "Dai et al. (2019)",
        "text",
        "x--x",
        (("sinusoidal_encoding of shifts", _relative_sinusoids),),
    ),
    (
        "Yang et al. (2019)",
        "text",
        "x--x",
        (("sinusoidal_encoding of shifts", _relative_sinusoids),),
    ),
    ("Bello et al. (2019)", "images", "-x-x", (("LearnedShiftEmbedding", _learned_relative),)),
    (
        "Ramachandran et al. (2019)",
        "images",
        "-x-x",
        (("LearnedShiftEmbedding", _learned_relative),),
    ),
    (
        "the paper",
        "images",
        "-xxx",
        (("LearnedShiftEmbedding", _learned_relative), ("quadratic_encoding", _quadratic)),
    ),
)


def table_3() -> Table:
    """Table 3: types of positional encoding, each made here: the last column is the shape of what
    the named function returned."""
    rows = []
    for user, what, marks, made in ENCODING_USERS:
        executed = "; ".join(f"{name}: {' × '.join(map(str, make().shape))}" for name, make in made)
        rows.append([user, what, *("yes" if mark == "x" else "-" for mark in marks), executed])
    caption = (
        "Table 3. Types of positional encoding. Source: the paper; the last column is executed, a"
        " shape for six words or for 4 × 4 pixels, shifts between all pairs where the encoding is"
        " relative."
    )
    header = [
        "model",
        "applied to",
        "sinusoids",
        "learned",
        "quadratic",
        "relative",
        "made here by encodings",
    ]
    return Table("table-3", caption, header, rows)
