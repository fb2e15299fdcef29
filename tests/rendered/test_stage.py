"""The stage in a browser: what it shows, what moves, and that nothing else moves. Needs `make
book`."""

import itertools
import json
import math
import re

import pytest
import torch
from helpers.network_scene import MODES, switch
from helpers.stage import (
    BOXES,
    FILLED,
    PAGE,
    PIXELS,
    SIZES,
    address,
    assert_in_one_view,
    assert_unmoved,
    disc,
    drag,
    open_state,
    pass_time,
    spot,
    swipe,
    tab_stops,
)
from playwright.sync_api import expect
from torch import nn

from attnconv import conv_to_attention, hard_alpha
from companion.data import load_photograph

# What the picture, the plane and the bar measure at each size.
MEASURES = {
    "desktop": ((720, 480), (400, 400), 72),
    "projector": ((1080, 720), (600, 600), 108),
    "phone": ((390, 260), (280, 280), 104),
}
# Resolves when the observers of what is in sight have been told.
SIGHT = """() => new Promise((told) =>
  new IntersectionObserver(told).observe(document.querySelector(".stage-set")))"""
# What holds more text than its box has room for.
CUT = """() => [...document.querySelectorAll(
  ".stage-tabs, .stage-terms li, .stage-sum, .stage-task, .network-sentence, .network-right")]
  .filter((node) => node.checkVisibility()
    && (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 2))
  .map((node) => node.textContent)"""
