"""Start a plain vision transformer as a convolution through its absolute position encoding.

Quadratic attention needs a head dimension of 3 and, for a token at position k, the four numbers 1,
k_1, k_2 and ||k||^2. With the query (1, q_1 + Delta_1, q_2 + Delta_2) and the key alpha (-||k||^2,
2 k_1, 2 k_2), the score is -alpha ||k - q - Delta||^2 plus a term that depends only on the query,
which the softmax ignores (`theorem_1_absolute` in proofs/).

A LayerNorm before the projections divides by the standard deviation of the whole token, so the
scores would depend on content. To prevent this, a fifth number makes the norm of all five the same
at every position, and each number is stored together with its negative, so that the mean is zero.
The stored numbers are much larger than the content, and the weights of each LayerNorm restore the
size of the content.

Letters: D hidden dimension, T tokens of an image, N_h heads.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..theory.grid import pixels
from .biases import PREFIX_MARGIN
from .capture import for_reading

#: Number of hidden dimensions that hold the position: five numbers and their negatives.
CODE = 10
ONE = 0
COORDINATES = (1, 2)
SQUARE = 3
#: Ratio of the squared norms of the position code and the content before the first layer.
CODE_TO_CONTENT = 1000.0


class Absolute(NamedTuple):
    """An attention layer of a plain vision transformer, with its block number and token grid."""

    name: str
    attention: Any
    block: int
    grid: tuple[int, int]


def absolute_layers(model: Any) -> list[Absolute] | None:
    """Return the attention layers of a plain vision transformer, or None for any other model.

    Raises TypeError for a plain vision transformer that `start_absolute` cannot initialise.
    """
    from timm.models.vision_transformer import VisionTransformer

    def is_plain(module: nn.Module) -> bool:
        return isinstance(module, VisionTransformer) and isinstance(module.pos_embed, nn.Parameter)

    if not is_plain(model):
        if inner := [name for name, module in model.named_modules() if is_plain(module)]:
            raise TypeError(
                f"cannot start {type(model).__name__}, which contains a vision transformer:"
                f' pass model.get_submodule("{inner[0]}") instead'
            )
        return None
    if not isinstance(getattr(model.patch_embed, "proj", None), nn.Conv2d):
        raise TypeError("cannot start patch_embed: expected a Conv2d as proj")
    if not isinstance(model.norm_pre, nn.Identity):
        raise TypeError("cannot start the model: norm_pre normalises tokens before the first block")
    if model.attn_pool is not None:
        raise TypeError("cannot start the model: attention pooling would read the position code")
    if not isinstance(getattr(model.patch_embed, "norm", nn.Identity()), nn.Identity):
        raise TypeError("cannot start patch_embed: its norm would write to the position code")
    grid = tuple(model.patch_embed.grid_size)
    layers = [_expect_plain(block, number, grid) for number, block in enumerate(model.blocks)]
    for name, norm in _norms(model).items():
        if not isinstance(norm, nn.LayerNorm) or norm.weight is None:
            raise TypeError(
                f"cannot start {name} ({type(norm).__name__}): expected a LayerNorm with weights"
            )
    return layers


def _norms(model: Any) -> dict[str, nn.Module]:
    """Return the normalisation layers that tokens pass through, by name, except identities."""
    found = {
        f"blocks.{number}.{name}": getattr(block, name)
        for number, block in enumerate(model.blocks)
        for name in ("norm1", "norm2")
    } | {"norm": model.norm, "fc_norm": model.fc_norm}
    return {name: norm for name, norm in found.items() if not isinstance(norm, nn.Identity)}


def _expect_plain(block: Any, number: int, grid: tuple[int, int]) -> Absolute:
    """Return the attention layer of a block, or raise a TypeError naming what is unsupported."""
    from timm.layers.attention import Attention
    from timm.layers.mlp import Mlp
    from timm.models.vision_transformer import Block

    for part, kind in {"": Block, ".attn": Attention, ".mlp": Mlp}.items():
        module = block.get_submodule(part[1:])
        if type(module) is not kind:
            called = f"blocks.{number}{part} ({type(module).__name__})"
            raise TypeError(f"cannot start {called}: expected timm's {kind.__name__}")
    attention: Any = block.attn
    name = f"blocks.{number}.attn"
    width = attention.qkv.in_features
    if not isinstance(attention.q_norm, nn.Identity):
        raise TypeError(f"cannot start {name}: it normalises queries and keys")
    if attention.head_dim < 3 or width <= CODE:
        raise TypeError(
            f"cannot start {name}: its head dimension is {attention.head_dim} and its width is"
            f" {width}, expected at least 3 and {CODE + 1}"
        )
    return Absolute(name, attention, number, grid)


def expect_unstarted(model: Any, layers: Sequence[Absolute]) -> None:
    """Raise ValueError if other layers than the given ones have been started by an earlier call."""
    halves = model.pos_embed[..., -CODE:].tensor_split(2, dim=-1)
    if not halves[0].any() or not torch.equal(halves[0], -halves[1]):
        return  # no code
    numbers = {layer.block for layer in layers}
    if lost := [
        f"blocks.{number}"
        for number, block in enumerate(model.blocks)
        if number not in numbers and block.attn.qkv.weight[:, -CODE:].any()
    ]:
        raise ValueError(
            f"{', '.join(lost)} would lose the start from an earlier call, because a plain vision"
            " transformer has one position code; start all layers in one call"
        )


@torch.no_grad()
def start_absolute(
    model: Any, layers: Sequence[Absolute], centers: Sequence[Tensor], alpha: float, images: Tensor
) -> None:
    """Set the centres `(N_h, 2)` (in tokens) and the alpha of each layer's heads in place.

    In the dimensions of the code, all LayerNorms get the weight 1 and the bias 0. The magnitude of
    the `position_code` is calibrated on `images` `(B, C, H', W')`. The weights of
    each LayerNorm are then rescaled so that the content in its output keeps its root mean square
    over patches and these images; for the last LayerNorm, over the tokens that the classifier
    reads.
    """
    learned = model.pos_embed[:, _prefix_rows(model) :]
    tokens = (model.patch_embed(images).flatten(1, -2) + learned).flatten(0, 1)[:, :-CODE]
    centred = tokens.square().sum(dim=1) - tokens.sum(dim=1).square() / model.embed_dim
    content = centred.mean()  # the squared norm that a LayerNorm would see without the code
    reach = max(float(of_layer.abs().max()) for of_layer in centers)
    code, scale = position_code(*layers[0].grid, model.num_prefix_tokens, alpha, reach)
    size = (CODE_TO_CONTENT * content / code[0].square().sum()).sqrt().item()
    before = _content_sizes(model, images)
    _reserve_code(model)
    _write_code(model, size * code)
    for norm in _norms(model).values():
        _pass_code(norm)
    # what a LayerNorm divides by, in units of `size`
    deviation = (((1 + CODE_TO_CONTENT) * content / model.embed_dim).sqrt() / size).item()
    for layer, of_layer in zip(layers, centers, strict=True):
        _write_heads(layer.attention, of_layer, alpha, deviation, scale)
    _content_sizes(model, images, wanted=before)


def position_code(
    height: int, width: int, prefix: int, alpha: float, reach: float
) -> tuple[Tensor, float]:
    """Return all tokens' position codes `(prefix + T, CODE)`, float64, and their unit of length.

    The codes have mean zero and equal norms. Their coordinates are relative to the centre of the
    image, and the unit of length is given in tokens. A prefix token has no position: as a key, it
    scores at least `PREFIX_MARGIN` below the best patch; as a query, it attends uniformly. `reach`
    is the largest absolute coordinate of any offset.
    """
    middle = torch.tensor([height - 1, width - 1], dtype=torch.float64) / 2
    k = pixels(height, width) - middle
    scale = max(height, width) / 2
    squares = k.square().sum(dim=1, keepdim=True)
    patches = torch.cat([torch.ones_like(squares), k / scale, squares / scale**2], dim=1)
    # a centre outside the image is at most `reach` from the nearest pixel along each of two axes
    below = PREFIX_MARGIN / alpha + 2 * reach**2
    outside = k.new_tensor([[0.0, 0.0, 0.0, below / scale**2]]).expand(prefix, -1)
    numbers = torch.cat([outside, patches])
    norms = numbers.square().sum(dim=1, keepdim=True)
    numbers = torch.cat([numbers, (norms.max() - norms).clamp(min=0).sqrt()], dim=1)
    return torch.cat([numbers, -numbers], dim=1), scale


def _prefix_rows(model: Any) -> int:
    """Return how many rows of the position encoding belong to prefix tokens."""
    return 0 if model.no_embed_class else model.num_prefix_tokens


def _write_code(model: Any, code: Tensor) -> None:
    """Write all tokens' codes `(prefix + T, CODE)` into the position encoding.

    If prefix tokens have no position encoding (DeiT III, registers), the code is written into the
    tokens themselves.
    """
    model.pos_embed[..., -CODE:] = code[-model.pos_embed.shape[1] :]
    for name in ("cls_token", "dist_token", "reg_token"):
        if (token := getattr(model, name, None)) is not None:
            token[..., -CODE:] = code[0] if model.no_embed_class else 0


def _content_sizes(
    model: Any, images: Tensor, wanted: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Return the root mean square of the content in each LayerNorm's output, keyed by name.

    The mean is over `images` and patches; for the last LayerNorm, it is over the tokens that the
    classifier reads. If `wanted` is given, the weights of each LayerNorm are also rescaled, in the
    order of execution, so that these values become `wanted`.
    """
    first = model.num_prefix_tokens
    found = {}
    read = (
        slice(first - model.num_reg_tokens) if model.global_pool == "token" else slice(first, None)
    )

    def measure(name: str, tokens: slice, norm: Any, _: Any, output: Tensor) -> Tensor:
        bias = 0 if norm.bias is None else norm.bias
        content = (output - bias)[..., :-CODE]
        content = content[:, tokens] if output.ndim == 3 else content
        found[name] = content.square().mean().sqrt()
        if wanted is None:
            return output
        factor = torch.ones_like(norm.weight)
        if found[name] > 0:
            factor[:-CODE] = wanted[name] / found[name]
        norm.weight *= factor
        return (output - bias) * factor + bias

    with for_reading(model), ExitStack() as hooks:
        for name, norm in _norms(model).items():
            tokens = read if name == "norm" else slice(first, None)
            hook = norm.register_forward_hook(partial(measure, name, tokens))
            hooks.callback(hook.remove)
        model(images)
    return found


