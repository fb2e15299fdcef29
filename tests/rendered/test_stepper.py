"""The page on the proofs, in a browser: proofs sentence by sentence, and the graph of statements."""

import json
from itertools import pairwise

import pytest
from helpers import HTML, ROOT
from playwright.sync_api import expect

PAGE = "book/proofs.html"
STEPS = "book/proofs-theorem-1.html"
RECORD = json.loads((ROOT / "proofs" / "goals" / "theorem_1_gap.json").read_text())
STATEMENTS = json.loads((ROOT / "proofs" / "statements.json").read_text())
BOXES = """(stepper) => [...stepper.querySelectorAll(".bar, .panel, .bar button, .panel > *"), stepper]
  .map((part) => part.getBoundingClientRect()).map((box) => [box.x, box.width, box.height])"""


def shown(stepper):
    """The sentence that is marked, and the only step that is to be seen."""
    expect(stepper.locator("ol > li:visible")).to_have_count(1)
    sentence = stepper.locator(".script [aria-current=step]").text_content()
    assert stepper.locator("ol > li:visible .sentence").text_content() == sentence
    return sentence


@pytest.mark.parametrize("width", [1280, 390])
def test_a_proof_is_stepped_through_and_nothing_moves(visit, width):
    visited = visit(STEPS, viewport={"width": width, "height": 800}, has_touch=True)
    stepper = visited.page.locator("#steps-theorem_1_gap")
    stepper.locator("summary").click()
    sentences = [step["sentence"] for step in RECORD]
    assert shown(stepper) == sentences[0]
    boxes = stepper.evaluate(BOXES)
    stepper.get_by_role("button", name="Back", exact=True).click(force=True)  # at the start
    assert shown(stepper) == sentences[0]
    for sentence in sentences[1:]:
        stepper.get_by_role("button", name="Next", exact=True).click()
        assert shown(stepper) == sentence
        assert stepper.evaluate(BOXES) == boxes
    expect(stepper.locator("li:visible .done")).to_have_text("Nothing is left to prove.")
    for key, at in (
        ("ArrowRight", -1),
        ("ArrowLeft", -2),
        ("Home", 0),
        ("ArrowRight", 1),
        ("End", -1),
    ):
        visited.page.keyboard.press(key)
        assert shown(stepper) == sentences[at]
    assert not visited.problems


def test_a_swipe_steps_and_a_scroll_does_not(visit):
    visited = visit(STEPS, viewport={"width": 390, "height": 844}, has_touch=True)
    stepper = visited.page.locator("#steps-theorem_1_gap")
    stepper.locator("summary").click()
    for x, y, at in ((-100, 10, 1), (-100, 90, 1), (5, -200, 1), (-60, 0, 2), (100, 0, 1)):
        stepper.locator(".state").evaluate(
            """(list, [x, y]) => {
              const touch = (dx, dy) => new Touch({ identifier: 1, target: list, clientX: 200 + dx, clientY: 300 + dy });
              list.dispatchEvent(new TouchEvent("touchstart", { touches: [touch(0, 0)] }));
              list.dispatchEvent(new TouchEvent("touchend", { changedTouches: [touch(x, y)] }));
            }""",
            [x, y],
        )
        assert shown(stepper) == RECORD[at]["sentence"]


def test_without_a_script_all_steps_are_listed(browser, server):
    context = browser.new_context(base_url=server, java_script_enabled=False)
    page = context.new_page()
    page.goto(STEPS)
    stepper = page.locator("#steps-theorem_1_gap")
    stepper.locator("summary").click()
    expect(stepper.locator("li:visible")).to_have_count(len(RECORD))
    assert [s.strip() for s in stepper.locator(".sentence").all_text_contents()] == [
        step["sentence"] for step in RECORD
    ]
    context.close()


def test_the_graph_is_narrowed_by_address(visit):
    name = "lemma_3_needs_K2_heads"
    kept = {name, *STATEMENTS[name]["theorems"]}
    kept |= {other for other, theorem in STATEMENTS.items() if name in theorem["theorems"]}
    visited = visit(f"{PAGE}#graph={name}")
    graph, marks = visited.page.locator(".statement-graph"), "a:visible text"
    assert 1 < len(kept) < 10
    assert set(graph.locator(marks).all_text_contents()) == kept
    heights = [box.bounding_box()["y"] for box in graph.locator(marks).all()]
    gaps = [b - a for a, b in pairwise(heights)]
    assert max(gaps) - min(gaps) < 1  # no rows are left out
    ends = "paths => paths.filter((p) => p.style.display !== 'none').map((p) => p.dataset.ends.split(' '))"
    edges = graph.locator("> path").evaluate_all(ends)
    assert edges and all(set(edge) <= kept for edge in edges)
    visited.page.get_by_role("link", name="Show all theorems").click()
    expect(graph.locator(marks)).to_have_count(len(STATEMENTS))
    visited.page.goto(STEPS)
    visited.page.locator("a[href='proofs.html#graph=theorem_1']").click()
    expect(graph.locator(".chosen text")).to_have_text("theorem_1")
    assert not visited.problems


def test_an_old_address_of_a_theorem_leads_to_its_page(visit):
    visited = visit(f"{PAGE}#lemma_3")
    visited.page.wait_for_url("**/proofs-lemma-3.html#lemma_3")
    assert not visited.problems


def test_only_pages_on_proofs_load_the_script():
    for page in (PAGE, STEPS):
        assert "stepper.js" in (HTML / page).read_text()
    assert "stepper.js" not in (HTML / "book" / "theorem.html").read_text()