LINE = "(seam) => getComputedStyle(seam, '::before').opacity"
SOBEL = [[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]


def difference(page):
    """The largest difference that is shown."""
    page.clock.run_for(20)
    text = page.locator(".stage-meter output").inner_text()
    return float(text.replace("−", "-"))


def expected_difference(alpha, centers=None):
    """The largest difference, by the package: Sobel on the photograph, by torch and by heads."""
    conv = nn.Conv2d(1, 1, 3, padding=1, bias=False).double()
    conv.weight.data = torch.tensor([[SOBEL]]).double()
    image = (load_photograph("china", (80, 120)) * 255).round().double() / 255
    image = image.permute(2, 0, 1)[:, None]
    layer = conv_to_attention(conv, alpha=alpha)
    if centers:
        layer.encoding.centers.data = torch.tensor(centers).double()
    return (layer(image) - conv(image)).abs().max().item()


# --- the first ten seconds ------------------------------------------------------------------------


def test_the_untouched_stage_goes_from_soft_heads_to_the_convolution(stage):
    page = stage(fresh=True).page  # its clock went on by 50 ms
    boxes, start = page.evaluate(BOXES), page.evaluate(PIXELS)
    page.evaluate("document.querySelector('.bd-article h2').scrollIntoView()")
    page.evaluate(SIGHT)
    page.clock.run_for(20_000)
    page.evaluate("scrollTo(0, 0)")
    page.evaluate(SIGHT)
    differences = [difference(page)]
    for milliseconds in (900, 1000, 1000, 1000, 1000, 1000):
        pass_time(page, milliseconds)
        differences.append(difference(page))
        assert page.evaluate(BOXES) == boxes
        if len(differences) == 3:
            page.get_by_role("tab").first.click()  # of the scene that is shown
    assert differences[1] < differences[0], "the first motion comes within a second"
    assert 0 < differences[3] < differences[2], "the tab changes nothing"
    assert differences[0] > 1 and differences[-1] == 0
    assert differences == sorted(differences, reverse=True)
    assert expected_difference(hard_alpha(torch.float64)) < 1e-14
    expect(page.get_by_role("slider", name="Sharpness")).to_have_attribute(
        "aria-valuetext", "exact, alpha 746"
    )
    end = page.evaluate(PIXELS)
    columns = [{n // 4 % 120 for n, (a, b) in enumerate(zip(start, end, strict=True)) if a != b}]
    assert min(columns[0]) >= 60, "the convolution stays as it was"
    page.clock.fast_forward(10_000)
    page.clock.run_for(50)
    assert page.evaluate(PIXELS) == end
    assert page.evaluate("location.hash") == "", "what moves by itself is not in the address"


def test_at_exact_both_sides_of_the_seam_are_one_picture(stage):
    pictures = {}
    for alpha in ("exact", "1"):
        for seam in (0, 1):
            page = stage(f"alpha={alpha}&seam={seam}").page
            pictures[alpha, seam] = page.evaluate(PIXELS)
    assert pictures["exact", 0] == pictures["exact", 1] == pictures["1", 1] != pictures["1", 0]


def test_the_meters_bar_and_the_seams_line_show_the_difference(stage):
    filled = []
    for alpha in ("exact", 8, 1, 0.1):
        page = stage(f"alpha={alpha}").page
        shown = difference(page)
        filled.append(page.locator(".stage-level").evaluate(FILLED))
        expected = (math.log10(shown) + 16) / 17 if shown else 0  # of a scale from 1e-16 to 10
        assert filled[-1] == pytest.approx(expected, abs=0.01), alpha
        opacity = page.locator(".stage-seam").evaluate(LINE)
        assert float(opacity) == pytest.approx(filled[-1], abs=0.01), alpha
    assert filled == sorted(set(filled)) and filled[0] == 0 and filled[-1] > 0.9
    assert page.locator(".stage-level").bounding_box()["height"] > 8


def test_the_difference_is_the_packages(stage):
    for alpha in (0.1, 1, 8):
        shown = difference(stage(f"alpha={alpha}").page)
        assert shown == pytest.approx(expected_difference(alpha), rel=6e-3), alpha
    centers = [[-1, -1], [-1, 0], [-1.5, 2.25], [0, -1], [0, 0], [0, 1], [1, -1], [1, 0], [1, 0.4]]
    text = ",".join(str(x) for center in centers for x in center)
    shown = difference(stage(f"alpha=2&centers={text}").page)
    assert shown == pytest.approx(expected_difference(2, centers), rel=6e-3)


def test_readers_who_ask_for_less_motion_go_step_by_step(stage):
    page = stage(motion="reduce").page
    first = page.evaluate(PIXELS)
    pass_time(page, 6000)
    assert page.evaluate(PIXELS) == first, "nothing moves by itself"
    differences = []
    for number in range(1, 6):
        verb = "Next" if number < 5 else "Again"
        step = page.get_by_role("button", name=f"{verb} ({number} of 5)")
        expect(step).to_be_visible()
        differences.append(difference(page))
        step.click()
        page.clock.run_for(50)
    assert differences == sorted(differences, reverse=True)
    assert differences[0] > 1 and differences[-1] == 0


# --- layout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_all_is_in_one_view(stage, size):
    page = stage(size=size).page
    hint = page.locator(".stage-hint").bounding_box()
    for disc_ in page.locator(".stage-disc span").all():  # none covers the hint at the start
        box = disc_.bounding_box()
        beside = box["x"] > hint["x"] + hint["width"] or hint["x"] > box["x"] + box["width"]
        assert beside or box["y"] + box["height"] < hint["y"]
    picture, plane, bar = MEASURES[size]
    for selector, expected in ((".stage-picture", picture), (".stage-plane", plane)):
        box = page.locator(selector).bounding_box()
        assert (box["width"], box["height"]) == pytest.approx(expected, abs=1), selector
    box = page.locator(".stage-bar").bounding_box()
    assert box["height"] == pytest.approx(bar, abs=1)
    assert_in_one_view(page, size, [".stage-meter", ".stage-terms", ".stage-sum"])


@pytest.mark.parametrize("size", SIZES)
def test_no_box_moves_through_any_interaction(stage, size):
    page = stage("alpha=exact", size=size).page
    boxes = page.evaluate(BOXES)

    def unchanged(what):
        pass_time(page, 1500)
        assert_unmoved(what, boxes, page.evaluate(BOXES))

    for across, down in ((0.1, 0.1), (0.9, 0.5), (0.5, 0.99), (0.999, 0.001)):
        page.mouse.move(*spot(page, ".stage-pixels", across, down))
        unchanged("hover")
    for _ in drag(page, disc(page, -1, 1), disc(page, -2.6, 2.6), disc(page, -1.1, 1.1)):
        unchanged("dragging a disc")
    for _ in drag(page, spot(page, ".stage-seam", 0.5, 0.3), spot(page, ".stage-pixels", 0, 0.3)):
        unchanged("dragging the seam")
    for selector, keys in {
        ".stage-pixels": ["ArrowUp", "ArrowLeft"],
        ".stage-plane": ["3", "ArrowUp", "Shift+ArrowLeft", "Home"],
        ".stage-seam": ["Home", "ArrowRight", "End"],
        ".stage-slider input": ["Home", "PageUp", "End"],
    }.items():
        for key in keys:
            page.locator(selector).press(key)
            unchanged(f"{key} on {selector}")
    for kernel in ("blur", "emboss", "outline"):
        page.get_by_label("Filter", exact=True).select_option(kernel)
        unchanged(kernel)
    page.get_by_label("Picture", exact=True).select_option("flower")
    unchanged("another picture")
    page.get_by_role("button", name="Replay").click()
    for _ in range(4):
        unchanged("the journey")
    if size == "phone":
        page.touchscreen.tap(*spot(page, ".stage-pixels", 0.7, 0.4))
        unchanged("tapping a pixel")


def test_nothing_is_wider_than_the_screen(stage):
    page = stage("alpha=1", motion="reduce").page
    for width in (320, 360, 768, 820, 900, 1024):
        page.set_viewport_size({"width": width, "height": 720})
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.clock.run_for(50)
            root = "document.documentElement"
            widths = page.evaluate(f"[{root}.scrollWidth, {root}.clientWidth]")
            assert widths == [width, width], tab.inner_text()
            assert not page.evaluate(CUT), (width, tab.inner_text())


def test_a_vertical_swipe_on_the_picture_scrolls(stage):
    page = stage("alpha=1", size="phone").page
    page.locator(".stage-pixels").press("ArrowUp")
    query = address(page)["query"]
    x, y = spot(page, ".stage-pixels", 0.8, 0.8)
    swipe(page, *((x, y - by) for by in range(0, 201, 20)))
    page.wait_for_function("scrollY > 50")
    assert address(page)["query"] == query, "it only scrolls"
    bar = page.locator(".stage-bar").bounding_box()
    assert bar["y"] + bar["height"] <= SIZES["phone"][1] + 0.5, "the controls stay in view"
    for selector in (".stage-disc >> nth=0", ".stage-slider input"):
        target = page.locator(selector).bounding_box()
        assert target["width"] >= 44 and target["height"] >= 44, selector


def test_a_tap_and_a_finger_that_moves_to_the_side_choose_a_pixel(stage):
    page = stage("alpha=1", size="phone").page
    page.touchscreen.tap(*spot(page, ".stage-pixels", 90.5 / 120, 20.5 / 80))
    assert address(page)["query"] == "20,90"
    x, y = spot(page, ".stage-pixels", 90.5 / 120, 60.5 / 80)
    swipe(page, (x, y), *((x - by, y) for by in range(13, 79, 13)))
    assert address(page)["query"] == "60,66"  # 78 px are 24 pixels


# --- what the reader does -------------------------------------------------------------------------


def test_a_disc_breaks_the_picture_and_heals_it(stage):
    page = stage("alpha=exact").page
    whole = page.evaluate(PIXELS)
    assert difference(page) == 0
    moves = drag(page, disc(page, -1, 1), disc(page, -2.4, 2.4), disc(page, -0.9, 1.15))
    next(moves)
    assert difference(page) > 0.5 and page.evaluate(PIXELS) != whole
    next(moves)
    assert difference(page) == 0, "near its pixel it snaps"
    next(moves)
    assert page.evaluate(PIXELS) == whole
    assert "centers" not in address(page)


def test_moving_a_head_of_weight_0_says_that_it_adds_nothing(stage):
    page = stage("alpha=exact").page
    hint = page.locator(".stage-hint")
    for place, words in (((0, 0), "weight 0: this head adds nothing"), ((1, 1), "drag a head")):
        for _ in drag(page, disc(page, *place), disc(page, 2.4, 2.4)):
            pass
        expect(hint).to_have_text(words)
    for _ in drag(page, disc(page, 2.4, 2.4), disc(page, 0, 0)):
        pass
    page.get_by_label("Filter", exact=True).select_option("blur")
    expect(hint).to_have_text("drag a head")


def test_a_finger_moves_a_disc(stage):
    page = stage("alpha=exact", size="phone").page
    swipe(page, disc(page, 1, 0), *(disc(page, 1 + by / 4, 0) for by in range(1, 7)))
    box = page.locator(".stage-disc").nth(7).bounding_box()
    place = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert place == pytest.approx(disc(page, 2.5, 0), abs=2)
    assert address(page)["centers"].split(",")[14:16] == ["2.5", "0"]
    assert page.evaluate("scrollY") == 0


def test_grabbing_a_disc_on_its_way_ends_the_journey(stage):
    page = stage().page
    pass_time(page, 1000)
    row, column = (page.locator(".stage-disc").nth(0).bounding_box()[key] + 22 for key in "yx")
    for _ in drag(page, (column, row), disc(page, -1, -1)):
        assert difference(page) == 0


def test_the_keys_move_a_head_and_put_it_back(stage):
    page = stage("alpha=exact").page
    plane = page.locator(".stage-plane")
    for key in ("3", "ArrowUp", "Shift+ArrowRight"):
        plane.press(key)
    assert difference(page) > 0.5
    assert address(page)["centers"].split(",")[4:6] == ["-1.25", "2"]
    expect(page.locator(".stage-said")).to_contain_text(
        re.compile(r"Head 3 looks at the offset \(−1.25, 2\).*largest difference .* is \d")
    )
    plane.press("Home")
    assert difference(page) == 0


def test_discs_back_puts_all_heads_on_their_pixels(stage):
    page = stage(f"alpha=exact&centers={','.join(['0.5'] * 18)}").page
    assert difference(page) > 0.1
    back = page.get_by_role("button", name="Discs back")
    back.press("Enter")
    pass_time(page, 1000)
    assert difference(page) == 0
    expect(back).to_have_attribute("aria-disabled", "true")
    expect(back).to_be_focused()
    page.locator(".stage-slider input").press("Home")
    soft = difference(page)
    back.press("Enter")
    assert difference(page) == soft, "there is nothing to do"


def test_the_nine_terms_follow_the_pointer_and_add_up(stage):
    page = stage("alpha=1&seam=0").page
    before = page.locator(".stage-terms").inner_text()
    page.mouse.move(*spot(page, ".stage-pixels", 0.35, 0.3))
    page.clock.run_for(50)
    assert page.locator(".stage-terms").inner_text() != before
    products = page.locator(".stage-product").all_inner_texts()
    total = float(page.locator(".stage-sum b").inner_text().replace("−", "-"))
    assert sum(float(text.replace("−", "-")) for text in products) == pytest.approx(total, abs=0.05)
    factors = page.locator(".stage-terms li > span:first-child").all_inner_texts()
    weights = [float(text.split("\u2009×\u2009")[0].replace("−", "-")) for text in factors]
    assert weights == [weight for row in SOBEL for weight in row]
    page.mouse.move(5, 5)
    page.clock.run_for(50)
    assert page.locator(".stage-terms").inner_text() == before, "back to the pixel that was chosen"


def test_the_slider_says_alpha_and_ends_at_exact(stage):
    page = stage("alpha=exact").page
    slider = page.get_by_role("slider", name="Sharpness")
    slider.press("Home")
    page.clock.run_for(50)
    expect(slider).to_have_attribute("aria-valuetext", "alpha 0.1")
    slider.press("End")
    page.clock.run_for(50)
    expect(slider).to_have_attribute("aria-valuetext", "exact, alpha 746")
    assert difference(page) == 0


def test_the_arrow_keys_lead_from_exact_to_the_sharpest_alpha_and_back(stage):
    page = stage("alpha=exact").page
    slider = page.get_by_role("slider", name="Sharpness")
    for key, said in (
        ("ArrowLeft", "alpha 8"),
        ("ArrowLeft", "alpha 7.6"),
        ("ArrowUp", "alpha 8"),
        ("ArrowRight", "exact, alpha 746"),
        ("ArrowDown", "alpha 8"),
    ):
        slider.press(key)
        page.clock.run_for(50)
        expect(slider).to_have_attribute("aria-valuetext", said)


def test_a_link_gives_the_view_again(stage):
    page = stage("alpha=exact").page
    page.get_by_label("Filter", exact=True).select_option("emboss")
    page.get_by_label("Picture", exact=True).select_option("flower")
    page.locator(".stage-slider input").fill("50")
    for key in ("7", "ArrowDown"):
        page.locator(".stage-plane").press(key)
    page.locator(".stage-seam").press("ArrowLeft")
    page.locator(".stage-pixels").press("ArrowUp")
    assert address(page)["scene"] == "heads"
    other = stage(page.evaluate("location.hash.slice(1)"), fresh=True).page
    assert other.evaluate(PIXELS) == page.evaluate(PIXELS)
    for selector in (".stage-meter output", ".stage-terms", ".stage-slider output"):
        assert other.locator(selector).inner_text() == page.locator(selector).inner_text()


def test_a_link_that_is_followed_on_the_page_is_drawn_at_once(stage):
    page = stage("alpha=exact&seam=0", fresh=True).page
    page.evaluate("location.hash = 'alpha=1&seam=0'")
    expect(page.locator(".stage-slider output")).to_have_text("exact")
    page.clock.run_for(50)
    expect(page.locator(".stage-slider output")).to_have_text("α = 1")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("alpha=", "This link says alpha=; expected a number from 0.1 to 746, or exact."),
        ("kernel=1e308,1,1,1,1,1,1,1,1", "This link says kernel=1e308,1,1,1,1,1,1,1,1"),
        ("centers=1,2", "This link says centers=1,2; expected nine pairs of numbers"),
        ("query=99,0", "This link says query=99,0; expected a row below 80"),
        ("scene=toString", "This link says scene=toString; expected heads or"),
        ("picture=%3Cb%3E&alpha=1", "This link says picture=<b>; expected china or flower."),
        ("foo=1", "This link says foo=; expected picture, kernel, alpha, centers, query, seam."),
    ],
)
def test_a_malformed_address_gives_the_usual_state_and_one_sentence(stage, state, sentence):
    page = stage(state, fresh=state == "foo=1").page
    expect(page.locator(".stage-note")).to_contain_text(sentence)
    boxes = page.evaluate(BOXES)
    pass_time(page, 6000)
    assert difference(page) == 0
    page.mouse.click(*spot(page, ".stage-pixels", 0.9, 0.1))
    expect(page.locator(".stage-note")).to_have_text("")
    assert page.evaluate(BOXES) == boxes


@pytest.mark.parametrize("way", ["key", "scene", "picture"])
def test_a_note_is_said_and_goes_with_what_the_reader_does(stage, way):
    page = stage("alpha=").page
    note = page.locator(".stage-note")
    expect(note).to_contain_text("This link says alpha=")
    assert note.get_attribute("role") is None
    pass_time(page, 1000)
    expect(page.locator(".stage-said")).to_contain_text("This link says alpha=")
    if way == "key":
        page.locator(".stage-plane").press("3")
    elif way == "scene":
        page.evaluate("location.hash = 'scene=descent'")
    else:
        page.get_by_label("Picture", exact=True).select_option("flower")
    expect(note).to_have_text("")


# --- access ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_no_barrier_is_found(stage_page, size):
    """In each scene and after a malformed link."""
    visited = stage_page("alpha=nonsense", size)
    page, found = visited.page, []

    def look(state, part=".stage"):
        found.extend(visited.violations_in_both_themes(state, part))

    look("a malformed link", part=None)
    page.locator(".stage-plane").press("ArrowUp")
    back = page.get_by_role("button", name="Discs back")
    expect(back).to_have_attribute("aria-disabled", "false")
    look("a disc moved")
    open_state(page, "scene=descent&targets=kernel")
    expect(page.get_by_role("checkbox")).to_be_checked()
    look("descent")
    page.get_by_role("checkbox").click()
    for number in (1, 2, 3):
        page.get_by_role("button", name=f"Next ({number} of 4)").click()
        expect(page.get_by_role("button", name=f"({number + 1} of 4)")).to_be_visible()
    expect(page.locator(".stage-tally")).to_have_text("1 start: 9 of 9")
    look("the end of descent")
    open_state(page, "scene=network&alpha=1")
    for mode in MODES:
        switch(page, mode)
        look(mode)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("scheme", "ring"), [("light", "rgb(0, 114, 178)"), ("dark", "rgb(86, 180, 233)")]
)
def test_the_ring_of_the_focus_stands_out_in_both_themes(stage, scheme, ring):
    page = stage("alpha=1", color_scheme=scheme).page
    page.locator(".stage-slider input").press("End")
    color = "(node) => getComputedStyle(node).outlineColor"
    assert page.locator(".stage-slider input").evaluate(color) == ring


