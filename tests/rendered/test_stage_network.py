"""Scene 3 of the stage in a browser: networks, against torch; movement, layout, links; what is
damaged or malformed. Needs `make book`."""

import re

import pytest
import torch
from helpers.models import maps_of
from helpers.network_scene import (
    MODES,
    choose,
    difference,
    noise,
    picture,
    ready,
    seen_image,
    sentence,
    state_of,
    switch,
)
from helpers.stage import FILLED, PAGE, SIZES, assert_readable, assert_unmoved, tab_stops
from playwright.sync_api import expect

from attnconv import load_model
from companion.studies.freed.network import as_free_attention

# Every box of the stage, but for bars and words that are meant to change within theirs.
BOXES = """() => {
  const moving = ".stage-said, .stage-note, .network-bar, .network-share, output, option, :is(.stage-plane, .stage-picture) *";
  const nodes = [...document.querySelectorAll(".stage, .stage *, .bd-article h2, .bd-article p")].filter((node) => !node.matches(moving));
  return JSON.stringify([scrollX, scrollY, document.documentElement.scrollHeight, ...nodes.map((node) => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [node.tagName, x, y, width, height];
  })]);
}"""
# What lies outside the box it belongs to.
OVERFLOWING = """() => [...document.querySelectorAll(".network-content *, .network-own *, .network-sentence, .stage-bar *")]
  .filter((node) => node.checkVisibility() && (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 2))
  .filter((node) => node.clientWidth && !node.matches("select, input, ul, .network-words, .stage-stops, .stage-stops *"))
  .map((node) => `${node.className || node.tagName}: ${node.textContent.slice(0, 30)}`)"""
# The colour of the middle of each pixel of each head's map.
MAPS = """() => [...document.querySelectorAll(".network-heads:not([hidden]) canvas")].map((canvas) => {
  const { width } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, width), cell = width / 8;
  const at = (k) => 4 * ((Math.floor(k / 8) + 0.5) * cell * width + ((k % 8) + 0.5) * cell);
  return Array.from({ length: 64 }, (_, k) => [...data.subarray(at(k), at(k) + 3)]);
})"""


def shares(page):
    """The percentages of the ten classes, `(10, 2)`: of the CNN and of its twin."""
    texts = page.locator(".network-share").all_inner_texts()
    return torch.tensor([float(text.removesuffix(" %")) for text in texts]).view(10, 2)


# --- against torch --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chelsea", "horse"])
@torch.no_grad()
def test_the_bars_are_the_cnns_and_its_twins(scene, name):
    page = scene(f"picture={name}&alpha=exact").page
    assert difference(page) < 1e-4
    assert torch.equal(*shares(page).T)
    model, image = load_model("cnn").eval(), seen_image(page)
    expected = 100 * model(image)[0].softmax(dim=0)
    assert (shares(page)[:, 0] - expected).abs().max() < 0.51
    page.locator(".stage-slider:not([hidden]) input").fill("22")
    expect(page.locator(".network-sentence")).to_contain_text("At α = 1, ")
    ready(page)
    soft = as_free_attention(model, 1.0).eval()(image)[0]
    assert (shares(page)[:, 1] - 100 * soft.softmax(dim=0)).abs().max() < 0.51
    gap = (soft - model(image)[0]).abs().max().item()
    assert difference(page) == pytest.approx(gap, rel=6e-3)


def test_the_bars_are_as_long_as_their_percentages(scene):
    page = scene("picture=chelsea&alpha=1").page
    bars = page.locator(".network-bar").all()
    filled = torch.tensor([bar.evaluate(FILLED) for bar in bars]).view(10, 2)
    assert (100 * filled - shares(page)).abs().max() < 0.51
    assert min(bar.bounding_box()["height"] for bar in bars) > 3


