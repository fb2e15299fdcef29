"""Where the tokens of a layer lie in the image: grids, windows, prefix tokens and order.

Letters: N images or windows, N_h heads, H x W patch tokens of an image or window, T tokens.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ..theory.grid import pixels

#: Names of parameters that become prefix tokens.
PREFIX_TOKENS = re.compile(
    r"(^|_)(cls|class|dist|distillation|reg|register)_?(tokens?|embedding)(_\d+)?$"
)


def modules_around(name: str, model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that contain a layer, from the innermost one to the model itself."""
    parts = name.split(".") if name else []
    return (model.get_submodule(".".join(parts[:n])) for n in range(len(parts) - 1, -1, -1))


def real_patches(images: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[int, int]]:
    """Return the input of timm's NaFlex models without padding, and its height and width in tokens.

    The models mask padding, so it does not change the attention among the other patches. Raises
    ValueError unless the images have the same grid, in row-major order with the padding at the end.
    """
    names = ("patches", "patch_coord", "patch_valid")
    if not set(names) <= set(images):
        raise ValueError(
            f"images is a dict of {', '.join(map(str, images))}; expected a tensor (batch,"
            f" channels, height, width), or a dict of {', '.join(names)}"
        )
    coordinates, valid = images["patch_coord"], images["patch_valid"].bool()
    count = int(valid[0].sum())
    height, width = (int(each) + 1 for each in coordinates[0][valid[0]].amax(dim=0))
    in_order = count == height * width and bool(
        valid[:, :count].all() and not valid[:, count:].any()
    )
    if not in_order or not bool((coordinates[:, :count].cpu() == pixels(height, width)).all()):
        raise ValueError(
            "the images differ in their grids of patches, or the patches are not in row-major order"
            " with the padding at the end; give images of one size, or one image at a time"
        )
    return {name: images[name][:, :count] for name in names}, (height, width)


def sides(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the possible heights and widths of `(B, H, W, C)` or `(B, C, H, W)`."""
    return [(shape[1], shape[2]), (shape[2], shape[3])] if len(shape) == 4 else []


def windows_around(name: str, model: nn.Module) -> list[tuple[int, int]]:
    """Return the window sizes that a layer and the modules around it state, innermost first."""
    modules = [model.get_submodule(name), *modules_around(name, model)] if name else [model]
    return [size for module in modules for size in windows_of(module)]


def windows_of(module: nn.Module) -> list[tuple[int, int]]:
    sizes = []
    for each in (module, *module.children()):
        for name in ("window_size", "ws", "partition_size", "p"):
            size = getattr(each, name, None)
            if isinstance(size, int) and not isinstance(size, bool):
                sizes.append((size, size))
            elif isinstance(size, tuple | list) and len(size) == 2:
                sizes.append((int(size[0]), int(size[1])))
    return sizes


def cut_into_patches(image: tuple[int, ...], embedding: Any) -> tuple[int, int] | None:
    """Return the grid of patches that an embedding with a `patch_size` cuts the image into."""
    size = getattr(embedding, "patch_size", None)
    if not (isinstance(size, tuple) and len(size) == 2):
        return None
    return image[0] // int(size[0]), image[1] // int(size[1])


def backbone_of(name: str, model: nn.Module) -> nn.Module:
    """Return the innermost module around a layer that has patch tokens, or else the model."""
    around = modules_around(name, model)
    return next((module for module in around if embedding_of(module) is not None), model)


def embedding_of(backbone: nn.Module) -> Any:
    """Return the module that cuts images into patches, or None if its name is unknown."""
    return getattr(backbone, "patch_embed", getattr(backbone, "embeds", None))


def possible_prefixes(backbone: Any, model: nn.Module) -> list[int]:
    """Return the numbers of prefix tokens that a layer may have, the most likely one first."""
    stated = getattr(backbone, "num_prefix_tokens", None)
    if isinstance(stated, int):
        return [stated, 0]
    most = 0
    for name, parameter in model.named_parameters():
        if PREFIX_TOKENS.search(name.rpartition(".")[2]):
            most += parameter.shape[-2] if parameter.ndim > 1 else 1
    return [most, *range(most)]


def patches_of(name: str, probabilities: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the renormalised maps between patches, and each head's mass on prefix tokens.

    Raises ValueError, with the layer's name, if a patch does not attend to any patch.
    """
    prefix = probabilities.shape[-1] - grid[0] * grid[1]
    to_prefix, to_patches = probabilities[:, :, prefix:].tensor_split([prefix], dim=-1)
    mass = to_prefix.double().sum(dim=-1).mean(dim=(0, 2))
    share = to_patches.sum(dim=-1, keepdim=True)
    if without := int((share == 0).sum()):
        raise ValueError(
            f"{name} has no maps for {without} of {share.numel()} queries (over images and heads),"
            " which attend to no patch; expected a mask that leaves each patch a patch to attend to"
        )
    maps = to_patches / share if prefix else to_patches
    return maps.unflatten(-1, grid).unflatten(2, grid).cpu(), mass.cpu()


def rerolled(
    name: str, model: nn.Module, tokens: int, count: int
) -> tuple[Tensor, tuple[int, int]] | None:
    """Return the row-major order of a window's tokens in Hiera and their height and width.

    Hiera (in timm, transformers and its own package) keeps the tokens in an order in which pooling
    is a reshape; `reroll` undoes it for a block or stage. Token t of window w is number
    t * windows + w. The result is None for other models, and if `reroll` was made for images with
    another number of tokens than `count`.
    """
    around: Iterator[Any] = modules_around(name, model)
    backbone = next((module for module in around if hasattr(module, "reroll")), None)
    block = re.search(r"(?:^|\.)(?:blocks|stages)\.(\d+)\.", name)
    if backbone is None or block is None:
        return None
    number = int(block[1])
    schedule = getattr(backbone.reroll, "schedule", None) or backbone.schedule
    if count != prod(schedule[number][1]):
        return None
    places = backbone.reroll(torch.arange(count).view(1, count, 1), number)[0, :, :, 0]
    windows = count // tokens
    in_first = places % windows == 0
    grid = (int(in_first.any(dim=1).sum()), int(in_first.any(dim=0).sum()))
    return places[in_first] // windows, grid