def test_few_tab_stops(stage):
    page = stage("alpha=1&centers=" + ",".join(["0.5"] * 18)).page
    page.evaluate("document.querySelector('.stage-tabs').previousElementSibling?.focus()")
    assert 5 <= tab_stops(page) <= 15


def test_the_scenes_are_tabs(stage):
    page = stage("alpha=1").page
    tabs = page.get_by_role("tab")
    expect(tabs).to_have_count(3)
    boxes = json.loads(page.evaluate(BOXES))[3:6]
    tabs.first.press("ArrowRight")
    expect(tabs.nth(1)).to_be_focused()
    expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    assert address(page)["scene"] != "heads"
    tabs.nth(1).press("ArrowLeft")
    assert address(page)["scene"] == "heads"
    assert json.loads(page.evaluate(BOXES))[3:6] == boxes


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_journey_starts_again_when_its_scene_was_left_before_the_end(stage, motion):
    page = stage(motion=motion).page
    pass_time(page, 1000)
    tabs = page.get_by_role("tab")
    tabs.nth(1).click()
    pass_time(page, 1000)
    tabs.first.click()
    page.clock.run_for(50)
    assert difference(page) > 1, "soft again"
    if motion == "reduce":
        expect(page.get_by_role("button", name="Next (1 of 5)")).to_be_visible()
        return
    pass_time(page, 6000)
    assert difference(page) == 0
    tabs.nth(1).click()
    tabs.first.click()
    page.clock.run_for(50)
    assert difference(page) == 0, "it had ended"


