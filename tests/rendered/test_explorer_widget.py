"""The explorer's widget in a browser: in a page made of a notebook, and with a notebook's model.
Needs `make book`."""

import json

import pytest
import torch
from ipywidgets.embed import embed_data
from playwright.sync_api import expect

from attnconv.explorer.payload import convolution_payload, pixel_payload
from attnconv.explorer.widget import Explorer, explore_maps

LOADERS = ("require", "widgets-local", "embed-amd")
# The two ends of a widget's model, as anywidget gives it to the module's `render`.
NOTEBOOK = """async ([source, view, data, state]) => {
  const module = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const values = { view, data, state }, listeners = [];
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
    widget = Explorer.of("convolution", convolution_payload(), {"alpha": 746})
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
    expect(page.locator(".explorer-result")).to_contain_text("Largest difference: 0 inside")
    assert not visited.problems


@pytest.fixture
def notebook(browser):
    """A page with the widget's view in it, and a notebook's model behind."""
    page, state = browser.new_page(), {"alpha": 3, "border": "as it is"}
    widget = Explorer.of("convolution", convolution_payload(), state)
    page.evaluate(NOTEBOOK, [widget._esm, widget.view, widget.data, widget.state])
    yield page
    page.close()


def test_maps_are_shown_in_an_element_that_is_added_later(browser):
    page, widget = browser.new_page(), explore_maps(torch.eye(16).view(1, 1, 4, 4, 4, 4))
    page.evaluate(NOTEBOOK, [widget._esm, widget.view, widget.data, widget.state])
    expect(page.locator(".explorer")).not_to_contain_text("could not be shown")
    expect(page.locator(".explorer canvas, .explorer svg").first).to_be_visible()
    page.close()


def test_python_is_told_what_the_reader_chooses(notebook):
    assert notebook.evaluate("saved")["alpha"] == "3"
    expect(notebook.get_by_text("Link to this view")).to_have_count(0)
    notebook.get_by_label("Kernel", exact=True).select_option("identity")
    state = notebook.evaluate("saved")
    assert state["kernel"] == "identity" and state["border"] == "as it is"


def test_the_view_shows_what_python_sets(notebook):
    notebook.evaluate("fromPython({ alpha: '746', border: 'padded' })")
    expect(notebook.locator(".explorer output")).to_contain_text("hard")
    expect(notebook.get_by_label("Border")).to_have_value("padded")


def test_a_view_that_is_gone_does_nothing_more(browser):
    page, widget = browser.new_page(), Explorer.of("pixel", pixel_payload(), {})
    page.evaluate(NOTEBOOK, [widget._esm, widget.view, widget.data, widget.state])
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(2500)
    assert page.evaluate("saved.step") == "2"
    page.evaluate("cleanUp()")
    page.clock.run_for(5000)
    assert page.evaluate("saved.step") == "2"
    page.close()
