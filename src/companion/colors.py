"""The colours of attention heads, in figures and in the explorer."""

#: Head colours, after Okabe and Ito, that colour-blind readers can tell apart.
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
    """Return the colour of a head (numbered from 0); the colours repeat after nine heads."""
    return HEAD_COLORS[head % len(HEAD_COLORS)]