def test_what_the_reader_did_during_the_journey_is_there_on_return(stage):
    page = stage().page
    pass_time(page, 1000)
    for key in ("3", "Shift+ArrowUp"):
        page.locator(".stage-plane").press(key)
    left = address(page)
    broken = difference(page)
    assert broken > 0.5 and left["centers"].split(",")[4:6] == ["-2", "1"]
    page.get_by_role("tab").nth(1).click()
    page.get_by_role("tab").first.click()
    pass_time(page, 2000)
    assert difference(page) == broken and address(page) == left


def test_discs_on_their_way_home_are_there_on_return(stage):
    page = stage(f"alpha=exact&centers={','.join(['0.5'] * 18)}").page
    page.get_by_role("button", name="Discs back").click()
    page.clock.run_for(50)
    page.get_by_role("tab").nth(1).click()
    page.get_by_role("tab").first.click()
    assert difference(page) == 0


# --- without scripts, on paper, in a text ---------------------------------------------------------


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("path", [PAGE, "book/intro.html"])
def test_the_sum_of_the_products_is_not_cut(stage, path, size):
    page = stage(size=size, path=path).page
    pass_time(page, 6000)
    expect(page.locator(".stage-sum b")).not_to_be_empty()
    cut = "(sum) => sum.scrollHeight - sum.clientHeight"
    assert page.locator(".stage-sum").evaluate(cut) <= 0


