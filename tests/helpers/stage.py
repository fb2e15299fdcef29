"""The stage in a browser: its sizes, what is read of it, and the pointer on it."""

import base64
import io
import json

import torch
from PIL import Image
from playwright.sync_api import expect
from torchvision.transforms.functional import pil_to_tensor

PAGE = "book/explore.html"
SIZES = {"desktop": (1280, 720), "projector": (1920, 1080), "phone": (390, 844)}
# Every box of the stage and of the text below it, but for what is meant to move and for words
# within a line.
BOXES = """() => {
  const moving = ".stage-disc, .stage-disc *, .stage-seam, .stage-side, .stage-level, .stage-said, "
    + ".stage-note, .stage-by, .stage-task *, output, b, option";
  const nodes = document.querySelectorAll(".stage, .stage *, .bd-article h2, .bd-article p");
  const boxes = [...nodes].filter((node) => !node.matches(moving)).map((node) => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [node.className || node.tagName, x, y, width, height];
  });
  return JSON.stringify([scrollX, scrollY, document.documentElement.scrollHeight, ...boxes]);
}"""
PIXELS = """() => {
  const canvas = document.querySelector(".stage-pixels");
  return Array.from(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data);
}"""
SMALLEST_TEXT = """() => {
  const scaleOf = (node) =>
    node ? (parseFloat(getComputedStyle(node).scale) || 1) * scaleOf(node.parentElement) : 1;
  return Math.min(...[...document.querySelectorAll(".stage *")]
    .filter((node) => node.checkVisibility()
      && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .map((node) => parseFloat(getComputedStyle(node).fontSize) * scaleOf(node)));
}"""
# The bottom of the lowest thing beside or below the picture.
LOWEST = """() => Math.max(...[...document.querySelectorAll(":is(.stage-beside, .stage-below) *")]
  .filter((node) => node.checkVisibility()).map((node) => node.getBoundingClientRect().bottom))"""
FILLED = "(bar) => bar.getBoundingClientRect().width / bar.offsetWidth"  # share of its full length


# Opens the state of a link, as a reader does who changes the address, also if it is there already.
# The first link ends what moves.
OPEN_STATE = """async (state) => {
  for (const link of ["alpha=exact&seam=0.4", state]) {
    history.replaceState(null, "", location.pathname);
    await new Promise((done) => {
      addEventListener("hashchange", done, { once: true });
      location.hash = link;
    });
  }
  scrollTo(0, 0);
  document.activeElement.blur();
}"""
FRAME = 240  # ms; the stage lets a frame stand for 250 at most


def pass_time(page, milliseconds):
    """Let time pass with few frames: drawing sixty a second would take longer than that time."""
    for _ in range(milliseconds // FRAME):
        page.clock.fast_forward(FRAME)
    page.clock.run_for(milliseconds % FRAME)


def open_state(page, state):
    """Open the state of a link in a page of the stage that is there; without one scene 1 begins."""
    page.mouse.up()
    page.mouse.move(1, 1)
    page.evaluate(OPEN_STATE, state or "scene=heads")


def address(page):
    page.clock.fast_forward(1000)
    page.clock.run_for(20)
    return page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")


def spot(page, selector, across, down):
    """A place on the screen by its shares of an element's width and height."""
    box = page.locator(selector).bounding_box()
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def disc(page, row, column):
    """Return where an offset of the plane is on the screen."""
    return spot(page, ".stage-plane", (column + 3.5) / 7, (row + 3.5) / 7)


def canvas(page, selector):
    """Return the pixels of a canvas, `(H, W, 4)`: red, green, blue and opacity."""
    url = page.locator(selector).evaluate("(canvas) => canvas.toDataURL()")
    image = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))
    return pil_to_tensor(image.convert("RGBA")).movedim(0, -1).int()


def rgb(colour):
    """Return a colour such as "#0072B2" as three numbers."""
    return torch.tensor([*bytes.fromhex(colour[1:])])


def in_colour(pixels, colour, tolerance=30):
    """Return which pixels of a canvas are opaque and have a colour."""
    return (pixels - torch.cat([rgb(colour), torch.tensor([255])])).abs().amax(-1) <= tolerance


def near(found, across, down, reach=2):
    """Return whether something was found within some px of a place on a canvas."""
    row, column = round(down), round(across)
    around = (
        slice(max(0, row - reach), row + reach + 1),
        slice(max(0, column - reach), column + reach + 1),
    )
    return bool(found[around].any())


def assert_unmoved(what, before, now):
    """Assert that two lists of boxes, as JSON, are alike. `what` was done between them."""
    pairs = zip(json.loads(before), json.loads(now), strict=True)
    moved = [pair for pair in pairs if pair[0] != pair[1]]
    assert not moved, f"{what}: {moved[:3]}"


def assert_readable(page, size):
    """Assert that no text is too small and that nothing is wider than the screen."""
    smallest = page.evaluate(SMALLEST_TEXT)
    assert smallest >= {"desktop": 13, "projector": 18, "phone": 14}[size]
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]


def assert_in_one_view(page, size, selectors):
    """Assert that the bar and these results are on the screen, and that the bar hides nothing."""
    bar = page.locator(".stage-bar").bounding_box()
    assert bar["y"] + bar["height"] <= SIZES[size][1] + 0.5
    for selector in selectors:
        expect(page.locator(selector)).to_be_in_viewport(ratio=1)
    assert page.evaluate(LOWEST) <= bar["y"] + 0.5, "the bar hides nothing"
    assert_readable(page, size)


def tab_stops(page):
    """Count the presses of Tab that lead from the selected scene's tab out of the stage."""
    page.locator(".stage-tabs [aria-selected=true]").focus()
    stops = 0
    while page.evaluate("document.activeElement.closest('.stage') !== null"):
        stops += 1
        page.keyboard.press("Tab")
    return stops


def drag(page, start, *stops):
    page.mouse.move(*start)
    page.mouse.down()
    for stop in stops:
        page.mouse.move(*stop, steps=3)
        page.clock.run_for(50)
        yield
    page.mouse.up()
    page.clock.run_for(50)
    yield


def swipe(page, start, *stops):
    """Move a finger from one place of the screen to others, and let it rest before it is raised:
    what it scrolled would go on scrolling otherwise, also under the next test's finger."""
    session = page.context.new_cdp_session(page)

    def send(kind, *places):
        points = [{"x": x, "y": y} for x, y in places]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.clock.run_for(50)

    send("touchStart", start)
    for stop in stops:
        send("touchMove", stop)
    page.wait_for_timeout(100)
    send("touchEnd")
