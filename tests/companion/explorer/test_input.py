"""Pictures as a network's input in JavaScript, against the package's transform."""

import base64

import numpy as np
import pytest
import torch
from helpers.javascript import run_node
from PIL import Image
from torchvision.transforms import functional

from companion.data import load_photograph
from companion.data.cifar10 import CIFAR10_NORMALISATION
from companion.runs.weights import picture_transform

SIZES = [(32, 32), (64, 64), (33, 47), (427, 640), (90, 35), (9, 21), (1, 1), (1, 40), (97, 32)]
PROGRAM = """
const { normalised, reduced, refusal } = await from("network/input");
return given.pictures.map(({ base64, ...size }) => {
  const pixels = reduced({ ...size, data: Buffer.from(base64, "base64") }, 32);
  return { pixels, image: normalised(pixels, given) };
});
"""


def answers(pictures):
    """The pixels `(32, 32, 3)` and the inputs `(3, 32, 32)` of pictures `(H, W, 4)` of uint8."""
    given = [
        {
            "width": p.shape[1],
            "height": p.shape[0],
            "base64": base64.b64encode(p.tobytes()).decode(),
        }
        for p in pictures
    ]
    mean, std = CIFAR10_NORMALISATION
    found = run_node(PROGRAM, {"pictures": given, "mean": mean, "std": std})
    pixels = [torch.tensor(one["pixels"]).view(32, 32, 3) for one in found]
    images = [torch.tensor(one["image"]).view(32, 32, 3).movedim(-1, 0) for one in found]
    return pixels, images


def with_alpha(picture, alpha=255):
    return np.concatenate([picture, np.full((*picture.shape[:2], 1), alpha, np.uint8)], axis=2)


def along_rows_first(picture):
    """The middle square by two of PIL's resizings, one axis each, and torchvision's crop."""
    height, width = picture.shape[:2]
    sizes = [int(32 * side / min(width, height)) for side in (width, height)]
    narrow = Image.fromarray(picture).resize((sizes[0], height), Image.Resampling.BILINEAR)
    small = narrow.resize(tuple(sizes), Image.Resampling.BILINEAR)
    return torch.as_tensor(np.array(functional.center_crop(small, 32)))


def test_it_is_the_packages_transform():
    generator = np.random.default_rng(0)
    pictures = [generator.integers(0, 256, (*size, 3), np.uint8) for size in SIZES]
    pictures += [(255 * load_photograph(name)).byte().numpy() for name in ("chelsea", "china")]
    pixels, images = answers([with_alpha(picture) for picture in pictures])
    std = torch.tensor(CIFAR10_NORMALISATION[1]).view(3, 1, 1)
    for picture, reduced, image in zip(pictures, pixels, images, strict=True):
        gap = (255 * std * (image - picture_transform(picture))).abs().max()
        assert gap < 1.01, f"{picture.shape}: {gap:.2f} of 255"
        assert torch.equal(reduced, along_rows_first(picture).long()), picture.shape


def test_transparent_parts_are_white():
    picture = with_alpha(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8))
    picture[:, :25, 3] = 0
    picture[:20, 25:, 3] = 128
    (pixels,), _ = answers([picture])
    white = Image.new("RGBA", (50, 40), "white")
    white.alpha_composite(Image.fromarray(picture))
    expected = picture_transform(white)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in CIFAR10_NORMALISATION)
    shown = 255 * (expected * std + mean)
    assert (pixels.movedim(-1, 0) - shown).abs().max() < 2


@pytest.mark.parametrize(
    ("width", "height", "sentence"),
    [
        ("0", "0", "This picture is empty (0 × 0 pixels); choose another one."),
        ("8001", "20", "has 8001 × 20 pixels; no side may exceed 8000, so reduce it first."),
        ("NaN", "5", "cannot be read (NaN × 5 pixels); choose another one."),
        ("5", "Infinity", "cannot be read (5 × Infinity pixels)"),
        ("2", "2", "This picture is incomplete; choose another one."),
    ],
)
def test_refusals_are_one_sentence(width, height, sentence):
    program = f"""
    const {{ reduced }} = await from("network/input");
    const picture = {{ width: {width}, height: {height}, data: [] }};
    try {{ reduced(picture, 32); }} catch (error) {{ return error.message; }}
    """
    message = run_node(program, None)
    assert sentence in message and message.count(". ") == 0
