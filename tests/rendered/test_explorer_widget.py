"""The explorer's widget in a browser: in a page made of a notebook, and with a notebook's model.
Needs `make book`."""

import json

import pytest
import torch
from helpers.synthetic import write_record
from ipywidgets.embed import embed_data
from playwright.sync_api import expect

from companion.explorer.widget import explore, explore_maps

IDENTITY = torch.eye(16).view(1, 1, 4, 4, 4, 4)
LOADERS = ("require", "widgets-local", "embed-amd")
# The two ends of a widget's model, as anywidget gives it to the module's `render`.
NOTEBOOK = """async ([source, data, state]) => {
  const module = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const values = { data, state }, listeners = [];
  window.model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes: () => { window.saved = JSON.parse(JSON.stringify(values.state)); },
    on: (event, listener) => listeners.push(listener),
  };
  window.fromPython = (state) => { values.state = state; listeners.forEach((listener) => listener()); };
  // as a page of the book does, which adds the element when the view may be made already
  const el = document.createElement("div");
  window.cleanUp = await module.default.render({ model: window.model, el });
  document.body.append(el);
}"""


def test_a_page_made_of_a_notebook_shows_the_widget(visit):
    widget = explore_maps(IDENTITY)
    data = embed_data(views=[widget], drop_defaults=False)
    (view,) = data["view_specs"]
    scripts = "".join(f'<script src="_static/widgets/{name}.js"></script>' for name in LOADERS)
    embedded = "".join(
        f'<script type="application/vnd.jupyter.widget-{kind}+json">{json.dumps(part)}</script>'
        for kind, part in (("state", data["manager_state"]), ("view", view))
    )
    visited = visit("search.html")
    page = visited.context.new_page()  # to leave the other would break off what it still loads
    body = (
        "<!doctype html><html lang=en><title>A notebook</title><link rel=icon"
        f" href=data:,>{scripts}<body>{embedded}"
    )
    page.route("**/notebook.html", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto("/notebook.html")
    expect(page.locator(".explorer-reading")).to_contain_text("probability 1,")
    assert not visited.problems


@pytest.fixture
def notebook(browser):
    """A page with the widget's view in it, and a notebook's model behind."""
    page, widget = browser.new_page(), explore_maps(IDENTITY, query=(1, 2), scale="shared")
    page.evaluate(NOTEBOOK, [widget._esm, widget.data, widget.state])
    yield page
    page.close()


def test_maps_are_shown_in_an_element_that_is_added_later(browser):
    page, widget = browser.new_page(), explore_maps(IDENTITY)
    page.evaluate(NOTEBOOK, [widget._esm, widget.data, widget.state])
    expect(page.locator(".explorer")).not_to_contain_text("could not be shown")
    expect(page.locator(".explorer canvas, .explorer svg").first).to_be_visible()
    page.close()


def test_python_is_told_what_the_reader_chooses(notebook):
    notebook.wait_for_function("window.saved")
    assert notebook.evaluate("saved.query") == "1,2"
    expect(notebook.get_by_text("Link to this view")).to_have_count(0)
    notebook.get_by_label("As", exact=True).select_option("0")
    notebook.wait_for_function("saved.softmax === '0'")
    assert notebook.evaluate("saved.scale") == "shared"


def test_the_view_shows_what_python_sets(notebook):
    notebook.evaluate("fromPython({ query: '3,0', scale: 'own' })")
    expect(notebook.locator(".explorer-reading")).to_contain_text("Query (3, 0)")
    expect(notebook.get_by_label("Colours")).to_have_value("own")


def test_a_view_that_is_gone_does_nothing_more(browser, tmp_path):
    """Playing stops with it."""
    attention = {"epochs": torch.arange(9)}
    attention["layer1.centers"] = torch.randn(9, 2, 2)
    attention["layer1.alpha"] = torch.full((9, 2), 4.0)
    widget = explore(write_record(tmp_path, "sa-quadratic", attention=attention), epoch=0)
    page = browser.new_page()
    page.clock.install()
    page.evaluate(NOTEBOOK, [widget._esm, widget.data, widget.state])
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(1000)
    reached = page.evaluate("saved.epoch")
    assert int(reached) >= 2
    page.evaluate("cleanUp()")
    page.clock.run_for(5000)
    assert page.evaluate("saved.epoch") == reached
    page.close()
