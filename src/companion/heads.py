"""Measure where trained heads attend and how closely they match Lemmas 1 and 3.

Letters: L layers, N_h heads, B images, Q query pixels, H x W pixels. A head's map contains its
attention probabilities for the middle query pixel (H // 2, W // 2).
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnconv.heads import Heads, mean_by_offset
from attnconv.layers.attention import ContentAttention, attention_probabilities
from attnconv.layers.encodings import PositionEncoding
from attnconv.layers.mode import evaluation_mode
from attnconv.networks import SelfAttentionNet
from attnconv.theory.expressivity import expresses_convolution
from attnconv.theory.grid import pixels
from attnconv.vit.capture import read_attention

from .runs.history import ContentMaps, ScoreParts
from .runs.record import RunRecord

# how many test images a record averages over, and for how many it stores individual scores
MEAN_IMAGES = 100
SINGLE_IMAGES = 3


@dataclass(frozen=True)
class TrainedHeads(Heads):
    """The heads of one layer of a trained model, with further measures of where they attend.

    `centers` `(N_h, 2)` is None for heads without centres.
    """

    centers: Tensor | None = None

    @property
    def alone(self) -> Tensor:
        """Return, as `(N_h,)`, whether each head is alone in its layer with its best offset."""
        return (self.offsets[:, None] == self.offsets[None]).all(dim=2).sum(dim=1) == 1

    @property
    def entropy(self) -> Tensor:
        """The entropy of each head's map in nats, `(N_h,)`.

        The entropy is 0 for a single pixel and ln(HW) for the uniform distribution; its exponential
        is the effective number of pixels attended to.
        """
        return torch.special.entr(self.maps).sum(dim=(1, 2))

    @property
    def distance(self) -> Tensor:
        """The mean distance `|k - q|` over each head's map, in pixels: `(N_h,)`."""
        delta = pixels(*self.maps.shape[1:]) - torch.tensor(self.query)
        return self.maps.flatten(1) @ delta.to(self.maps.dtype).norm(dim=1)

    @property
    def off_pixel(self) -> Tensor:
        """Each centre's distance to its nearest pixel, `(N_h,)`; NaN for heads without centres."""
        if self.centers is None:
            return torch.full((len(self.maps),), float("nan"))
        return (self.centers - self.centers.round()).norm(dim=1)

    def by_locality(self) -> Tensor:
        """Return the head indices `(N_h,)`, most local head first, as in Figure 5."""
        return self.mass.argsort(descending=True, stable=True)


