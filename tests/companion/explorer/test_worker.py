"""The networks in a Web Worker of Chromium: what they answer, and what goes wrong."""

import json

import pytest
from helpers.chromium import chromium_or_skip
from playwright.sync_api import sync_playwright

from attnconv import load_model
from companion.explorer import script, source
from companion.explorer.networks import add_networks
from companion.explorer.payload import Payload

pytestmark = pytest.mark.slow
ADDRESS = "http://book.example/page/"


@pytest.fixture(scope="module")
def payload():
    """One network, whose weights lie beside the page."""
    return add_networks(Payload("files"), [load_model("sa-quadratic").record])


@pytest.fixture(scope="module")
def page(payload):
    executable = chromium_or_skip()
    start = f"""
    window.NetworkClient = NetworkClient;
    window.script = {json.dumps(script("worker"))};
    window.client = new NetworkClient(script);
    window.payload = {json.dumps(payload.data)};
    const bytes = () => new Uint8ClampedArray(8000).map((_, n) => n % 251);
    window.picture = () => ({{ width: 50, height: 40, data: bytes() }});
    window.told = (promise) => promise.then((value) => value, (error) => error.message);
    """
    html = f"<script type=module>{source('js/network/client.js')}{start}</script>"

    def serve(route):
        name = route.request.url.removeprefix(ADDRESS + "files/")
        if route.request.url == ADDRESS:
            route.fulfill(body=html, content_type="text/html")
        elif name in payload.files:
            route.fulfill(body=payload.files[name])
        else:
            route.fulfill(status=404)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        context = browser.new_context()
        context.route("**/*", serve)
        page = context.new_page()
        page.goto(ADDRESS)
        page.wait_for_function("() => Boolean(window.told)")
        yield page
        browser.close()


def test_a_network_runs_on_a_picture(page):
    logits, again, pixels = page.evaluate("""async () => {
      const [entry] = payload.networks;
      await client.load(entry);
      const { pixels, image } = await client.look(picture(), payload.input);
      const run = async () => Array.from((await client.run(entry.id, image)).logits);
      return [await run(), await run(), Array.from(pixels)];
    }""")
    assert len(logits) == 10 and logits == again and len(pixels) == 32 * 32 * 3
    assert len(set(pixels)) > 10


def test_of_many_requests_the_last_is_kept(page):
    answered = page.evaluate("""async () => {
      const [entry] = payload.networks;
      await client.load(entry);
      const images = [1, 2, 3, 4].map((value) => new Float32Array(3072).fill(value));
      const all = await Promise.all(images.map((image) => client.run(entry.id, image)));
      const last = await client.run(entry.id, images[3]);
      return [all.map(Boolean), Array.from(all[3].logits), Array.from(last.logits)];
    }""")
    assert answered[0] == [True, False, False, True]
    assert answered[1] == answered[2]


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (
            "client.run('cnn', new Float32Array(3072))",
            "The network cnn is not loaded; load it first.",
        ),
        (
            "client.load({ id: 'a', file: { ...payload.networks[0].file, crc32: 2, url: 'no' } })",
            "could not be loaded: the server answered 404. Reload the page; if that does not help,",
        ),
        (
            "client.load({ id: 'a', file: { ...payload.networks[0].file, crc32: 1 } })",
            "is damaged: it is not what this page was built with.",
        ),
        (
            "client.look({ width: 0, height: 9, data: new Uint8Array(0) }, payload.input)",
            "This picture is empty (0 × 9 pixels); choose another one.",
        ),
    ],
)
def test_what_goes_wrong_is_told(page, request_, sentence):
    assert sentence in page.evaluate(f"() => told({request_})")


def test_a_worker_that_cannot_start_says_so_each_time(page):
    messages = page.evaluate("""async () => {
      const broken = new NetworkClient("this is no script");
      const ask = () => told(broken.run("cnn", new Float32Array(3072)));
      return [await ask(), await ask()];
    }""")
    assert messages == ["The networks cannot run in this browser; try another one."] * 2


def test_closing_frees_the_script_with_a_worker_and_without(page):
    found = page.evaluate("""async () => {
      const gone = ({ url }) => fetch(url).then(() => false, () => true);
      const running = new NetworkClient("");
      const there = !(await gone(running));
      running.close();
      const { Worker } = window;
      window.Worker = class { constructor() { throw new Error("refused"); } };
      const refused = new NetworkClient("");
      window.Worker = Worker;
      refused.close();
      return [there, await gone(running), await gone(refused)];
    }""")
    assert found == [True, True, True]


def test_two_requests_for_a_network_fetch_it_once(page, payload):
    """And one that failed can be asked for again."""
    name = next(iter(payload.files))
    asked = []
    page.context.on("request", lambda request: asked.append(request.url))
    found = page.evaluate("""async () => {
      const [{ file, ...entry }] = payload.networks, another = new NetworkClient(script);
      const missing = { ...entry, file: { ...file, crc32: 7, url: "no" } };
      const first = await told(another.load(missing));
      const loads = await Promise.all([1, 2].map(() => told(another.load({ file, ...entry }))));
      another.close();
      return [first, ...loads.map((reply) => reply === undefined)];
    }""")
    assert "the server answered 404" in found[0] and found[1:] == [True, True]
    assert len([url for url in asked if url.endswith(name)]) == 1


def test_it_runs_in_a_page_opened_as_a_file(page, tmp_path):
    (entry,) = add_networks(Payload(), [load_model("sa-quadratic").record]).data["networks"]
    start = f"""
    window.client = new NetworkClient({json.dumps(script("worker"))});
    window.entry = {json.dumps(entry)};
    """
    (tmp_path / "page.html").write_text(
        f"<script type=module>{source('js/network/client.js')}{start}</script>"
    )
    context = page.context.browser.new_context()
    opened = context.new_page()
    opened.goto((tmp_path / "page.html").as_uri())
    opened.wait_for_function("() => Boolean(window.entry)")
    logits, message = opened.evaluate("""async () => {
      await client.load(entry);
      const { logits } = await client.run(entry.id, new Float32Array(3072));
      const elsewhere = { ...entry, id: "a", file: { name: "a", crc32: 1, url: "a" } };
      return [Array.from(logits), await client.load(elsewhere).catch((error) => error.message)];
    }""")
    context.close()
    assert len(logits) == 10
    assert "Read the book through a server: make serve." in message
