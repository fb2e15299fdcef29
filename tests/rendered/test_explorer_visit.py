"""A reader's visit to the explorer's pages, in a browser. Needs `make book`."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from helpers import HTML
from helpers.stage import PAGE
from PIL import Image
from playwright.sync_api import expect

from companion.explorer import page_html
from companion.explorer.payload import attention_payload
from companion.runs.record import load_run

HEADS = "book/explorer.html"
CONTENT = "sa-learned-content--digits-brief--seed0"
MOVES = {"reduced_motion": "no-preference"}


@pytest.fixture
def at(visit):
    """Opens a page with the state of a link, and returns it once a view is there; its clock can be
    moved on from then."""
    visits = []

    def open_view(path, state="", **options):
        visits.append(visit(path + (f"#{state}" if state else ""), **options))
        page = visits[-1].page
        expect(page.locator(".explorer .explorer-keep a")).to_have_attribute(
            "href", re.compile("=")
        )
        page.clock.install()
        return page

    yield open_view
    assert not [problem for visited in visits for problem in visited.problems]


def spot(page, selector, row, column, size=8):
    """Where on the screen a pixel of a canvas is."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    return (
        box["x"] + (column + 0.5) / size * box["width"],
        box["y"] + (row + 0.5) / size * box["height"],
    )


def reading(page):
    return page.locator(".explorer-reading")


def address(page):
    """The state in the page's address, once it has been written."""
    page.clock.run_for(1000)
    return dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&"))


# --- what trained heads look at -------------------------------------------------------------------


def test_the_query_follows_the_pointer_until_a_click_freezes_it(at):
    page = at(HEADS)
    assert page.evaluate("location.hash") == "", "opened with its plain address"
    page.clock.run_for(1000)
    chosen, masses = (
        [float(re.search(r"m (\S+)", text)[1]) for text in page.locator(heads).all_inner_texts()]
        for heads in (".explorer-row button[aria-pressed=true]", ".explorer-row button")
    )
    assert chosen == [max(masses)] and chosen[0] > 0.3, "it opens with the sharpest head"
    page.mouse.move(*spot(page, ".explorer-pad", 2, 6))
    expect(reading(page)).to_contain_text("Query (2, 6)")
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(*spot(page, ".explorer-pad", 5, 1))
    expect(reading(page)).to_contain_text("Query (2, 6)")
    page.mouse.down()
    page.mouse.up()
    expect(reading(page)).to_contain_text("Query (5, 1)")
    page.mouse.move(*spot(page, ".explorer-pad", 0, 0))
    expect(reading(page)).to_contain_text("Query (0, 0)")


def test_the_pointer_and_the_keys_move_the_query_and_read_the_map(at):
    page = at(HEADS, "query=4,4&head=2")
    page.locator(".explorer-pad").focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    expect(reading(page)).to_contain_text("Query (2, 3)")
    page.locator(".explorer-map").focus()
    page.keyboard.press("ArrowDown")
    expect(reading(page)).to_contain_text("Key pixel (3, 3), offset (1, 0): probability")
    total = 0.0
    for row in range(8):
        for column in range(8):
            page.mouse.move(*spot(page, ".explorer-map", row, column))
            text = reading(page).inner_text()
            assert f"({row}, {column}), offset" in text
            total += float(re.search(r"probability ([^,]+),", text)[1].replace("−", "-"))
    assert total == pytest.approx(1, abs=0.02)


def test_a_finger_moves_the_query(at):
    page = at(HEADS, has_touch=True, viewport={"width": 390, "height": 844})
    page.touchscreen.tap(*spot(page, ".explorer-pad", 6, 2))
    expect(reading(page)).to_contain_text("Query (6, 2)")


