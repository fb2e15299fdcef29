"""The addresses of pages that were renamed: they lead to the new pages, offline."""

import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
import yaml
from helpers import ROOT
from helpers.chromium import chromium_or_skip
from playwright.sync_api import expect, sync_playwright

OLD, NEW = "chapters/02-old", "chapters/03-new"


def build(folder, redirects):
    """Build a book of two pages, of which one has an anchor far below its top."""
    (folder / "chapters").mkdir(parents=True)
    (folder / "index.md").write_text(f"# Start\n\n```{{toctree}}\n{NEW}\n```\n")
    filler = "A paragraph.\n\n" * 100
    text = f"# Heads & <shifts>\n\n{filler}(sec-below)=\n## Below\n\n{filler}"
    (folder / f"{NEW}.md").write_text(text)
    settings = {"extensions": ["myst_parser", "redirects"], "redirects": redirects}
    lines = [f"import sys; sys.path.insert(0, {str(ROOT / 'book' / 'ext')!r})"]
    lines += [f"{name} = {value!r}" for name, value in settings.items()]
    (folder / "conf.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(folder), str(folder / "html")]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    run = build(folder, {OLD: NEW, "very/old": NEW})
    assert run.returncode == 0, run.stderr
    return folder / "html"


@pytest.mark.parametrize(("old", "address"), [(OLD, "03-new.html"), ("very/old", f"../{NEW}.html")])
def test_an_old_address_has_a_page_that_leads_to_the_new_one(built, old, address):
    text = (built / f"{old}.html").read_text()
    assert f'<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>' in text
    assert f'<a href="{address}">Heads &amp; &lt;shifts&gt;</a>' in text
    assert ((built / old).parent / address).resolve() == built / f"{NEW}.html"
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_browser_follows_it_from_a_file(built, scripts):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_or_skip(), args=["--no-sandbox"]
        )
        page = browser.new_page(java_script_enabled=scripts)
        hosts = set()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto((built / f"{OLD}.html").as_uri() + "#sec-below")
        anchor = "#sec-below" if scripts else ""  # a page cannot pass it on without a script
        expect(page).to_have_url(re.compile(rf"/{NEW}\.html{anchor}$"))
        if scripts:
            expect(page.locator("#sec-below, #below").first).to_be_in_viewport()
        assert hosts == {""}
        browser.close()


@pytest.mark.parametrize(
    ("redirects", "message"),
    [({OLD: "chapters/04"}, "chapters/04, which is not a page"), ({NEW: "index"}, "still a page")],
)
def test_a_redirect_that_leads_nowhere_or_hides_a_page_is_refused(tmp_path, redirects, message):
    run = build(tmp_path / "book", redirects)
    assert run.returncode != 0 and message in run.stderr


def test_the_book_lists_the_extension_and_the_pages_that_the_stage_replaced():
    config = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]
    assert config["local_extensions"]["redirects"] == "book/ext"
    assert "redirects" in config["config"]["extensions"]
    assert {"book/explorer-convolution", "book/explorer-pixel"} <= {*config["config"]["redirects"]}
