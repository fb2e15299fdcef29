"""Write attention scores into the relative position biases of vision transformers.

Letters: N_h heads, H x W tokens of an image or a window, T = H * W, delta = k - q.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layers.encodings import QuadraticEncoding
from .projections import is_attention, num_heads, projections
from .tokens import modules_around

#: How far a prefix token's score is below the best patch's (a factor of `exp(-20)` in weight).
PREFIX_MARGIN = 20.0

#: Where a layer keeps its bias, if not in itself: attributes of the layer, then of the modules
#: around it, which may share one bias among layers (timm, transformers).
OWN_BIAS = ("rel_pos", "relative_position_bias")
SHARED_BIAS = (
    "shared_rel_pos",
    "rel_pos_bias",
    "relative_position_bias",
    "shared_position_bias",
)
#: Functions without arguments that return a module's bias (timm, torchvision).
READERS = (
    "get_bias",
    "_get_rel_pos_bias",
    "get_relative_position_bias",
    "get_relative_positional_bias",
)


class Biased(NamedTuple):
    """An attention layer and the module that holds its relative position bias.

    `grid` is the size (H, W) of the layer's image or window in tokens. `holder` is the module with
    the bias, and `write` sets this bias to the scores of an encoding.
    """

    name: str
    attention: Any
    holder: Any
    grid: tuple[int, int]
    write: Callable[[Any, QuadraticEncoding], None]

    @property
    def heads(self) -> int:
        """The number of heads."""
        return num_heads(self.attention)

    @torch.no_grad()
    def probabilities(self) -> Tensor:
        """Return the softmax of the layer's bias, `(N_h, H, W, H, W)`, float64.

        The result is the attention between patch tokens; prefix tokens count only in the
        denominator.
        """
        bias = _bias(self.holder).double().flatten(0, -3)  # (N_h, T', T'), prefix tokens first
        patches = self.grid[0] * self.grid[1]
        return (
            bias.softmax(dim=-1)[:, -patches:, -patches:]
            .unflatten(2, self.grid)
            .unflatten(1, self.grid)
        )


def query_norm(attention: Any) -> nn.Module | None:
    """Return the normalisation of an attention layer's queries, or None if there is none."""
    norm = getattr(attention, "q_norm", None)
    return None if isinstance(norm, nn.Identity) else norm


def biased_layers(model: nn.Module) -> list[Biased]:
    """Return the attention layers of a model in order, with their relative position biases.

    Raises TypeError if the model has no attention layer, or has one whose scores cannot be set.
    """
    found = []
    for name, module in model.named_modules():
        called = f"cannot start {name or 'the model'}"
        if reason := _why_no_table(module):
            raise TypeError(f"{called} ({type(module).__name__}): {reason}; {SUPPORTED}")
        if not (is_attention(module) or hasattr(module, "attn_drop")):
            continue
        holder = next(_holders(name, module, model), None)
        write = None if holder is None else _writer(holder)
        if holder is None or write is None or not is_attention(module):
            own = getattr(module, "rel_pos", None)
            what = type(module).__name__ + (f" with {type(own).__name__}" if own else "")
            raise TypeError(f"{called} ({what}): {_why_not_set(holder)}; {SUPPORTED}")
        if reason := _why_not(holder, query_norm(module)):
            raise TypeError(f"{called}: {reason}; {SUPPORTED}")
        try:
            projections(module)
        except TypeError as error:
            raise TypeError(f"{called}: {error}; {SUPPORTED}") from None
        found.append(Biased(name, module, holder, _window(holder), write))
    if not found:
        raise TypeError(
            f"{type(model).__name__} has no attention layer with queries and keys by a known name;"
            f" {SUPPORTED}"
        )
    return found


def _holders(name: str, module: Any, model: nn.Module) -> Iterator[Any]:
    """Yield the modules with a bias that a layer may add, the layer's own first."""
    yield from filter(None, (getattr(module, name, None) for name in OWN_BIAS))
    if getattr(module, "relative_position_bias_table", None) is not None:
        yield module
    for around in modules_around(name, model):
        yield from filter(None, (getattr(around, name, None) for name in SHARED_BIAS))


