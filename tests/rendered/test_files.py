"""The built book, read as files: nothing asked of another host, no broken link, no picture without
a text. Needs `make book`."""

import inspect
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from helpers import HTML, ROOT
from sphinx.util.inventory import InventoryFile

import attnconv
from companion import data, figures

PAGES = sorted(path for path in HTML.rglob("*.html") if "_static" not in path.parts)
LOADED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}


class Page(HTMLParser):
    """Everything that a page loads, links to and shows."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.images, self.ids = [], [], [], set()
        # the text of each link to another place of the book
        self.references, self.in_reference = [], False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        if tag == "img":
            self.images.append(attributes)
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag == "a" and "reference" in (attributes.get("class") or "").split():
            self.references.append("")
            self.in_reference = True
        elif self.in_reference and tag in ("img", "svg", "i"):
            self.references[-1] += tag
        if (tag != "link" or attributes.get("rel") != "canonical") and attributes.get(
            LOADED.get(tag)
        ):
            self.loads.append(attributes[LOADED[tag]])

    def handle_endtag(self, tag):
        self.in_reference &= tag != "a"

    def handle_data(self, data):
        if self.in_reference:
            self.references[-1] += data.strip()


# a formula before MathJax: class "math"
APART = {"code", "pre", "script", "style", "svg", "math", "textarea", "title"}


class Prose(HTMLParser):
    """The text of a page outside code, formulas and scripts."""

    def __init__(self, path):
        super().__init__()
        self.open, self.text = [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        if tag not in ("br", "img", "hr", "input", "meta", "link", "col", "source", "wbr", "path"):
            classes = (dict(attributes).get("class") or "").split()
            self.open.append((tag, tag in APART or {"math", "highlight", "sig"} & {*classes}))

    def handle_endtag(self, tag):
        while self.open and any(name == tag for name, _ in self.open):
            if self.open.pop()[0] == tag:
                break

    def handle_data(self, data):
        if not any(apart for _, apart in self.open):
            is_bold = bool(self.open) and self.open[-1][0] == "strong"  # a parameter: **options
            self.text.append(data.removeprefix("**") if is_bold else data)


MARKUP = {
    "bold": r"\*\*",
    "code": "`",
    "power": r"\^-",
    "reference": r"\?\?\?",
    "role": r"\{(doc|ref|numref|glue|prf|eq|cite)[:}]",
}
PARSED = {path: Page(path) for path in PAGES}


def test_the_book_was_built():
    names = {path.relative_to(HTML).as_posix() for path in PAGES}
    assert {
        "book/intro.html",
        "book/errata.html",
        "notebooks/05-theorem-1.html",
        "notebooks/11-learned-encodings.html",
    } <= names
    assert {"book/report.html", "book/records.html"} <= names


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(HTML).as_posix())
def test_page(path):
    page = PARSED[path]
    for address in page.loads:
        parts = urlsplit(address)
        assert not parts.netloc and parts.scheme in (
            "",
            "data",
        ), f"loads from another host: {address[:200]}"
        if not parts.scheme:
            assert (path.parent / unquote(parts.path)).exists(), f"does not exist: {address}"
    for address in page.links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        assert target.exists(), f"broken link: {address}"
        if target.name == "explore.html" and parts.fragment.startswith("scene="):
            continue  # a state of the stage, which tells when it is malformed
        if parts.fragment and target.suffix == ".html" and parts.path != "#":
            assert unquote(parts.fragment) in PARSED[target].ids, f"no such place: {address}"
    assert "" not in page.references, "a reference without a text"
    for image in page.images:
        assert image.get("alt", "").strip(), f"no alternative text: {image.get('src', '')[:80]}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(HTML).as_posix())
def test_a_page_is_described_for_search_engines_and_link_previews(path):
    text = path.read_text()
    if "This page has moved" in text:
        return
    tags = dict(re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', text))
    assert 15 < len(tags["description"]) <= 210, tags["description"]
    assert tags["og:description"] == tags["description"] and tags["og:title"] and tags["og:type"]
    assert text.count('<meta name="description"') == 1


def test_pages_of_the_book_are_described_differently():
    texts = [path.read_text() for path in [*HTML.glob("book/*.html"), *HTML.glob("notebooks/*")]]
    found = [re.search('name="description" content="([^"]*)"', text) for text in texts]
    descriptions = [each[1] for each in found if each]
    assert len(descriptions) > 40 and len(set(descriptions)) == len(descriptions)


@pytest.mark.parametrize("name", ["explorer-convolution", "explorer-pixel"])
def test_a_page_that_the_stage_has_replaced_leads_to_it(name):
    path = HTML / "book" / f"{name}.html"
    text, page = path.read_text(), PARSED[path]
    assert '<meta http-equiv="refresh" content="0; url=explore.html">' in text
    assert page.links == ["explore.html"] and page.loads == ["data:,"]
    for other in PAGES:
        names = {urlsplit(link).path.rpartition("/")[2] for link in PARSED[other].links}
        assert path.name not in names, f"{other} leads to the old address"


def test_styles_and_loaders_stay_local():
    for path in HTML.glob("_static/**/*.css"):
        addresses = re.findall(
            r"url\(\s*['\"]?(https?://[^'\")]+)|@import\s+['\"](https?://[^'\"]+)",
            path.read_text(errors="ignore"),
        )
        assert not addresses, f"{path.name}: {addresses}"
    for page in PAGES:
        assert not re.search(
            r"(src|href)=\"https?://[^\"]*(jsdelivr|unpkg|cdnjs)", page.read_text()
        ), page


def test_chapters_show_results_and_no_tracebacks():
    chapters = [path.stem for path in (ROOT / "notebooks").glob("*.ipynb")]
    for path in (HTML / "notebooks" / f"{name}.html" for name in chapters):
        text = path.read_text()
        assert "Traceback (most recent call last)" not in text
        assert 'class="output' in text and "<figcaption" in text, path.name
    assert not list(HTML.glob("reports/*")), "reports of failed notebooks"


def test_no_page_shows_a_traceback():
    for path in HTML.glob("book/**/*.html"):
        assert "Traceback (most recent call last)" not in path.read_text(), path.name


def test_every_figure_and_table_of_the_paper_is_shown():
    text = "".join(path.read_text() for path in HTML.glob("notebooks/*.html"))
    for number in range(1, 15):
        assert text.count(f'id="fig-{number}"') == 1, number
    for number in range(1, 5):
        assert text.count(f'id="table-{number}"') == 1, number


def test_lines_are_drawn_as_svg_and_maps_as_png():
    for chapter, name, ending in (
        ("09-quadratic-encoding", "fig-4", "svg"),
        ("11-learned-encodings", "fig-5", "png"),
    ):
        figure = (
            (HTML / "notebooks" / f"{chapter}.html")
            .read_text()
            .partition(f'id="{name}"')[2]
            .partition("</figure>")[0]
        )
        assert re.search(rf'<img[^>]* src="[^"]*\.{ending}"', figure), name


def test_what_was_not_run_says_so_and_how_to_run_it():
    text = re.sub(r"<[^>]+>", "", (HTML / "book" / "records.html").read_text())  # as it is copied
    assert "python -m attnconv train --model sa-learned-content --dataset digits" in text, (
        "the quick runs, ready to copy"
    )
    report = (HTML / "book" / "report.html").read_text()
    assert 'id="claims"' in report and report.count('<span class="verdict reproduced">') >= 1


def test_equations_carry_the_papers_numbers():
    for page, number in (
        ("background", 8),
        ("theorem", 9),
        ("theorem", 14),
        ("spans", 18),
        ("converse", "C1"),
    ):
        text = (HTML / "book" / f"{page}.html").read_text()
        assert re.search(rf'<span class="eqno">\({number}\)', text), (page, number)


STATEMENTS = {
    "background": [f"equation-eq-{number}" for number in range(1, 9)],
    "theorem": ["theorem-1", "lemma-1", "lemma-2", "equation-eq-9"],
    "spans": ["lemma-3", "equation-eq-19"],
    "converse": ["theorem-2"],
}


@pytest.mark.parametrize(
    ("page", "place"), [(page, place) for page, places in STATEMENTS.items() for place in places]
)
def test_each_statement_is_one_click_from_its_code_its_test_and_its_chapter(page, place):
    """In the line below it, whose links `test_page` follows."""
    _, found, after = (HTML / "book" / f"{page}.html").read_text().partition(f'id="{place}"')
    line = after.partition('<p class="in-code">')[2].partition("</p>")[0]
    code = re.split("<strong>(?:Fast version|Test)</strong>", line)[0]
    assert found and re.search(r'href="\.\./_modules/attnconv/theory/\w+\.html#\w+"', line), line
    assert "_modules/attnconv/layers/" not in code, "its fast version has a label of its own"
    assert (
        re.search(r'href="\.\./_tests/[a-z_/]+\.html#test_\w+"', line)
        and 'href="../notebooks/' in line
    ), line


def public_names(package):
    return [
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    ]


def test_every_name_that_is_given_out_is_documented():
    with (HTML / "objects.inv").open("rb") as file:
        documented = {
            name
            for kind, names in InventoryFile.load(file, "", lambda *_: "").items()
            if "py:" in kind
            for name in names
        }
    for package in (attnconv, data, figures):
        for name in getattr(package, "__all__", None) or public_names(package):
            found = [
                full
                for full in documented
                if full.startswith(("attnconv.", "companion.")) and full.endswith(f".{name}")
            ]
            assert found, f"{package.__name__}.{name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(HTML).as_posix())
def test_no_markup_is_shown_literally(path):
    text = "\n".join(Prose(path).text)
    for name, pattern in MARKUP.items():
        found = re.search(f".*{pattern}.*", text)
        assert not found, f"{name}: {found[0][:200]}"


def test_literal_markup_would_be_found(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<p>fine <code>a**b`</code> <span class="math">10^-1 **</span></p><td>**not'
        " run**</td><p>`name`</p><strong>**options</strong>"
    )
    text = "".join(Prose(page).text)
    assert text == "fine  **not run**`name`options"
    assert [name for name, pattern in MARKUP.items() if re.search(pattern, text)] == [
        "bold",
        "code",
    ]
