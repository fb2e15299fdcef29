"""Theorem 1 for torch: convert a convolutional layer or a whole network to self-attention.

This module is the fast counterpart of `theory.theorem1` and supports all hyper-parameters of a
convolution.

Letters: B batch, C channels, n spatial dimensions, N_h heads (one per kernel shift), G groups. The
layout is torch's `(B, C, ...)`, as in the original convolutions.
"""

import copy
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._prims_common import suggest_memory_format
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from ..theory.grid import shift_set
from ..theory.shapes import Float
from ..theory.theorem1 import DTYPES, hard_alpha
from .attention import as_in_autocast, attend
from .encodings import QuadraticEncoding, softmax_without_tails
from .shifts import Shifts, add_shifted, as_shifts, average
from .state_dict import load_from_convolution, save_as_convolution, weight_by_head
from .tiles import Tile, best_tiles, in_tiles, support_of_factors


class ConvAsAttention(nn.Module):
    """A convolution computed by self-attention with the quadratic encoding. Theorem 1.

    Input and output are `(B, C, ...)`. As in torch, the output is channels-last if the input or the
    convolution's weight is. Head h attends to the pixel at the shift Delta^(h) of the kernel and
    applies the matrix W^(h) of that shift. The paper's constructions cover every hyper-parameter of
    torch's convolutions: the image is padded first and the border queries are cropped (padding),
    only every s-th query is kept (stride), the shifts are spread out (dilation), and W^(h) is block
    diagonal (groups). The softmax is taken along one axis at a time, which is exact for this
    encoding. Heads with a common alpha and integer centres are shifts of one another, so the image
    is averaged only once. If the heads are one-hot in the dtype, the image is shifted without
    averaging. Products with zero probabilities are skipped.

    `encoding` contains the centres and alpha, which are not trained unless
    `encoding.requires_grad_()` is called, and `weight` `(G, C_out/G, N_h C_in/G)` contains the
    matrices W^(h) side by side. Unless the heads are one-hot, an infinite or NaN pixel affects
    every output (0 * inf is NaN). To use a half-precision convolution in a wider dtype, change its
    dtype before the conversion, because the default alpha depends on the dtype. A layer whose
    kernel reaches 256 pixels in bfloat16, or 2048 in float16, raises ValueError when it is called,
    because the dtype cannot tell those pixels apart; going back to a wider dtype does not restore
    their rounded centres.

    The layer and the convolution can load each other's state_dict; see `layers.state_dict`.
    """

    def __init__(self, conv: nn.Conv1d | nn.Conv2d, alpha: float | None = None):
        super().__init__()
        self.in_channels, self.out_channels = conv.in_channels, conv.out_channels
        self.groups = conv.groups
        self.kernel_size, self.stride, self.dilation = conv.kernel_size, conv.stride, conv.dilation
        self.padding, self.padding_mode = _padding_of(conv), conv.padding_mode
        weight = conv.weight.detach()
        self.channels_last = memory_format(weight) == torch.channels_last
        centers = shift_set(conv.kernel_size, conv.dilation).to(weight)
        self.encoding = QuadraticEncoding.from_alpha(
            centers, hard_alpha(weight.dtype) if alpha is None else alpha
        )
        self.weight = nn.Parameter(weight_by_head(weight, self.groups), conv.weight.requires_grad)
        self.bias = None
        if conv.bias is not None:
            self.bias = nn.Parameter(conv.bias.detach().clone(), conv.bias.requires_grad)
        self.register_state_dict_post_hook(save_as_convolution)
        self.register_load_state_dict_pre_hook(load_from_convolution)
        self._known: tuple[tuple[int, ...], list[Tensor], Shifts | None] | None = None

    def __getstate__(self) -> dict[str, Any]:  # the cache can be large
        return self.__dict__ | {"_known": None}

    @property
    def num_heads(self) -> int:
        return self.encoding.num_heads

    def extra_repr(self) -> str:
        size = " x ".join(map(str, self.kernel_size))
        return (
            f"{self.in_channels}, {self.out_channels}, kernel={size}, heads={self.num_heads},"
            f" groups={self.groups}"
        )

    def value_matrices(self) -> Float[Tensor, "N_h C_in C_out"]:
        """Return the matrix W^(h) of each head (block diagonal for grouped convolutions)."""
        blocks = self.weight.unflatten(2, (self.num_heads, -1))  # (G, C_out/G, N_h, C_in/G)
        return torch.stack([torch.block_diag(*blocks[:, :, h].mT) for h in range(self.num_heads)])

    def _bounds(self, axis: int, size: int) -> tuple[int, int, int]:
        """Return the start, end and step of the kept queries along one axis."""
        first = self.dilation[axis] * ((self.kernel_size[axis] - 1) // 2)
        return first, first + size + 1 - self._extent(axis), self.stride[axis]

    def queries(self, axis: int, size: int) -> range:
        """Return the queries kept by cropping and striding along one axis of the padded image."""
        return range(*self._bounds(axis, size))

    def _extent(self, axis: int) -> int:
        """Return the size in pixels of the dilated kernel along one axis."""
        return self.dilation[axis] * (self.kernel_size[axis] - 1) + 1

    def axis_probabilities(self, axis: int, size: int) -> Float[Tensor, "N_h queries {size}"]:
        """Return the attention factor of the kept queries for one axis of the padded image."""
        # `range` would fix the size in an exported graph
        queries = torch.arange(*self._bounds(axis, size), device=self.weight.device)
        keys = torch.arange(size, device=self.weight.device)
        return softmax_without_tails(self.encoding.axis_scores(axis, keys - queries.unsqueeze(-1)))

    def forward(self, input: Tensor) -> Tensor:  # the name in torch's convolutions
        self._check(input)
        if input.ndim == len(self.kernel_size) + 1:
            return self.forward(input.unsqueeze(0)).squeeze(0).contiguous()
        x = pad_image(input, self.padding, self.padding_mode)
        layout = torch.channels_last if self.channels_last else memory_format(x)
        shifts = self.shifts(x.shape[2:])
        x = self.along_axes(x) if shifts is None else self.by_shifts(x, shifts)
        if self.bias is not None:
            x = x + self.bias.to(x.dtype).view(-1, *(1,) * len(self.kernel_size))
        return _in_memory_format(x, layout)

    def shifts(self, sizes: Sequence[int]) -> Shifts | None:
        """Return the heads as shifts of one head on padded images of the given sizes, or None.

        The result is None if the heads are not shifts of one another, or if their centres or alphas
        are being trained. It is cached as long as the sizes, centres and alphas do not change.
        """
        values = list(self.encoding.parameters())
        trained = torch.is_grad_enabled() and any(value.requires_grad for value in values)
        if trained or torch.compiler.is_compiling():  # values cannot be read while compiling
            return None
        known = self._known
        if known is None or known[0] != tuple(sizes) or not all(map(_same, known[1], values)):
            queries = [self.queries(axis, size) for axis, size in enumerate(sizes)]
            with torch.inference_mode(False):  # training may use the cached tensors later
                copies = [value.detach().clone() for value in values]
                known = self._known = tuple(sizes), copies, as_shifts(self.encoding, queries, sizes)
        return known[2]

    def by_shifts(self, x: Tensor, shifts: Shifts) -> Tensor:
        """Return the output without bias for a padded image, computed from one head's average.

        The averages of the other heads are shifts of this average.
        """
        # Cast both here, because a cast inside would meet gradients of a different dtype.
        x, weight = as_in_autocast(x), as_in_autocast(self.weight)
        blocks = weight.unflatten(2, (self.num_heads, -1)).permute(2, 0, 3, 1)
        queries = [len(self.queries(axis, size)) for axis, size in enumerate(x.shape[2:])]
        corners = [(0, *corner)[-2:] for corner in shifts.corners]  # a sequence: one row
        stride, kept = (1, *self.stride)[-2:], [1, *queries][-2:]
        with torch.autocast(x.device.type, enabled=False):
            image = _as_image(x).permute(2, 0, 3, 1).contiguous()
            averages = average(shifts.probabilities, image)
            total = add_shifted(averages, blocks, corners, kept, stride).permute(1, 3, 0, 2)
        return total if x.ndim == 4 else total.squeeze(2)

    def along_axes(self, x: Tensor) -> Tensor:
        """Return the output without bias for a padded image, for any alpha and centres.

        The heads attend along one axis at a time, which is exact for this encoding.
        """
        factors = [self.axis_probabilities(axis, size) for axis, size in enumerate(x.shape[2:])]
        rows, columns = [x.new_ones(self.num_heads, 1, 1), *factors][-2:]
        images = _as_image(x).permute(2, 3, 0, 1)  # (H, W, B, C)
        weight = self.weight.unflatten(2, (self.num_heads, -1))  # (G, C_out/G, N_h, C_in/G)

        def mix(along_rows: Tile, along_columns: Tile, keys: Tensor) -> Tensor:
            factors = rows[:, *along_rows], columns[:, *along_columns]
            averages = attend(factors, keys).unflatten(-1, (self.groups, -1))
            return torch.einsum("hijbgc,gohc->ijbgo", averages, weight).flatten(3)

        products = self.num_heads * images[0, 0].numel()
        tiles = best_tiles(support_of_factors(rows, columns), products, separable=True)
        whole = Tile(slice(None), slice(None))
        total = in_tiles(tiles, images, mix) if tiles else mix(whole, whole, images)
        total = total.permute(2, 3, 0, 1)
        return total if x.ndim == 4 else total.squeeze(2)

    def _check(self, x: Tensor) -> None:
        if reason := _too_far(self):
            raise ValueError(f"the layer cannot compute its convolution: {reason}")
        n = len(self.kernel_size)
        if x.ndim not in (n + 1, n + 2) or x.shape[-n - 1] != self.in_channels:
            expected = f"([batch,] {self.in_channels}, {'length' if n == 1 else 'height, width'})"
            raise ValueError(f"got an input of shape {tuple(x.shape)}, expected {expected}")
        for axis, size in enumerate(x.shape[-n:]):
            padded, extent = size + sum(self.padding[axis]), self._extent(axis)
            if padded < extent:
                raise ValueError(
                    f"axis {axis} has {padded} pixels with padding, expected at least the dilated"
                    f" kernel's {extent}"
                )


def conv_to_attention(conv: nn.Conv1d | nn.Conv2d, alpha: float | None = None) -> ConvAsAttention:
    """Return a self-attention layer that computes the given convolution. Theorem 1.

    Accepts any `nn.Conv1d` or `nn.Conv2d`; the result is called in the same way, with `(B, C, ...)`
    as input and output. `alpha` (in inverse squared pixels) is the sharpness of the heads; its
    default is `hard_alpha` for the layer's dtype. Raises TypeError for transposed, lazy, 3D,
    parametrised, scripted and customised convolutions, for those on the meta device, and for
    half-precision ones that reach so many pixels that the dtype cannot tell them apart. The weights
    are copied, so later changes to `conv` have no effect.
    """
    reason = _why_not(conv)
    if reason:
        raise TypeError(
            f"cannot turn {type(conv).__name__} into attention: {reason}; expected a"
            " torch.nn.Conv1d or Conv2d"
        )
    return ConvAsAttention(conv, alpha).train(conv.training)


def convert_network(model: nn.Module, alpha: float | None = None) -> nn.Module:
    """Return a copy of a network with self-attention in place of every convolution. Theorem 1.

    Each convolution is replaced by the result of `conv_to_attention`. `alpha` is the sharpness of
    all heads; by default, they are one-hot. A module used in several places remains shared.
    Convolutions called as functions in a forward method are not modules and are not replaced.
    Forward hooks of a convolution are not copied. Raises a TypeError that names the module if a
    convolution cannot be converted, is compiled by itself or shares a parameter with another
    module, or if a module is scripted. The original model is not changed.
    """
    owners: dict[nn.Parameter, tuple[str, nn.Module]] = {}
    for path, module in model.named_modules():
        reason = _why_not(module) if _is_convolution(module) else None
        if _is_convolution(module) and is_compiled(path):
            reason = "it is compiled; convert it before torch.compile"
        for parameter in module.parameters(recurse=False):
            name, owner = owners.setdefault(parameter, (path, module))
            if owner is not module and (_is_convolution(module) or _is_convolution(owner)):
                reason = f"it shares a parameter with {name or 'the model'}; give each its own"
        if reason:
            raise TypeError(
                f"cannot convert {path or 'the model'} ({type(module).__name__}): {reason}"
            )
    model = copy.deepcopy(model)
    convolutions = [
        (path, m) for path, m in model.named_modules(remove_duplicate=False) if _is_convolution(m)
    ]
    converted: dict[nn.Module, ConvAsAttention] = {}
    for path, module in convolutions:
        if module not in converted:
            converted[module] = conv_to_attention(module, alpha)
        if not path:
            return converted[module]
        model.set_submodule(path, converted[module])
    return model


def pad_image(x: Tensor, padding: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Return images `(B, C, ...)` padded on both sides of each axis, as in a convolution."""
    pads = [pad for before_after in reversed(padding) for pad in before_after]
    return F.pad(x, pads, mode="constant" if mode == "zeros" else mode)


def memory_format(x: Tensor) -> torch.memory_format:
    """Return the memory format that torch's operations give to the output for an input `x`."""
    return suggest_memory_format(x) if x.ndim == 4 else torch.contiguous_format


def _in_memory_format(x: Tensor, layout: torch.memory_format) -> Tensor:
    """Return a tensor in a memory format, copied only if the order of its values differs.

    Unlike `contiguous`, this also gives axes of size one the strides of the memory format.
    """
    if torch.compiler.is_compiling():  # `reshape` would restrict the sizes of an exported graph
        return x.clone(memory_format=layout)
    if layout == torch.channels_last:
        return _in_memory_format(x.movedim(1, -1), torch.contiguous_format).movedim(-1, 1)
    return x.reshape(-1).view(x.shape)


def _as_image(x: Tensor) -> Tensor:
    """Return a sequence as an image of one row, and an image unchanged."""
    return x if x.ndim == 4 else x.unsqueeze(2)


def _same(ours: Tensor, theirs: Tensor) -> bool:
    return (ours.device, ours.dtype) == (theirs.device, theirs.dtype) and torch.equal(ours, theirs)


def _is_convolution(module: object) -> TypeGuard[nn.Conv1d | nn.Conv2d]:
    """Return whether a module is a convolution of any kind, even if it cannot be converted.

    A scripted module may be one.
    """
    return isinstance(module, nn.modules.conv._ConvNd | torch.jit.ScriptModule)


def is_compiled(path: str) -> bool:
    """Return whether a module's path in a network shows that torch.compile has wrapped it."""
    return path.rpartition(".")[2] == "_orig_mod"


def _why_not(conv: object) -> str | None:
    """Return why a module cannot be converted, or None if it can be."""
    if isinstance(conv, torch.jit.ScriptModule):
        return "it is scripted; convert it before scripting"
    if isinstance(conv, LazyModuleMixin):
        return "it is lazy and has no weights yet (run it on an input first)"
    if isinstance(conv, nn.modules.conv._ConvTransposeNd):
        return "it is a transposed convolution"
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        return "it is not a 1D or 2D convolution"
    base = nn.Conv1d if isinstance(conv, nn.Conv1d) else nn.Conv2d
    for name in ("forward", "_conv_forward"):  # of the class, and set on the module itself
        if getattr(type(conv), name) is not getattr(base, name) or name in vars(conv):
            return f"its {name} is not that of a plain convolution; first replace it by a plain one"
    if conv._forward_pre_hooks:
        return (
            "it has a forward pre-hook, which may change its weights (as in weight_norm and prune);"
            " remove it and make its weights permanent first"
        )
    if parametrize.is_parametrized(conv):
        return (
            "it is parametrised; make its weights permanent first (with"
            " torch.nn.utils.parametrize.remove_parametrizations)"
        )
    if conv.weight.is_meta:
        return "its weight is on the meta device; move it to a device and load its weight first"
    if conv.weight.dtype not in DTYPES:
        return f"its weights are {conv.weight.dtype}"
    return _too_far(conv)


def _too_far(layer: ConvAsAttention | nn.Conv1d | nn.Conv2d) -> str | None:
    """Return why a layer's dtype cannot tell apart the pixels that its kernel reaches, or None."""
    reach = max(d * (k // 2) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
    known = round(2 / torch.finfo(layer.weight.dtype).eps)  # all whole numbers up to this one
    if reach < known:
        return None
    return (
        f"its kernel reaches {reach} pixels, but {layer.weight.dtype} can tell pixels apart only at"
        f" distances below {known}; make the convolution float32 before converting it to attention"
    )


def _padding_of(conv: nn.Conv1d | nn.Conv2d) -> list[tuple[int, int]]:
    """Return the padding in pixels before and after the image, per axis."""
    if conv.padding == "valid":
        return [(0, 0) for _ in conv.kernel_size]
    if conv.padding == "same":
        totals = [d * (k - 1) for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(pad), int(pad)) for pad in conv.padding]
