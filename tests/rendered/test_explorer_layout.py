"""The page of trained heads: what stays where it is, with a pointer, a finger and keys. Needs `make
book`."""

import json
import re

import pytest
from helpers.stage import SIZES
from playwright.sync_api import expect

HEADS = "book/explorer.html"
QUADRATIC = "model=sa-quadratic--digits-brief--seed0"
CONTENT = "model=sa-learned-content--digits-brief--seed0"
SIXTEEN = "model=sa-quadratic-16--digits-brief--seed0"
WIDE_AND_NARROW = ("desktop", "phone")
BOXES = """() => {
  const boxes = [...document.querySelectorAll(".explorer, .explorer *:not(option, optgroup)")].map((node) => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [`${node.tagName} ${node.className}`, x, y, width, height];
  });
  return JSON.stringify([scrollX, scrollY, document.documentElement.scrollHeight, ...boxes]);
}"""
INLINE = "SPAN "  # words within a line


@pytest.fixture
def heads(visit):
    """Opens the page with the state of a link, at a size, and returns it at rest, with a clock that
    is moved on by hand."""
    visits = []

    def open_page(state, size="desktop", motion="no-preference"):
        width, height = SIZES[size]
        options = {"has_touch": size == "phone", "reduced_motion": motion}
        options["viewport"] = {"width": width, "height": height}
        visits.append(visit(f"{HEADS}#{state}", **options))
        page = visits[-1].page
        link = page.locator(".explorer-keep a")
        expect(link).to_have_attribute("href", re.compile("="))
        page.clock.install()
        page.clock.pause_at(4e9)
        return page

    yield open_page
    assert not [problem for visited in visits for problem in visited.problems]


def spots(page, selector):
    """Places on an element that is in sight."""
    box = page.locator(selector).bounding_box()
    for across, down in ((0.1, 0.1), (0.95, 0.4), (0.5, 0.95), (0.02, 0.98)):
        yield box["x"] + across * box["width"], box["y"] + down * box["height"]


@pytest.mark.parametrize("size", WIDE_AND_NARROW)
@pytest.mark.parametrize("state", [QUADRATIC, CONTENT])
def test_no_box_moves_through_any_interaction(heads, state, size):
    page = heads(state, size)
    fixed, chosen_freely = "Image (no effect on the maps)", state == CONTENT
    expect(page.get_by_label(fixed)).to_have_count(0 if chosen_freely else 1)
    image = page.get_by_label("Image" if chosen_freely else fixed, exact=True)
    expect(image).to_be_visible()
    page.locator(".explorer-status").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('.explorer-status').scrollIntoView()")
    boxes = page.evaluate(BOXES)

    def unchanged(what):
        for milliseconds in (1, 200):  # at once, and at rest
            page.clock.run_for(milliseconds)
            now = page.evaluate(BOXES)
            pairs = zip(json.loads(boxes), json.loads(now), strict=True)
            moved = [pair for pair in pairs if pair[0] != pair[1]]
            moved = [pair for pair in moved if not str(pair[0][0]).startswith(INLINE)]
            assert not moved, f"{what}: {moved[:3]}"

    for place in spots(page, ".explorer-pad"):
        page.mouse.move(*place)
        unchanged("the query follows the pointer")
    page.mouse.down()
    page.mouse.up()
    unchanged("the query is kept")
    for place in spots(page, ".explorer-map"):
        page.mouse.move(*place)
        unchanged("reading the map")
    press = "document.querySelector('[aria-label=\"layer {}, head {}\"]').click()"
    for layer, head in ((3, 9), (1, 1), (2, 5)):
        page.evaluate(press.format(layer, head))
        unchanged("another head")
    if state == QUADRATIC:
        slide = "(value) => { const slider = document.querySelector('.explorer-training input');"
        slide += " slider.value = value; slider.dispatchEvent(new Event('input')); }"
        for moment in (0, 2, 1):
            page.evaluate(slide, moment)
            unchanged("another moment")
        page.evaluate("document.querySelector('.explorer-training button').click()")
        for _ in range(4):
            unchanged("training plays")


