"""Sections 4.2 and 4.3: what the heads do."""

from statistics import mean

import torch
from torch import Tensor

from ...measures.heads import Heads
from .claim import HALF, Answer, Claims, Runs, by_layer, grade, listed, on_one_pixel

CLAIMS = Claims()


@CLAIMS.claim(
    "4.2, Figure 3",
    "the heads of layer 4 attend to single pixels that form a grid around the query",
    "at least {enough} of 9 heads put half of their mass on one shift of up to {reach} pixels that"
    " no other head has (partly: {some})",
    "sa-quadratic",
    enough=7,
    some=4,
    reach=3,
)
def _grid_in_layer_4(runs: Runs, enough: int, some: int, reach: int) -> Answer:
    def on_the_grid(heads: Heads) -> float:
        near = heads.shifts.abs().amax(dim=1) <= reach
        return ((heads.mass >= HALF) & heads.alone & near).double().mean().item()

    share = by_layer(runs, "sa-quadratic", on_the_grid)[3]
    return f"in layer 4, {share:.0%} of the heads do", grade(share, enough / 9, some / 9)


@CLAIMS.claim(
    "4.2, Figure 4",
    "layers 1 and 2 are local, layers 3 to 6 also look further",
    "each of layers 3 to 6 looks further, averaged over its heads, than layers 1 and 2 and than at"
    " the start (partly: half)",
    "sa-quadratic",
)
def _deeper_is_further(runs: Runs) -> Answer:
    start, end = (
        by_layer(runs, "sa-quadratic", lambda heads: heads.distance.mean().item(), moment)
        for moment in (0, -1)
    )
    further = [now > max(*end[:2], then) for now, then in zip(end[2:], start[2:], strict=True)]
    found = (
        f"mean distance looked, by layer: {listed(end, 2)} tokens; at the start {listed(start, 2)}"
    )
    return found, grade(mean(further), 1.0, 0.5)


@CLAIMS.claim(
    "4.2, Figure 14",
    "16 heads do not overlap",
    "on average over the layers {enough} % of the heads, and more than at the start, have a best"
    " shift of their own (partly: {some} %)",
    "sa-quadratic-16",
    enough=90,
    some=60,
)
def _no_overlap(runs: Runs, enough: int, some: int) -> Answer:
    def alone(heads: Heads) -> float:
        return heads.alone.double().mean().item()

    start, end = (mean(by_layer(runs, "sa-quadratic-16", alone, moment)) for moment in (0, -1))
    found = (
        f"{end:.0%} of the heads, averaged over the layers, have a best shift that no other has; at"
        f" the start {start:.0%}"
    )
    return found, grade(end, enough / 100, some / 100) if end > start else "differs"


@CLAIMS.claim(
    "4.3, Figure 5",
    "with a learned encoding some heads of layers 1 and 2, and fewer of layer 3, attend to single"
    " pixels",
    "half of their mass on one shift put at least {many} heads of layer 1, {many} of layer 2, and"
    " {few} of layer 3 and fewer there than in both (partly: one of the three)",
    "sa-learned",
    many=3,
    few=1,
)
def _single_pixels(runs: Runs, many: int, few: int) -> Answer:
    counts, found = on_one_pixel(runs, "sa-learned")
    met = (counts[0] >= many) + (counts[1] >= many) + (few <= counts[2] < min(counts[:2]))
    return found, grade(met, 3, 1)


def mirrored(heads: Heads) -> Tensor:
    """How much each map, less its mean, equals its mirror image about the query's column, `(N_h,)`:
    the cosine of the two."""
    column = heads.query[1]
    reach = min(column, heads.maps.shape[2] - 1 - column)
    maps = heads.maps[:, :, column - reach : column + reach + 1]
    maps = maps - maps.mean(dim=(1, 2), keepdim=True)
    return torch.cosine_similarity(maps.flatten(1), maps.flip(2).flatten(1))


@CLAIMS.claim(
    "4.3, Figure 5",
    "other heads attend to horizontally symmetric, not localised patterns",
    "{enough} heads more than at the start put less than half on one shift and are mirrored, cosine"
    " {cosine} less the mean (partly: {some})",
    "sa-learned",
    enough=3,
    some=2,
    cosine=0.9,
)
def _symmetric_patterns(runs: Runs, enough: int, some: int, cosine: float) -> Answer:
    def wide_and_mirrored(heads: Heads) -> int:
        return int(((heads.mass < HALF) & (mirrored(heads) >= cosine)).sum())

    start, end = (
        sum(by_layer(runs, "sa-learned", wide_and_mirrored, moment)) for moment in (0, -1)
    )
    return f"{end:.1f} heads of all layers; at the start {start:.1f}", grade(
        end - start, enough, some
    )


@CLAIMS.claim(
    "4.3, Figures 6, 7",
    "with content, some heads of layers 2 and 3 attend to one shift whatever image and query",
    f"in both layers a head gives one shift a mean probability of {HALF} (partly: in one)",
    "sa-learned-content",
)
def _constant_shift(runs: Runs) -> Answer:
    counts, found = on_one_pixel(runs, "sa-learned-content", ", over images and queries")
    return found, grade((counts[1] >= 1) + (counts[2] >= 1), 2, 1)


@CLAIMS.claim(
    "4.3, Figures 8 to 10",
    "other heads use the content",
    "at least {enough} heads move {mass} of their mass between single images, total variation from"
    " their mean map (partly: {some})",
    "sa-learned-content",
    enough=3,
    some=1,
    mass=0.3,
)
def _content_is_used(runs: Runs, enough: int, some: int, mass: float) -> Answer:
    counts, heads, images = [], 0, 0
    for record in runs["sa-learned-content"]:
        assert record.content_maps, "the claim needs a model with content"
        maps = record.content_maps.single["image"].maps().double()  # (images, L, N_h, Q, H, W)
        # total variation, (L, N_h)
        apart = (maps - maps.mean(dim=0)).abs().sum(dim=(-2, -1)).mean(dim=(0, 3)) / 2
        counts.append(int((apart >= mass).sum()))
        heads, images = apart.numel(), len(maps)
    found = f"{listed([mean(counts)])} of {heads} heads move at least {mass} of their mass"
    found += f" between {images} test images"
    return found, grade(mean(counts), enough, some)
