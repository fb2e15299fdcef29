"""Start a vision transformer with rotary encodings as a convolution.

Queries and keys that are the same for all tokens make a head attend to one offset, because the
rotation turns them into a sum of cosines (see `theory.rotary`). They are written into the biases of
the projections. Where a projection has no bias (the keys of EVA and DINOv3), its weights read a
constant from the tokens: the LayerNorm before the attention subtracts the mean, so the sum of its
entries, each divided by its weight, is the same for all tokens, and is not 0 if its bias is not.

The angles are read from the embedding that reaches each layer in a forward pass, so the order of
the axes, the units and the origin of the coordinates need not be known.

Letters: N_h heads, D_h = 2 J dimension of a head, D hidden dimension, H x W patch tokens, T = H W.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layers.mode import evaluation_mode
from ..theory.rotary import rotary_biases
from .biases import query_norm
from .projections import Projection, is_attention, num_heads, projections, score_scale

#: Names under which models keep the module that computes their rotary embeddings.
ROTARY_MODULES = ("rope", "rope_embeddings", "rotary_emb", "rotary_pos_emb")
#: Options of such modules that change the coordinates at random in training mode.
AUGMENTATIONS = ("shift", "jitter", "rescale")
EXPECTED = (
    "expected a layer like those of EVA-02, DINOv3, and vit_*_rope_*, with projections by known"
    " names, that is called with `rope` or `position_embeddings`; use one of these models"
)


class Rotary(NamedTuple):
    """An attention layer with a rotary encoding.

    `frequencies` `(N_h, J, 2)` are in radians per token. `halved` tells whether entry j pairs with
    entry j + J, instead of 2 j with 2 j + 1. `norm` is the LayerNorm whose output is the layer's
    input and nothing else's, or None. `prefix` counts the tokens that are not rotated.
    """

    name: str
    attention: Any
    grid: tuple[int, int]
    frequencies: Tensor
    halved: bool
    norm: nn.LayerNorm | None
    prefix: int

    @property
    def heads(self) -> int:
        """The number of heads."""
        return num_heads(self.attention)


def is_rotary(model: nn.Module) -> bool:
    """Return whether a model or a part of it keeps a rotary embedding by a known name."""
    return any(
        isinstance(getattr(module, name, None), nn.Module)
        for module in model.modules()
        for name in ROTARY_MODULES
    )


@torch.no_grad()
def rotary_layers(model: nn.Module, image: Tensor) -> list[Rotary]:
    """Return a model's attention layers in order, as they run on an image `(1, C, H', W')`.

    Raises TypeError if there is none, or one that `start_rotary` cannot initialise.
    """
    calls = _calls(model, image)
    if not calls:
        raise TypeError(
            f"{type(model).__name__} has no attention layer with queries and keys by a known name;"
            f" {EXPECTED}"
        )
    height, width = image.shape[-2:]
    found = []
    for name, call in calls.items():
        with _refusing(name, call.attention):
            found.append(_layer(name, call, height / width))
    return found


@contextmanager
def _refusing(name: str, attention: Any) -> Iterator[None]:
    """Name the layer in a TypeError that is raised about it."""
    try:
        yield
    except TypeError as error:
        kind = type(attention).__name__
        raise TypeError(f"cannot start {name} ({kind}): {error}") from None


class _Call(NamedTuple):
    """A call of an attention layer: its number of tokens, its embedding, and its LayerNorm."""

    attention: Any
    tokens: int
    embedding: Any
    norm: nn.LayerNorm | None


def _calls(model: nn.Module, image: Tensor) -> dict[str, _Call]:
    """Run a model on an image and return the calls of its attention layers, by name."""
    calls: dict[str, _Call] = {}
    normed: list[tuple[Tensor, nn.LayerNorm]] = []
    readers: dict[nn.LayerNorm, set[str]] = {}

    def norm_of(tensor: Any) -> nn.LayerNorm | None:
        return next((norm for output, norm in normed if output is tensor), None)

    def keep(norm: nn.LayerNorm, _: Any, output: Tensor) -> None:
        normed.append((output, norm))

    def read(name: str, _: nn.Module, args: Sequence, kwargs: Mapping) -> None:
        for each in (*args, *kwargs.values()):
            if (norm := norm_of(each)) is not None:
                readers.setdefault(norm, set()).add(name)

    def enter(name: str, attention: nn.Module, args: Sequence, kwargs: Mapping) -> None:
        tokens = args[0] if args else next(iter(kwargs.values()))
        embedding = kwargs.get("rope", kwargs.get("position_embeddings"))
        calls[name] = _Call(attention, tokens.shape[-2], embedding, norm_of(tokens))
        with _refusing(name, attention):  # before the layer itself fails to rotate its entries
            _expect_pairs(attention)

    with evaluation_mode(model), ExitStack() as hooks:
        hooks.enter_context(torch.compiler.set_stance("force_eager"))
        for name, module in model.named_modules():
            if isinstance(module, nn.LayerNorm):
                hooks.callback(module.register_forward_hook(keep).remove)
            if not [*module.children()]:
                handle = module.register_forward_pre_hook(partial(read, name), with_kwargs=True)
                hooks.callback(handle.remove)
            if is_attention(module):
                handle = module.register_forward_pre_hook(partial(enter, name), with_kwargs=True)
                hooks.callback(handle.remove)
        model(image)
    for name, call in calls.items():
        if call.norm is not None and any(
            not reader.startswith(f"{name}.") for reader in readers.get(call.norm, ())
        ):
            calls[name] = call._replace(norm=None)
    return calls


def _expect_pairs(attention: Any) -> None:
    """Raise TypeError if a layer's heads do not consist of at least two pairs of entries."""
    try:
        query, *_ = projections(attention)
    except TypeError as error:
        raise TypeError(f"{error}; {EXPECTED}") from None
    dim = query.weight.shape[1]
    if dim < 4 or dim % 2:
        raise TypeError(
            f"its heads have {dim} {'entry' if dim == 1 else 'entries'}, expected an even number of"
            " at least 4 (a pair for rows and a pair for columns); create the model with another"
            " number of heads or hidden dimension"
        )


