"""Previews of links, in a browser: what they show, where they stand, and how they close."""

import pytest
from playwright.sync_api import expect

SIZE = {"width": 1280, "height": 720}
LONG = 600  # ms; a preview opens after 250 and closes sooner
# A page, the address of a link in it, and words of what it leads to.
LINKS = {
    "a statement on another page": ("book/spans.html", "theorem.html#theorem-1", "Theorem 1"),
    "an equation of another page": ("book/notation.html", "#equation-eq-8", "(8)"),
    "a reference": ("book/background.html", "bibliography.html#", "Vaswani"),
    "a figure of the page": ("notebooks/11-learned-encodings.html", "#fig-6", "Figure 6"),
}


def link_to(page, address):
    return page.locator(f".bd-article a.reference.internal[href*='{address}']").first


@pytest.mark.parametrize("where, address, words", LINKS.values(), ids=LINKS)
def test_a_link_shows_what_it_leads_to(visit, where, address, words):
    visited = visit(where, viewport=SIZE)
    page, link = visited.page, link_to(visited.page, address)
    if words == "Vaswani":
        link = page.locator(".bd-article a.reference.internal", has_text=words).first
    link.scroll_into_view_if_needed()
    before = link.bounding_box()
    link.hover()
    preview = page.locator(".preview")
    expect(preview).to_be_visible()
    expect(preview).to_contain_text(words)
    assert link.bounding_box() == before
    box = preview.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= SIZE["width"]
    assert box["y"] >= 0 and box["y"] + box["height"] <= SIZE["height"]
    assert 20 < box["height"] <= 0.45 * SIZE["height"] + 1 and 60 < box["width"] <= 0.6 * 1280
    line = link.evaluate(
        "(link) => { const { x, y } = link.getClientRects()[0]; return { x, y }; }"
    )
    covered = box["y"] <= line["y"] + 2 <= box["y"] + box["height"]
    assert not (covered and box["x"] <= line["x"] + 2 <= box["x"] + box["width"])
    assert preview.locator("a, button, [id]:not(mjx-container *), [tabindex]").count() == 0
    assert preview.locator("mjx-merror").count() == 0
    for image in preview.locator("img").all():
        assert image.evaluate("(image) => image.naturalWidth") > 100
    raw = preview.evaluate(r"(box) => /\\\(|\\\[/.test(box.innerText)")
    assert not raw, "formulas are typeset"
    found = visited.violations_in_both_themes("with a preview")
    assert not found, "\n".join(found)
    page.keyboard.press("Escape")
    expect(preview).to_be_hidden()
    assert not visited.problems


def test_a_preview_stays_while_the_pointer_is_in_it_and_follows_the_keyboard(visit):
    page = visit("book/spans.html", viewport=SIZE).page
    page.clock.install()
    preview, link = page.locator(".preview"), link_to(page, "theorem.html#theorem-1")
    link.hover()
    expect(preview).to_be_visible()
    preview.hover()
    page.clock.run_for(LONG)
    expect(preview).to_be_visible()
    page.mouse.move(2, 2)
    expect(preview).to_be_hidden()
    link.evaluate("(link) => link.focus({ focusVisible: true })")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(preview).to_be_visible()
    page.keyboard.press("Tab")
    expect(preview).to_be_hidden()


def test_links_to_sections_and_touched_links_have_no_preview(visit):
    page = visit("book/spans.html", viewport=SIZE, has_touch=True).page
    page.clock.install()
    preview = page.locator(".preview")
    section = link_to(page, "#sec-kernel-chosen")
    section.hover()
    page.clock.run_for(LONG)
    expect(preview).to_be_hidden()
    theorem = link_to(page, "theorem.html#theorem-1")
    theorem.evaluate("(link) => link.addEventListener('click', (event) => event.preventDefault())")
    theorem.tap()
    page.clock.run_for(LONG)
    expect(preview).to_be_hidden()