def test_a_link_gives_the_view_again(at):
    page = at(HEADS)
    page.get_by_label("Model", exact=True).select_option("sa-quadratic-16--digits-brief--seed0")
    page.get_by_role("button", name="layer 2, head 12").click()
    page.get_by_label("As", exact=True).select_option("0")
    page.locator(".explorer-pad").focus()
    page.keyboard.press("ArrowUp")
    state = address(page)
    expected = {
        "model": "sa-quadratic-16--digits-brief--seed0",
        "layer": "2",
        "head": "12",
        "softmax": "0",
        "query": "3,4",
    }
    assert expected.items() <= state.items()
    link = page.locator(".explorer-link").get_attribute("href")
    other = at(HEADS, link.lstrip("#"))
    for selector in (".explorer-reading", "figcaption >> nth=1", ".explorer-training output"):
        assert other.locator(selector).inner_text() == page.locator(selector).inner_text()
    same = "document.querySelector('.explorer-map').toDataURL()"
    assert other.evaluate(same) == page.evaluate(same)
    page.evaluate("location.hash = '#main-content'")  # a link to a heading keeps the view
    expect(page.get_by_label("Model", exact=True)).to_have_value(expected["model"])


def test_a_link_that_asks_for_too_much_says_so(at):
    page = at(
        HEADS, "model=sa-quadratic--digits-brief--seed0&layer=9&query=99,0&epoch=77&softmax=true"
    )
    status = page.locator(".explorer-status")
    expect(status).to_contain_text("There is no layer “9”; expected a number from 1 to 3.")
    expect(status).to_contain_text("Epoch “77” was not recorded")
    expect(status).to_contain_text("The link's softmax is “true”, expected 1 or 0.")
    expect(status).to_contain_text("The link's query is “99,0”, expected a row below 8")
    expect(reading(page)).to_contain_text("Query (4, 4)")


def test_the_centres_walk_through_training(at):
    page = at(HEADS, "model=sa-quadratic--digits-brief--seed0&query=4,4", **MOVES)
    slider, caption = page.get_by_label("Training"), page.locator("figcaption").nth(1)
    last = caption.inner_text()
    slider.fill("0")
    expect(page.locator(".explorer-training output")).to_have_text("after epoch 0 of 5")
    assert caption.inner_text() != last and "centre" in last
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(3000)
    expect(page.locator(".explorer-training output")).to_have_text("after epoch 5 of 5")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    assert caption.inner_text() == last
    assert address(page)["epoch"] == "5"


def test_every_model_is_there(at):
    page = at(HEADS)
    for kind in ("quadratic", "generalized", "generalized-pruned", "learned", "learned-content"):
        model = f"sa-{kind}--digits-brief--seed0"
        page.evaluate("(model) => { location.hash = `model=${model}`; }", model)
        expect(page.locator(".explorer-source").last).to_contain_text(model)
        head = page.get_by_role("group", name="layer 3").get_by_role("button").first
        expect(head).to_contain_text("m 0.")


def test_content_maps_are_loaded_and_have_parts(at):
    page = at(HEADS)
    loaded = []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    page.get_by_label("Model", exact=True).select_option(CONTENT)
    expect(page.locator(".explorer-source").last).to_contain_text(CONTENT)
    assert sorted(loaded) == [f"{CONTENT}--digit-0--layer{n}.safetensors" for n in (1, 2, 3)]
    expect(page.locator(".explorer-training")).to_be_hidden()
    page.mouse.move(*spot(page, ".explorer-pad", 3, 3))
    seen = set()
    for part in ("score", "position", "content"):
        page.get_by_label("Show").select_option(part)
        seen.add(page.evaluate("document.querySelector('.explorer-map').toDataURL()"))
    assert len(seen) == 3
    page.get_by_label("Image").select_option("digits-mean")
    expect(page.locator(".explorer-status")).to_contain_text(
        "content part (what), q · k: not there"
    )


