"""Lemmas 1 and 2 and Theorem 1 as code: a convolution as self-attention, for a layer and for a
whole network.

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

from ..theory.encodings import QuadraticEncoding, softmax_without_tails
from ..theory.grid import shift_set
from ..theory.shapes import Float
from .attention import as_in_autocast, attend, seen_by
from .shifts import Shifts, add_shifted, as_shifts, see
from .windows import best_tiles, in_tiles, worth_a_look

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


def softness_bound(conv: nn.Conv1d | nn.Conv2d, alpha: float, largest: float) -> Tensor:
    """Theorem 1 with a number, without rounding: at most so far from the convolution is each output
    channel `(C_out,)` of `conv_to_attention(conv, alpha)`, for images, padding included, whose
    pixels are at most `largest` in size: 8 exp(-alpha) times `largest` times the sum of the
    channel's weights without their signs. `theorem_1_gap` in proofs/."""
    norms = conv.weight.detach().double().abs().flatten(1).sum(dim=1)
    return 8 * math.exp(-alpha) * largest * norms


def sufficient_alpha(conv: nn.Conv1d | nn.Conv2d, gap: float, largest: float) -> float:
    """An alpha from which on no output is `gap` > 0 or more from the convolution's; as above; 0 of
    a kernel of zeros. `theorem_1_alpha` in proofs/."""
    if not gap > 0:
        raise ValueError(f"gap is {gap!r}, expected a positive number")
    return math.log1p(float(softness_bound(conv, 0.0, largest).max()) / gap)


class ConvAsAttention(nn.Module):
    """A convolution computed by multi-head self-attention with the quadratic encoding (Theorem 1).
    `(B, C, ...)` in and out.

    Head h attends to the pixel at the shift Delta^(h) of the kernel and carries the matrix W^(h) of
    that shift. The paper's remedies make every torch hyper-parameter fit: the image is padded first
    and the border queries cropped (padding), only every s-th query is kept (stride), the shifts are
    spread (dilation), W^(h) is block diagonal (groups). Attention is the softmax of the scores,
    along one axis after the other, which is exact here. Heads of one alpha on whole pixels are
    shifts of one another, so the image is averaged once; where they are one-hot in the dtype, not
    even that. No zero is multiplied.

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
        self._known: tuple[tuple[int, ...], list[Tensor], Shifts | None] | None = None
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
        shifts = self.shifts(x.shape[2:])
        x = self.along_axes(x) if shifts is None else self.by_shifts(x, shifts)
        return x if self.bias is None else x + self.bias.view(-1, *(1,) * len(self.kernel_size))

    def shifts(self, sizes: Sequence[int]) -> Shifts | None:
        """The heads on padded images of these sizes as shifts of one head; None if they are not, or
        if centres and alpha are being trained. Kept while these stay as they are."""
        values = list(self.encoding.parameters())
        trained = torch.is_grad_enabled() and any(value.requires_grad for value in values)
        if trained or torch.compiler.is_compiling():  # a compiler cannot look at numbers
            return None
        known = self._known
        if known is None or known[0] != tuple(sizes) or not all(map(_same, known[1], values)):
            copies = [value.detach().clone() for value in values]
            queries = [self._queries(axis, size) for axis, size in enumerate(sizes)]
            known = self._known = tuple(sizes), copies, as_shifts(self.encoding, queries, sizes)
        return known[2]

    def by_shifts(self, x: Tensor, shifts: Shifts) -> Tensor:
        """Of the padded image, without the bias: what one head sees, shifted to the other heads."""
        # both cast here: what is cast inside would meet gradients of another dtype
        x, weight = as_in_autocast(x), as_in_autocast(self.weight)
        blocks = weight.unflatten(2, (self.num_heads, -1)).permute(2, 0, 3, 1)
        queries = [len(self._queries(axis, size)) for axis, size in enumerate(x.shape[2:])]
        corners = [(0, *corner)[-2:] for corner in shifts.corners]  # a sequence is of one row
        stride, kept = (1, *self.stride)[-2:], [1, *queries][-2:]
        with torch.autocast(x.device.type, enabled=False):
            images = see(shifts.views, _as_image(x).permute(2, 0, 3, 1).contiguous())
            total = add_shifted(images, blocks, corners, kept, stride).permute(1, 3, 0, 2)
        return total if x.ndim == 4 else total.squeeze(2)

    def along_axes(self, x: Tensor) -> Tensor:
        """Of the padded image, without the bias: heads of any width and place, along one axis after
        the other, which is exact here."""
        factors = [self.axis_probabilities(axis, size) for axis, size in enumerate(x.shape[2:])]
        rows, columns = [x.new_ones(self.num_heads, 1, 1), *factors][-2:]
        images = _as_image(x).permute(2, 3, 0, 1)  # (H, W, B, C)
        weight = self.weight.unflatten(2, (self.num_heads, -1))  # (G, C_out/G, N_h, C_in/G)

        def mix(rows: Tensor, columns: Tensor, keys: Tensor) -> Tensor:
            averages = attend((rows, columns), keys).unflatten(-1, (self.groups, -1))
            return torch.einsum("hijbgc,gohc->ijbgo", averages, weight).flatten(3)

        tiles = None
        if worth_a_look(*images.shape[:2]):
            tiles = best_tiles(
                seen_by((rows, columns)), self.num_heads * images[0, 0].numel(), separable=True
            )
        if tiles is None:
            total = mix(rows, columns, images)
        else:
            total = in_tiles(
                tiles, images, lambda r, c, keys: mix(rows[:, *r], columns[:, *c], keys)
            )
        total = total.permute(2, 3, 0, 1)
        return total if x.ndim == 4 else total.squeeze(2)

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


def _as_image(x: Tensor) -> Tensor:
    """A sequence is an image of one row."""
    return x if x.ndim == 4 else x.unsqueeze(2)


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