SUPPORTED = (
    "expected attention with a relative position bias (Swin, BEiT, MaxViT, CoAtNet, vit_relpos_*),"
    " a plain vision transformer with learned absolute positions (ViT, DeiT, DINOv2, CLIP), or"
    " rotary encodings (EVA-02, DINOv3, vit_*_rope_*)"
)


def _window(holder: Any) -> tuple[int, int]:
    """Return the height and width in tokens of the window that a bias is for."""
    window = getattr(holder, "window_size", None)
    if window is None:
        window = holder.size  # torchvision's MaxViT
    return (window, window) if isinstance(window, int) else (int(window[0]), int(window[1]))


def _writer(holder: Any) -> Callable[[Any, QuadraticEncoding], None] | None:
    """Return the function that writes scores into a bias, or None if its form is unknown."""
    if hasattr(holder, "rel_coords_log"):  # timm's RelPosMlp
        return _write_mlp
    table = getattr(holder, "relative_position_bias_table", None)
    if not isinstance(table, nn.Parameter):
        return None
    height, width = (2 * size - 1 for size in _window(holder))
    if table.ndim == 3:
        return _write_tf if tuple(table.shape[1:]) == (height, width) else None
    # three more rows are those of a class token
    return _write_table if len(table) in (height * width, height * width + 3) else None


def _bias(holder: Any) -> Tensor:
    """Return a module's bias `(..., N_h, T', T')` as the module itself computes it."""
    for name in READERS:
        if (read := getattr(holder, name, None)) is not None:
            return read()
    index = getattr(holder, "relative_position_index", None)
    if index is None and hasattr(holder, "generate_relative_position_index"):
        index = holder.generate_relative_position_index(holder.window_size)  # transformers' BEiT
    if index is None:
        return holder()
    tokens = round(index.numel() ** 0.5)
    bias = holder.relative_position_bias_table[index.flatten()]
    return bias.unflatten(0, (tokens, tokens)).movedim(-1, 0)


SIGMOID = (
    "its bias passes through a sigmoid, so its values differ by less than 16, which is not enough"
)
NO_BIAS = (
    "no relative position bias is added to its scores, and the model's absolute positions, if any,"
    " are not where those of a known plain vision transformer are"
)
#: Attributes of attention layers whose scores cannot be set to those of the quadratic encoding.
REASONS = {
    "cpb_mlp": SIGMOID,  # SwinV2 of timm and torchvision
    "continuous_position_bias_mlp": SIGMOID,  # SwinV2 of transformers
    # LeViT, TinyViT, EfficientFormer
    "attention_biases": "its bias depends only on the distance along each axis, so no head can"
    " distinguish an offset from its mirror image",
    # MViTv2, SAM
    "rel_pos_h": "its position scores are products with the query, which the initialisation zeroes",
}


def _why_no_table(module: nn.Module) -> str | None:
    """Return why a module's position scores cannot be set, or None if no reason is known."""
    reasons = (
        reason for name, reason in REASONS.items() if getattr(module, name, None) is not None
    )
    return next(reasons, None)


def _why_not_set(holder: Any) -> str:
    """Return why the position scores of a layer with this bias (or None) cannot be set."""
    if holder is None:
        return NO_BIAS
    return f"the form of its position bias ({type(holder).__name__}) is unknown"


def _why_not(holder: Any, norm: nn.Module | None) -> str | None:
    """Return why a layer's scores cannot be set to those of the quadratic encoding, or None."""
    if norm is not None and getattr(norm, "weight", None) is None:
        return "the normalisation of its queries has no weights, so queries cannot start at zero"
    if mlp := getattr(holder, "mlp", None):
        if not isinstance(holder.bias_act, nn.Identity):
            return SIGMOID
        needed = 2 * sum(holder.window_size) - 4  # a bend at each offset but the outermost
        hidden = mlp.fc1.out_features
        if hidden < needed:
            return f"the perceptron of its bias has {hidden} hidden units, expected {needed}"
    return None


def mlp_dropouts(layers: Iterable[Biased]) -> list[str]:
    """Return a note on perceptrons whose dropout a start has switched off, if there are any."""
    if not any(hasattr(layer.holder, "mlp") for layer in layers):
        return []
    return [
        "the dropout of the perceptrons that compute biases is now off, but a state dict does not"
        " store this; after loading these weights into a new model, repeat: for m in"
        ' model.modules(): hasattr(m, "rel_coords_log") and setattr(m.mlp.drop1, "p", 0.0)'
    ]


