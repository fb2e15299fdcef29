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
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layers.mode import evaluation_mode
from ..theory.grid import pixels
from .biases import PREFIX_MARGIN
from .plain import BASES, HEADED, Layout, layout_of, part
from .projections import PARTS, QUERY_KEY_NORMS, num_heads, projections, score_scale
from .tokens import PREFIX_TOKENS

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

    @property
    def heads(self) -> int:
        """The number of heads."""
        return num_heads(self.attention)


class Plain(NamedTuple):
    """A plain vision transformer and its layout, grid and shape of images `(C, H', W')`.

    `prefix` is the number of prefix tokens, of which the first `placed` have a position. `path`
    leads from the model of the user to this one.
    """

    model: Any
    layout: Layout
    path: str
    grid: tuple[int, int]
    image: tuple[int, int, int]
    prefix: int
    placed: int

    def get(self, path: str) -> Any:
        """Return the module or tensor at a path of the layout, or None."""
        return part(self.model, path)

    @property
    def blocks(self) -> Any:
        """The blocks, in order."""
        return self.get(self.layout.blocks)

    @property
    def position(self) -> Tensor:
        """The position encodings `(P + T, D)` as a view."""
        return self.get(self.layout.position).flatten(0, -2)


def plain_model(model: Any) -> Plain | None:
    """Return the plain vision transformer in a model, or None for any other model.

    Raises TypeError for a plain vision transformer that `start_absolute` cannot initialise.
    """
    path = ""
    if type(model).__name__.endswith(HEADED):
        path = next((name for name in BASES if hasattr(model, name)), "")
    base = model.get_submodule(path)
    layout = layout_of(base)
    if layout is None:
        for name, module in model.named_modules():
            if name and layout_of(module) is not None:
                raise TypeError(
                    f"cannot start {type(model).__name__}, which contains a vision transformer:"
                    f' pass model.get_submodule("{name}") instead'
                )
        return None
    return _described(base, layout, path)


def _described(model: Any, layout: Layout, path: str) -> Plain:
    """Return a plain vision transformer with its grid and tokens, or raise a TypeError."""
    positions = part(model, layout.position).flatten(0, -2).shape[0]
    for name, parameter in model.named_parameters():
        is_token = PREFIX_TOKENS.search(name.rpartition(".")[2]) and parameter.numel()
        if is_token and name not in layout.tokens:
            raise TypeError(
                f"cannot start the model: the place of {name} among the tokens is unknown"
            )
    sizes = [_token_count(part(model, name)) for name in layout.tokens]
    grid, image = _sizes(model, layout)
    placed = positions - grid[0] * grid[1]
    if not 0 <= placed <= sum(sizes):
        raise TypeError(
            f"cannot start the model: it has {positions} position encodings for"
            f" {grid[0]} x {grid[1]} patches and {sum(sizes)} prefix tokens"
        )
    plain = Plain(model, layout, path, grid, image, sum(sizes), placed)
    _expect_passable(plain)
    return plain


def _token_count(tokens: Tensor | None) -> int:
    """Return the number of tokens in a parameter `(D,)` or `(..., P, D)`, or 0 for None."""
    return 0 if tokens is None else tokens.numel() // tokens.shape[-1]