@pytest.mark.parametrize(
    ("mode", "name"), [("where", "sa-quadratic"), ("what", "sa-learned-content")]
)
def test_the_maps_are_the_networks(scene, mode, name):
    page = scene(f"mode={mode}&layer=3&query=2,5").page
    by_layer = maps_of(load_model(name), seen_image(page))  # (1, N_h, H, W, H, W) each
    maps = [layer[0].flatten(1, 2).flatten(2) for layer in by_layer]
    alike = [torch.special.entr(layer).sum(-1).mean(-1).exp() > 60 for layer in maps]
    count = int(torch.stack(alike).sum())
    counted = page.locator(".network-heads:visible > p").nth(1).inner_text()
    assert counted.startswith(f"{count} of 54 heads" if count else "No head")
    found = 255 - torch.tensor(page.evaluate(MAPS)).float()  # (N_h, T, 3), 0 for white
    for head, map_ in enumerate(maps[2][:, 2 * 8 + 5]):
        channel = found[head].sum(0).argmax()
        strengths = found[head, :, channel] / found[head, :, channel].max()
        assert (strengths - map_ / map_.max()).abs().max() < 0.03, head
    notes = page.locator(".network-heads:visible li > span > span").all_inner_texts()
    assert [bool(note) for note in notes] == alike[2].tolist()
    words = page.locator(".network-heads:visible .network-words").all_inner_texts()
    for text, uniform, map_ in zip(words, alike[2], maps[2][:, 2 * 8 + 5], strict=True):
        row, column = divmod(map_.argmax().item(), 8)
        looks = f"looks most at ({row}, {column}), {100 * map_.max():.0f} %"
        assert text == ("flat" if uniform else looks)
    accuracy = load_model(name).record.accuracy
    expect(page.locator(".network-heads:visible > p").first).to_contain_text(f"{accuracy:.1%}"[:-1])


def test_position_is_the_same_on_another_picture_and_content_is_not(scene):
    page = scene("mode=where&layer=2").page
    for mode, same in (("where", True), ("what", False)):
        switch(page, mode)
        maps = []
        for name in ("chelsea", "horse"):
            page.get_by_label("Picture", exact=True).select_option(name)
            ready(page)
            maps.append(page.evaluate(MAPS))
        assert (maps[0] == maps[1]) == same, mode


# --- movement -------------------------------------------------------------------------------------


def test_on_entering_the_bars_come_together(visit):
    visited = visit(reduced_motion="no-preference", viewport={"width": 1280, "height": 720})
    page = visited.page
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.goto(f"{PAGE}#scene=network")
    differences = []
    for _ in range(2000):  # the clock stands between the steps, while the worker computes
        page.clock.run_for(50)
        if "at most" in sentence(page) and difference(page) not in differences[-1:]:
            differences.append(difference(page))
        if "With exact heads" in sentence(page):
            break
    assert differences[0] > 1 and differences[-1] < 1e-4 and len(differences) >= 4
    assert differences[-2] < differences[0]
    page.clock.run_for(1500)
    assert page.evaluate("location.hash") == "#scene=network", "what moves is not in the address"
    expect(page.locator(".stage-said")).to_contain_text("With exact heads, the ten outputs")
    assert not visited.problems


def test_a_link_to_soft_heads_stays_there(scene):
    page = scene("alpha=1", reduced_motion="no-preference").page
    expect(page.locator(".network-sentence")).to_contain_text("At α = 1, ")
    expect(page.locator(".stage-slider:not([hidden]) output")).to_have_text("α = 1")


def test_the_arrow_keys_lead_from_exact_to_the_sharpest_alpha_and_back(scene):
    page = scene("alpha=exact").page
    for key, shown in (("ArrowLeft", "α = 8"), ("ArrowRight", "exact")):
        page.get_by_role("slider", name="Sharpness").press(key)
        expect(page.locator(".stage-slider:not([hidden]) output")).to_have_text(shown)


