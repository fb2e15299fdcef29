"""The first page at 1280 x 720: the answers and the moving heads without scrolling."""

from itertools import pairwise

import pytest
from helpers.stage import FRAME, SIZES, pass_time

FIRST = "book/intro.html"
ANSWERS = ("Can it?", "Does training find it?", "Is it useful?")


@pytest.fixture
def first(visit):
    """Opens the first page with a clock that the test moves."""

    def open_first(size, reduced_motion="no-preference"):
        width, height = SIZES[size]
        viewport = {"width": width, "height": height}
        page = visit(viewport=viewport, reduced_motion=reduced_motion).page
        page.clock.install(time=0)
        page.clock.pause_at(1000)
        page.goto(FIRST)
        page.wait_for_selector(".stage-slider")
        return page

    return open_first


def alpha(page):
    return page.locator(".stage-slider output").inner_text()


def moves(page, tries=100):
    """Let time pass, until the heads move or in vain. The browser says on its own when they are
    seen."""
    for _ in range(tries):
        pass_time(page, FRAME)
        if alpha(page) not in ("", "α = 0.1"):
            return True
        page.wait_for_timeout(20)
    return False


def test_the_answers_and_the_heads_are_on_the_first_screen(first):
    page = first("desktop")
    for answer in ANSWERS:
        box = page.locator("p", has=page.locator("strong", has_text=answer)).bounding_box()
        assert box["y"] + box["height"] < 720, answer
    picture, plane = (
        page.locator(f".stage-{part}").bounding_box() for part in ("picture", "plane")
    )
    assert max(box["y"] + box["height"] for box in (picture, plane)) < 720
    assert plane["x"] >= picture["x"] + picture["width"], "side by side"


def test_the_movement_repeats_until_it_is_stopped(first):
    page = first("desktop")
    assert moves(page)
    seen = []
    for _ in range(20):
        pass_time(page, 1000)
        seen.append(alpha(page))
    assert seen.count("exact") > 4, "it rests at the end"
    restarts = sum(one == "exact" and other != "exact" for one, other in pairwise(seen))
    assert restarts >= 2
    page.get_by_role("button", name="Stop").click()
    pass_time(page, 12_000)
    assert alpha(page) == "exact" and page.get_by_role("button", name="Replay").is_visible()


def test_a_reader_who_takes_the_slider_ends_the_repetition(first):
    page = first("desktop")
    assert moves(page)
    page.locator(".stage-slider input").press("Home")
    pass_time(page, 12_000)
    assert alpha(page) == "α = 0.1"


def test_on_a_phone_the_movement_waits_until_the_heads_are_seen(first):
    page = first("phone")
    assert not moves(page, tries=20)
    page.locator(".stage-plane").scroll_into_view_if_needed()
    assert moves(page)


def test_less_motion_is_respected(first):
    assert not moves(first("desktop", reduced_motion="reduce"), tries=40)
