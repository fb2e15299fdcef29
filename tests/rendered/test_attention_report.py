"""The attention report's HTML file in a browser: it works offline, on any screen, in both themes."""

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from attnconv import inspect_attention
from companion.explorer.document import save_html


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    torch.manual_seed(0)
    shapes = (12, 5, 5), (4, 3, 4)
    maps = [torch.randn(h, r, c, r * c).softmax(-1).unflatten(-1, (r, c)) for h, r, c in shapes]
    path = tmp_path_factory.mktemp("report") / "report.html"
    return save_html(inspect_attention(maps), path, torch.rand(20, 20, 3), "Two layers").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_file_opens_offline(browser, document, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 720},
        color_scheme=scheme,
        offline=True,
        reduced_motion="reduce",
    )
    page, requests, problems = context.new_page(), [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(document)
    expect(page.locator(".explorer-pad")).to_be_visible()
    expect(page.locator(".explorer-row button")).to_have_count(12)
    page.get_by_label("Model", exact=True).select_option("3 × 4 tokens")
    expect(page.locator(".explorer-row button")).to_have_count(4)
    expect(page.locator(".numbers tbody tr")).to_have_count(16)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 3 * 64) == (scheme == "dark")
    violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in violations]
    assert {url.partition("#")[0] for url in requests} == {document} and not problems
    context.close()
