"""The stage in Firefox: its three scenes run, and scene 3 computes what torch does. Needs `make
book`; skipped where Firefox is missing."""

import re
import shutil
import subprocess
import time

import pytest
import torch
from helpers.network_scene import seen_image
from helpers.slurm import free_ports
from helpers.stage import PAGE
from marionette_driver.marionette import Marionette

from attnconv import load_model
from companion.data.cifar10 import CIFAR10_CLASSES

FIREFOX = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
pytestmark = pytest.mark.skipif(
    FIREFOX is None, reason="Firefox is not on the PATH; on Debian: apt-get install firefox-esr"
)
ERRORS = """return Services.console.getMessageArray()
  .filter((message) => message instanceof Ci.nsIScriptError && !(message.flags & 1))
  .filter((message) => message.sourceName.startsWith(arguments[0])).map(String)"""
SECONDS = 120  # within which a sentence appears, also on a busy machine


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    """Start headless Firefox with a fresh profile and yield its session."""
    profile, [port] = tmp_path_factory.mktemp("firefox"), free_ports(1)
    (profile / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
    options = ["--headless", "--marionette", "-remote-allow-system-access", "--no-remote"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([FIREFOX, *options, "--profile", profile], **quiet)
    session = Marionette(host="127.0.0.1", port=port)
    try:
        session.raise_for_port(timeout=60)
        session.start_session()
        session.set_window_rect(width=1280, height=800)
        yield session
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def said(firefox, server):
    """Opens a scene and returns the first sentence it says that matches a pattern."""

    def wait_for(scene, pattern):
        firefox.navigate("about:blank")
        firefox.navigate(f"{server}/{PAGE}#scene={scene}")
        read = "return document.querySelector('.stage')?.innerText ?? ''"
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, text := firefox.execute_script(read))):
            assert time.monotonic() < deadline, f"scene {scene} says: {text[:800]}"
            time.sleep(0.2)
        return found

    yield wait_for
    with firefox.using_context("chrome"):
        assert firefox.execute_script(ERRORS, [server]) == []


def test_nine_heads_become_a_convolution(said):
    said("heads", r"exact: the largest difference between attention and convolution is 0\.")


def test_gradient_descent_finds_the_pixels(said):
    said("descent", r"All nine pixels have a head\.")


class Page:
    """Lets helpers that were written for a page in Chromium evaluate JavaScript in Firefox."""

    def __init__(self, session):
        self.session = session

    def evaluate(self, function):
        return self.session.execute_script(f"return ({function})()")


@torch.no_grad()
def test_the_network_says_what_torch_says(said, firefox):
    sentence = said(
        "network", r"With exact heads, .* differ by at most (\S+)\. The CNN says (\w+) \((\d+) %\)"
    )
    assert float(sentence[1].replace("−", "-")) < 1e-5
    shares = 100 * load_model("cnn").eval()(seen_image(Page(firefox)))[0].softmax(dim=0)
    assert sentence[2] == CIFAR10_CLASSES[shares.argmax()]
    assert abs(shares.max() - float(sentence[3])) < 0.51
