"""Tell search engines and link previews about each page, and write the sitemap.

Each page has a description (the one in its front matter under `html_meta`, or else its first
paragraph) and Open Graph tags with its title, its description and its first picture. The book's
start, index.html, only leads to the first page and has the tags of that page. Addresses in these
tags and in a sitemap have to be complete. So without the address of the book, which `hosting`
derives from the repository's, pages do not name their picture and their own address, and no sitemap
is written.
"""

import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import urljoin

from docutils import nodes

LONGEST = 200  # characters of a description; what is longer is cut off where it is shown
SKIPPED = {"chapter-times", "in-code"}  # lines that the build adds
SYMBOLS = {r"\alpha": "α", r"\times": "×", r"\to": "→", r"\infty": "∞"}
# Previews show no vector graphics.
PICTURE = re.compile(r'<img\b[^>]*\bsrc="(?!data:|\w+:)([^"]+\.(?:png|jpe?g))"[^>]*>')
GIVEN = re.compile(r'<meta\b(?=[^>]*\bname="description")[^>]*\bcontent="([^"]*)"')


def first_paragraph(doctree):
    """Return the text of a page's first paragraph, or an empty text.

    Sentences with formulas that `SYMBOLS` does not cover are left out.
    """
    for paragraph in doctree.findall(nodes.paragraph):
        is_text = isinstance(paragraph.parent, nodes.section | nodes.document)
        if is_text and not SKIPPED & set(paragraph["classes"]):
            text = " ".join(paragraph.astext().split()).removeprefix("Question. ")
            for command, symbol in SYMBOLS.items():
                text = text.replace(command, symbol)
            sentences = re.split(r"(?<=[.:?!]) ", text)
            return " ".join(each for each in sentences if "\\" not in each)
    return ""


def shortened(text):
    """Return a text of at most `LONGEST` characters that ends with a whole sentence or word."""
    if len(text) <= LONGEST:
        return text
    sentences = re.match(r".*[.?!](?= )", text[: LONGEST + 1])
    if sentences and len(sentences[0]) > LONGEST / 2:
        return sentences[0]
    return text[: LONGEST - 1].rpartition(" ")[0].rstrip(",;:") + "…"


def tags_of(title, description, book, address, body):
    """Return the tags of a page: the first picture and the address only if the latter is known."""
    found = {"og:title": title, "og:description": description}
    found |= {"og:type": "website" if title == book else "article", "og:site_name": book}
    if address:
        found["og:url"] = address
        if picture := PICTURE.search(body):
            found["og:image"] = urljoin(address, unescape(picture[1]))
            text = re.search(r'\balt="([^"]*)"', picture[0])
            found["og:image:alt"] = unescape(text[1]) if text else title
    return {name: " ".join(content.split()) for name, content in found.items()}


def describe(app, pagename, templatename, context, doctree):
    """Add the tags to a page's head."""
    book, metatags = app.config.html_title, context.get("metatags") or ""
    title = unescape(re.sub("<[^>]+>", "", context.get("title") or "")) or book
    given = GIVEN.search(metatags)
    text = first_paragraph(doctree) if doctree else ""
    description = (
        unescape(given[1])
        if given
        else shortened(text) or (title if title == book else f"{title}: {book}")
    )
    lines = []
    if not given:
        lines.append(f'<meta name="description" content="{escape(description)}" />')
    base = app.config.html_baseurl
    address = base and urljoin(base, app.builder.get_target_uri(pagename))
    for name, content in tags_of(
        title, description, book, address, context.get("body", "")
    ).items():
        lines.append(f'<meta property="{name}" content="{escape(content)}" />')
    context["metatags"] = "\n".join([metatags, *lines])


def write_sitemap(app, exception):
    """Write sitemap.xml, a list of the addresses of all pages, if the book's address is known."""
    base = app.config.html_baseurl
    if exception is not None or app.builder.format != "html" or not base:
        return
    addresses = [urljoin(base, app.builder.get_target_uri(name)) for name in app.env.found_docs]
    entries = "".join(f"<url><loc>{escape(each)}</loc></url>\n" for each in sorted(addresses))
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</urlset>\n'
    )
    Path(app.outdir, "sitemap.xml").write_text(text, "utf-8")


def tag_start(app, exception):
    """Give index.html, which leads to the first page, the title and the tags of that page."""
    start = Path(app.outdir, "index.html")
    if exception is not None or app.builder.format != "html" or not start.exists():
        return
    text = start.read_text("utf-8")
    if "http-equiv" in text and "og:title" not in text:
        first = Path(app.builder.get_outfilename(app.config.root_doc)).read_text("utf-8")
        tags = re.findall(r'<meta (?:property="og:|name="description")[^>]*>', first)
        title = re.search("<title>.*?</title>", first, re.S)[0]
        start_of_page = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">'
        head = "\n".join([start_of_page, title, *tags])
        start.write_text(f"{head}\n{text}", "utf-8")


def setup(app):
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_sitemap)
    app.connect("build-finished", tag_start, priority=600)  # after sphinx_external_toc wrote it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
