"""Print the built book as one PDF, using an installed Chromium: `make pdf`, after `make book`.

Every page of the table of contents is opened from a local server, with its scripts, so that
formulas are typeset and interactive parts are drawn. A picture takes the place of each interactive
part. The pages are then joined into one HTML document, in which links between pages are links
within the document, and that document is printed twice: the first print shows on which page each
chapter begins, and the second has these numbers in its table of contents. Nothing is requested from
another host.
"""

import base64
import re
import sys
import threading
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from chromium import LOADED, MISSING, find_chromium
from playwright.sync_api import sync_playwright
from pypdf import PdfReader

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "_build"
PDF = BUILT / "pdf" / "attnconv.pdf"
LEFT_OUT = ("book/api/",)  # about a hundred pages of signatures
# Interactive parts of a page. A stage outside a text has several scenes, with a picture of each.
INTERACTIVE = ".explorer:not(.stage), .stage-host, .widget-subarea, .cell_output iframe"
SECONDS_OF_A_SCENE = 6  # the descent of scene 2 has found its pixels by then
SCRIPT = Path(__file__).with_name("print_page.js").read_text()
STYLE = Path(__file__).with_name("print.css").read_text()
WIDTH = 658  # of the text, in px: A4 without its margins
SCREEN = {"width": 1440, "height": 900}
TYPESET = "async () => { await window.formulas?.ready(); await document.fonts.ready; }"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def contents():
    """Return (file, depth) of each printed page of the table of contents, in reading order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    pages = [(toc["root"], 0)]

    def add(nodes, depth):
        for node in nodes:
            if not node["file"].startswith(LEFT_OUT):
                pages.append((node["file"], depth))
                add(node.get("sections", ()), depth + 1)

    add(toc["chapters"], 0)
    return pages


def slug(file):
    return re.sub(r"\W+", "-", file)


def stills(page):
    """Return pictures of the interactive parts of a page, one list for each part."""
    taken = []
    for part in page.locator(INTERACTIVE).all():
        stage, tabs = part.locator(".stage"), part.locator(".stage-tabs [role=tab]").all()
        shown = stage if stage.count() else part
        taken.append([])
        for tab in tabs or [None]:
            if tab:
                tab.click()
            part.scroll_into_view_if_needed()
            page.wait_for_timeout(1000 * (SECONDS_OF_A_SCENE if shown is stage else 0.5))
            content = base64.b64encode(shown.screenshot()).decode()
            taken[-1].append(f"data:image/png;base64,{content}")
    return taken


def part(page, server, file, depth, slugs):
    """Return what print_page.js makes of a page: its title, body and style sheets."""
    address = f"{file}.html"
    page.goto(f"{server}/html/{address}")
    page.wait_for_function(LOADED)
    page.evaluate(TYPESET)
    captions = {
        "still": f"A still: this part is interactive in the HTML book, {address}.",
        "steps": f"The HTML book steps through this proof: {address}.",
    }
    settings = {"slug": slug(file), "slugs": slugs, "depth": depth, "captions": captions}
    settings |= {"interactive": INTERACTIVE, "stills": stills(page)}
    return page.evaluate(f"(settings) => {{ {SCRIPT}; return partOfTheBook(settings); }}", settings)


def document(files, parts, pages):
    """Return the whole book as HTML; `pages` gives the page number of each slug, if known."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    sheets = list(dict.fromkeys(sheet for each in parts for sheet in each["sheets"]))
    styles = dict.fromkeys(style for each in parts for style in each["styles"])
    lines = [
        f'<li class="depth-{depth}"><a href="#{slug(file)}"><span>{escape(each["title"])}</span>'
        '<span class="dots"></span>'
        f'<span class="page">{pages.get(slug(file), "")}</span></a></li>'
        for (file, depth), each in zip(files, parts, strict=True)
    ]
    bodies = [
        f'<div class="part {("chapter", "section")[depth]}" id="{slug(file)}">{each["body"]}</div>'
        for (file, depth), each in zip(files, parts, strict=True)
    ]
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
<title>{escape(config["title"])}</title>
{"".join(f'<link rel="stylesheet" href="{sheet}">' for sheet in sheets)}
<style>{"".join(styles)}</style><style>{STYLE}</style>
</head><body><main class="bd-content"><article class="bd-article">
<div class="title-page"><h1>{escape(config["title"])}</h1>
<p>{escape(config["author"])}, {escape(config["copyright"])}</p>
<p>The executable companion to <em>On the Relationship between Self-Attention and Convolutional
Layers</em> (Jean-Baptiste Cordonnier, Andreas Loukas and Martin Jaggi, ICLR 2020).</p>
<p>This PDF is printed from the HTML book. It leaves out the pages on the code's public names and
the steps of the machine-checked proofs, and shows interactive parts as stills.</p></div>
<nav class="book-contents"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>
{"".join(bodies)}
</article></main></body></html>"""


def printed(page, server, html):
    """Print a document and return the page number, from 1, of each named destination in it."""
    PDF.with_suffix(".html").write_text(html, encoding="utf-8")
    page.goto(f"{server}/pdf/{PDF.stem}.html")
    page.evaluate(f"() => {{ {SCRIPT}; fitThePage(); }}")
    temporary = PDF.with_suffix(".part")
    page.pdf(
        path=temporary, prefer_css_page_size=True, print_background=True, outline=True, tagged=True
    )
    temporary.replace(PDF)
    reader = PdfReader(PDF)
    return {
        name.removeprefix("/"): reader.get_destination_page_number(place) + 1
        for name, place in reader.named_destinations.items()
    }


def print_book(browser, server):
    """Write the PDF and return its number of pages.

    Raises RuntimeError if the page numbers in the table of contents are wrong.
    """
    context = browser.new_context(viewport=SCREEN, color_scheme="light", device_scale_factor=1.5)
    context.route(
        re.compile(rf"^(?!{re.escape(server)}/|data:|blob:)"), lambda route: route.abort()
    )
    page = context.new_page()
    files = contents()
    slugs = {f"/html/{file}.html": slug(file) for file, _ in files}
    parts = []
    for file, depth in files:
        parts.append(part(page, server, file, depth, slugs))
        print(f"== pdf: {file}", flush=True)
    page.set_viewport_size({"width": WIDTH, "height": SCREEN["height"]})
    page.emulate_media(media="print")
    PDF.parent.mkdir(parents=True, exist_ok=True)
    first = printed(page, server, document(files, parts, {}))
    second = printed(page, server, document(files, parts, first))
    if moved := [name for name in slugs.values() if first[name] != second[name]]:
        raise RuntimeError(f"the page numbers of the contents moved {', '.join(moved)}")
    return len(PdfReader(PDF).pages)


def main():
    if not (BUILT / "html" / "index.html").exists():
        sys.exit("_build/html holds no book; run: make book")
    if not (executable := find_chromium()):
        sys.exit(MISSING)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=BUILT)) as httpd,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        pages = print_book(browser, f"http://127.0.0.1:{httpd.server_port}")
        browser.close()
        httpd.shutdown()
    print(f"== pdf: {PDF.relative_to(ROOT)}, {pages} pages")


if __name__ == "__main__":
    main()
