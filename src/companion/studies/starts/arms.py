"""The initialisations of attention that chapters 17 and 18 compare, as data."""

from dataclasses import dataclass, replace

#: Spread of random offsets in tokens: the standard deviation of the published centres (appendix C).
SPREAD = 2.0


@dataclass(frozen=True)
class AttentionStart:
    """How the attention of a vision transformer in these chapters is initialised.

    `offsets` says to which offsets the heads attend at first: "timm" keeps timm's initialisation of
    queries, keys and biases; "grid" is the 3 x 3 kernel; "normal" draws each head's offset from
    N(0, spread^2 I), where `spread` is in tokens, and "whole" rounds the same offsets to whole
    tokens; "zero" is the query's own token; "mimetic" is no offset but the mimetic start of queries
    and keys. `alpha` is the sharpness of the heads, or None for the tier's. `values` says how
    values and projections start, "timm" or "mimetic". `positions` are "relative" (a bias),
    "absolute" (added to the tokens, timm's random start times `position_scale`), "sinusoidal" (the
    same, with another start) or "rotary". If not `trained`, attention is not trained.
    """

    label: str
    curve: tuple[str, str]
    offsets: str = "timm"
    alpha: float | None = None
    spread: float = SPREAD
    values: str = "timm"
    positions: str = "relative"
    position_scale: float = 1.0
    trained: bool = True


#: Sharpness of wide heads, per squared token. Each spreads its attention over the own token's
#: neighbourhood with a standard deviation of two tokens per axis, as random offsets are spread.
WIDE_ALPHA = 1 / 8
#: The initialisations of the vision transformers in chapter 17 (`network`).
VIT_STARTS = {
    "default": AttentionStart("ViT, timm's start", ("#000000", "-")),
    "convolution": AttentionStart("ViT, started as a convolution", ("#0072B2", "-"), "grid"),
    "random": AttentionStart("ViT, started at random offsets", ("#D55E00", "-"), "normal"),
    "center": AttentionStart("ViT, started at offset zero", ("#009E73", "-."), "zero"),
    "frozen": AttentionStart(
        "ViT, convolution not trained", ("#0072B2", ":"), "grid", trained=False
    ),
    "mimetic": AttentionStart(
        "ViT, mimetic start", ("#B0508A", "--"), "mimetic", values="mimetic", positions="sinusoidal"
    ),
}
#: The further starts of the factorial: all combinations of where heads attend and of values.
FACTORIAL_STARTS = {
    "whole": AttentionStart("ViT, random whole offsets", ("#A87900", "-"), "whole"),
    "wide": AttentionStart("ViT, wide heads", ("#7F7F7F", "-"), "zero", WIDE_ALPHA),
}
FACTORIAL_STARTS |= {
    f"{name}-mimetic-values": replace(
        start,
        label=f"{start.label}, mimetic values",
        curve=(start.curve[0], "--"),
        values="mimetic",
    )
    for name, start in (VIT_STARTS | FACTORIAL_STARTS).items()
    if start.trained and start.positions == "relative"
}
#: The starts of networks with rotary encodings (chapter 18).
ROTARY_STARTS = {
    f"rotary-{name}": replace(
        VIT_STARTS[name],
        label=VIT_STARTS[name].label.replace("ViT", "Rotary ViT"),
        positions="rotary",
    )
    for name in ("default", "convolution", "random")
}
#: Random offsets as in "random", but with another spread or another sharpness.
PROPERTY_STARTS = {
    f"spread-{spread:g}": AttentionStart(
        f"ViT, random offsets, spread {spread:g}", ("#D55E00", style), "normal", spread=spread
    )
    for spread, style in ((0.5, ":"), (1.0, "-."), (4.0, "--"))
} | {
    f"alpha-{alpha:g}": AttentionStart(
        f"ViT, random offsets, α = {alpha:g}", ("#56B4E9", style), "normal", alpha
    )
    for alpha, style in ((0.1, ":"), (0.5, "-."), (8.0, "--"))
}
#: Scale of the position encoding in the published code of structured initialisation.
IMPULSE_SCALE = 18.0
#: Structured initialisation (Zheng et al., 2025; `impulse`) as published and without its mimetic
#: values, and timm's start of the same network with and without the scaled positions.
IMPULSE_STARTS = {
    "impulse": AttentionStart(
        "ViT, structured initialisation",
        ("#117733", "-"),
        "grid",
        values="mimetic",
        positions="absolute",
        position_scale=IMPULSE_SCALE,
    ),
    "absolute": AttentionStart(
        "ViT with absolute positions, timm's start", ("#332288", "-"), positions="absolute"
    ),
}
IMPULSE_STARTS |= {
    "impulse-attention": replace(
        IMPULSE_STARTS["impulse"],
        label="ViT, structured initialisation of attention alone",
        curve=("#117733", "--"),
        values="timm",
    ),
    "absolute-scaled": replace(
        IMPULSE_STARTS["absolute"],
        label="ViT with scaled absolute positions, timm's start",
        curve=("#332288", "--"),
        position_scale=IMPULSE_SCALE,
    ),
}
#: All starts by name.
ALL_STARTS = VIT_STARTS | FACTORIAL_STARTS | ROTARY_STARTS | PROPERTY_STARTS | IMPULSE_STARTS
