"""Colours of the heads: Okabe and Ito's, which the colour-blind can tell apart; a head's number
stands beside each."""

HEAD_COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#882255",
    "#8C7A00",
    "#7F7F7F",
)


def head_color(head: int) -> str:
    """Of a head, from 0; they repeat after nine."""
    return HEAD_COLORS[head % len(HEAD_COLORS)]
