"""The statements of the theory, each checked by computing both of its sides.

Statements that hold up to rounding are tested at several image sizes, in two data types and with
several seeds. We also fit a power law to the gap as a function of the image size, so that no
statement passes merely because the tested images are small.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnconv.layers.attention import attention_probabilities
from attnconv.layers.convert import conv_to_attention, convert_network
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.attention import (
    attention_scores,
    convolution,
    multi_head_self_attention,
    relative_score_terms,
)
from attnconv.theory.expressivity import expresses_convolution
from attnconv.theory.grid import offset_set, pixels, relative_offsets
from attnconv.theory.theorem1 import (
    DTYPES,
    convolution_by_attention,
    hard_alpha,
    lemma_1,
    softness_bound,
    sufficient_alpha,
)
from attnconv.theory.theorem2 import attention_by_convolution

from ..gaps import largest_gap
from .claim import COMPUTED, Claims, Runs, Verdict
from .rules import holds

SIZES = (4, 8, 16, 32)  # sides of the images, in pixels
SEEDS = 3
EPSILONS = 100  # largest gap, in units of the machine epsilon
# The gap may grow at most like this power of the side: in the worst case, a sum over all pixels
# (side^2 terms) loses that many epsilons.
GROWTH = 2.0
ROUNDING = (
    "at every size, the gap between the two sides, relative to the largest value, is at most"
    f" {EPSILONS} machine epsilons (median of {SEEDS} seeds), and it grows no faster than the side"
    f" of the image to the power {GROWTH:g}"
)


@dataclass(frozen=True)
class Draw:
    """Draws random tensors, from a standard normal distribution, of one data type."""

    dtype: torch.dtype
    generator: torch.Generator

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator).to(self.dtype)


#: Computes the two sides of a statement for a size, with random numbers.
Sides = Callable[[int, Draw], tuple[Tensor, Tensor]]
THEORY = Claims("", COMPUTED)


def _equal(name: str, place: str, text: str, sizes: tuple[int, ...] = SIZES) -> Callable:
    """Register a claim that two sides are equal up to rounding, at several sizes in two dtypes."""

    def register(sides: Sides) -> Sides:
        sample = f"sides {', '.join(map(str, sizes))}; float64 and float32; {SEEDS} seeds"

        def judge(_: Runs) -> Verdict:
            return _up_to_rounding(sides, sizes)

        THEORY.add(judge, place, text, ROUNDING, name=name, sample=sample)
        return sides

    return register


def _up_to_rounding(sides: Sides, sizes: tuple[int, ...]) -> Verdict:
    found = []
    within = []
    for dtype in (torch.float64, torch.float32):
        gaps = [_gap(sides, size, dtype) / torch.finfo(dtype).eps for size in sizes]
        exponent = growth(sizes, gaps)
        within.append(all(gap <= EPSILONS for gap in gaps) and exponent <= GROWTH)
        name = str(dtype).removeprefix("torch.")
        found.append(f"{name}: at most {max(gaps):.1f} epsilons, growth exponent {exponent:.2f}")
    return holds("; ".join(found), all(within))


def _gap(sides: Sides, size: int, dtype: torch.dtype) -> float:
    draws = [Draw(dtype, torch.Generator().manual_seed(seed)) for seed in range(SEEDS)]
    # numpy's median is NaN if any gap is NaN
    return float(np.median([largest_gap(*sides(size, draw)) for draw in draws]))


def growth(sizes: tuple[int, ...], gaps: list[float], least: float = 0.1) -> float:
    """Return the exponent of a power law fitted to gaps; a gap below `least` counts as `least`."""
    logs = np.log(np.maximum(gaps, least))
    return float(np.polyfit(np.log(sizes), logs, 1)[0])


def _image_and_kernel(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    """Return an image `(H, W, 3)` and a 3 x 3 kernel with 3 input and 4 output channels."""
    image = draw(size, size, 3)
    return image, draw(3, 3, 3, 4)


def _torch_convolution(image: Tensor, W: Tensor) -> Tensor:
    """Return torch's zero-padded convolution of an image `(H, W, D_in)`."""
    kernel = W.permute(3, 2, 0, 1)
    return F.conv2d(image.movedim(-1, 0)[None], kernel, padding="same")[0].movedim(0, -1)


# --- sections 2 and 3: the definitions ------------------------------------------------------------


