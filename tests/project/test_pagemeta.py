"""Pages tell search engines and link previews what they are about."""

import re
import struct
import subprocess
import sys
import zlib
from html import unescape

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "book" / "ext"))
from hosting import ADDRESS, pages_address
from pagemeta import LONGEST, shortened

REPOSITORY = "https://github.com/Owner/name"
PAGES = {
    "index.md": """# Can *it* be?

The answer to "Can it?" is yes.

```{toctree}
chapter
own
```
""",
    "chapter.md": r"""# Chapter

**Question.** Is 3 $\times$ 3 *enough*? With $\mathbf{x}$, no. Why?

![A & B](dot.png)
""",
    "own.md": """---
myst: {html_meta: {description: Its own words.}}
---

# Own

A paragraph.
""",
}


def png():
    """Return the bytes of a picture of one white pixel."""

    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">2I5B", 1, 1, 8, 0, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff")
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    )


def build(folder, environment):
    """Build the pages; return the folder of the result."""
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    (folder / "dot.png").write_bytes(png())
    lines = [f"import sys; sys.path.insert(0, {str(ROOT / 'book' / 'ext')!r})"]
    lines += ["extensions = ['myst_nb', 'sphinx_book_theme', 'hosting', 'pagemeta']"]
    lines += ["html_theme, html_title = 'sphinx_book_theme', 'The book'"]
    lines += ["myst_enable_extensions = ['dollarmath']"]
    (folder / "conf.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(folder), str(folder / "html")]
    environment = {"PATH": "/usr/bin:/bin"} | environment
    subprocess.run(command, check=True, env=environment, timeout=300)
    return folder / "html"


def tags(path):
    """Return the content of each tag with a name or a property."""
    found = re.findall(
        r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', path.read_text("utf-8")
    )
    return {name: unescape(content) for name, content in found}


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    return build(tmp_path_factory.mktemp("without"), {})


@pytest.fixture(scope="module")
def with_address(tmp_path_factory):
    return build(tmp_path_factory.mktemp("with"), {ADDRESS: REPOSITORY})


def test_a_page_is_described_by_its_first_paragraph(without):
    found = tags(without / "index.html")
    assert found["description"] == found["og:description"]
    assert (
        found["description"].translate({8220: '"', 8221: '"'}) == 'The answer to "Can it?" is yes.'
    )
    assert (found["og:title"], found["og:site_name"]) == ("Can it be?", "The book")
    assert found["og:type"] == "article"


def test_formulas_are_written_out_or_left_out(without):
    assert tags(without / "chapter.html")["description"] == "Is 3 × 3 enough? Why?"


def test_the_front_matter_comes_first(without):
    text = (without / "own.html").read_text()
    assert text.count('name="description"') == 1
    assert tags(without / "own.html")["og:description"] == "Its own words."


def test_a_page_without_a_paragraph_is_described_by_its_title(without):
    assert tags(without / "search.html")["description"] == "The book"


def test_without_an_address_none_is_invented(without):
    for page in without.glob("*.html"):
        found = tags(page)
        assert "og:title" in found and not {"og:url", "og:image"} & set(found)
        assert not re.search(r'(content|href)="https?://[^"]*(github|example)', page.read_text())
    assert not (without / "sitemap.xml").exists()


def test_with_an_address_pages_name_it_and_their_pictures(with_address):
    found = tags(with_address / "chapter.html")
    assert found["og:url"] == "https://owner.github.io/name/chapter.html"
    assert found["og:image"] == "https://owner.github.io/name/_images/dot.png"
    assert found["og:image:alt"] == "A & B"
    assert "og:image" not in tags(with_address / "own.html")
    text = (with_address / "chapter.html").read_text()
    assert f'<link rel="canonical" href="{found["og:url"]}"' in text


def test_the_sitemap_lists_the_pages(with_address):
    text = (with_address / "sitemap.xml").read_text()
    assert re.findall("<loc>(.*?)</loc>", text) == [
        f"https://owner.github.io/name/{name}.html" for name in ("chapter", "index", "own")
    ]


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        (REPOSITORY, "https://owner.github.io/name/"),
        ("https://github.com/Owner/name.git", "https://owner.github.io/name/"),
        ("https://github.com/Owner/owner.github.io", "https://owner.github.io/"),
    ],
)
def test_the_address_is_that_of_github_pages(repository, address):
    assert pages_address(repository) == address


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("Short.", "Short."),
        ("A sentence of words. " * 12, ("A sentence of words. " * 9).strip()),
        ("word, " * 60, "word, " * 32 + "word…"),
    ],
)
def test_long_descriptions_end_with_a_sentence_or_a_word(text, short):
    assert shortened(text.strip()) == short and len(short) <= LONGEST