def _sizes(model: Any, layout: Layout) -> tuple[tuple[int, int], tuple[int, int, int]]:
    """Return the grid of a model's patches and the shape of its images."""
    convolution = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    patches = part(model, layout.patches)
    patch = patches.stride if isinstance(patches, nn.Conv2d) else getattr(model, "patch_size", None)
    if patch is None:
        raise TypeError("cannot start the model: the size of its patches is unknown")
    height, width = patch if isinstance(patch, tuple) else (patch, patch)
    known = image_size(model)
    if known is None:  # vit-pytorch does not keep the size: assume square images
        positions = len(part(model, layout.position).flatten(0, -2))
        side = isqrt(positions - sum(_token_count(part(model, name)) for name in layout.tokens))
        known = (side * height, side * width)
    if convolution is None:
        linear = next(m for m in model.modules() if isinstance(m, nn.Linear))
        channels = linear.in_features // (height * width)
    else:
        channels = convolution.in_channels
    grid = (known[0] // height, known[1] // width)
    return grid, (channels, known[0], known[1])


def image_size(model: Any) -> tuple[int, int] | None:
    """Return the height and width of a model's images in pixels, or None if it does not tell."""
    paths = ("patch_embed.img_size", "image_size", "config.image_size")
    size = next(filter(None, (part(model, path) for path in paths)), None)
    if isinstance(size, int):
        return size, size
    return None if size is None else (int(size[0]), int(size[1]))


def absolute_layers(plain: Plain) -> list[Absolute]:
    """Return the attention layers of a plain vision transformer in order."""
    prefix = f"{plain.path}." if plain.path else ""
    names = {id(module): name for name, module in plain.model.named_modules()}
    layers = []
    for number, block in enumerate(plain.blocks):
        attention = part(block, plain.layout.attention)
        layers.append(Absolute(prefix + names[id(attention)], attention, number, plain.grid))
    return layers


def _norms(plain: Plain) -> dict[str, Any]:
    """Return the normalisation layers that tokens pass through, by name, except identities."""
    layout = plain.layout
    found = {name: plain.get(name) for name in (layout.first,) if name}
    for number, block in enumerate(plain.blocks):
        found |= {f"{layout.blocks}.{number}.{name}": part(block, name) for name in layout.norms}
    last = next((name for name in layout.last if _is_layer(plain.get(name))), None)
    found |= {last: plain.get(last)} if last else {}
    return {name: norm for name, norm in found.items() if _is_layer(norm)}


def _is_layer(module: Any) -> bool:
    return module is not None and not isinstance(module, nn.Identity)


def _expect_passable(plain: Plain) -> None:
    """Raise a TypeError naming what keeps the position code from passing through the model."""
    layout = plain.layout
    if _is_layer(plain.get("patch_embed.norm")):
        raise TypeError("cannot start patch_embed: its norm would write to the position code")
    if _is_layer(plain.get("attn_pool_contrastive")):
        raise TypeError("cannot start attn_pool_contrastive: it would read the position code")
    for number, block in enumerate(plain.blocks):
        _expect_block(plain, f"{layout.blocks}.{number}", block)
    norms = _norms(plain)
    for name, norm in norms.items():
        if not isinstance(norm, nn.LayerNorm) or norm.weight is None:
            raise TypeError(
                f"cannot start {name} ({type(norm).__name__}): expected a LayerNorm with weights"
            )
    if not any(name in norms for name in layout.last):
        raise TypeError(
            "cannot start the model: it has no LayerNorm after its last block, so its classifier"
            " would read the position code"
        )


def _expect_block(plain: Plain, name: str, block: Any) -> None:
    """Raise a TypeError if a block is of another type, or has other parts, than expected."""
    layout = plain.layout
    if type(block).__name__ not in layout.block_types:
        raise TypeError(
            f"cannot start {name} ({type(block).__name__}): expected {layout.block_types[0]}"
        )
    if _is_layer(part(block, "ln_attn")):
        raise TypeError(f"cannot start {name}.ln_attn: it would write to the position code")
    for path in layout.writers:
        writer = part(block, path)
        if not isinstance(writer, nn.Linear):
            kind = type(writer).__name__
            raise TypeError(f"cannot start {name}.{path} ({kind}): expected a Linear")
    attention = part(block, layout.attention)
    called = f"{name}.{layout.attention} ({type(attention).__name__})"
    own = {n for n, _ in attention.named_children()}
    own |= {n for n, _ in attention.named_parameters(recurse=False)}
    if unknown := own - PARTS:
        raise TypeError(f"cannot start {called}: it has {min(unknown)}, whose effect is unknown")
    if any(_is_layer(part(attention, norm)) for norm in QUERY_KEY_NORMS):
        raise TypeError(f"cannot start {called}: it normalises queries and keys")
    try:
        _, dim, width = projections(attention)[0].weight.shape
    except TypeError as error:
        raise TypeError(f"cannot start {called}: {error}") from None
    if dim < 3 or width <= CODE:
        raise TypeError(
            f"cannot start {called}: its head dimension is {dim} and its width is {width},"
            f" expected at least 3 and {CODE + 1}"
        )


def unsaved(plain: Plain) -> list[str]:
    """Return a note on position encodings that a state dict does not store, if they are such."""
    path = plain.layout.position
    stored = {id(tensor) for tensor in (*plain.model.parameters(), *plain.model.buffers())}
    if id(plain.get(path)) in stored:
        return []
    return [
        f"{path}, which now holds the position code, is not in the state dict; to save and load it,"
        f" first call model.{path} = torch.nn.Parameter(model.{path}) on both models"
    ]


def expect_unstarted(plain: Plain, layers: Sequence[Absolute]) -> None:
    """Raise ValueError if other layers than the given ones have been started by an earlier call."""
    halves = plain.position[..., -CODE:].tensor_split(2, dim=-1)
    if not halves[0].any() or not torch.equal(halves[0], -halves[1]):
        return  # no code
    numbers = {layer.block for layer in layers}
    if lost := [
        f"{plain.layout.blocks}.{number}"
        for number, block in enumerate(plain.blocks)
        if number not in numbers and part(block, plain.layout.norms[0]).weight[-CODE:].any()
    ]:
        raise ValueError(
            f"{', '.join(lost)} would lose the start from an earlier call, because a plain vision"
            " transformer has one position code; start all layers in one call"
        )


@torch.no_grad()
def start_absolute(
    plain: Plain,
    layers: Sequence[Absolute],
    centers: Sequence[Tensor],
    alpha: float,
    images: Tensor,
) -> None:
    """Set the centres `(N_h, 2)` (in tokens) and the alpha of each layer's heads in place.

    The magnitude of the `position_code` is calibrated on `images` `(B, C, H', W')`. The weights of
    each LayerNorm are then rescaled so that the content in its output keeps its root mean square
    over patches and these images; for the last LayerNorm, over the tokens that the classifier
    reads. In the dimensions of the code, the LayerNorms of started layers have the weight 1, and
    all others 0, so that nothing else reads the code.
    """
    before = _contents(plain, images)
    reach = max(float(of_layer.abs().max()) for of_layer in centers)
    code, scale = position_code(*plain.grid, plain.prefix, alpha, reach)
    sizes, deviations = _magnitudes(plain, before, code)
    _reserve_code(plain)
    _write_code(plain, sizes[0] * code)
    if plain.layout.first and (first := plain.get(plain.layout.first)) in _norms(plain).values():
        _pass_code(first, deviations[0] * sizes[1])
    for layer, of_layer in zip(layers, centers, strict=True):
        _pass_code(part(plain.blocks[layer.block], plain.layout.norms[0]), 1.0)
        _write_heads(layer.attention, of_layer, alpha, deviations[1], scale)
    _contents(plain, images, wanted=before)


def _magnitudes(
    plain: Plain, contents: Mapping[str, "Content"], code: Tensor
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the code's size in the first tokens and before the first block, and the deviations.

    The deviations are what a LayerNorm divides by at these two places, in units of the size.
    """
    names = list(contents)
    first = names[0]  # the first norm: that of the first block, or one before it
    block = f"{plain.layout.blocks}.0.{plain.layout.norms[0]}"
    width = plain.position.shape[-1]
    sizes = []
    deviations = []
    for name in (first, block):
        content = contents[name].squared_norm
        size = (CODE_TO_CONTENT * content / code[0].square().sum()).sqrt().item()
        sizes.append(size)
        deviations.append((((1 + CODE_TO_CONTENT) * content / width).sqrt() / size).item())
    return (sizes[0], sizes[1]), (deviations[0], deviations[1])


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


def _write_code(plain: Plain, code: Tensor) -> None:
    """Write all tokens' codes `(P + T, CODE)` into the position encoding.

    If prefix tokens have no position encoding (DeiT III, registers), the code is written into the
    tokens themselves.
    """
    patches = plain.grid[0] * plain.grid[1]
    plain.position[:, -CODE:] = torch.cat([code[: plain.placed], code[-patches:]]).to(
        plain.position
    )
    number = 0
    for name in plain.layout.tokens:
        if (token := plain.get(name)) is not None and token.numel():
            token[..., -CODE:] = 0 if number < plain.placed else code[0].to(token)
            number += _token_count(token)


class Content(NamedTuple):
    """The content of patches at a LayerNorm: all dimensions but those of the code.

    `squared_norm` is the mean squared norm of a token in the input, relative to its mean, which the
    LayerNorm would divide by without a code; `size` is the root mean square in the output.
    """

    squared_norm: Tensor
    size: Tensor


def _contents(
    plain: Plain, images: Tensor, wanted: Mapping[str, Content] | None = None
) -> dict[str, Content]:
    """Return the content at each LayerNorm, keyed by name.

    The means are over `images` and patches; for the last LayerNorm, over the tokens that the
    classifier reads. If `wanted` is given, the weights of each LayerNorm are also rescaled, in the
    order of execution, so that the sizes become those of `wanted`.
    """
    found = {}

    def measure(name: str, tokens: slice, norm: Any, args: Any, output: Tensor) -> Tensor:
        bias = 0 if norm.bias is None else norm.bias
        content = (output - bias)[..., :-CODE]
        content = content[:, tokens] if output.ndim == 3 else content
        before = args[0][:, plain.prefix :, :-CODE] if output.ndim == 3 else args[0][:, :-CODE]
        centred = before.square().sum(-1) - before.sum(-1).square() / output.shape[-1]
        found[name] = Content(centred.mean(), content.square().mean().sqrt())
        if wanted is None:
            return output
        factor = torch.ones_like(norm.weight)
        if found[name].size > 0:
            factor[:-CODE] = wanted[name].size / found[name].size
        norm.weight *= factor
        return (output - bias) * factor + bias

    with evaluation_mode(plain.model), ExitStack() as hooks:
        hooks.enter_context(torch.compiler.set_stance("force_eager"))
        for name, norm in _norms(plain).items():
            tokens = _read_tokens(plain) if name in plain.layout.last else slice(plain.prefix, None)
            hook = norm.register_forward_hook(partial(measure, name, tokens))
            hooks.callback(hook.remove)
        plain.model(images)
    return found


def _read_tokens(plain: Plain) -> slice:
    """Return which tokens the classifier reads: the prefix tokens but registers, or the patches."""
    names = ("global_pool", "pool", "pool_type")
    pool = next((pool for name in names if (pool := plain.get(name))), "token")
    if not plain.prefix or plain.get("attn_pool") or pool not in ("token", "cls", "tok"):
        return slice(plain.prefix, None)
    return slice(plain.prefix - getattr(plain.model, "num_reg_tokens", 0))


def _pass_code(norm: Any, weight: float) -> None:
    """Set a LayerNorm's weight in the dimensions of the code, and its bias there to 0."""
    norm.weight[-CODE:] = weight
    if norm.bias is not None:
        norm.bias[-CODE:] = 0


def _reserve_code(plain: Plain) -> None:
    """Reserve the dimensions of the code, so that no weight writes them and no norm passes them."""
    patches = plain.get(plain.layout.patches)
    stem = isinstance(patches, nn.Sequential)
    writers: list[Any] = [patches[-1] if stem else patches]
    for block in plain.blocks:
        writers += [part(block, name) for name in plain.layout.writers]
    for module in writers:
        for parameter in (module.weight, module.bias):
            if parameter is not None:
                parameter[-CODE:] = 0
    for norm in _norms(plain).values():
        _pass_code(norm, 0.0)


def _write_heads(
    attention: Any, centers: Tensor, alpha: float, deviation: float, scale: float
) -> None:
    """Set the queries and keys of a layer; its values read everything but the code, as before."""
    queries, keys, values = projections(attention)
    queries.zero_()
    keys.zero_()
    values.weight[..., -CODE:] = 0
    factor = score_scale(attention)

    def read(weights: Tensor, row: int, number: int, times: Tensor | float) -> None:
        # half from the number and half from its negative, so that the LayerNorm's mean cancels
        positive = weights.shape[-1] - CODE + number
        weights[:, row, positive] = times * deviation / 2
        weights[:, row, positive + CODE // 2] = -times * deviation / 2

    read(queries.weight, 0, ONE, 1.0)
    read(keys.weight, 0, SQUARE, -alpha * scale**2 / factor)
    for axis, number in enumerate(COORDINATES, start=1):
        read(queries.weight, axis, number, scale)
        read(queries.weight, axis, ONE, centers[:, axis - 1].to(queries.weight))
        read(keys.weight, axis, number, 2 * alpha * scale / factor)
