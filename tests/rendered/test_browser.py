"""The built book, page by page, in a browser: no error, no other host, no barrier that axe-core
finds, and on a phone no small text, no small target and no cut figure. Needs `make book`."""

import re

import pytest
import yaml
from helpers import HTML, ROOT
from helpers.phone import hard_on_a_phone
from playwright.sync_api import expect

SOURCES = ("_modules", "_tests")  # pages of code, all alike: one of each is opened
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if not {"_static", *SOURCES} & {*path.parts}
)
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
MOVED = [f"{name}.html" for name in CONFIG["sphinx"]["config"]["redirects"]]
PAGES = [path for path in PAGES if path not in MOVED]
PAGES += ["_modules/attnconv/theory/attention.html", "_tests/attnconv/theory/test_attention.html"]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 720}
OPEN_FOLDED = "document.querySelectorAll('details').forEach((folded) => { folded.open = true; })"
# What the theme's own switch does.
SWITCH_THEME = """(theme) => {
  for (const key of ["mode", "theme"]) {
    document.documentElement.dataset[key] = theme;
    localStorage.setItem(key, theme);
  }
}"""


def wrong(visited):
    """Return the faults of a page on a phone, and on a desktop in the light and the dark theme."""
    width = visited.page.evaluate("document.documentElement.scrollWidth")
    found = (
        []
        if width <= PHONE["width"]
        else [f"scrolls sideways: {width} px on a screen of {PHONE['width']} px"]
    )
    found += hard_on_a_phone(visited.page)
    found += visited.violations("390 px wide")
    visited.page.set_viewport_size(DESKTOP)
    found += visited.violations("light")
    visited.page.evaluate(SWITCH_THEME, "dark")
    return found + visited.violations("dark", only_colors=True) + visited.problems


@pytest.mark.parametrize("path", PAGES)
def test_page(path, visit):
    # Narrow first: the theme puts what scrolls in the tab order on load, and only some time after a
    # change of size.
    visited = visit(path, viewport=PHONE, has_touch=True)
    visited.page.evaluate(OPEN_FOLDED)
    assert not (found := wrong(visited)), "\n".join(found)


def test_an_old_address_of_a_chapter_leads_to_it(visit):
    visited = visit()
    for path in (path for path in MOVED if path.startswith("notebooks/")):
        new = CONFIG["sphinx"]["config"]["redirects"][path.removesuffix(".html")]
        assert (HTML / f"{new}.html").exists()
        # another test opens the chapter
        visited.answer(f"**/{new}.html*", body="<title>a chapter</title>", content_type="text/html")
        visited.page.goto(f"{path}?x=1#some-place")
        expect(visited.page).to_have_url(re.compile(rf"/{new}\.html.*#some-place"))
    assert not visited.problems


@pytest.mark.parametrize("path", [path for path in MOVED if path.startswith("book/explorer-")])
def test_an_old_address_leads_to_the_stage(path, visit):
    visited = visit(f"{path}#alpha=2")
    expect(visited.page).to_have_url(re.compile(r"/book/explore\.html#(.*&)?alpha=2"))
    expect(visited.page.locator(".stage-bar")).to_be_visible()
    assert not visited.problems
    text = (HTML / path).read_text()
    visited.page.set_content(re.sub("<(noscript|script)>.*?</\\1>", "", text, flags=re.S))
    expect(visited.page.get_by_role("link")).to_have_count(1)
    assert not (found := visited.violations("the page itself")), "\n".join(found)


def test_a_page_left_while_it_arrives_is_no_fault(visit):
    visited = visit()
    start = "<script>location.replace('/book/intro.html')</script>"
    visited.answer("**/old.html", body=start + 2**25 * " ", content_type="text/html")
    visited.page.goto("old.html")
    visited.page.wait_for_url("**/book/intro.html")
    assert not visited.problems


def test_search(visit):
    visited = visit("search.html?q=attention", viewport=PHONE, has_touch=True)
    expect(visited.page.get_by_text("Search finished")).to_be_visible()
    expect(
        visited.page.locator("#search-results li a", has_text="Attention and convolution")
    ).not_to_have_count(0)
    assert not (found := wrong(visited)), "\n".join(found)


@pytest.mark.parametrize(("chapter", "name"), [("03-lemma-1", "offset"), ("04-lemma-2", "alpha")])
def test_a_slider_turns_without_a_kernel(chapter, name, visit):
    page = visit(f"notebooks/{chapter}.html").page
    picture = page.locator(f'.widget-html img[alt^="{name} "]')
    expect(picture).to_have_count(1)
    first = picture.get_attribute("alt")
    page.get_by_role("slider", name=name).press("ArrowRight")
    expect(picture).not_to_have_attribute("alt", first)