def _layer(name: str, call: _Call, ratio: float) -> Rotary:
    """Describe a layer; `ratio` is the image's height divided by its width."""
    attention = call.attention
    if call.embedding is None:
        raise TypeError(
            f"it has no rotary encoding that reaches it as rope or position_embeddings; {EXPECTED}"
        )
    if query_norm(attention) is not None:
        raise TypeError(
            "its queries are normalised, with weights that all heads share, so heads cannot have"
            " queries of their own that are the same for all tokens; create the model without this"
            " normalisation (qk_norm=False in timm)"
        )
    if getattr(attention, "logit_scale", None) is not None:
        raise TypeError(
            "its scores are scaled cosines (logit_scale), so the size of queries and keys, and with"
            " it alpha, has no effect; use a model whose scores are products of queries and keys"
        )
    query, key, _ = projections(attention)
    dim = query.weight.shape[1]
    if query.weight.shape != key.weight.shape:
        raise TypeError(
            "it has fewer keys than queries (grouped-query attention); create the model with as"
            " many heads of keys as of queries"
        )
    halved, cos, sin = _cos_sin(attention, call.embedding, dim)
    tokens = cos.shape[-2]
    width = round((tokens / ratio) ** 0.5)
    grid = (tokens // width, width)
    frequencies = _frequencies(cos, sin, grid).expand(query.weight.shape[0], -1, -1)
    layer = Rotary(name, attention, grid, frequencies, halved, call.norm, call.tokens - tokens)
    if _needs_constant(layer):
        _expect_constant(layer)
    return layer


def _cos_sin(attention: Any, embedding: Any, dim: int) -> tuple[bool, Tensor, Tensor]:
    """Return whether pairs are halved, and cos and sin `(N_h or 1, T, J)` of the angles, float64.

    timm passes one tensor with sin before cos, and transformers the tuple (cos, sin).
    """
    if isinstance(embedding, Tensor):
        halved = bool(getattr(attention, "rotate_half", False))
        sin, cos = embedding.chunk(2, dim=-1)
    else:
        halved = True
        cos, sin = embedding
    if cos.shape[-1] != dim or cos.ndim > 3:
        raise TypeError(
            f"its rotary embedding has the shape {tuple(cos.shape)}, expected (heads, tokens,"
            f" {dim}) or (tokens, {dim}); use a model that turns all entries of a head"
        )
    pairs = [
        each.reshape(-1, *each.shape[-2:]).double().unflatten(-1, (2, -1) if halved else (-1, 2))
        for each in (cos, sin)
    ]
    axis = -2 if halved else -1
    if not all(torch.equal(*each.unbind(axis)) for each in pairs):
        raise TypeError(
            "its rotary embedding pairs other entries than the layer does, so its scores do not"
            " depend on the offset alone; give the embedding and the layer the same rotate_half"
        )
    return halved, pairs[0].select(axis, 0), pairs[1].select(axis, 0)


def _frequencies(cos: Tensor, sin: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the frequencies `(N_h or 1, J, 2)` of angles on a grid, in radians per token.

    Raises TypeError unless the angle between neighbours is the same everywhere.
    """
    turns = torch.complex(cos, sin).unflatten(1, grid)
    frequencies = []
    for axis in (1, 2):
        size = grid[axis - 1]
        step = turns.narrow(axis, 1, size - 1) * turns.narrow(axis, 0, size - 1).conj()
        mean = step.mean(dim=(1, 2), keepdim=True)
        if step.numel() and (step - mean).abs().max() > TOLERANCE:
            raise TypeError(
                f"its rotary angles are not linear in the position on the grid of {grid[0]} x"
                f" {grid[1]} tokens; use an embedding whose angles grow by the same amount from one"
                " row or column to the next, such as an axial or a mixed one"
            )
        angle = mean.angle() if step.numel() else torch.zeros_like(mean.real)
        frequencies.append(angle[:, 0, 0])
    return torch.stack(frequencies, dim=-1)


#: How far angles may be from linear ones, in radians; bfloat16 rounds cosines by up to 0.004.
TOLERANCE = 0.02


def _bias(projection: Projection) -> Tensor | None:
    """Return the first bias of a projection that is trained and stored, or None."""
    return next(iter(projection.biases), None)


def _needs_constant(layer: Rotary) -> bool:
    """Return whether a layer's queries or keys have no bias."""
    query, key, _ = projections(layer.attention)
    return _bias(query) is None or _bias(key) is None


def _expect_constant(layer: Rotary) -> None:
    """Raise TypeError unless the layer's input has a constant direction that can be used."""
    norm, attention = layer.norm, layer.attention
    if norm is None or norm.weight is None or norm.bias is None or (norm.weight == 0).any():
        reason = (
            "no LayerNorm with weights and biases precedes it alone, from which they could read a"
            " constant"
        )
    elif getattr(attention, "gate", None) is not None:
        reason = "its gate reads the LayerNorm from which they could read a constant"
    elif _bias(projections(attention)[2]) is None and _output(attention) is None:
        reason = "neither its values nor its output projection have a bias"
    else:
        return
    raise TypeError(
        f"its queries or keys have no bias, and {reason}; create the model with a bias for queries"
        " and keys (in timm: attn_type='rope' and qkv_bias=True)"
    )


def _output(attention: Any) -> nn.Linear | None:
    """Return the output projection with a bias that follows the heads directly, or None."""
    between = getattr(attention, "norm", None)
    if not (between is None or isinstance(between, nn.Identity)):
        return None
    names = ("proj", "o_proj", "out_proj")
    found = (getattr(attention, name, None) for name in names)
    return next((each for each in found if getattr(each, "bias", None) is not None), None)


@torch.no_grad()
def start_rotary(layers: Sequence[Rotary], centers: Sequence[Tensor], alpha: float) -> None:
    """Set the queries and keys of each layer's heads, whose offsets are `(N_h, 2)`.

    Every other patch has a score that is lower than that of the patch at the head's offset by at
    least alpha. Raises ValueError if the frequencies of a head have a common period on the grid.
    """
    for layer, of_layer in zip(layers, centers, strict=True):
        queries, keys = zip(
            *(
                rotary_biases(center[None].double(), own, *layer.grid, alpha)
                for center, own in zip(of_layer, layer.frequencies, strict=True)
            ),
            strict=True,
        )
        query, key, _ = projections(layer.attention)
        constant = _constant(layer) if _needs_constant(layer) else None
        scale = score_scale(layer.attention) ** -0.5
        for projection, wanted in ((query, queries), (key, keys)):
            _write(projection, scale * _paired(torch.cat(wanted), layer.halved), constant)


def _paired(x: Tensor, halved: bool) -> Tensor:
    """Return pairs (0, 1), (2, 3), ... `(N_h, D_h)` in the order in which a layer pairs entries."""
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2) if halved else x


def _write(projection: Projection, wanted: Tensor, constant: Tensor | None) -> None:
    """Make a projection return `wanted` `(N_h, D_h)` for all tokens."""
    projection.zero_()
    bias = _bias(projection)
    if bias is not None:
        bias.copy_(wanted)
    elif constant is not None:
        projection.weight.copy_(wanted.unsqueeze(-1) * constant)


def _constant(layer: Rotary) -> Tensor:
    """Return a vector `(D,)` whose product with each token of the layer's input is 1, float64.

    It adds the weights of the LayerNorm to its biases, so that the constant is not 0, and subtracts
    what this adds to the values from their bias, or from that of the output projection, since the
    attention weights sum to 1.
    """
    norm: Any = layer.norm
    value = projections(layer.attention)[2]
    before = (norm.bias.double() / norm.weight.double()).sum()
    shift = norm.weight * (1.0 if before >= 0 else -1.0)
    norm.bias += shift
    added = value.weight.double() @ shift.double()  # (N_h, D_h)
    bias = _bias(value)
    if bias is not None:
        bias.copy_(bias.double() - added)
    else:
        output: Any = _output(layer.attention)
        output.bias.copy_(output.bias.double() - output.weight.double() @ added.flatten())
    inverse = 1 / norm.weight.double()
    return inverse / (norm.bias.double() * inverse).sum()


def notes(model: nn.Module, layers: Sequence[Rotary]) -> list[str]:
    """Return sentences on what a user should know about a started model."""
    height, width = layers[0].grid
    found = [
        f"alpha was checked on images of {height} x {width} tokens; for another size, initialise"
        " the model with `images` of that size"
    ]
    if prefix := max(layer.prefix for layer in layers):
        found.append(
            f"its {prefix} prefix token{'s are' if prefix > 1 else ' is'} not rotated: a patch"
            " attends to each of them as to a patch at the origin of the coordinates"
        )
    if any(_augmented(module) for module in model.modules()):
        found.append(
            "in training mode, the model changes its coordinates at random, which stretches or"
            " shifts the kernel; the fidelity is that of evaluation mode"
        )
    return found


def _augmented(module: Any) -> bool:
    """Return whether a module changes its coordinates at random in training mode."""
    config = getattr(module, "config", None)
    return any(
        getattr(module, f"{name}_coords", None) or getattr(config, f"pos_embed_{name}", None)
        for name in AUGMENTATIONS
    )