def test_a_message_stands_in_place_of_what_cannot_be_shown(visit):
    visited = visit(HEADS)
    page = visited.page
    for answer, message in (
        ({"body": b"?"}, "layer1 is damaged: it is not what this page was built with."),
        ({"status": 404, "body": b""}, "could not be loaded: the server answered 404."),
    ):
        visited.answer("**/*layer1.safetensors", **answer)
        page.get_by_label("Model", exact=True).select_option(CONTENT)
        expect(page.get_by_role("alert")).to_contain_text(message)
        expect(page.locator(".explorer-pad")).to_have_count(0)
        page.get_by_label("Model", exact=True).select_option("sa-quadratic--digits-brief--seed0")
        expect(page.locator(".explorer-pad")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
    assert not visited.violations("after a message")
    page.unroute("**/*layer1.safetensors")
    page.route(
        re.compile(r"digit-[01]--layer1\.safetensors"), lambda route: route.fulfill(status=404)
    )
    page.get_by_label("Model", exact=True).select_option(CONTENT)
    expect(page.get_by_role("alert")).to_contain_text("digit-0--layer1")
    page.get_by_label("Image").select_option("digit-1")
    expect(page.get_by_role("alert")).to_contain_text("digit-1--layer1")
    page.get_by_label("Image").select_option("digit-2")
    expect(page.locator(".explorer-pad")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_nothing_is_done_to_a_model_that_is_still_loading(visit):
    visited = visit(HEADS)
    page, waiting = visited.page, []
    page.route("**/*layer1.safetensors", lambda route: waiting.append(route))
    page.get_by_label("Model", exact=True).select_option(CONTENT)
    page.mouse.move(*spot(page, ".explorer-pad", 1, 1))
    page.locator(".explorer-pad").press("ArrowDown")
    page.get_by_label("Head", exact=True).select_option("4")
    waiting[0].continue_()
    expect(page.locator(".explorer-source").last).to_contain_text(CONTENT)
    page.locator(".explorer-pad").press("ArrowDown")
    expect(reading(page)).to_contain_text("Query (5, 4)")
    assert not visited.problems


def test_another_image_keeps_the_moment(at):
    page = at(HEADS, "model=sa-learned--digits-brief--seed0&epoch=0")
    page.get_by_label("Training").fill("2")
    page.get_by_label("Image").select_option("digit-1")
    expect(page.locator(".explorer-training output")).to_have_text("after epoch 2 of 5")


def test_the_view_is_saved_as_a_picture(at, tmp_path):
    page = at(HEADS)
    for kind in ("svg", "png"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save as {kind.upper()}").click()
        download.value.save_as(tmp_path / f"view.{kind}")
    root = ElementTree.parse(tmp_path / "view.svg").getroot()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 3
    with Image.open(tmp_path / "view.png") as picture:
        assert picture.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20


@pytest.mark.parametrize("path", [HEADS, PAGE])
def test_the_page_loads_at_most_2_mb(visit, path):
    visited = visit()
    sizes = []
    visited.page.on("response", lambda response: sizes.append(len(response.body())))
    visited.page.goto(path, wait_until="networkidle")
    assert 100_000 < sum(sizes) < 2_000_000


def test_the_explorer_opens_from_a_folder(browser, visit):
    page = browser.new_page()
    page.goto((HTML / HEADS).as_uri())
    expect(page.locator(".explorer-pad")).to_be_visible()
    page.get_by_label("Model", exact=True).select_option(CONTENT)
    expect(page.get_by_role("alert")).to_contain_text("make serve")
    page.close()


def test_the_query_goes_to_the_nearest_pixel_that_a_record_has_maps_of(browser, paper_records):
    record = load_run(paper_records / "sa-learned-content--cifar10--seed0")
    page = browser.new_page()
    page.set_content(
        f"<!doctype html><body>{page_html('attention', attention_payload([record]).data, '')}"
    )
    expect(page.locator(".explorer-pad")).to_be_visible()
    page.get_by_label("Image").select_option("flower")
    page.get_by_role("button", name="layer 1, head 1").click()
    page.mouse.move(*spot(page, ".explorer-pad", 0, 15, size=16))
    expect(reading(page)).to_contain_text("Query (3, 12)")
    expect(page.locator("figcaption").first).to_contain_text(
        "Only 9 query pixels were recorded; this is the nearest"
    )
    largest = float(re.search(r"probability ([^,]+),", reading(page).inner_text())[1])
    number = record.attention["queries"].tolist().index([3, 12])
    assert largest == pytest.approx(
        record.content_maps.single["photograph"].maps()[1, 0, 0, number].max().item(), rel=1e-2
    )
    page.close()
