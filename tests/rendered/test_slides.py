"""The slides, `make slides`, opened as a file in a browser: they fit, they work offline, and their
scenes and keys work. Built here if they are older than what they are made of."""

import csv
import os
import statistics
import subprocess
import sys

import pytest
from filelock import FileLock
from helpers import ROOT

pytestmark = pytest.mark.slow
SLIDES = ROOT / "_build" / "slides" / "index.html"
SOURCES = [
    *(ROOT / "tools").glob("*slides.py"),
    *(ROOT / "tools").glob("talk.*"),
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src").rglob("*.js"),
    *(ROOT / "data" / "runs").glob("*/run.json"),
]
SIZES = {"laptop": (1280, 720), "projector": (1920, 1080)}
# Everything of the current slide that is cut, or lies outside of the screen.
CUT = """() => [...document.querySelectorAll("section.present *:not(.notes, .notes *, mjx-container *)")].filter((node) => {
  const { left, top, right, bottom, width } = node.getBoundingClientRect();
  return width && (left < 0 || top < 0 || right > innerWidth + 0.5 || bottom > innerHeight + 0.5);
}).map((node) => `${node.tagName} ${node.textContent.slice(0, 60)}`)"""

# On a phone: everything wider than the screen.
WIDE = """() => [...document.querySelectorAll(".slides section *:not(.notes, .notes *, mjx-container *)")]
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5).map((node) => node.outerHTML.slice(0, 80))"""


class Talk:
    """The slides in a page, and what went wrong in it."""

    def __init__(self, browser, size, **options):
        self.problems = []
        width, height = size
        self.page = browser.new_page(viewport={"width": width, "height": height}, **options)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._request)
        self.page.goto(SLIDES.as_uri())
        self.page.evaluate("async () => { await MathJax.startup.promise; }")
        self.count = self.page.evaluate("Reveal.getTotalSlides()")

    def show(self, number):
        self.page.evaluate(f"Reveal.slide({number})")
        self.page.wait_for_function(
            "document.getAnimations().every(({ playState }) => playState !== 'running')"
        )

    def at(self):
        return self.page.evaluate("Reveal.getIndices().h")

    def _console(self, message):
        if message.type == "error":
            self.problems.append(message.text)

    def _request(self, request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.problems.append(f"asked of another host: {request.url}")


@pytest.fixture(scope="module")
def talk(browser):
    with FileLock(SLIDES.parents[1] / "slides.lock"):
        newest = max(os.path.getmtime(file) for file in SOURCES)
        if not SLIDES.exists() or SLIDES.stat().st_mtime < newest:
            subprocess.run([sys.executable, ROOT / "tools" / "make_slides.py"], check=True)
    opened = []

    def open_talk(size, **options):
        opened.append(Talk(browser, size, **options))
        return opened[-1]

    yield open_talk
    for each in opened:
        each.page.close()


@pytest.mark.parametrize("model", ["resnet18", "sa-quadratic"])
def test_accuracies_are_those_of_the_records(talk, model):
    """Against the files of the runs, read without the package."""
    runs = ROOT.glob(f"data/runs/{model}--cifar10-small--seed*/metrics.csv")
    last = [
        float(list(csv.DictReader(run.read_text().splitlines()))[-1]["test_accuracy"])
        for run in runs
    ]
    mean, spread = statistics.mean(last), statistics.stdev(last)
    shown = talk(SIZES["laptop"]).page.locator("#talk-table-4").text_content()
    assert f"{mean:.4f} ± {spread:.4f} (n = {len(last)}," in shown


@pytest.mark.parametrize("size", SIZES)
def test_every_slide_fits_and_asks_nothing_of_another_host(talk, size):
    slides = talk(SIZES[size])
    source = (ROOT / "tools" / "talk.md").read_text()
    assert slides.count == 1 + source.count("\n---\n") >= 15
    assert slides.page.locator("aside.notes").count() == slides.count
    for number in range(slides.count):
        slides.show(number)
        assert not slides.page.evaluate(CUT), number
        for picture in slides.page.locator("section.present img").all():
            assert picture.evaluate("(node) => node.naturalWidth > 0 && node.alt.length > 20")
    assert "{{" not in slides.page.locator(".slides").inner_text()
    assert not slides.page.locator("mjx-merror, [data-mml-node=merror]").count()
    assert not slides.problems


def test_the_scenes_are_mounted_and_keep_their_keys(talk):
    slides = talk(SIZES["laptop"])
    frames = slides.page.locator("iframe")
    assert frames.count() == 2
    for n in range(2):
        number = frames.nth(n).evaluate(
            "(node) => [...Reveal.getSlides()].indexOf(node.closest('section'))"
        )
        slides.show(number)
        scene = frames.nth(n).content_frame
        scene.locator(".stage-bar").wait_for()
        size = scene.locator("body").evaluate(
            "(body) => [innerWidth - body.scrollWidth, innerHeight - document.querySelector('.stage').offsetHeight]"
        )
        assert min(size) >= 0  # nothing of the scene is cut
        scene.locator('[tabindex="0"]').first.focus()
        slides.page.keyboard.press("ArrowRight")
        assert slides.at() == number
        slides.page.keyboard.press("Escape")
        slides.page.wait_for_function("document.activeElement?.tagName !== 'IFRAME'")
        slides.page.keyboard.press("ArrowRight")
        slides.page.wait_for_function(f"Reveal.getIndices().h === {number + 1}")
    assert not slides.problems


def test_a_phone_reads_the_slides_one_below_another(talk):
    slides = talk((390, 844), has_touch=True)
    slides.page.wait_for_function("Reveal.isScrollView()")
    assert slides.page.evaluate(WIDE) == []
    assert not slides.problems
