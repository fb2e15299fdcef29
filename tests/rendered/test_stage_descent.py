"""Scene 2 of the stage in a browser: nine heads that find the kernel's pixels. Needs `make
book`."""

import re

import pytest
from helpers import ROOT
from helpers.javascript import run_node
from helpers.stage import (
    BOXES,
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
    tab_stops,
)
from playwright.sync_api import expect

SCENE = "scene=descent"
DURATION = 12_000  # ms that descent takes
FAILS = 27  # a seed with which descent does not find all positions
# What descent ends with, without a page.
ENDS = """
const { Descent, ONE_KERNEL, found } = await from("descent/gradient");
const descent = given.kernel
  ? new Descent(given.seed, [given.kernel], ONE_KERNEL) : new Descent(given.seed);
while (!descent.done) descent.step();
const { centers } = descent.parameters;
return { found: found(centers, 0.2), centers, error: Math.sqrt(descent.loss) };
"""
SOBEL = [-0.5, 0, 0.5, -1, 0, 1, -0.5, 0, 0.5]  # its largest weight is 1


def finish(page):
    """Wait until descent is done."""
    for _ in range(3):
        pass_time(page, DURATION // 2)
        if "Pause" not in page.locator(".stage-bar").inner_text():
            return
    raise AssertionError("descent goes on and on")


def count(page):
    text = page.locator(".stage-count").inner_text()
    return int(re.fullmatch(r"(\d)\s+of 9 kernel positions found", text)[1])


def centers(page):
    """The offsets at which the nine discs are, row and column by turns."""
    plane = page.locator(".stage-plane").bounding_box()
    boxes = [found.bounding_box() for found in page.locator(".stage-disc").all()]
    return [
        ((box[key] + box[side] / 2 - plane[key]) / plane[side] - 0.5) * 7
        for box in boxes
        for key, side in (("y", "height"), ("x", "width"))
    ]


def pull(page, row, column):
    """Drag the disc at an offset to where no pixel of the kernel is."""
    for _ in drag(page, disc(page, row, column), disc(page, 2.4, 2.1)):
        yield


# --- the descent ----------------------------------------------------------------------------------


def test_untouched_the_heads_find_the_kernels_pixels(stage):
    page = stage(SCENE, fresh=True).page
    boxes, start = page.evaluate(BOXES), page.evaluate(PIXELS)
    expected = run_node(ENDS, {"seed": 0})
    seen = [count(page)]
    for _ in range(4):
        pass_time(page, DURATION // 4 + 240)
        seen.append(count(page))
        assert page.evaluate(BOXES) == boxes
    assert seen[0] < 3 and seen[-1] == expected["found"] == 9
    assert centers(page) == pytest.approx(expected["centers"], abs=0.02)
    expect(page.locator(".stage-below")).to_contain_text("All nine pixels have a head.")
    expect(page.locator(".stage-tally")).to_have_text("1 start: 9 of 9")
    pass_time(page, 1000)
    expect(page.locator(".stage-said")).to_contain_text("All nine pixels have a head.")
    assert page.evaluate("location.hash") == f"#{SCENE}", "what moves by itself changes no address"
    end = page.evaluate(PIXELS)
    changed = {n // 4 % 120 for n, (a, b) in enumerate(zip(start, end, strict=True)) if a != b}
    assert min(changed) >= 42, "the convolution stays as it was"


def test_what_the_heads_compute_becomes_the_convolution(stage):
    """Grey at first, since the values start from zero; in the end the filter, a little paler."""
    page = stage(f"{SCENE}&seam=0").page
    grey = page.evaluate(PIXELS)
    assert max(grey[::4]) - min(grey[::4]) <= 1
    finish(page)
    ours = page.evaluate(PIXELS)
    filtered = stage(f"{SCENE}&seam=1").page.evaluate(PIXELS)
    ink = [[value - grey[0] for value in pixels[::4]] for pixels in (ours, filtered)]
    gap = sum((a - b) ** 2 for a, b in zip(*ink, strict=True)) / sum(b**2 for b in ink[1])
    assert gap < 0.2**2


def test_a_head_that_is_pulled_away_comes_back_or_is_replaced(stage):
    page = stage(SCENE, fresh=True).page
    pass_time(page, DURATION // 2)
    for when in ("during", "after"):
        assert count(page) == 9
        moves = pull(page, 0, 0)
        next(moves)
        assert count(page) == 8, when
        held = page.evaluate(PIXELS)
        pass_time(page, 500)
        assert page.evaluate(PIXELS) == held, "it waits for the hand"
        next(moves)
        finish(page)
    assert count(page) == 9
    assert page.locator(".stage-tally").inner_text() == "", "it is no longer the seed's start"


def test_the_keys_pull_a_head_away(stage):
    page = stage(SCENE).page
    finish(page)
    page.locator(".stage-plane").press("5")
    pass_time(page, 1000)
    expect(page.locator(".stage-said")).to_have_text(
        re.compile(r"Head 5 looks at the offset \(−1, 0\)\.")
    )
    for key in ("Shift+ArrowUp", "ArrowUp"):
        page.locator(".stage-plane").press(key)
    page.clock.run_for(50)
    assert count(page) == 8
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    finish(page)
    assert count(page) == 9


def test_a_click_on_a_disc_does_not_begin_again(stage):
    page = stage(SCENE).page
    finish(page)
    page.mouse.click(*disc(page, 0, 0))
    page.clock.run_for(50)
    expect(page.get_by_role("button", name="Again")).to_be_visible()


def test_starts_are_counted_and_failed_ones_stay(stage):
    page = stage(f"{SCENE}&seed={FAILS}", fresh=True).page
    finish(page)
    failed = run_node(ENDS, {"seed": FAILS})["found"]
    assert count(page) == failed < 9
    expect(page.locator(".stage-below")).to_contain_text(f"This start failed: {failed} of 9")
    page.get_by_role("button", name="New start").click()
    assert address(page)["seed"] == f"{FAILS + 1}"
    expect(page.locator(".stage-tally")).to_have_text(f"1 start: {failed} of 9")
    finish(page)
    expected = f"2 starts: {failed}, {run_node(ENDS, {'seed': FAILS + 1})['found']} of 9"
    expect(page.locator(".stage-tally")).to_have_text(expected)
    page.get_by_role("button", name="Again").click()
    finish(page)
    expect(page.locator(".stage-tally")).to_have_text(expected)


def test_one_kernel_is_imitated_from_between_the_pixels(stage):
    page = stage(SCENE).page
    page.get_by_role("checkbox", name="imitate one kernel only").check()
    assert address(page)["targets"] == "kernel"
    link = page.get_by_role("link", name="Lemma 3: what all filters need")
    assert link.get_attribute("href") == "spans.html#lemma-3"
    assert ":label: lemma-3\n" in (ROOT / "book" / "spans.md").read_text()
    finish(page)
    expected = run_node(ENDS, {"seed": 0, "kernel": SOBEL})
    assert count(page) == expected["found"] <= 3
    assert centers(page) == pytest.approx(expected["centers"], abs=0.02)
    shown = re.search(r"error of ([\d.]+)\s%", page.locator(".stage-below").inner_text())[1]
    assert float(shown) == pytest.approx(100 * expected["error"], rel=0.06)
    assert expected["error"] < 0.05
    page.get_by_label("Filter", exact=True).select_option("blur")
    page.clock.run_for(50)
    expect(page.locator(".stage-below")).to_contain_text("imitate one filter: blur.")
    page.get_by_role("checkbox").uncheck()
    page.clock.run_for(50)
    expect(link).to_be_hidden()


def test_it_pauses_and_goes_on(stage):
    page = stage(SCENE).page
    pass_time(page, 3000)
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(50)
    here = centers(page)
    pass_time(page, 1000)
    assert centers(page) == here
    page.get_by_role("button", name="Descend").click()
    pass_time(page, 1000)
    assert centers(page) != here


def test_leaving_stops_it_and_entering_goes_on(stage):
    page = stage(SCENE).page
    pass_time(page, 2000)
    here = centers(page)
    page.get_by_role("tab").first.click()
    page.clock.run_for(50)
    whole = page.evaluate(PIXELS)
    pass_time(page, 1000)
    assert page.evaluate(PIXELS) == whole, "it no longer draws"
    page.get_by_role("tab").nth(1).click()
    page.clock.run_for(20)
    assert centers(page) == pytest.approx(here, abs=0.1)
    finish(page)
    assert count(page) == 9


def test_what_had_stopped_is_there_on_return(stage):
    page = stage(SCENE, fresh=True).page
    pass_time(page, 2000)
    for name in ("Pause", "Descend"):
        page.get_by_role("button", name=name).click()
        page.clock.run_for(50)
        if name == "Descend":
            finish(page)
        here, tally = centers(page), page.locator(".stage-tally").inner_text()
        page.get_by_role("tab").first.click()
        page.clock.run_for(50)
        page.get_by_role("tab").nth(1).click()
        pass_time(page, 500)
        assert centers(page) == here and page.locator(".stage-tally").inner_text() == tally


def test_readers_who_ask_for_less_motion_see_four_moments(stage):
    page = stage(SCENE, motion="reduce").page
    seen, first = [count(page)], page.evaluate(PIXELS)
    pass_time(page, 2000)
    assert page.evaluate(PIXELS) == first, "nothing moves by itself"
    for number in (1, 2, 3):
        page.get_by_role("button", name=f"Next ({number} of 4)").click()
        page.clock.run_for(50)
        seen.append(count(page))
    assert seen == sorted(seen) and seen[-1] == 9 and len(set(seen)) == 4
    page.get_by_role("button", name="Again (4 of 4)").click()
    page.clock.run_for(50)
    assert page.evaluate(PIXELS) == first


# --- layout, addresses, access --------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_no_box_moves_and_all_is_in_one_view(stage, size):
    page = stage(f"{SCENE}&targets=kernel", size=size, fresh=True).page
    boxes = page.evaluate(BOXES)

    def unchanged(what):
        page.clock.fast_forward(900)
        page.clock.run_for(50)
        assert_unmoved(what, boxes, page.evaluate(BOXES))

    finish(page)
    unchanged("the descent")
    assert_in_one_view(page, size, [".stage-count", ".stage-tally", ".stage-task"])
    fits = "(node) => node.scrollHeight <= node.clientHeight"
    assert page.locator(".stage-task").evaluate(fits), "the longest sentence"
    for across, down in ((0.1, 0.1), (0.999, 0.5)):
        page.mouse.move(*spot(page, ".stage-pixels", across, down))
        unchanged("hover")
    for _ in drag(page, spot(page, ".stage-seam", 0.5, 0.3), spot(page, ".stage-pixels", 1, 0.3)):
        unchanged("dragging the seam")
    page.get_by_role("checkbox").click()
    unchanged("the toggle")
    finish(page)
    for _ in pull(page, 0, 0):
        unchanged("pulling a disc")
    for key in ("7", "ArrowUp", "Shift+ArrowLeft", "Home"):
        page.locator(".stage-plane").press(key)
        unchanged(key)
    page.locator(".stage-pixels").press("ArrowUp")
    unchanged("the output pixel")
    for name in ("Pause", "Descend", "New start"):
        page.get_by_role("button", name=name).click()
        unchanged(name)
    page.get_by_label("Filter", exact=True).select_option("blur")
    page.get_by_label("Picture", exact=True).select_option("flower")
    unchanged("another filter and picture")
    if size == "phone":
        for control in page.locator(".stage-bar :is(button, select, label.stage-check)").all():
            assert control.bounding_box()["height"] >= 43.5


def test_a_link_gives_the_start_again(stage):
    page = stage(SCENE, fresh=True).page
    page.get_by_label("Filter", exact=True).select_option("emboss")
    page.get_by_label("Picture", exact=True).select_option("flower")
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="New start").click()
    page.locator(".stage-seam").press("Home")
    page.locator(".stage-pixels").press("ArrowUp")
    wanted = address(page)
    assert wanted["seed"] == "1" and wanted["targets"] == "kernel" and wanted["kernel"] == "emboss"
    other = stage(page.evaluate("location.hash.slice(1)"), fresh=True).page
    assert address(other) == wanted
    for each in (page, other):
        finish(each)
    assert other.evaluate(PIXELS) == page.evaluate(PIXELS)
    for selector in (".stage-count", ".stage-below", ".stage-tally"):
        assert other.locator(selector).inner_text() == page.locator(selector).inner_text()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("seed=-1", "This link says seed=-1; expected a whole number from 0 to 9999."),
        ("seed=1e3&kernel=blur", "This link says seed=1e3; expected a whole number"),
        ("targets=toString", "This link says targets=toString; expected positions or kernel."),
        ("targets=kernel&kernel=0,0,0,0,0,0,0,0,0", "expected a kernel with a weight other than 0"),
        ("kernel=1,2", "This link says kernel=1,2; expected vertical edges, "),
        ("picture=%3Cb%3E", "This link says picture=<b>; expected china or flower."),
    ],
)
def test_a_malformed_address_gives_the_usual_start_and_one_sentence(stage, state, sentence):
    page = stage(SCENE, motion="reduce").page
    usual = page.evaluate(BOXES), page.evaluate(PIXELS)
    open_state(page, f"{SCENE}&{state}")
    page.clock.run_for(50)
    expect(page.locator(".stage-note")).to_contain_text(sentence)
    assert (page.evaluate(BOXES), page.evaluate(PIXELS)) == usual
    for number in (1, 2, 3):
        page.get_by_role("button", name=f"Next ({number} of 4)").click()
        page.clock.run_for(50)
    assert count(page) == 9


def test_few_tab_stops(stage):
    page = stage(f"{SCENE}&targets=kernel").page
    assert 5 <= tab_stops(page) <= 15
