"""The README fits two screens of 1280 x 720 pixels, with sizes like those of GitHub's pages."""

from helpers import ROOT
from markdown_it import MarkdownIt

STYLE = """
body { font: 16px/1.5 "Noto Sans", Helvetica, Arial, sans-serif; margin: 0; padding: 32px; width: 766px }
h1, h2 { line-height: 1.25; margin: 24px 0 16px; padding-bottom: .3em; border-bottom: 1px solid #ccc }
h1 { font-size: 2em; margin-top: 0 } h2 { font-size: 1.5em }
p, ul, table, pre { margin: 0 0 16px } ul { padding-left: 2em } li + li { margin-top: .25em }
table { border-collapse: collapse; display: block } td, th { padding: 6px 13px; border: 1px solid #ccc }
pre { font-size: 85%; line-height: 1.45; padding: 16px; overflow: auto }
code { font-family: "Liberation Mono", monospace; font-size: 85%; padding: .2em .4em }
pre code { font-size: 100%; padding: 0 } img { max-width: 100% }
"""


def test_the_readme_fits_two_screens(browser, tmp_path):
    text = (ROOT / "README.md").read_text("utf-8")
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    head = (
        f'<!doctype html><meta charset="utf-8"><base href="{ROOT.as_uri()}/"><style>{STYLE}</style>'
    )
    (tmp_path / "readme.html").write_text(head + body, "utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto((tmp_path / "readme.html").as_uri())
    assert page.evaluate("document.images[0].naturalWidth") > 0
    assert page.evaluate("document.body.scrollHeight") <= 2 * 720
    page.close()
