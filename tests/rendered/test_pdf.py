"""The printed book, `make pdf`, read with pypdf: its contents, bookmarks, links and formulas. Printed
here if it is older than the pages or the script. Needs `make book`."""

import os
import re
import subprocess
import sys
from functools import cache

import pytest
import yaml
from bs4 import BeautifulSoup
from filelock import FileLock
from helpers import HTML, ROOT
from pypdf import PdfReader

pytestmark = pytest.mark.slow
PDF = ROOT / "_build" / "pdf" / "attnconv.pdf"
SOURCES = [HTML / "index.html", *(ROOT / "tools").glob("print*")]
BLANK = str.maketrans("", "", " \n\xa0\t")


def files(node):
    """The files of a table of contents, without the pages of the code's names."""
    below = [*node.get("chapters", ()), *node.get("sections", ())]
    found = [node[key] for key in ("root", "file") if key in node]
    for each in below:
        found += files(each)
    return [file for file in found if not file.startswith("book/api/")]


PAGES = files(yaml.safe_load((ROOT / "_toc.yml").read_text()))


def slug(file):
    return re.sub(r"\W+", "-", file)


def heading(file):
    """The title of a built page, without blanks: a PDF breaks lines where it likes."""
    page = BeautifulSoup((HTML / f"{file}.html").read_text(encoding="utf-8"), "html.parser")
    title = page.select_one("article.bd-article h1")
    title.select_one(".headerlink").extract()
    return title.get_text().translate(BLANK)


@pytest.fixture(scope="module")
def pdf(browser):  # skips, or fails, where there is no Chromium
    with FileLock(HTML.parent / "pdf.lock"):
        if not PDF.exists() or PDF.stat().st_mtime < max(
            os.path.getmtime(file) for file in SOURCES
        ):
            subprocess.run([sys.executable, ROOT / "tools" / "print_book.py"], check=True)
    return PdfReader(PDF)


@pytest.fixture(scope="module")
def text(pdf):
    """The text of a page without blanks, headed by its foot: the number, and the book's title."""
    return cache(lambda number: pdf.pages[number].extract_text().translate(BLANK))


def begins(pdf, file):
    """The number of the page, from 0, on which a page of the book begins."""
    return pdf.get_destination_page_number(pdf.named_destinations[f"/{slug(file)}"])


def bookmarks(outline):
    for entry in outline:
        if isinstance(entry, list):
            yield from bookmarks(entry)
        else:
            yield entry


def annotations(pdf):
    for page in pdf.pages:
        for annotation in page.get("/Annots") or []:
            yield annotation.get_object()


def test_each_page_of_the_book_has_a_bookmark_to_its_heading(pdf, text):
    assert len(pdf.pages) > 2 * len(PAGES)
    marks = {mark.title.translate(BLANK): mark for mark in bookmarks(pdf.outline)}
    for file in PAGES:
        title = heading(file)
        assert title in text(pdf.get_destination_page_number(marks[title])), file


def test_bookmarks_keep_the_spaces_of_wrapped_headings(pdf):
    titles = {mark.title for mark in bookmarks(pdf.outline)}
    assert "Theorem 1: self-attention can express any convolution" in titles


def test_the_contents_name_the_pages(pdf, text):
    """Each line of the contents ends with the number at the foot of the page with that heading."""
    for file in PAGES:
        title, page = heading(file), text(begins(pdf, file))
        number = re.match(r"(\d+)Canself-attentionbeaconvolution\?", page)[1]
        assert title in page, file
        assert f"{title}{number}" in text(1) + text(2), file


def test_links_lead_within_the_book_or_to_the_web(pdf):
    inside = 0
    for annotation in annotations(pdf):
        if "/A" in annotation and "/URI" in annotation["/A"]:
            address = annotation["/A"]["/URI"]
            assert address.startswith(("https://", "http://")), address
            assert "127.0.0.1" not in address and "localhost" not in address
        elif "/Dest" in annotation:
            inside += 1
            assert annotation["/Dest"] in pdf.named_destinations
    assert inside > 10 * len(PAGES)


def test_formulas_are_drawn_and_have_their_source_as_text(pdf):
    """The tags of the PDF hold, for each drawn formula, the source that the page has."""
    found, pending = set(), [pdf.trailer["/Root"]["/StructTreeRoot"]]
    while pending:
        node = pending.pop().get_object()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            found.add(node.get("/Alt", "").strip())
            pending += [node["/K"]] if "/K" in node else []
    page = BeautifulSoup((HTML / "book/theorem.html").read_text(encoding="utf-8"), "html.parser")
    formulas = {math.get_text()[2:-2].strip() for math in page.select("article span.math")}
    assert len(formulas) > 20
    assert formulas <= found


def test_interactive_parts_say_where_they_live(pdf, text):
    for file in ("book/explore", "book/explorer", "notebooks/03-lemma-1"):
        first, after = begins(pdf, file), begins(pdf, PAGES[PAGES.index(file) + 1])
        printed = "".join(map(text, range(first, after)))
        assert f"interactiveintheHTMLbook,{file}.html" in printed