@pytest.mark.parametrize("size", WIDE_AND_NARROW)
def test_the_enlarged_map_is_in_sight_of_the_head_that_is_chosen(heads, size):
    page = heads(QUADRATIC, size)
    button = page.get_by_role("button", name="layer 3, head 9", exact=True)
    page.evaluate("(node) => node.scrollIntoView({ block: 'end' })", button.element_handle())
    scrolled = page.evaluate("scrollY")
    button.click()
    assert page.evaluate("scrollY") == scrolled > 0
    shown, chosen = (node.bounding_box() for node in (page.locator(".explorer-map"), button))
    assert shown["y"] >= 0 and shown["y"] + shown["height"] <= chosen["y"], (shown, chosen)
    expect(page.locator(".explorer-map")).to_have_accessible_name(re.compile("layer 3, head 9"))


def test_a_vertical_swipe_on_the_picture_scrolls(heads):
    page = heads(QUADRATIC, "phone")
    page.evaluate("document.querySelector('.explorer-pad').scrollIntoView({ block: 'center' })")
    start = page.evaluate("scrollY")
    x, y = next(spots(page, ".explorer-pad"))
    session = page.context.new_cdp_session(page)
    for kind, by in [("touchStart", 0), *[("touchMove", by) for by in range(20, 201, 20)]]:
        points = {"type": kind, "touchPoints": [{"x": x, "y": y + 200 - by}]}
        session.send("Input.dispatchTouchEvent", points)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("(start) => scrollY > start + 50", arg=start)


def test_the_heads_are_one_tab_stop_and_arrow_keys_choose_among_them(heads):
    page = heads(f"{QUADRATIC}&layer=2&head=2")
    page.locator(".explorer-map").focus()
    stops = 0
    while not page.evaluate("document.activeElement.textContent.startsWith('Save')"):
        page.keyboard.press("Tab")
        stops += 1
    assert stops <= 5
    page.get_by_role("button", name="layer 2, head 2", exact=True).focus()
    for key, name in {
        "ArrowRight": "layer 2, head 3",
        "ArrowDown": "layer 3, head 3",
        "ArrowLeft": "layer 3, head 2",
        "ArrowUp": "layer 2, head 2",
    }.items():
        page.keyboard.press(key)
        button = page.get_by_role("button", name=name, exact=True)
        expect(button).to_be_focused()
        expect(button).to_have_attribute("aria-pressed", "true")


def test_results_are_read_out(heads):
    page = heads(f"{QUADRATIC}&query=4,4&layer=1&head=1")
    said = page.locator(".explorer-said")
    expect(said).to_have_attribute("role", "status")
    page.locator(".explorer-pad").press("ArrowUp")
    page.clock.run_for(200)
    expect(said).to_contain_text("Query (3, 4)")
    page.get_by_role("button", name="layer 1, head 1", exact=True).press("ArrowRight")
    page.clock.run_for(200)
    expect(said).to_contain_text("Layer 1, head 2: probabilities")
    page.locator(".explorer-map").press("ArrowDown")
    expect(said).to_contain_text("Key pixel (4, 4)")
    page.get_by_label("Training").fill("0")
    expect(page.get_by_label("Training")).to_have_attribute("aria-valuetext", "after epoch 0 of 5")


def test_sixteen_heads_have_room_for_their_numbers(heads):
    page = heads(SIXTEEN)
    texts = page.locator(".explorer-row button > span:last-child")
    for width, inner, content in texts.evaluate_all(
        "(nodes) => nodes.map((n) => [n.parentNode.offsetWidth, n.clientWidth, n.scrollWidth])"
    ):
        assert width >= 60 and content <= inner
    assert all(len(text.split("\n")) == 3 for text in texts.all_inner_texts())
