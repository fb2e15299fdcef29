"""Start a vision transformer as a convolution: Theorem 1 for timm's models.

Letters: N_h heads, K x K kernel, H x W tokens, alpha in inverse squared tokens.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.encodings import QuadraticEncoding
from ..theory.attention import spatial_softmax
from ..theory.expressivity import expresses_convolution
from ..theory.grid import offset_set
from . import expect_timm
from .absolute import Absolute, absolute_layers, expect_unstarted, start_absolute
from .biases import Biased, biased_layers, query_norm
from .capture import attention_of, chosen_layers


@dataclass(frozen=True)
class LayerStart:
    """The initial offsets of an attention layer's heads and how closely the heads attend to them.

    `offsets` `(N_h, 2)` contains the offset k - q assigned to each head, in tokens. `fidelity`
    `(N_h,)` is each head's mean probability on its offset over the interior queries. `residual` is
    the largest residual of Lemma 3 over the kernel positions; it is 0 if the layer can express
    every K x K convolution.
    """

    name: str
    grid: tuple[int, int]
    offsets: Tensor
    fidelity: Tensor
    residual: float


@dataclass(frozen=True)
class StartReport:
    """The result of `init_as_convolution` for each layer, which prints as a table."""

    kernel_size: int
    alpha: float
    layers: tuple[LayerStart, ...]

    def __str__(self) -> str:
        size = f"{self.kernel_size} x {self.kernel_size}"
        lines = [
            f"started as a {size} convolution, alpha {self.alpha:g}",
            f"{'layer':<28} {'tokens':>7} {'heads':>5} {'offsets':>7} {'fidelity':>13} residual",
        ]
        for layer in self.layers:
            lowest, highest = (limit.item() for limit in layer.fidelity.aminmax())
            offsets = len({tuple(offset) for offset in layer.offsets.tolist()})
            lines.append(
                f"{layer.name:<28} {'{} x {}'.format(*layer.grid):>7} {len(layer.offsets):>5}"
                f" {offsets:>7} {lowest:>6.3f}-{highest:<6.3f} {layer.residual:>8.3f}"
            )
        return "\n".join(lines)


def init_as_convolution(
    vit: nn.Module,
    kernel_size: int = 3,
    alpha: float = 2.0,
    layers: Sequence[int] | None = None,
    images: Tensor | None = None,
) -> StartReport:
    """Initialise the attention layers of a timm vision transformer as K x K convolutions in place.

    Each head attends to one offset Delta of the kernel, assigned by `kernel_offsets`, with the
    scores `-alpha ||delta - Delta||^2` (Theorem 1). The scores are written into the relative
    position biases, and the query projections (or the weights of their normalisation) are set to
    zero, so that the attention is exactly that of the quadratic encoding until training changes it.
    If a perceptron computes the biases (timm's RelPosMlp), its dropout is switched off, because
    every hidden unit is needed. Everything else keeps its initialisation. `layers` selects
    attention layers by number, counting from 0; None selects all. The returned report lists the
    offsets, fidelity and residual of each layer.

    If the model has a class token, patches give it a weight of `exp(-20)`, and its own attention is
    uniform at first. With windows (Swin, MaxViT), the kernel is cut off at window borders; in
    MaxViT's grid attention, whose tokens lie far apart, the convolution is dilated. The report
    ignores the mask of Swin's shifted windows. Layers that share a bias start with the same heads.

    A plain vision transformer (ViT, DeiT) has no relative position bias. Its initialisation uses
    ten dimensions of the absolute position encoding and is approximate, because a LayerNorm mixes
    positions with content (see `vit.absolute`). It is calibrated and measured on `images`
    `(B, C, H', W')`, in the model's input format, or on noise if no images are given. The weights
    of each LayerNorm are rescaled so that the content of the patches in its output keeps its root
    mean square on these images (in the last LayerNorm, the content of the tokens that the
    classifier reads). A warning names any layer in which a head's fidelity is below 0.5 and below
    90 % of the fidelity of exact attention. Initialise the model at the image size at which it will
    be trained, because resizing the position encoding stretches the kernel. For other models,
    `images` is ignored.

    Raises a TypeError naming the module if a layer cannot be initialised this way, ValueError for
    invalid arguments, and ImportError if timm is not installed. In
    all cases, the model is left unchanged.
    """
    expect_timm()
    if any(parameter.is_meta for parameter in vit.parameters()):
        raise ValueError("the model is on the meta device and has no weights; move it to a device")
    if (plain := absolute_layers(vit)) is not None:
        # autocast would reuse casts of the weights from before they are changed
        with torch.autocast(next(vit.parameters()).device.type, enabled=False):
            return _start_plain(vit, chosen_layers(plain, layers), kernel_size, alpha, images)
    found = biased_layers(vit)
    chosen = chosen_layers(found, layers)
    kernel_size = _expect_sizes(kernel_size, alpha, chosen)
    _expect_whole_groups(found, chosen)
    holders = {
        id(layer.holder): layer.attention.num_heads for layer in chosen
    }  # layers may share one
    by_holder = dict(zip(holders, kernel_offsets(kernel_size, [*holders.values()]), strict=True))
    wanted = [by_holder[id(layer.holder)] for layer in chosen]
    with _restored_on_error(vit):
        set_heads(chosen, wanted, alpha)
        starts = [
            _measure(layer, offsets, kernel_size)
            for layer, offsets in zip(chosen, wanted, strict=True)
        ]
    return StartReport(kernel_size, alpha, tuple(starts))


@contextmanager
def _restored_on_error(vit: nn.Module) -> Iterator[None]:
    """Give a model its tensors and dropout probabilities back if the block raises."""
    before = {name: value.clone() for name, value in vit.state_dict().items()}
    dropouts = [(module, module.p) for module in vit.modules() if isinstance(module, nn.Dropout)]
    try:
        yield
    except BaseException:
        vit.load_state_dict(before)
        for module, p in dropouts:
            module.p = p
        raise


def _start_plain(
    vit: Any, layers: list[Absolute], kernel_size: int, alpha: float, images: Tensor | None
) -> StartReport:
    kernel_size = _expect_sizes(kernel_size, alpha, layers)
    expect_unstarted(vit, layers)
    if images is None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(8, *_input_shape(vit), generator=generator).to(vit.pos_embed)
    _expect_images(images, _input_shape(vit))
    wanted = kernel_offsets(kernel_size, [layer.attention.num_heads for layer in layers])
    with _restored_on_error(vit):
        start_absolute(vit, layers, wanted, alpha, images)
        read = attention_of(vit, images, [layer.block for layer in layers])
        starts = []
        for layer, offsets, found in zip(layers, wanted, read, strict=True):
            maps = found.maps.double()
            patches = (1 - found.prefix_mass).double()
            fidelity = mass_on_offsets(maps, offsets) * patches
            residual = float(expresses_convolution(maps, kernel_size).residual.max())
            starts.append(LayerStart(layer.name, layer.grid, offsets, fidelity, residual))
            encoding = QuadraticEncoding.from_alpha(offsets.double(), alpha)
            exact = mass_on_offsets(spatial_softmax(encoding.position_scores(*layer.grid)), offsets)
            if bool((fidelity < (0.9 * exact).clamp(max=LOW_FIDELITY)).any()):
                lowest = int((fidelity / exact).argmin())
                warnings.warn(
                    f"a head of {layer.name} has fidelity {fidelity[lowest]:.2f} instead of"
                    f" {exact[lowest]:.2f} because content outweighs position there; start fewer"
                    " layers, or use a model with a relative position bias",
                    stacklevel=3,
                )
    return StartReport(kernel_size, alpha, tuple(starts))


#: Below this fidelity, a head triggers a warning, unless exact attention is almost as soft.
LOW_FIDELITY = 0.5


def kernel_offsets(kernel_size: int, num_heads: Sequence[int]) -> list[Tensor]:
    """Return the kernel offsets assigned to the heads: one tensor `(N_h, 2)` per layer.

    The heads take the offsets from the centre outwards, and each layer continues where the previous
    one stopped. K^2 heads therefore take each offset once, and additional heads repeat the first
    offsets. Consecutive layers with fewer heads share the kernel.
    """
    offsets = offset_set((kernel_size, kernel_size))
    offsets = offsets[offsets.square().sum(dim=1).argsort(stable=True)]
    taken = offsets[torch.arange(sum(num_heads)) % len(offsets)]
    return list(taken.split(list(num_heads)))


@torch.no_grad()
def set_heads(layers: Sequence[Biased], centers: Sequence[Tensor], alpha: float) -> None:
    """Set the centres `(N_h, 2)` and alpha of each layer's heads, and set the queries to zero."""
    for layer, of_layer in zip(layers, centers, strict=True):
        weight = layer.attention.qkv.weight
        layer.write(layer.holder, QuadraticEncoding.from_alpha(of_layer.to(weight), alpha))
        zero_queries(layer.attention)


@torch.no_grad()
def zero_queries(attention: Any) -> None:
    """Set an attention layer's queries to zero, by setting weights and biases to zero.

    If the layer normalises its queries, these are the weights and the bias of the normalisation,
    because it would scale even the tiniest queries to unit size after the first training step.
    """
    if norm := query_norm(attention):
        for parameter in norm.parameters():
            parameter.zero_()
        return
    qkv = attention.qkv
    rows = torch.arange(qkv.out_channels if isinstance(qkv, nn.Conv2d) else qkv.out_features)
    # most layers list all queries first; some list the query, key and value of each head
    groups = attention.num_heads if getattr(attention, "head_first", False) else 1
    rows = rows.view(groups, 3, -1)[:, 0].flatten()
    qkv.weight[rows] = 0
    for bias in (qkv.bias, getattr(attention, "q_bias", None)):
        if bias is not None:
            bias[rows if bias is qkv.bias else slice(None)] = 0


def _expect_whole_groups(found: Sequence[Biased], chosen: Sequence[Biased]) -> None:
    """Raise ValueError if a chosen layer shares its bias with a layer that was not chosen."""
    names = {layer.name for layer in chosen}
    for layer in chosen:
        sharing = [other.name for other in found if other.holder is layer.holder]
        if not names.issuperset(sharing):
            raise ValueError(
                f"{layer.name} shares its bias with other layers; choose all of"
                f" {', '.join(sharing)}, or none of them"
            )


def _input_shape(vit: Any) -> tuple[int, ...]:
    """Return the shape `(C, H', W')` of a plain vision transformer's input."""
    first = next(m for m in vit.modules() if isinstance(m, nn.Conv2d))
    return first.in_channels, *vit.patch_embed.img_size


def _expect_images(images: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `images` is a batch of images of the given shape, all finite."""
    if tuple(images.shape[1:]) != shape or not len(images):
        raise ValueError(
            f"images has the shape {tuple(images.shape)}, expected (batch,"
            f" {', '.join(map(str, shape))}), the model's input size"
        )
    if not bool(images.isfinite().all()):
        raise ValueError("images contains NaN or infinite pixels, expected finite ones")


def _expect_sizes(
    kernel_size: int, alpha: float, layers: Sequence[Biased] | Sequence[Absolute]
) -> int:
    """Return the kernel size as an int; raise ValueError if it or alpha is invalid."""
    smallest, name = min((min(layer.grid), layer.name) for layer in layers)
    whole = isinstance(kernel_size, Integral) and not isinstance(kernel_size, bool)
    if not (whole and 1 <= kernel_size <= smallest):
        raise ValueError(
            f"kernel_size is {kernel_size!r}, expected a whole number from 1 to {smallest}, the"
            f" smaller side of {name} in tokens; `layers` selects layers with more tokens"
        )
    # an invalid alpha is rejected here, before anything is written
    dtype = layers[0].attention.qkv.weight.dtype
    QuadraticEncoding.from_alpha(torch.zeros(1, 2, dtype=dtype), alpha)
    return int(kernel_size)


def _measure(layer: Biased, offsets: Tensor, kernel_size: int) -> LayerStart:
    maps = layer.probabilities().cpu()
    fidelity = mass_on_offsets(maps, offsets)
    patches = maps / maps.sum(dim=(-2, -1), keepdim=True)  # without the mass on prefix tokens
    residual = float(expresses_convolution(patches, kernel_size).residual.max())
    return LayerStart(layer.name, layer.grid, offsets, fidelity, residual)


def mass_on_offsets(maps: Tensor, offsets: Tensor) -> Tensor:
    """Return each head's probability on its offset, averaged over interior queries: `(N_h,)`.

    `maps` are `(..., N_h, H, W, H, W)` and `offsets` are `(N_h, 2)`. The average also runs over any
    leading axes of the maps. A query is interior if the pixel at every head's offset from it lies
    inside the image.
    """
    height, width = maps.shape[-2:]
    low = offsets.amin(dim=0).clamp(max=0).tolist()
    high = offsets.amax(dim=0).clamp(min=0).tolist()
    i = torch.arange(-low[0], height - high[0])
    j = torch.arange(-low[1], width - high[1])
    rows, columns = torch.meshgrid(i, j, indexing="ij")
    masses = [
        maps[..., head, rows, columns, rows + row, columns + column].mean()
        for head, (row, column) in enumerate(offsets.tolist())
    ]
    return torch.stack(masses)
