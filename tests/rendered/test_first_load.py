"""A page loads little before its reader does anything. Needs `make book`."""

import gzip
from urllib.parse import urlsplit

from helpers import HTML
from playwright.sync_api import expect

TEXT = (".html", ".css", ".js", ".svg", ".json")
LIMIT = 400_000  # bytes
FEW_FORMULAS = "notebooks/05-theorem-1.html"  # the first is below the first screen


def loads(visited, path):
    """Open a page; return the compressed size of each file of the book that it asks for."""
    sizes = {}

    def note(request):
        file = HTML / urlsplit(request.url).path.lstrip("/")
        if file.is_file():
            content = file.read_bytes()
            sizes[file.name] = len(gzip.compress(content) if file.suffix in TEXT else content)

    visited.page.on("request", note)
    visited.page.goto(path)
    visited.page.wait_for_load_state("networkidle")
    return sizes


def test_the_first_page_is_light(visit):
    for viewport in ({"width": 390, "height": 844}, {"width": 1280, "height": 720}):
        sizes = loads(visit(viewport=viewport), "book/intro.html")
        assert sum(sizes.values()) <= LIMIT, sizes
        assert "fa-solid-900.woff2" not in sizes and "icons.woff" in sizes


def test_only_the_page_of_results_loads_the_index_of_the_search(visit):
    for path in ("book/intro.html", "book/theorem.html", "_modules/attnconv/theory/grid.html"):
        assert not {"searchindex.js", "searchtools.js"} & loads(visit(), path).keys()
    assert {"searchindex.js", "searchtools.js"} <= loads(visit(), "search.html?q=head").keys()


def test_formulas_are_typeset_once_they_come_near(visit):
    visited = visit(viewport={"width": 1280, "height": 400})
    assert "tex-svg-full.js" not in loads(visited, FEW_FORMULAS)
    formulas = visited.page.locator(".math")
    expect(formulas.locator("mjx-container")).to_have_count(0)
    formulas.last.scroll_into_view_if_needed()
    expect(formulas.locator("mjx-container")).to_have_count(formulas.count())
    assert not visited.problems


def test_formulas_are_typeset_when_the_reader_does_anything(visit):
    visited = visit(viewport={"width": 1280, "height": 400})
    loads(visited, FEW_FORMULAS)
    visited.page.keyboard.press("Tab")
    expect(visited.page.locator(".math mjx-container")).not_to_have_count(0)


def test_formulas_of_the_first_screen_are_typeset_at_once(visit):
    visited = visit()
    visited.page.goto("book/theorem.html")
    expect(visited.page.locator(".math:not(:has(mjx-container))")).to_have_count(0)
    assert not visited.problems
