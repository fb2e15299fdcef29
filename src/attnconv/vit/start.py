"""Start a vision transformer as a convolution: Theorem 1 for the models of several libraries.

Letters: N_h heads, K x K kernel, H x W tokens, alpha in inverse squared tokens.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.encodings import QuadraticEncoding
from ..theory.grid import offset_set
from .absolute import (
    CODE,
    Absolute,
    Plain,
    absolute_layers,
    expect_unstarted,
    image_size,
    plain_model,
    start_absolute,
    unsaved,
)
from .biases import Biased, biased_layers, mlp_dropouts, query_norm
from .effect import NO_EFFECT, attention_effects, first_that_runs, low_effect
from .inputs import model_images, selected, uncompiled
from .measure import LayerMeasure, read_probabilities
from .projections import projections
from .rotary import Rotary, is_rotary, notes, rotary_layers, start_rotary


@dataclass(frozen=True)
class LayerStart:
    """The initial offsets of an attention layer's heads and how closely the heads attend to them.

    Attributes:
        name: The name of the layer.
        grid: The size `(H, W)` of the layer's image or window, in tokens.
        offsets: The offset k - q assigned to each head, `(N_h, 2)`, in tokens.
        fidelity: Each head's mean probability on its offset over the interior queries, `(N_h,)`.
        residual: The largest residual of Lemma 3 over the kernel positions. It is 0 if the layer
            can express every K x K convolution.
        effect: The relative change that the attention makes to the output of the block around it,
            or None if the model could not be run on images.
    """

    name: str
    grid: tuple[int, int]
    offsets: Tensor
    fidelity: Tensor
    residual: float
    effect: float | None = None


@dataclass(frozen=True)
class StartReport:
    """The result of `init_as_convolution` for each layer, which prints as a table.

    Attributes:
        kernel_size: The side K of the kernel, in tokens.
        alpha: The sharpness of the heads, in inverse squared tokens.
        layers: The start of each layer.
        notes: Sentences about the model that its user should know, printed below the table.
    """

    kernel_size: int
    alpha: float
    layers: tuple[LayerStart, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        size = f"{self.kernel_size} x {self.kernel_size}"
        lines = [
            f"started as a {size} convolution, alpha {self.alpha:g}",
            f"{'layer':<28} {'tokens':>7} {'heads':>5} {'offsets':>7} {'fidelity':>13} residual"
            f" {'effect':>7}",
        ]
        for layer in self.layers:
            lowest, highest = (limit.item() for limit in layer.fidelity.aminmax())
            offsets = len({tuple(offset) for offset in layer.offsets.tolist()})
            effect = "-" if layer.effect is None else f"{layer.effect:.2g}"
            lines.append(
                f"{layer.name:<28} {'{} x {}'.format(*layer.grid):>7} {len(layer.offsets):>5}"
                f" {offsets:>7} {lowest:>6.3f}-{highest:<6.3f} {layer.residual:>8.3f}"
                f" {effect:>7}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def init_as_convolution(
    vit: nn.Module,
    kernel_size: int = 3,
    alpha: float = 2.0,
    layers: Iterable[int] | slice | None = None,
    images: Tensor | None = None,
) -> StartReport:
    """Initialise the attention layers of a vision transformer as K x K convolutions in place.

    Each head attends to one offset Delta of the kernel, assigned by `kernel_offsets`, with the
    scores `-alpha ||delta - Delta||^2` (Theorem 1). The scores are written into the relative
    position biases, and the query projections (or the weights of their normalisation) are set to
    zero, so that the attention is exactly that of the quadratic encoding until training changes it.
    If a perceptron computes the biases (timm's RelPosMlp), its dropout is switched off, because
    every hidden unit is needed; a note in the report says how to repeat this after loading the
    weights into a new model. Everything else keeps its initialisation.

    If the model has a class token, a patch gives it at most `exp(-20)` of the weight that it gives
    itself, and the token's own attention is uniform at first. With windows (Swin, MaxViT), the
    kernel is cut off at window borders; in MaxViT's grid attention, whose tokens lie far apart, the
    convolution is dilated. The report ignores the mask of Swin's shifted windows. Layers that share
    a bias start with the same heads.

    A plain vision transformer (ViT, DeiT) has no relative position bias. Its initialisation uses
    ten dimensions of the absolute position encoding and is approximate, because a LayerNorm mixes
    positions with content (see `vit.absolute`). The weights of each LayerNorm are rescaled so that
    the content of the patches in its output keeps its root mean square on the images (in the last
    LayerNorm, the content of the tokens that the classifier reads). A warning names any layer in
    which a head's fidelity is below 0.5 and below 90 % of the fidelity of exact attention.
    Initialise the model at the image size at which it will be trained, because resizing the
    position encoding stretches the kernel.

    With rotary encodings (EVA-02, DINOv3, `vit_*_rope_*`), a head's scores are a sum of cosines
    that has its maximum at the head's offset, and the score of the second-best patch is lower by
    alpha (see `vit.rotary`). They are written into the biases of queries and keys, or into weights
    that read a constant from the LayerNorm before them. Prefix tokens are not rotated, so they
    count as patches at the origin of the coordinates. DINOv3 measures coordinates in units of the
    image, so it must be initialised at the image size at which it will be trained.

    Args:
        vit: A model of timm, transformers (ViT, DeiT, DINOv2, DINOv3, CLIP, SigLIP, BEiT, Swin),
            torchvision (ViT, Swin, MaxViT), open_clip (its own ViT, CoCa) or vit-pytorch (ViT,
            SimpleViT).
        kernel_size: The side K of the kernel, in tokens.
        alpha: The sharpness of the heads, in inverse squared tokens.
        layers: The numbers of the attention layers, counting from 0; None selects all.
        images: Images `(B, C, H', W')` in the model's input format, on which the effect is
            measured; noise if None. On at most eight of them, a plain vision transformer is
            calibrated, and on two, its fidelity and residual are measured.

    Returns:
        A report on the offsets, fidelity and residual of each layer, and on its effect: how much
        the attention changes the output of the block around it. The report warns if this effect is
        smaller than 0.001, as it is with a LayerScale initialised to 1e-5.

    Raises:
        TypeError: If a layer cannot be initialised this way. The error names the module, and the
            model is left unchanged.
        ValueError: If an argument is invalid. The model is left unchanged.

    Example:
        >>> import attnconv, timm
        >>> size = {"img_size": 112, "depth": 2, "init_values": 0.0}  # no LayerScale
        >>> vit = timm.create_model("vit_relpos_small_patch16_224", **size)
        >>> report = attnconv.init_as_convolution(vit, kernel_size=3, alpha=2.0)
        >>> round(report.layers[0].fidelity.min().item(), 2)
        0.62
    """
    vit = uncompiled(vit)
    if any(parameter.is_meta for parameter in vit.parameters()):
        raise ValueError("the model is on the meta device and has no weights; move it to a device")
    if not (weights := [p for p in vit.parameters() if p.is_floating_point()]):
        raise TypeError(f"{type(vit).__name__} has no floating-point weights; expected a model")
    # autocast would reuse casts of the weights from before they are changed
    with torch.autocast(weights[0].device.type, enabled=False):
        plain = plain_model(vit)
        rotary = plain is None and is_rotary(vit)
        if images is not None:
            # models with rotary encodings take images of other sizes than they state
            stated = None if rotary else _input_shape(vit)
            shape = stated if plain is None else plain.image
            images = model_images(images, shape, weights[0])
        if plain is not None:
            chosen = selected(absolute_layers(plain), layers)
            report = _start_plain(plain, chosen, kernel_size, alpha, images)
        elif rotary:
            report = _start_rotary(vit, layers, kernel_size, alpha, images)
        else:
            report = _start_biased(vit, layers, kernel_size, alpha, images)
    for note in report.notes:
        if note.startswith(NO_EFFECT):
            warnings.warn(note, stacklevel=2)
    return report


def _start_biased(
    vit: nn.Module,
    layers: Iterable[int] | slice | None,
    kernel_size: int,
    alpha: float,
    images: Tensor | None,
) -> StartReport:
    found = biased_layers(vit)
    chosen = selected(found, layers)
    kernel_size = _expect_sizes(kernel_size, alpha, chosen)
    _expect_whole_groups(found, chosen)
    holders = {id(layer.holder): layer.heads for layer in chosen}  # layers may share one
    by_holder = dict(zip(holders, kernel_offsets(kernel_size, [*holders.values()]), strict=True))
    wanted = [by_holder[id(layer.holder)] for layer in chosen]
    with _restored_on_error(vit):
        set_heads(chosen, wanted, alpha)
        starts = [
            _measure(layer, offsets, kernel_size)
            for layer, offsets in zip(chosen, wanted, strict=True)
        ]
        effects = _effects(vit, chosen, images)
    return _report(kernel_size, alpha, starts, effects, vit, mlp_dropouts(chosen))


def _effects(vit: nn.Module, layers: Sequence[Biased], images: Tensor | None) -> dict[str, float]:
    """Return the layers' effects on images, or on noise of the first size that the model takes."""
    attentions = {layer.name: layer.attention for layer in layers}
    if images is not None:
        return attention_effects(vit, attentions, images)
    like = projections(layers[0].attention)[0].weight

    def on_noise(shape: tuple[int, ...]) -> dict[str, float]:
        return attention_effects(vit, attentions, _noise(1, shape, like))

    known = _input_shape(vit)
    side = max(max(layer.grid) for layer in layers)
    guesses = [(3, side * patch, side * patch) for patch in (16, 32, 4)]
    return first_that_runs(on_noise, [known] if known else guesses)


def _report(
    kernel_size: int,
    alpha: float,
    starts: Sequence[LayerStart],
    effects: Mapping[str, float],
    vit: nn.Module,
    notes: Iterable[str] = (),
) -> StartReport:
    """Return the report of a start, with the layers' effects and a note on them."""
    layers = tuple(replace(start, effect=effects.get(start.name)) for start in starts)
    of_effect = low_effect(vit, effects)
    if not effects:
        of_effect = "the effect was not measured, because the model's input size is unknown"
        of_effect += "; pass images"
    return StartReport(kernel_size, alpha, layers, (*filter(None, [of_effect]), *notes))


@contextmanager
def _restored_on_error(vit: nn.Module, *others: Tensor) -> Iterator[None]:
    """Give a model its tensors, others, and dropout probabilities back if the block raises."""
    kept = [tensor.detach().clone() for tensor in others]
    before = {name: value.clone() for name, value in vit.state_dict().items()}
    dropouts = [(module, module.p) for module in vit.modules() if isinstance(module, nn.Dropout)]
    try:
        yield
    except BaseException:
        vit.load_state_dict(before)
        with torch.no_grad():
            for tensor, old in zip(others, kept, strict=True):
                tensor.copy_(old)
        for module, p in dropouts:
            module.p = p
        raise


def _start_plain(
    plain: Plain, layers: list[Absolute], kernel_size: int, alpha: float, images: Tensor | None
) -> StartReport:
    kernel_size = _expect_sizes(kernel_size, alpha, layers)
    expect_unstarted(plain, layers)
    if images is None:
        images = _noise(CALIBRATED, plain.image, plain.position)
    wanted = kernel_offsets(kernel_size, [layer.heads for layer in layers])
    with _restored_on_error(plain.model, plain.position):
        start_absolute(plain, layers, wanted, alpha, _some(images, CALIBRATED))
        starts = _measured(plain.model, layers, wanted, kernel_size, _some(images, MEASURED))
        for start in starts:
            _warn_of_content(start, alpha)
        inside = {layer.name.removeprefix(f"{plain.path}."): layer.attention for layer in layers}
        effects = attention_effects(plain.model, inside, images[:1], code=CODE)
    effects = {layer.name: effects[own] for layer, own in zip(layers, inside, strict=True)}
    return _report(kernel_size, alpha, starts, effects, plain.model, unsaved(plain))


def _start_rotary(
    vit: nn.Module,
    layers: Iterable[int] | slice | None,
    kernel_size: int,
    alpha: float,
    images: Tensor | None,
) -> StartReport:
    if images is None:
        if (shape := _input_shape(vit)) is None:
            raise ValueError("the model's input size is unknown; pass images")
        images = _noise(1, shape, next(p for p in vit.parameters() if p.is_floating_point()))
    images = _some(images, MEASURED)
    chosen = selected(rotary_layers(vit, images[:1]), layers)
    kernel_size = _expect_sizes(kernel_size, alpha, chosen)
    wanted = kernel_offsets(kernel_size, [layer.heads for layer in chosen])
    attentions = {layer.name: layer.attention for layer in chosen}
    with _restored_on_error(vit):
        start_rotary(chosen, wanted, alpha)
        starts = _measured(vit, chosen, wanted, kernel_size, images)
        effects = attention_effects(vit, attentions, images[:1])
    return _report(kernel_size, alpha, starts, effects, vit, notes(vit, chosen))


def _measured(
    model: nn.Module,
    layers: Sequence[Absolute] | Sequence[Rotary],
    wanted: Sequence[Tensor],
    kernel_size: int,
    images: Tensor,
) -> list[LayerStart]:
    """Return the starts of a model's layers, measured on the attention that it forms on images."""
    attentions = {layer.name: layer.attention for layer in layers}
    measures = {
        layer.name: LayerMeasure(layer.grid, offsets, kernel_size)
        for layer, offsets in zip(layers, wanted, strict=True)
    }
    read_probabilities(model, attentions, images, lambda name, found: measures[name].add(found))
    return [
        LayerStart(layer.name, layer.grid, offsets, *measures[layer.name].result())
        for layer, offsets in zip(layers, wanted, strict=True)
    ]


def _warn_of_content(start: LayerStart, alpha: float) -> None:
    """Warn if content makes a head of a layer miss its offset."""
    exact = _exact_fidelity(start.grid, start.offsets, alpha)
    if bool((start.fidelity < (0.9 * exact).clamp(max=LOW_FIDELITY)).any()):
        lowest = int((start.fidelity / exact).argmin())
        warnings.warn(
            f"a head of {start.name} has fidelity {start.fidelity[lowest]:.2f} instead of"
            f" {exact[lowest]:.2f} because content outweighs position there; start fewer"
            " layers, or use a model with a relative position bias",
            stacklevel=4,
        )


def _exact_fidelity(grid: tuple[int, int], offsets: Tensor, alpha: float) -> Tensor:
    """Return the fidelity of each head `(N_h,)` with the quadratic encoding's own attention.

    The probabilities factorise into those along the two axes.
    """
    encoding = QuadraticEncoding.from_alpha(offsets.double(), alpha)
    fidelity = torch.ones(len(offsets), dtype=torch.float64)
    for axis, size in enumerate(grid):
        of_axis = offsets[:, axis].tolist()
        k = torch.arange(size)
        scores = encoding.axis_scores(axis, (k - k.unsqueeze(1)).flatten()).unflatten(
            1, (size, size)
        )
        maps = scores.softmax(dim=-1)
        queries = k[max(0, -min(of_axis)) : size - max(0, *of_axis)]
        fidelity *= torch.stack(
            [m[queries, queries + d].mean() for m, d in zip(maps, of_axis, strict=True)]
        )
    return fidelity


#: A plain model is calibrated on at most as many images, and measured on at most as many.
CALIBRATED = 8
MEASURED = 2
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
        weight = projections(layer.attention)[0].weight
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
    projections(attention)[0].zero_()


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


def _input_shape(vit: Any) -> tuple[int, ...] | None:
    """Return the shape `(C, H', W')` of the model's input, or None if it is unknown."""
    size = image_size(vit)
    first = next((m for m in vit.modules() if isinstance(m, nn.Conv2d)), None)
    return (first.in_channels, *size) if size and first else None


def _some(images: Tensor, count: int) -> Tensor:
    """Return at most `count` of the images, spread evenly over the batch."""
    if len(images) <= count:
        return images
    return images[torch.linspace(0, len(images) - 1, count).round().long()]


def _noise(count: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return normally distributed images, always the same, in the dtype and on the device given."""
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0)).to(like)


def _expect_sizes(
    kernel_size: int,
    alpha: float,
    layers: Sequence[Biased] | Sequence[Absolute] | Sequence[Rotary],
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
    dtype = projections(layers[0].attention)[0].weight.dtype
    QuadraticEncoding.from_alpha(torch.zeros(1, 2, dtype=dtype), alpha)
    return int(kernel_size)


def _measure(layer: Biased, offsets: Tensor, kernel_size: int) -> LayerStart:
    measure = LayerMeasure(layer.grid, offsets, kernel_size)
    measure.add(layer.probabilities().flatten(3).flatten(1, 2).cpu())
    return LayerStart(layer.name, layer.grid, offsets, *measure.result())


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
