"""Lemmas 1 and 2 and Theorem 1 as code: a convolution as self-attention, for a layer and for a
whole network; and back.

Letters: B batch, C channels, n spatial dimensions, N_h heads (one per kernel shift), G groups.
torch's channels-first `(B, C, ...)` is used here, as this is where its convolutions are met.
"""

import copy
import math
from collections.abc import Sequence
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from .encodings import PositionEncoding, QuadraticEncoding, softmax_without_tails
from .grid import relative_shifts, shift_set
from .layers import PositionAttention
from .shapes import Float
from .shifts import add_shifted, first_keys

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def hard_alpha(dtype: torch.dtype) -> int:
    """The smallest whole alpha at which a neighbour's weight `e^-alpha` rounds to zero in `dtype`.

    The attention of a head with a whole-numbered centre inside the image is then one-hot: Lemma 2
    without the limit.
    """
    if dtype not in DTYPES:
        raise TypeError(f"got {dtype}, expected one of {', '.join(map(str, DTYPES))}")
    info = torch.finfo(dtype)
    # of the smallest subnormal number
    log_smallest = math.log(info.smallest_normal) + math.log(info.eps)
    return math.floor(math.log(2) - log_smallest) + 1


class ConvAsAttention(nn.Module):
    """A convolution computed by multi-head self-attention with the quadratic encoding (Theorem 1).
    `(B, C, ...)` in and out.

    Head h attends to the pixel at the shift Delta^(h) of the kernel and carries the matrix W^(h) of
    that shift. The paper's remedies make every torch hyper-parameter fit: the image is padded first
    and the border queries cropped (padding), only every s-th query is kept (stride), the shifts are
    spread (dilation), W^(h) is block diagonal (groups). Attention is the softmax of the scores,
    along one axis after the other, which is exact here; where it is one-hot in the dtype, the heads
    are shifts of the image, and no zero is multiplied.

    `encoding` holds the centres and alpha (not trained unless `encoding.requires_grad_()`),
    `weight` `(G, C_out/G, N_h C_in/G)` the W^(h) side by side. Unless heads are one-hot, an
    infinite or NaN pixel reaches every output (0 * inf is NaN). Convert a half-precision
    convolution to a wider dtype before it is turned into attention: alpha is chosen once.
    """

    def __init__(self, conv: nn.Conv1d | nn.Conv2d, alpha: float | None = None):
        super().__init__()
        self.in_channels = conv.in_channels
        self.out_channels = conv.out_channels
        self.groups = conv.groups
        self.kernel_size, self.stride, self.dilation = conv.kernel_size, conv.stride, conv.dilation
        self.padding, self.padding_mode = _padding_of(conv), conv.padding_mode
        weight = conv.weight.detach()
        centers = shift_set(conv.kernel_size, conv.dilation).to(weight)
        self.encoding = QuadraticEncoding.from_alpha(
            centers, hard_alpha(weight.dtype) if alpha is None else alpha
        )
        heads_first = weight.reshape(self.groups, -1, *weight.shape[1:2], self.num_heads).movedim(
            -1, 2
        )
        self.weight = nn.Parameter(
            heads_first.flatten(2).clone(), requires_grad=conv.weight.requires_grad
        )
        self._known: tuple[tuple[int, ...], list[Tensor], list | None] | None = None
        self.bias = None
        if conv.bias is not None:
            self.bias = nn.Parameter(
                conv.bias.detach().clone(), requires_grad=conv.bias.requires_grad
            )

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
        """W^(h) for each head: `(N_h, C_in, C_out)`, block diagonal with groups."""
        blocks = self.weight.unflatten(2, (self.num_heads, -1))  # (G, C_out/G, N_h, C_in/G)
        return torch.stack([torch.block_diag(*blocks[:, :, h].mT) for h in range(self.num_heads)])

    def _queries(self, axis: int, size: int) -> range:
        """The kept ones along one axis of the padded image."""
        first = self.dilation[axis] * ((self.kernel_size[axis] - 1) // 2)
        return range(first, first + size - self._reach(axis), self.stride[axis])

    def _reach(self, axis: int) -> int:
        """Pixels from the first to the last that the kernel sees."""
        return self.dilation[axis] * (self.kernel_size[axis] - 1)

    def axis_probabilities(self, axis: int, size: int) -> Float[Tensor, "N_h queries {size}"]:
        """Of the kept queries along one axis of the padded image: `(N_h, queries, size)`."""
        kept = self._queries(axis, size)
        queries = torch.arange(kept.start, kept.stop, kept.step, device=self.weight.device)
        keys = torch.arange(size, device=self.weight.device)
        return softmax_without_tails(self.encoding.axis_scores(axis, keys - queries.unsqueeze(-1)))

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        if x.ndim == len(self.kernel_size) + 1:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        pads = [pad for before_after in reversed(self.padding) for pad in before_after]
        x = F.pad(x, pads, mode=mode)
        corners = self.corners(x.shape[2:])
        x = self.along_axes(x) if corners is None else self.by_shifts(x, corners)
        return x if self.bias is None else x + self.bias.view(-1, *(1,) * len(self.kernel_size))

    def corners(self, sizes: Sequence[int]) -> list[tuple[int, ...]] | None:
        """Where each head's first query looks in padded images of these sizes, if all heads attend
        to one pixel at a time; None if not, or if centres and alpha are being trained. Kept while
        these stay as they are."""
        values = list(self.encoding.parameters())
        trained = torch.is_grad_enabled() and any(value.requires_grad for value in values)
        if trained or torch.compiler.is_compiling():  # a compiler cannot look at numbers
            return None
        known = self._known
        if known is None or known[0] != tuple(sizes) or not all(map(_same, known[1], values)):
            maps = map(self.axis_probabilities, range(len(sizes)), sizes)
            first = list(map(first_keys, maps, self.stride))
            corners = None if None in first else list(zip(*first, strict=True))
            copies = [value.detach().clone() for value in values]
            known = self._known = tuple(sizes), copies, corners
        return known[2]

    def by_shifts(self, x: Tensor, corners: list[tuple[int, ...]]) -> Tensor:
        """Of the padded image, without the bias: one-hot heads as its shifts from `corners` on."""
        images = (x if x.ndim == 4 else x.unsqueeze(2)).permute(2, 0, 3, 1).contiguous()
        blocks = self.weight.unflatten(2, (self.num_heads, -1)).permute(2, 0, 3, 1)
        queries = [len(self._queries(axis, size)) for axis, size in enumerate(x.shape[2:])]
        places = [(0, *corner)[-2:] for corner in corners]  # a sequence is an image of one row
        stride = (1, *self.stride)[-2:]
        total = add_shifted(images, places, [1, *queries][-2:], stride, blocks).permute(1, 3, 0, 2)
        return total if x.ndim == 4 else total.squeeze(2)

    def along_axes(self, x: Tensor) -> Tensor:
        """Of the padded image, without the bias: heads of any width, along one axis after the
        other, which is exact here."""
        *rows, columns = (
            self.axis_probabilities(axis, size) for axis, size in enumerate(x.shape[2:])
        )
        if rows:
            x = torch.einsum("hqk,bckw->bhcqw", rows[0], x)
            x = torch.einsum("hpw,bhcqw->bhcqp", columns, x)
        else:
            x = torch.einsum("hpw,bcw->bhcp", columns, x)
        sizes, per_group = x.shape[3:], self.in_channels // self.groups
        x = x.reshape(*x.shape[:2], self.groups, per_group, math.prod(sizes))
        x = x.movedim(1, 2).flatten(2, 3)  # (B, G, N_h C_in/G, queries)
        return (self.weight @ x).flatten(1, 2).unflatten(-1, sizes)

    def _check(self, x: Tensor) -> None:
        n = len(self.kernel_size)
        if x.ndim not in (n + 1, n + 2) or x.shape[-n - 1] != self.in_channels:
            axes = ", ".join(("length",) if n == 1 else ("height", "width"))
            raise ValueError(
                f"got an input of shape {tuple(x.shape)}, expected ([batch,] {self.in_channels},"
                f" {axes})"
            )
        for axis, size in enumerate(x.shape[-n:]):
            padded = size + sum(self.padding[axis])
            reach = self._reach(axis) + 1
            if padded < reach:
                raise ValueError(
                    f"axis {axis} has {padded} pixels with padding, expected at least the kernel's"
                    f" reach of {reach}"
                )


def conv_to_attention(conv: nn.Conv1d | nn.Conv2d, alpha: float | None = None) -> ConvAsAttention:
    """Theorem 1 for one layer: the given convolution, computed by self-attention.

    Takes any `nn.Conv1d` or `nn.Conv2d`; is called the same way, `(B, C, ...)` in and out. `alpha`
    (one over pixels squared) is the heads' sharpness; None chooses `hard_alpha` of the layer's
    dtype. Raises TypeError for what it cannot take: transposed, lazy, 3D and customised
    convolutions. The weights are copied, later changes of `conv` do not carry over.
    """
    reason = _why_not(conv)
    if reason:
        raise TypeError(
            f"cannot turn {type(conv).__name__} into attention: {reason}; expected a"
            " torch.nn.Conv1d or Conv2d"
        )
    return ConvAsAttention(conv, alpha).train(conv.training)


def convert_network(model: nn.Module) -> nn.Module:
    """Theorem 1 for a network: a copy with `conv_to_attention` of every convolution in its place.

    A module used in several places stays shared. Convolutions called as functions inside a forward
    method are not modules and stay; forward hooks of a convolution are not carried over. Raises
    TypeError, naming the module, if one cannot be converted; the given model is never changed.
    """
    for path, module in model.named_modules():
        if _is_convolution(module) and (reason := _why_not(module)):
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
            converted[module] = conv_to_attention(module)
        if not path:
            return converted[module]
        model.set_submodule(path, converted[module])
    return model


def _same(ours: Tensor, theirs: Tensor) -> bool:
    return (ours.device, ours.dtype) == (theirs.device, theirs.dtype) and torch.equal(ours, theirs)


def _is_convolution(module: object) -> TypeGuard[nn.Conv1d | nn.Conv2d]:
    """Of any number of dimensions, transposed or not: `_why_not` says which can be converted."""
    return isinstance(module, nn.modules.conv._ConvNd)


def _why_not(conv: object) -> str | None:
    """The reason why a module cannot be converted, or None if it can."""
    if isinstance(conv, LazyModuleMixin):
        return "it is lazy and has no weights yet (run it once on an input first)"
    if isinstance(conv, nn.modules.conv._ConvTransposeNd):
        return "it is a transposed convolution"
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        return "it is not a 1D or 2D convolution"
    base = nn.Conv1d if isinstance(conv, nn.Conv1d) else nn.Conv2d
    if type(conv).forward is not base.forward or type(conv)._conv_forward is not base._conv_forward:
        return "its class computes something else than a plain convolution"
    if conv._forward_pre_hooks:
        return (
            "a hook changes it before each call (as weight_norm and prune do); make its weights"
            " permanent first"
        )
    if conv.weight.dtype not in DTYPES:
        return f"its weights are {conv.weight.dtype}"
    return None


def _padding_of(conv: nn.Conv1d | nn.Conv2d) -> list[tuple[int, int]]:
    """Pixels before and after the image, per axis."""
    if conv.padding == "valid":
        return [(0, 0) for _ in conv.kernel_size]
    if conv.padding == "same":
        totals = [d * (k - 1) for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(pad), int(pad)) for pad in conv.padding]


