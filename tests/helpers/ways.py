"""The ways in which a layer can multiply, each forced."""

from attnconv.layers.windows import tiles_of

WAYS = ("whole", "tiles")


def force(patch, way):
    """From here on whole maps, or tiles of three queries, for images of any size."""

    def best_tiles(seen, products, separable):
        return [tiles_of(mask, 3) for mask in seen] if way == "tiles" else None

    for module in ("attention", "conv"):
        patch.setattr(f"attnconv.layers.{module}.worth_a_look", lambda *sizes: True)
        patch.setattr(f"attnconv.layers.{module}.best_tiles", best_tiles)
