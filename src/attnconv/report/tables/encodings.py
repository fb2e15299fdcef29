"""Table 3: who uses which positional encoding."""

from collections.abc import Callable

import torch

from ...theory import encodings
from ...theory.grid import axis_shifts, relative_shifts
from .table import Table

# What makes the encodings of the table here, for six words or for 4 x 4 pixels.
MADE: dict[str, Callable[[], torch.Tensor]] = {
    "sinusoidal_encoding": lambda: encodings.sinusoidal_encoding(6, dim=8),
    # r_delta: the vector of the shift, not of the place
    "sinusoidal_encoding of shifts": lambda: encodings.sinusoidal_encoding(11, dim=8)[
        axis_shifts(6) + 5
    ],
    "LearnedAbsoluteEncoding": lambda: encodings.LearnedAbsoluteEncoding(6, dim=8)(),
    "LearnedShiftEmbedding": lambda: encodings.LearnedShiftEmbedding(4, 4, 4)(
        relative_shifts(4, 4)
    ),
    "quadratic_encoding": lambda: encodings.quadratic_encoding(relative_shifts(4, 4).float()),
}
# Who: what it encodes; sinusoids, learned, quadratic, relative as in Table 3; how it is made here.
ENCODING_USERS: dict[str, tuple[str, ...]] = {
    "Vaswani et al. (2017)": ("text", "x---", "sinusoidal_encoding"),
    "Radford et al. (2018)": ("text", "-x--", "LearnedAbsoluteEncoding"),
    "Devlin et al. (2018)": ("text", "-x--", "LearnedAbsoluteEncoding"),
    "Dai et al. (2019)": ("text", "x--x", "sinusoidal_encoding of shifts"),
    "Yang et al. (2019)": ("text", "x--x", "sinusoidal_encoding of shifts"),
    "Bello et al. (2019)": ("images", "-x-x", "LearnedShiftEmbedding"),
    "Ramachandran et al. (2019)": ("images", "-x-x", "LearnedShiftEmbedding"),
    "the paper": ("images", "-xxx", "LearnedShiftEmbedding", "quadratic_encoding"),
}


def table_3() -> Table:
    """Table 3: types of positional encoding, each made here: the last column is the shape of what
    the named function returned."""
    rows = []
    for user, (what, marks, *made) in ENCODING_USERS.items():
        shapes = (f"{name}: {' × '.join(map(str, MADE[name]().shape))}" for name in made)
        kinds = zip(("sinusoids", "learned", "quadratic", "relative"), marks, strict=True)
        row = {"model": user, "applied to": what}
        row |= {kind: "yes" if mark == "x" else "-" for kind, mark in kinds}
        rows.append(row | {"made here by encodings": "; ".join(shapes)})
    caption = (
        "Table 3. Types of positional encoding. Source: the paper; the last column is executed, a"
        " shape for six words or for 4 × 4 pixels, shifts between all pairs where the encoding is"
        " relative."
    )
    return Table.of("table-3", caption, rows)