@_equal("eq-4", "Equations (1), (2), (4)", "multi-head self-attention agrees with torch's")
def _attention(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    heads = 3
    width = 12
    X = draw(size**2, width)
    theirs = nn.MultiheadAttention(width, heads, bias=False, dtype=draw.dtype)
    query, key, value = theirs.in_proj_weight.detach().mT.unflatten(1, (3, heads, -1)).unbind(1)
    scale = (width // heads) ** -0.5
    A = attention_scores(X, scale * query.movedim(1, 0), key.movedim(1, 0))
    ours = multi_head_self_attention(A, X, value.movedim(1, 0), theirs.out_proj.weight.detach().mT)
    return ours, theirs(X, X, X, need_weights=False)[0].detach()


@_equal("eq-5", "Equation (5)", "the convolution agrees with torch's")
def _convolution(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    image, W = _image_and_kernel(size, draw)
    return convolution(image, W), _torch_convolution(image, W)


@_equal(
    "eq-8", "Equation (8)", "scores with a relative encoding are sums of four terms", (2, 3, 4, 6)
)
def _relative_scores(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    T = size**2
    D_in = 5
    D_k = 4
    D_p = 3
    X = draw(T, D_in)
    r = draw(T, T, D_p)
    W_qry = draw(D_k, D_in)
    W_key = draw(D_k, D_in)
    W_hat = draw(D_k, D_p)
    u = draw(D_k)
    v = draw(D_k)

    def score(q: int, k: int) -> Tensor:
        content = W_key @ X[k]
        position = W_hat @ r[q, k]
        return (W_qry @ X[q]) @ (content + position) + u @ content + v @ position

    first, *others = relative_score_terms(X, r, W_qry, W_key, W_hat, u, v)
    pair_by_pair = [torch.stack([score(q, k) for k in range(T)]) for q in range(T)]
    return sum(others, first), torch.stack(pair_by_pair)


# --- Theorem 1 and its lemmas ---------------------------------------------------------------------


@_equal("lemma-1", "Lemma 1", "heads that each attend to one shift compute the convolution")
def _lemma_1(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    image, W = _image_and_kernel(size, draw)
    padded = F.pad(image, (0, 0, 1, 1, 1, 1))
    inside = pixels(size, size) + 1
    output = image.new_zeros(size**2, W.shape[-1])
    W_val, W_out = lemma_1(W)
    for shift, value, out in zip(offset_set((3, 3)), W_val, W_out.split(W.shape[-1]), strict=True):
        row, column = (inside + shift).unbind(-1)
        output = output + padded[row, column] @ value @ out
    return output.unflatten(0, (size, size)), _torch_convolution(image, W)


@THEORY.claim(
    "Lemma 2",
    "the quadratic encoding approaches one-hot attention as alpha grows",
    "the probability off the centre is at most 4 exp(-alpha), and decays like exp(-alpha), to"
    " within 1 % in the exponent",
    sample=f"alpha from 2 to 30, sides {', '.join(map(str, SIZES))}, float64",
)
def _lemma_2(_: Runs) -> Verdict:
    alphas = np.arange(2.0, 31.0, 2.0)
    worst = 0.0
    slopes = []
    for size in SIZES:
        missed = np.array([_off_centre(alpha, size) for alpha in alphas])
        worst = max(worst, (missed / (4 * np.exp(-alphas))).max())
        slopes.append(np.polyfit(alphas[3:], np.log(missed[3:]), 1)[0])
    off = max(abs(slope + 1) for slope in slopes)
    found = f"at most {worst:.4f} of the bound; exponent within {off:.4f} of -1"
    return holds(found, worst <= 1 and off <= 0.01)


def _off_centre(alpha: float, size: int) -> float:
    """Return the largest mass, over all queries, that a head at offset (0, 0) puts elsewhere.

    The mass on the other pixels is summed directly, because 1 - p would be rounded.
    """
    encoding = QuadraticEncoding.from_alpha(torch.zeros(1, 2).double(), alpha)
    maps = attention_probabilities(encoding, size, size)[0].detach().reshape(size**2, size**2)
    return float((maps - maps.diag().diag()).sum(dim=1).max())


@THEORY.claim(
    "Lemma 2",
    "from a finite alpha on, attention is exactly one-hot in floating point",
    "at hard_alpha of the data type every probability is 0 or 1, and at hard_alpha - 1 some"
    " probability is not",
    sample=f"all shifts of a 3 x 3 kernel, side 8, {len(DTYPES)} data types",
)
def _lemma_2_in_floating_point(_: Runs) -> Verdict:
    one_hot = []
    for dtype in DTYPES:
        alpha = hard_alpha(dtype)
        encoding = QuadraticEncoding.from_alpha(offset_set((3, 3)).to(dtype), alpha)
        p = encoding.position_scores(8, 8)[:, 3, 3].flatten(1).softmax(dim=1)
        hard = bool((p.amax(dim=1) == 1).all()) and p.count_nonzero().item() == 9
        one_hot.append(hard and _is_one_hot(alpha, dtype) and not _is_one_hot(alpha - 1, dtype))
    alphas = ", ".join(str(hard_alpha(dtype)) for dtype in DTYPES)
    found = f"{sum(one_hot)} of {len(DTYPES)} data types, alpha {alphas}"
    return holds(found, all(one_hot))


def _is_one_hot(alpha: int, dtype: torch.dtype) -> bool:
    shifts = relative_offsets(8, 8).flatten(2, 3).flatten(0, 1)[27]  # of an interior query
    away = (shifts - offset_set((3, 3)).unsqueeze(1)).square().sum(-1)  # (9, T)
    exact = torch.exp(-alpha * away.double())  # rounded once, like a correctly rounded exp
    return bool(((exact.to(dtype) == 0) | (exact.to(dtype) == 1)).all())


@_equal("theorem-1", "Theorem 1", "multi-head self-attention expresses the convolution")
def _theorem_1(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    image, W = _image_and_kernel(size, draw)
    return convolution_by_attention(image, W), _torch_convolution(image, W)


@THEORY.claim(
    "Theorem 1",
    "at a finite alpha the error stays below the bound of the book",
    "no output differs by more than softness_bound, and at sufficient_alpha none by more than"
    " the requested gap",
    sample="alpha from 0.5 to 20, three random kernels, side 12, float64",
)
def _theorem_1_bound(_: Runs) -> Verdict:
    shares = []
    ratios = []
    for seed in range(SEEDS):
        image, W = _image_and_kernel(12, Draw(torch.float64, torch.Generator().manual_seed(seed)))
        size = image.abs().max().item()
        for alpha in np.arange(0.5, 20.5, 1.5):
            shares.append((_softness_gap(image, W, alpha) / softness_bound(W, alpha, size)).max())
        for asked in 10.0 ** -np.arange(1, 8):
            gap = _softness_gap(image, W, sufficient_alpha(W, asked, size))
            ratios.append(gap.max() / asked)
    largest = max(ratios)
    found = f"at most {max(shares):.2f} of the bound; {largest:.2f} of the requested gap"
    return holds(found, bool(max(shares) <= 1 and largest <= 1))


def _softness_gap(image: Tensor, W: Tensor, alpha: float) -> Tensor:
    """Return the largest error of attention with a finite alpha, for each output channel."""
    difference = convolution_by_attention(image, W, alpha=alpha) - _torch_convolution(image, W)
    return difference.abs().amax((0, 1))


@THEORY.claim(
    "Theorem 1",
    "the bound's constant 8 cannot be reduced",
    "on a checkerboard, a kernel of alternating signs reaches at least 0.99 of the bound at"
    " alpha = 10",
    sample="one kernel, 9 x 9 pixels, float64",
)
def _theorem_1_bound_is_sharp(_: Runs) -> Verdict:
    board = (-1.0) ** pixels(9, 9).sum(-1).reshape(9, 9, 1).double()
    W = (-1.0) ** pixels(3, 3).sum(-1).reshape(3, 3, 1, 1).double()
    difference = convolution_by_attention(board, W, alpha=10.0) - _torch_convolution(board, W)
    share = difference.abs().max().item() / softness_bound(W, 10.0, 1.0).item()
    return holds(f"{share:.4f} of the bound", 0.99 <= share <= 1)


HYPERPARAMETERS: tuple[dict, ...] = (
    {"padding": 1},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2},
    {"groups": 2, "padding": "same"},
    {"padding": 1, "padding_mode": "circular"},
    {"stride": (1, 2), "dilation": (2, 1), "groups": 4, "bias": False},
)


@_equal(
    "torch-layers",
    "Theorem 1",
    "Conv2d can be converted with all its hyper-parameters",
    (8, 16, 32),
)
def _layers(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    images = draw(2, 4, size, size)
    ours = []
    theirs = []
    for options in HYPERPARAMETERS:
        conv = nn.Conv2d(4, 8, 3, dtype=draw.dtype, **options)
        conv.weight.data = draw(*conv.weight.shape)
        ours.append(conv_to_attention(conv)(images).detach().flatten())
        theirs.append(conv(images).detach().flatten())
    return torch.cat(ours), torch.cat(theirs)


@THEORY.claim(
    "Theorem 1",
    "ResNet18 as attention gives the same logits",
    "in float32 the logits differ by at most 1e-4 of the largest, and no convolution is left",
    sample="random weights, two images of 224 x 224 pixels",
)
def _resnet18(_: Runs) -> Verdict:
    import torchvision

    generator = torch.Generator().manual_seed(0)
    network = torchvision.models.resnet18().eval()
    images = torch.randn(2, 3, 224, 224, generator=generator)
    converted = convert_network(network)
    left = sum(isinstance(module, nn.Conv2d) for module in converted.modules())
    with torch.no_grad():
        gap = largest_gap(converted(images), network(images))
    return holds(f"gap {gap:.0e}, {left} convolutions left", gap <= 1e-4 and not left)


@THEORY.claim(
    "Section 3 (corrected)",
    "four numbers per pixel give the quadratic attention without a relative encoding",
    "the maps differ by at most 1e-12",
    sample="sides 2 to 32, alpha 0.3 and 3.7, three centres, float64",
)
def _absolute_positions(_: Runs) -> Verdict:
    worst = max(
        _absolute_gap(side, alpha, center)
        for side in (2, 3, 5, 8, 16, 32)
        for alpha in (0.3, 3.7)
        for center in ((0.0, 0.0), (1.0, -1.0), (-1.0, 1.0))
    )
    return holds(f"at most {worst:.0e}", worst <= 1e-12)


def _absolute_gap(side: int, alpha: float, center: tuple[float, float]) -> float:
    """Return the largest gap between softmax(P W_qry W_key^T P^T) and the quadratic maps."""
    k = pixels(side, side).double()
    P = torch.cat([torch.ones(len(k), 1).double(), k, k.square().sum(1, keepdim=True)], dim=1)
    # q . k scores: -alpha |k|^2 + 2 alpha (q + center) . k; the softmax ignores terms in q alone
    row, column = center
    W_qry = torch.tensor([[1, row, column], [0, 1, 0], [0, 0, 1], [0, 0, 0]]).double()
    W_key = alpha * torch.tensor([[0, 0, 0], [0, 2, 0], [0, 0, 2], [-1, 0, 0]]).double()
    maps = attention_scores(P, W_qry, W_key).softmax(dim=-1)
    encoding = QuadraticEncoding.from_alpha(torch.tensor([center]).double(), alpha)
    wanted = attention_probabilities(encoding, side, side).detach().reshape(maps.shape)
    return (maps - wanted).abs().max().item()


# --- Lemma 3 and the converse ---------------------------------------------------------------------


def _hard_maps(side: int) -> Tensor:
    """Return the maps of nine one-hot heads, one per offset, `(9, H, W, H, W)`."""
    encoding = QuadraticEncoding.from_alpha(offset_set((3, 3)).double(), hard_alpha(torch.float64))
    return attention_probabilities(encoding, side, side).detach()


@THEORY.claim(
    "Lemma 3 (corrected)",
    "heads express every convolution if and only if one mixture selects each shift",
    "nine one-hot heads leave a residual below 1e-10; without any one of them it exceeds 0.9",
    sample="each of the nine heads left out in turn, sides 5 and 8",
)
def _lemma_3(_: Runs) -> Verdict:
    whole = []
    without = []
    for side in (5, 8):
        maps = _hard_maps(side)
        whole.append(expresses_convolution(maps, 3).residual.max().item())
        for head in range(9):
            others = torch.arange(9) != head
            without.append(expresses_convolution(maps[others], 3).residual.max().item())
    found = f"residual {max(whole):.0e} with nine heads, at least {min(without):.2f} with eight"
    return holds(found, max(whole) < 1e-10 and min(without) > 0.9)


@THEORY.claim(
    "Lemma 3 (as printed)",
    "false as printed: a mixture for each query does not suffice",
    "heads that exchange their shifts at every other query have a mixture for each query (residual"
    " below 1e-10), but no shared one (above 0.5)",
    sample="nine one-hot heads, side 7",
)
def _lemma_3_as_printed(_: Runs) -> Verdict:
    maps = _hard_maps(7)
    odd = (pixels(7, 7).sum(-1) % 2 == 1).reshape(7, 7)
    swapping = maps.clone()
    swapping[:, odd] = maps.flip(0)[:, odd]
    printed, shared = (
        expresses_convolution(swapping, 3, shared=each).residual.max().item()
        for each in (False, True)
    )
    found = f"residual {printed:.0e} with a mixture for each query, {shared:.2f} with one"
    return holds(found, printed < 1e-10 and shared > 0.5)


@_equal("theorem-2", "Theorem 2 (of the book)", "a head that ignores content is a convolution")
def _theorem_2(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    image, _ = _image_and_kernel(size, draw)
    scores = draw(2 * size - 1, 2 * size - 1)
    row, column = (relative_offsets(size, size) + size - 1).flatten(2, 3).flatten(0, 1).unbind(-1)
    dense = scores[row, column].softmax(dim=-1) @ image.flatten(0, 1)
    return attention_by_convolution(image, scores), dense.unflatten(0, (size, size))