def _pass_code(norm: Any) -> None:
    """Make a LayerNorm pass on the code as it is, whatever its weights and bias have become."""
    norm.weight[-CODE:] = 1
    if norm.bias is not None:
        norm.bias[-CODE:] = 0


def _reserve_code(model: Any) -> None:
    """Reserve the dimensions of the code, so that no other weight reads or writes them."""
    writers = [model.patch_embed.proj]
    readers = [getattr(model, name, None) for name in ("head", "head_dist")]
    for block in model.blocks:
        writers += [block.attn.proj, block.mlp.fc2]
        readers += [block.attn.qkv, block.mlp.fc1]
    for module in writers:
        module.weight[-CODE:] = 0
        if module.bias is not None:
            module.bias[-CODE:] = 0
    for module in readers:
        if isinstance(module, nn.Linear):
            module.weight[:, -CODE:] = 0


def _write_heads(
    attention: Any, centers: Tensor, alpha: float, deviation: float, scale: float
) -> None:
    """Set the queries and keys of a layer and leave its values unchanged."""
    heads = attention.num_heads
    dim = attention.head_dim
    width = attention.qkv.in_features
    query, key, _ = attention.qkv.weight.unflatten(0, (3, heads, dim))
    query.zero_()
    key.zero_()

    def read(weights: Tensor, row: int, number: int, factor: Tensor | float) -> None:
        # half from the number and half from its negative, so that the LayerNorm's mean cancels
        positive = width - CODE + number
        weights[:, row, positive] = factor * deviation / 2
        weights[:, row, positive + CODE // 2] = -factor * deviation / 2

    read(query, 0, ONE, 1.0)
    read(key, 0, SQUARE, -alpha * scale**2 / attention.scale)
    for axis, number in enumerate(COORDINATES, start=1):
        read(query, axis, number, scale)
        read(query, axis, ONE, centers[:, axis - 1].to(query))
        read(key, axis, number, 2 * alpha * scale / attention.scale)
    if attention.qkv.bias is not None:
        attention.qkv.bias[: 2 * heads * dim] = 0
