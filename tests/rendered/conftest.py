"""The built book in a real browser, from a server of its own and without any other host."""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers import HTML
from helpers.chromium import LOADED, chromium_or_skip
from helpers.network_scene import ready
from helpers.stage import PAGE, SIZES
from playwright.sync_api import expect, sync_playwright

EMPTY = "_static/explorer/still-heads.png"  # where the clock is stopped before the stage is opened
TYPESET = "async () => { await window.MathJax?.startup?.promise; }"
# What fades in, or from one theme to another, has another contrast on the way.
FINISH_ANIMATIONS = """() => document.getAnimations().forEach((animation) => {
  if (animation.effect.getComputedTiming().endTime < Infinity) animation.finish();
})"""
# Axe would fetch imported style sheets from wrong addresses, for an experimental rule only, which
# is off.
AXE_OPTIONS = {"resultTypes": ["violations"], "preload": {"assets": ["media"]}}
expect.set_options(timeout=20_000)  # for busy machines; what is there is found at once


class Handler(SimpleHTTPRequestHandler):
    """Files, without a line in the log for each."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    """Quiet when a page is left before all of it was sent."""

    def handle_error(self, *arguments):
        pass


class Visit:
    """A page in a browser context of its own, and what went wrong in it since it was opened."""

    def __init__(self, browser, server, path, **context_options):
        self.problems = []
        # Service workers would answer requests out of sight, and movement would be caught half way.
        settings = {"service_workers": "block", "reduced_motion": "reduce"} | context_options
        self.context = browser.new_context(base_url=server, **settings)
        self.context.set_default_timeout(60_000)
        self.context.route(re.compile(rf"^(?!{re.escape(server)}/|data:|blob:)"), self._refuse)
        self.context.on("console", self._console)
        self.context.on(
            "weberror", lambda error: self.problems.append(f"uncaught exception: {error.error}")
        )
        self.context.on("requestfailed", self._failed)
        self.context.on("response", self._response)
        self.page = self.context.new_page()
        self.page.on("websocket", lambda socket: self.problems.append(f"web socket: {socket.url}"))
        self.page.goto(path)
        self.page.wait_for_function(LOADED)
        self.page.evaluate(TYPESET)

    def violations(self, state):
        """Return a text, headed by `state`, for each element that breaks a rule of axe-core."""
        self.page.evaluate(FINISH_ANIMATIONS)
        rules = Axe().run(self.page, options=AXE_OPTIONS).response["violations"]
        return [
            f"{state}: {rule['id']} ({rule['help']}) at {node['target']}\n   "
            f" {node['html'][:300]}\n    {node['failureSummary']}"
            for rule in rules
            for node in rule["nodes"]
        ]

    def _refuse(self, route):
        self.problems.append(f"asked of another host: {route.request.url}")
        route.abort("blockedbyclient")

    def _console(self, message):
        if message.type == "error":
            self.problems.append(f"console: {message.text} ({message.location['url']})")

    def _failed(self, request):
        # Chromium asks for the icon whenever the address changes, and gives up the request before.
        if not (request.url.endswith("favicon.svg") and request.failure == "net::ERR_ABORTED"):
            self.problems.append(f"failed: {request.url} ({request.failure})")

    def _response(self, response):
        if response.status >= 400:
            self.problems.append(f"status {response.status}: {response.url}")


@pytest.fixture(scope="session")
def server():
    """The address of a server of the built book, for as long as the tests run."""
    with Server(("127.0.0.1", 0), partial(Handler, directory=HTML)) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Chromium, headless. Without one the tests are skipped, or fail where
    ATTNCONV_BROWSER=required."""
    executable = chromium_or_skip()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser, server):
    """Opens a page: `visit("book/intro.html", color_scheme="dark")` has `.page`, `.problems` and
    `.violations`."""
    visits = []

    def open_page(path, **context_options):
        visits.append(Visit(browser, server, path, **context_options))
        return visits[-1]

    yield open_page
    for visited in visits:
        visited.context.close()


@pytest.fixture
def stage(visit):
    """Opens the stage with the state of a link, at a size, with movement and with a clock that is
    moved on by hand."""
    visits = []

    def open_stage(state="", size="desktop", motion="no-preference", path=PAGE, **options):
        width, height = SIZES[size]
        options |= {"has_touch": size == "phone", "reduced_motion": motion}
        visited = visit(EMPTY, viewport={"width": width, "height": height}, **options)
        visits.append(visited)
        visited.page.clock.install(time=0)
        visited.page.clock.pause_at(1000)
        visited.page.goto(path + (f"#{state}" if state else ""))
        expect(visited.page.locator(".stage-bar")).to_be_visible()
        visited.page.clock.run_for(50)
        return visited

    yield open_stage
    assert not [problem for visited in visits for problem in visited.problems]


@pytest.fixture
def scene(visit):
    """Opens the scene with the state of a link, at a size, and waits for the networks."""
    visits = []

    def open_scene(state="", size="desktop", path=PAGE, **options):
        width, height = SIZES[size]
        options |= {"viewport": {"width": width, "height": height}, "has_touch": size == "phone"}
        address = f"{path}#scene=network{'&' if state else ''}{state}"
        visits.append(visit(address, **options))
        ready(visits[-1].page)
        return visits[-1]

    yield open_scene
    assert not [problem for visited in visits for problem in visited.problems]
