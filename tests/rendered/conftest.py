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
from helpers.stage import PAGE, SIZES, open_state
from playwright.sync_api import expect, sync_playwright

TYPESET = "async () => { await window.formulas?.ready(); }"
# What fades in, or from one theme to another, has another contrast on the way.
FINISH_ANIMATIONS = """() => document.getAnimations().forEach((animation) => {
  if (animation.effect.getComputedTiming().endTime < Infinity) animation.finish();
})"""
# Axe would fetch imported style sheets from wrong addresses, for an experimental rule only, which
# is off.
AXE_OPTIONS = {"resultTypes": ["violations"], "preload": {"assets": ["media"]}}
# The rules whose result depends on the theme, which changes nothing but colours.
OF_COLORS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
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

    def __init__(self, browser, server, path=None, **context_options):
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
        if path:
            self.page.goto(path)
            self.page.wait_for_function(LOADED)
            self.page.evaluate(TYPESET)

    def answer(self, address, **answer):
        """Give this answer to what the page asks of an address."""
        self.page.route(address, lambda route: route.fulfill(**answer))

    def violations(self, state, part=None, only_colors=False):
        """Return a text, headed by `state`, for each element that breaks a rule of axe-core, or one
        on colours only, in the page or in the part of it with the selector `part`."""
        self.page.evaluate(FINISH_ANIMATIONS)
        options = AXE_OPTIONS | (OF_COLORS if only_colors else {})
        rules = Axe().run(self.page, context=part, options=options).response["violations"]
        return [
            f"{state}: {rule['id']} ({rule['help']}) at {node['target']}\n   "
            f" {node['html'][:300]}\n    {node['failureSummary']}"
            for rule in rules
            for node in rule["nodes"]
        ]

    def violations_in_both_themes(self, state, part=None):
        """Return what `violations` does, in the light theme and in the dark one, which the system
        asks for."""
        found = []
        for scheme in ("dark", "light"):
            self.page.emulate_media(color_scheme=scheme)
            expect(self.page.locator("html")).to_have_attribute("data-theme", scheme)
            found += self.violations(f"{state}, {scheme}", part, only_colors=scheme == "dark")
        return found

    def _refuse(self, route):
        self.problems.append(f"asked of another host: {route.request.url}")
        route.abort("blockedbyclient")

    def _console(self, message):
        if message.type == "error":
            self.problems.append(f"console: {message.text} ({message.location['url']})")

    def _failed(self, request):
        # A request that the browser gives up itself is none that failed: it leaves the page before
        # all of it has arrived, or asks for the icon again because the address has changed.
        if request.failure != "net::ERR_ABORTED":
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

    def open_page(path=None, **context_options):
        visits.append(Visit(browser, server, path, **context_options))
        return visits[-1]

    yield open_page
    for visited in visits:
        visited.context.close()


@pytest.fixture(scope="module")
def kept():
    """The pages of the stage that the tests of a module share, by how they were opened."""
    visits = {}
    yield visits
    for visited in visits.values():
        visited.context.close()


@pytest.fixture
def stage_page(request, browser, server, kept):
    """Opens the stage with the state of a link, at a size: in a page that an earlier test has left,
    unless it is to be `fresh`, is another page of the book, or the test already has it."""
    mine, failed = [], request.session.testsfailed

    def open_page(state, size, path=PAGE, fresh=False, stop_clock=False, **options):
        width, height = SIZES[size]
        options |= {"viewport": {"width": width, "height": height}, "has_touch": size == "phone"}
        key = None if fresh or path != PAGE else (stop_clock, *map(str, options.items()))
        visited = kept.get(key)
        if visited and visited not in mine:
            visited.page.set_viewport_size(options["viewport"])
            open_state(visited.page, state)
        else:
            visited = Visit(browser, server, **options)
            if key and key not in kept:
                kept[key] = visited
            if stop_clock:
                visited.page.clock.install(time=0)
                visited.page.clock.pause_at(1000)
            visited.page.goto(path + (f"#{state}" if state else ""))
            expect(visited.page.locator(".stage-bar")).to_be_visible()
        mine.append(visited)
        return visited

    yield open_page
    problems = [problem for visited in mine for problem in visited.problems]
    if problems or request.session.testsfailed > failed:  # in what state their pages are is unknown
        mine += kept.values()
        kept.clear()
    for visited in {*mine} - {*kept.values()}:
        visited.context.close()
    assert not problems


@pytest.fixture
def stage(stage_page):
    """Opens the stage as `stage_page` does, with movement and with a clock that is moved on by
    hand."""

    def open_stage(state="", size="desktop", motion="no-preference", **options):
        visited = stage_page(state, size, stop_clock=True, reduced_motion=motion, **options)
        visited.page.clock.run_for(50)
        return visited

    return open_stage


@pytest.fixture
def scene(stage_page):
    """Opens scene 3 as `stage_page` does, and waits for the networks."""

    def open_scene(state="", size="desktop", **options):
        address = f"scene=network{'&' if state else ''}{state}"
        visited = stage_page(address, size, **options)
        visited.page.evaluate(TYPESET)
        ready(visited.page)
        return visited

    return open_scene