@pytest.mark.parametrize(("path", "count"), [(PAGE, 3), ("book/intro.html", 1)])
def test_a_still_of_each_scene_stands_where_no_script_runs(browser, server, path, count):
    context = browser.new_context(base_url=server, java_script_enabled=False)
    page = context.new_page()
    page.goto(path)
    stills = page.locator(".stage-still")
    expect(stills).to_have_count(count)
    for (width, height), scheme in itertools.product(SIZES.values(), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        for still in stills.all():
            image, caption = still.locator("img"), still.locator("figcaption")
            assert image.is_visible() and caption.is_visible()
            assert len(image.get_attribute("alt")) > 100
            assert image.evaluate("(image) => image.naturalWidth") > 1000
            assert 0.7 * min(width, 900) < image.bounding_box()["width"] <= width
            assert len(caption.inner_text()) > 80
    context.close()


def test_on_paper_the_stills_take_the_place_of_the_stage(browser, server):
    context = browser.new_context(base_url=server)
    page, loaded = context.new_page(), []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(PAGE)
    stills = page.locator(".stage-still img")
    expect(page.locator(".stage-bar")).to_be_visible()
    assert not any(still.is_visible() for still in stills.all())
    assert not [url for url in loaded if "still" in url], "they add nothing to the page's weight"
    page.pdf()  # the browser loads what it prints
    assert len([url for url in loaded if "still" in url]) == 3
    page.emulate_media(media="print")
    expect(stills).to_have_count(3)
    for still in stills.all():
        expect(still).to_be_visible()
    assert not page.locator(".stage").is_visible()
    context.close()


def test_the_first_page_shows_one_scene_within_its_text(stage):
    page = stage(path="book/intro.html").page
    page.locator(".stage-slider input").focus()  # scrolls the stage into view
    expect(page.get_by_role("tab")).to_have_count(0)
    boxes = page.evaluate(BOXES)
    pass_time(page, 6000)
    page.locator(".stage-slider input").press("Home")
    assert difference(page) > 0.5
    page.locator(".stage-slider input").press("End")
    assert difference(page) == 0
    pass_time(page, 1000)
    assert page.evaluate(BOXES) == boxes
    assert page.evaluate("location.hash") == "", "the address is the page's own"