@torch.no_grad()
def _write_table(holder: Any, encoding: QuadraticEncoding) -> None:
    """Fill a table `(offsets, N_h)`, which lists the offsets q - k in ascending order.

    If the table has three extra rows, they hold the biases of a class token: from its query to
    patches, from patch queries to it, and from its query to itself. A patch scores the class token
    lower than itself, so the margin holds at every border, where the kernel's pixel may be missing.
    """
    table = holder.relative_position_bias_table
    scores = encoding.offset_scores(*_window(holder)).flip(1, 2).flatten(1).T
    table[: len(scores)] = scores
    if len(table) > len(scores):
        own = scores[len(scores) // 2]  # the score of offset 0, in the middle of the table
        table[len(scores) :] = 0
        table[len(scores) + 1] = own - PREFIX_MARGIN


@torch.no_grad()
def _write_tf(holder: Any, encoding: QuadraticEncoding) -> None:
    """Fill a table `(N_h, 2H - 1, 2W - 1)`, which lists the offsets k - q in ascending order."""
    holder.relative_position_bias_table.copy_(encoding.offset_scores(*_window(holder)))


@torch.no_grad()
def _write_mlp(holder: Any, encoding: QuadraticEncoding) -> None:
    """Set a perceptron of log coordinates so that it outputs the score of every offset.

    Each score is a row term plus a column term. Along one axis, a piecewise linear function of the
    coordinate can take any values at the integer offsets, and it is a sum of ReLUs that bend there.
    The sums start at offset 0, where scores are small, so that no digits are lost to cancellation.
    Every bend is needed, so the dropout of the hidden units is switched off. Units to spare hold
    further copies of the bends, which limits the harm when the dropout returns: a state dict does
    not store its probability.
    """
    first, last = holder.mlp.fc1, holder.mlp.fc2
    coordinates = holder.rel_coords_log.double()
    copies = _copies_of_bends(holder.window_size, first.out_features)
    unit = 0
    last.weight.zero_()
    at_zero = torch.zeros_like(last.bias, dtype=torch.float64)
    for axis, size in enumerate(holder.window_size):
        along = coordinates.select(1 - axis, 0)[size - 1 :, axis]  # of the offsets 0 ... size - 1
        repeats = torch.tensor(copies[axis], device=along.device)
        for sign in (1, -1):
            # the coordinates are of q - k
            offsets = -sign * torch.arange(size, device=along.device)
            values = encoding.axis_scores(axis, offsets).double()  # (N_h, size)
            slopes = values.diff(dim=1) / along.diff()
            bends = slopes.diff(dim=1, prepend=torch.zeros_like(slopes[:, :1]))
            units = slice(unit, unit + sum(copies[axis]))
            first.weight[units] = 0
            first.weight[units, axis] = sign
            first.bias[units] = -along[:-1].repeat_interleave(repeats).to(first.bias)
            shares = (bends / repeats).repeat_interleave(repeats, dim=1)
            last.weight[:, units] = shares.to(last.weight)
            unit = units.stop
        at_zero = at_zero + values[:, 0]
    # a prefix token scores 0, and so PREFIX_MARGIN less than the patch itself, which has offset 0
    last.bias.copy_(torch.full_like(at_zero, PREFIX_MARGIN) if holder.prefix_tokens else at_zero)
    holder.mlp.drop1.p = 0.0


def _copies_of_bends(window: tuple[int, int], hidden: int) -> list[list[int]]:
    """Return how many hidden units hold each bend along each axis, from offset 0 outwards.

    Both directions of an axis take the same numbers. Units beyond one for each bend are shared out
    by the variance that dropout in a bend adds to the scores of the offsets d behind it, relative
    to those scores: the bend at u contributes in proportion to d - u, and scores grow as d^2.
    """
    spare = (hidden - sum(2 * (size - 1) for size in window)) // 2
    weights = [
        [sum((d - u) ** 2 / d**4 for d in range(u + 1, size)) ** 0.5 for u in range(size - 1)]
        for size in window
    ]
    total = sum(map(sum, weights))
    return [[1 + int(spare * weight / total) for weight in axis] for axis in weights]