# --- the converse ---------------------------------------------------------------------------------


class AttentionAsConv(nn.Module):
    """A position-only layer on images of one size as convolutions: `(B, H, W, D_in)` ->
    `(B, H, W, D_out)`.

    Head h is the zero-padded convolution with `kernels[h]` `(2H - 1, 2W - 1)`, the exponentials of
    its scores, divided by the border factor `border_factor[h]` `(H, W)`, which is the same
    convolution of an image of ones: Z_h(q). Then `value` mixes the heads, as in the layer.
    """

    kernels: Tensor
    border_factor: Tensor

    def __init__(self, kernels: Tensor, value: nn.Linear):
        super().__init__()
        self.register_buffer("kernels", kernels)
        self.size = tuple((extent + 1) // 2 for extent in kernels.shape[1:])
        self.register_buffer(
            "border_factor", self.convolve(kernels.new_ones(1, *self.size)).squeeze(0)
        )
        self.value = value

    def convolve(self, images: Tensor) -> Tensor:
        """Each head's kernel applied to images `(N, H, W)`: `(N, N_h, H, W)`."""
        height, width = self.size
        return F.conv2d(
            images.unsqueeze(1), self.kernels.unsqueeze(1), padding=(height - 1, width - 1)
        )

    def forward(self, X: Tensor) -> Tensor:
        height, width = self.size
        if X.ndim != 4 or tuple(X.shape[1:3]) != self.size:
            raise ValueError(
                f"got an input of shape {tuple(X.shape)}, expected (batch, {height}, {width},"
                " channels)"
            )
        batch, channels = X.shape[0], X.shape[-1]
        # (B * D_in, N_h, H, W)
        heads = self.convolve(X.movedim(-1, 1).flatten(0, 1)) / self.border_factor
        heads = heads.unflatten(0, (batch, channels)).permute(0, 3, 4, 2, 1)  # (B, H, W, N_h, D_in)
        return self.value(heads.flatten(-2))


def attention_to_conv(layer: PositionAttention, height: int, width: int) -> AttentionAsConv:
    """The converse of Theorem 1: a position-only layer on `height` x `width` images, written with
    zero-padded convolutions.

    Exact, borders included, for any position-only encoding without dropout. Raises ValueError where
    a head is so sharp that its border factor leaves the range of the dtype (at that border it
    attends by ratios of numbers that are all zero).
    """
    if not isinstance(layer, PositionAttention) or not isinstance(layer.encoding, PositionEncoding):
        raise TypeError(
            f"got {type(layer).__name__}, expected a PositionAttention layer, whose scores depend"
            " on positions only"
        )
    with torch.no_grad():
        # from the centre: -(H-1) ... H-1
        shifts = relative_shifts(2 * height - 1, 2 * width - 1)[height - 1, width - 1]
        scores = layer.encoding.scores(shifts.to(layer.encoding.device))
        kernels = (scores - scores.amax(dim=(1, 2), keepdim=True)).exp()
        module = AttentionAsConv(kernels, copy.deepcopy(layer.value)).train(layer.training)
    info = torch.finfo(kernels.dtype)
    smallest = module.border_factor.amin(dim=(1, 2))
    if not bool((smallest >= info.smallest_normal / info.eps).all()):  # NaN is refused as well
        head = int(smallest.argmin())
        raise ValueError(
            f"the border factor of head {head + 1} falls to {float(smallest[head]):.1e}, too small"
            f" for {kernels.dtype}; use a smaller alpha, or centres nearer to the query"
            + (", or float64" if kernels.dtype != torch.float64 else "")
        )
    return module
