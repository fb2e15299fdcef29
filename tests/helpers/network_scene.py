"""Scene 3 of the stage in a browser: its modes, what it shows, pictures to give it."""

import io
import re
from urllib.parse import parse_qs

import torch
from PIL import Image
from playwright.sync_api import expect

from companion.data.cifar10 import CIFAR10_NORMALISATION

MODES = ("twin", "where", "what")
BUTTONS = {
    "twin": "One network, twice",
    "where": "Heads by position",
    "what": "Heads by content",
}
FRAME = "new Promise((done) => requestAnimationFrame(() => done(true)))"
SEEN = """() => {
  const canvas = document.querySelector(".network-seen");
  return Array.from(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data);
}"""


def ready(page):
    """Wait until what was asked for is drawn, and the networks have answered, and that is drawn."""
    page.wait_for_function(FRAME)
    expect(page.locator(".network-content")).to_have_attribute("aria-busy", "false")
    page.wait_for_function(FRAME)


def sentence(page):
    return page.locator(".network-sentence").inner_text()


def difference(page):
    return float(re.search(r"at most (\S+)\.", sentence(page))[1].replace("−", "-"))


def switch(page, mode):
    page.get_by_role("button", name=BUTTONS[mode]).click()
    ready(page)


def seen_image(page):
    """The pixels that the networks take, as the input `(1, 3, 32, 32)` that torch takes."""
    pixels = torch.tensor(page.evaluate(SEEN)).view(32, 32, 4)[..., :3].movedim(-1, 0) / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in CIFAR10_NORMALISATION)
    return ((pixels - mean) / std)[None]


def picture(image, kind="PNG", **settings):
    """A file as the browser is given it."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    name = f"mine.{kind.lower()}"
    return {"name": name, "mimeType": f"image/{kind.lower()}", "buffer": buffer.getvalue()}


def choose(page, file):
    page.locator(".network-own input").set_input_files(files=[file])


def noise(size=(60, 40), seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(size[1], size[0], 3, generator=generator)
    return Image.fromarray((255 * values).byte().numpy())


def state_of(page, **expected):
    """Wait until the address says what is expected, and return all that it says."""
    for name, value in expected.items():
        page.wait_for_function(
            "([name, value]) => new URLSearchParams(location.hash.slice(1)).get(name) === value",
            arg=[name, value],
        )
    return {
        name: values[0]
        for name, values in parse_qs(page.evaluate("location.hash.slice(1)")).items()
    }