def test_what_the_reader_set_is_there_on_return(scene):
    page = scene("alpha=1", reduced_motion="no-preference").page
    for slider, position in (("Sharpness", "ArrowRight"), ("Layer", "End")):
        if slider == "Layer":
            switch(page, "where")
        page.get_by_role("slider", name=slider).press(position)
        ready(page)
        before = sentence(page), page.locator(".stage-slider:not([hidden]) output").inner_text()
        for tab in (0, 2):
            page.get_by_role("tab").nth(tab).click()
        ready(page)
        shown = page.locator(".stage-slider:not([hidden]) output").inner_text()
        assert (sentence(page), shown) == before


# --- layout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_all_is_in_one_view(scene, size, mode):
    page = scene(f"mode={mode}&layer=2&alpha=1", size=size).page
    for selector in (".stage-bar", ".stage-picture", ".network-content", ".network-own"):
        box = page.locator(selector).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= SIZES[size][1] + 0.5, selector
    assert_readable(page, size)
    assert not page.evaluate(OVERFLOWING)
    if size == "phone":
        targets = page.locator(":is(.network-own, .stage-bar) :is(button, select)").all()
        boxes = [target.bounding_box() for target in targets]
        assert min(min(box["width"], box["height"]) for box in boxes) >= 44


@pytest.mark.parametrize("size", SIZES)
def test_no_box_moves_through_any_interaction(scene, size):
    page = scene("alpha=1", size=size).page
    shared = ".stage, .stage-set, .stage-bar, .stage-picture, .network-own, .network-content"
    first = None
    for mode in MODES:
        switch(page, mode)
        boxes = page.evaluate(BOXES)

        def unchanged(what, mode=mode, boxes=boxes):
            ready(page)
            assert_unmoved(f"{mode}, {what}", boxes, page.evaluate(BOXES))

        box = page.locator(".stage-picture").bounding_box()
        page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.1 * box["height"])
        unchanged("hover")
        for selector, keys in {
            ".stage-pixels": ["ArrowUp", "ArrowLeft"],
            ".stage-slider:not([hidden]) input": ["Home", "ArrowRight", "End"],
        }.items():
            for key in keys:
                page.locator(selector).press(key)
                unchanged(f"{key} on {selector}")
        page.get_by_label("Picture", exact=True).select_option("horse")
        unchanged("another picture")
        choose(page, picture(noise()))
        expect(page.get_by_label("Picture", exact=True)).to_have_value("own")
        unchanged("the visitor's own picture")
        choose(page, {"name": "a.txt", "mimeType": "text/plain", "buffer": b"no picture"})
        expect(page.locator(".stage-note")).to_contain_text("is no picture")
        unchanged("a file that is no picture")
        places = [node.bounding_box() for node in page.locator(shared).all()]
        assert places == (first := first or places), mode


def test_the_picture_is_an_image_where_no_pixel_can_be_chosen(scene):
    page = scene("mode=where&query=3,4").page
    picture = page.locator(".stage-pixels")
    expect(picture).to_have_role("application")
    picture.press("ArrowLeft")
    said = page.locator(".stage-said")
    expect(said).to_contain_text("Query pixel (3, 3). Where the heads look most: 1 ")
    switch(page, "twin")
    expect(picture).to_have_role("img")
    assert picture.get_attribute("tabindex") is None
    assert picture.evaluate("(node) => getComputedStyle(node).cursor") == "default"
    kept = (
        "(node) => node.dispatchEvent(new KeyboardEvent('keydown', {key: ' ', cancelable: true}))"
    )
    assert picture.evaluate(kept), "the page may scroll"
    switch(page, "what")
    expect(picture).to_have_role("application")


def test_few_tab_stops(scene):
    page = scene("mode=where").page
    assert 6 <= tab_stops(page) <= 15


# --- links ----------------------------------------------------------------------------------------


