"""The ways in which a layer can multiply, each forced."""

from attnconv.theory.windows import tiles_of

WAYS = ("whole", "tiles")


def force(patch, way):
    """From here on whole maps, or tiles of three queries, for images of any size."""

    def best_tiles(seen, products, separable):
        return [tiles_of(mask, 3) for mask in seen] if way == "tiles" else None

    for module in ("layers", "construction"):
        patch.setattr(f"attnconv.theory.{module}.worth_a_look", lambda *sizes: True)
        patch.setattr(f"attnconv.theory.{module}.best_tiles", best_tiles)