def heads_of(record: RunRecord, moment: int = -1) -> list[TrainedHeads]:
    """Return the heads of each layer of a trained model, given its run record.

    `moment` is an index into `record.history.epochs`. For a model with content-based attention, the
    maps are averaged over test images and are available only for the end of training. Raises
    ValueError for a model without attention.
    """
    if content := record.content_maps:
        middle = content.query_number(record.grid[0] // 2, record.grid[1] // 2)
        maps = content.mean_maps[:, :, middle].double()  # (L, N_h, H, W)
        maps = maps / maps.sum(dim=(-2, -1), keepdim=True)  # rounding has changed the sums
        by_offset = content.shift_probabilities.double()
        return [TrainedHeads(*layer) for layer in zip(maps, by_offset, strict=True)]
    if not (encodings := record.history.encodings(moment)):
        raise ValueError(
            f"{record.name} has no attention to look at; expected a run of a self-attention model"
        )
    return [_heads(encoding.double(), *record.grid) for encoding in encodings]


def _heads(encoding: PositionEncoding, height: int, width: int) -> TrainedHeads:
    probabilities = attention_probabilities(encoding, height, width)
    maps = probabilities[:, height // 2, width // 2]
    return TrainedHeads(maps, mean_by_offset(probabilities), getattr(encoding, "centers", None))


def lemma_3_residual(
    encoding: PositionEncoding, height: int, width: int, kernel_size: int = 3
) -> Tensor:
    """Return how far a layer's heads are from selecting each offset of a kernel, `(K, K)`.

    This is the residual of Lemma 3 for an image of `height` x `width` pixels; see
    `expresses_convolution`.
    """
    maps = attention_probabilities(encoding.double(), height, width)
    return expresses_convolution(maps, kernel_size).residual


def lost_mass(alphas: Tensor, offset: tuple[float, float], reach: int = 8) -> Tensor:
    """Return a quadratic head's mass outside its best pixel, for each alpha.

    `alphas` has the shape `(n,)`, as does the float64 result; `offset` is the vector from a pixel
    to the head's centre. If the centre is on a pixel, the mass there is 1 / theta^2, where theta is
    the sum of exp(-alpha m^2) over all integers m (equation 18). The masses of the other pixels are
    summed directly, because 1 - mass would lose them to rounding.
    """
    delta = pixels(2 * reach + 1, 2 * reach + 1) - reach - torch.tensor(offset, dtype=torch.float64)
    scores = -alphas.double()[:, None] * delta.square().sum(dim=1)
    others = scores.sort(dim=1, descending=True).values[:, 1:]
    return (others.logsumexp(dim=1) - scores.logsumexp(dim=1)).exp()


# --- attention that depends on the image ----------------------------------------------------------


def query_pixels(height: int, width: int) -> Tensor:
    """Return a 3 x 3 grid of query pixels, `(9, 2)`, including those in Figures 6 and 7."""
    rows, columns = (
        torch.tensor([size // 5, size // 2, size - 1 - size // 5]) for size in (height, width)
    )
    return torch.cartesian_prod(rows, columns)


def mean_attention(model: nn.Module, images: Tensor, batch_size: int = 20) -> list[Tensor]:
    """Return each layer's attention maps `(N_h, H, W, H, W)`, averaged over normalised images."""
    total: list[Tensor] = []
    for batch in images.split(batch_size):
        sums = read_attention(model, batch, use=lambda layer: layer.maps.sum(dim=0)).layers
        total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
    return [maps / len(images) for maps in total]


@torch.no_grad()
def score_parts(model: SelfAttentionNet, images: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the parts of each layer's scores for normalised images `(B, C, H', W')`.

    The attention must be content-based; see `ContentAttention.score_parts`.
    """
    found = []

    def keep(layer: ContentAttention, inputs: tuple[Tensor]) -> None:
        found.append(layer.score_parts(*inputs))

    with ExitStack() as hooks, evaluation_mode(model):
        for layer in model.attentions:
            hooks.callback(layer.register_forward_pre_hook(keep).remove)
        model(images)
    return found


def content_maps(
    model: SelfAttentionNet, images: Tensor, single: Mapping[str, Tensor]
) -> ContentMaps:
    """Summarise a trained model's content-based attention for storage in a run record.

    The maps are averaged over the normalised `images` `(B, C, H', W')`. `single` maps each kind of
    image to the images whose scores are stored individually.
    """
    means = mean_attention(model, images)
    queries = query_pixels(*means[0].shape[1:3])
    row, column = queries.unbind(1)
    mean_maps = torch.stack([maps[:, row, column] for maps in means]).half()
    by_offset = torch.stack([mean_by_offset(maps) for maps in means])
    scores = {}
    for kind, of_kind in single.items():
        content, rows, columns = (
            torch.stack([part[:, :, row, column].float() for part in parts], dim=1).cpu()
            for parts in zip(*score_parts(model, of_kind), strict=True)
        )
        scores[kind] = ScoreParts(content.half(), rows, columns)
    return ContentMaps(queries, mean_maps, by_offset, scores)


def axis_ratios(record: RunRecord, moment: int = -1) -> Tensor:
    """Return the ratio of each head's longer to its shorter axis, `(L, N_h)`.

    The record is that of a model with the generalised quadratic encoding (appendix E).
    """
    encodings = record.history.encodings(moment)
    roots: list[Tensor] = [encoding.get_parameter("root").detach() for encoding in encodings]
    axes = torch.linalg.svdvals(torch.stack(roots).double())
    return axes[..., 0] / axes[..., 1]