def test_a_link_gives_the_view_again(scene):
    page = scene("alpha=exact").page
    switch(page, "what")
    page.get_by_label("Picture", exact=True).select_option("horse")
    page.locator(".stage-slider:not([hidden]) input").fill("5")
    for key in ("ArrowUp", "ArrowRight"):
        page.locator(".stage-pixels").press(key)
    ready(page)
    state = state_of(page, mode="what", picture="horse", layer="5", query="2,5")
    assert set(state) == {"scene", "mode", "picture", "layer", "query"}
    expect(page.locator(".stage-said")).to_contain_text("Query pixel (2, 5).")
    link = "&".join(f"{name}={value}" for name, value in state.items() if name != "scene")
    other = scene(link, fresh=True).page
    assert other.evaluate(MAPS) == page.evaluate(MAPS) and sentence(other) == sentence(page)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("mode=toString", "This link says mode=toString; expected twin or where or what."),
        ("alpha=0.1", "This link says alpha=0.1; expected a number from 0.5 to 746, or exact."),
        ("alpha=", "This link says alpha=; expected a number from 0.5"),
        ("mode=where&layer=1.5", "This link says layer=1.5; expected a whole number from 1 to 6."),
        (
            "mode=what&query=8,0",
            "This link says query=8,0; expected a row and a column from 0 to 7.",
        ),
        ("picture=%3Cb%3E", "This link says picture=<b>; expected chelsea or horse."),
        ("picture=own", "This link says picture=own; expected chelsea or horse."),
    ],
)
def test_a_malformed_address_gives_the_usual_state_and_one_sentence(scene, state, expected):
    page = scene(state).page
    expect(page.locator(".stage-note")).to_contain_text(expected)
    assert "With exact heads" in sentence(page)
    expect(page.get_by_label("Picture", exact=True)).to_have_value("chelsea")


def test_a_stage_of_one_scene_stays_with_it(visit):
    visited = visit("book/intro.html#scene=network")
    expect(visited.page.locator(".stage-set")).to_have_attribute("data-scene", "heads")
    assert not visited.problems


# --- weights --------------------------------------------------------------------------------------


def test_weights_are_loaded_when_the_scene_is_entered(visit):
    visited = visit(viewport={"width": 1280, "height": 720})
    page, asked = visited.page, []
    page.context.on("request", lambda request: asked.append(request.url))
    page.goto(f"{PAGE}#alpha=1")
    expect(page.locator(".stage-sum b")).to_have_text(re.compile(r"\d"))
    assert not [url for url in asked if "weights" in url]
    page.get_by_role("tab").nth(2).click()
    for mode in MODES:
        switch(page, mode)
    page.get_by_role("tab").nth(0).click()
    page.get_by_role("tab").nth(2).click()
    ready(page)
    assert len([url for url in asked if "weights" in url]) == 3
    assert not visited.problems


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("damaged", "is damaged: it is not what this page was built with."),
        ("missing", "could not be loaded: the server answered 404."),
    ],
)
def test_weights_that_fail_say_so_and_the_others_work(visit, fault, expected):
    visited = visit(viewport={"width": 1280, "height": 720})
    page = visited.page

    def spoil(route):
        if fault == "missing":
            return route.fulfill(status=404)
        body = bytearray(route.fetch().body())
        body[-1] ^= 1
        return route.fulfill(body=bytes(body))

    page.context.route("**/cnn--*weights.safetensors", spoil)
    page.goto(f"{PAGE}#scene=network")
    expect(page.locator(".network-sentence")).to_contain_text(expected)
    assert not visited.violations(fault)
    switch(page, "where")
    assert "The network says cat" in sentence(page)
    page.get_by_role("tab").first.click()
    expect(page.locator(".stage-sum b")).to_have_text(re.compile(r"\d"))
    page.context.unroute("**/cnn--*weights.safetensors")
    page.get_by_role("tab").nth(2).click()
    switch(page, "twin")
    assert difference(page) < 1e-4, "entered again, the scene asks again"
