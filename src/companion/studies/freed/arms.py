"""How the arms of chapter 15 start from a CNN, as data."""

from dataclasses import dataclass

TIER = "small-free"  # tier of the runs in chapter 15
FIXED = ()
PLACES = ("centers",)
FREED = ("centers", "spread")


@dataclass(frozen=True)
class Start:
    """The settings for starting an arm of chapter 15 from a CNN.

    The arm starts after a fraction `share` of the CNN's training. `heads` is "grid" if the heads
    start on the kernels' pixels, "random" if they start at random positions, and None if the
    network remains a CNN. `freed` names the parameters of the encoding that are trained. `label`
    and `curve` are the arm's name, colour and line style in figures.
    """

    label: str
    curve: tuple[str, str]
    share: float
    heads: str | None
    freed: tuple[str, ...]


#: The arms by name.
STARTS = {
    "cnn-on": Start("CNN, trained further", ("#000000", "-"), 1.0, None, FIXED),
    "grid-0": Start("grid fixed, untrained CNN", ("#000000", "--"), 0.0, "grid", FIXED),
    "grid-100": Start("grid fixed, trained CNN", ("#000000", ":"), 1.0, "grid", FIXED),
    "freed-0": Start("freed before training", ("#56B4E9", "-"), 0.0, "grid", FREED),
    "freed-25": Start("freed at 25 % of training", ("#0072B2", "--"), 0.25, "grid", FREED),
    "freed-50": Start("freed at 50 % of training", ("#CC79A7", "-."), 0.5, "grid", FREED),
    "freed-100": Start("freed after training", ("#882255", "-"), 1.0, "grid", FREED),
    "places-100": Start(
        "freed after training, alphas fixed", ("#009E73", ":"), 1.0, "grid", PLACES
    ),
    "random-fixed": Start("random positions, fixed", ("#D55E00", "--"), 0.0, "random", FIXED),
    "random-freed": Start("random positions, freed", ("#D55E00", "-"), 0.0, "random", FREED),
}
