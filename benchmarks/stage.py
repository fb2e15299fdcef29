"""Measure how smoothly the explorer's stage runs, in headless Chromium.

Prints two Markdown tables, in milliseconds. The first has rows for each action, on three sizes of
screen, with the page's processor at full speed or slowed down four-fold. It shows the median and
the 95th percentile of the time between frames during the action, the 95th percentile of the time
between two drawings of the scene, which may take several frames (NaN if scenes change), and the
longest task of the main thread, 0 if none took 50 ms. Each action is performed three times; the
table shows the medians and the longest task of all three. The second table shows the
median time from a request to the worker, which is not slowed down, to its answer, for each network
of scene 3.
Usage: python benchmarks/stage.py
"""

import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from attnconv import load_model
from companion.explorer import page_html
from companion.explorer.networks import add_network_scene
from companion.explorer.payload import stage_payload
from companion.runs.record import processor

sys.path.append(str(Path(__file__).parents[1] / "tools"))
from chromium import find_chromium

MODELS = ("cnn", "sa-quadratic", "sa-learned-content")
ROUNDS = 3
ADDRESS = "http://book.example/"
# The actions by name: the address from which each starts, and its step, performed once per frame.
ACTS = {
    "scene 1, alpha from soft to exact": ("", "(n) => n || replay()"),
    "scene 1, the pointer over the picture": ("alpha=1", "(n) => hover(n)"),
    "scene 1, a disc dragged": ("query=40,60", '(n) => drag(".stage-plane", n)'),
    "scene 1, the seam dragged": ("query=40,60", '(n) => drag(".stage-seam", n)'),
    "scene 2, the descent": ("scene=descent", "(n) => n || descend()"),
    "scene 3, alpha from soft to exact": ("scene=network&mode=twin", "(n) => n || replay()"),
    "scene 3, the pointer over the heads' clouds": (
        "scene=network&mode=what",
        "(n) => hover(n)",
    ),
    "scene 3, the layers one after the other": ("scene=network&mode=what", "(n) => slide(n)"),
    "the scenes one after the other": ("scene=network&mode=what", "(n) => n % 30 || turn(n / 30)"),
}
# Where: the size of the screen, and how many times slower the processor is.
SCREENS = (((1280, 720), 1), ((1280, 720), 4), ((1920, 1080), 1), ((390, 844), 4))
MEASURE = """async (step) => {
  const act = eval(step), frame = () => new Promise(requestAnimationFrame), frames = [], tasks = [], drawn = [];
  const { scenes } = await mounted;
  for (const scene of scenes.filter(Boolean)) {
    const draw = scene.constructor.prototype.draw;
    scene.draw = () => (draw.call(scene), drawn.push(performance.now()));
  }
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)));
  observer.observe({ type: "longtask" });
  const start = performance.now();
  for (let n = 0, last = await frame(); performance.now() - start < 3000; n++) {
    act(n);
    const now = await frame();
    frames.push(now - last);
    last = now;
  }
  await new Promise((done) => setTimeout(done, 100));
  observer.disconnect();
  return { frames, drawings: drawn.slice(1).map((time, n) => time - drawn[n]), longest: Math.max(0, ...tasks) };
}"""
HELPERS = """async () => {
  const stage = await mounted;
  window.replay = () => stage.scene.replay();
  window.hover = (n) => {
    const canvas = document.querySelector(".stage-pixels"), { left, top, width, height } = canvas.getBoundingClientRect();
    const [x, y] = [left + width * ((0.37 * n) % 1), top + height * ((0.61 * n) % 1)];
    canvas.dispatchEvent(new PointerEvent("pointermove", { pointerType: "mouse", clientX: x, clientY: y, bubbles: true }));
  };
  let middle; // of what is dragged; on the plane it is the fifth disc's
  window.drag = (selector, n) => {
    const node = document.querySelector(selector);
    if (!n) {
      const { left, top, width, height } = node.getBoundingClientRect();
      Object.assign(node, { setPointerCapture() {}, hasPointerCapture: () => true });
      middle = [left + width / 2, top + height / 2];
    }
    const [x, y] = middle, at = { clientX: x + 80 * Math.sin(n / 8), clientY: y, pointerId: 1, bubbles: true };
    node.dispatchEvent(new PointerEvent(n ? "pointermove" : "pointerdown", at));
  };
  window.descend = () => stage.scene.begin();
  window.turn = (n) => stage.show(n % 3);
  window.slide = (n) => {
    const slider = document.querySelector(".stage-slider:not([hidden]) input");
    slider.value = 1 + (n % 6);
    slider.dispatchEvent(new Event("input"));
  };
}"""
RUNS = """async (id) => {
  const stage = await mounted, scene = stage.scene, { image } = scene.picture.seen, taken = [];
  const alphas = id.startsWith("cnn") ? [undefined, 746, 1] : [undefined];
  for (const alpha of alphas) {
    const times = [];
    for (let n = 0; n < 12; n++) {
      const start = performance.now();
      await scene.runs.client.run(id, image, alpha);
      times.push(performance.now() - start);
    }
    taken.push([alpha ?? null, times.slice(2).sort((a, b) => a - b)[5]]);
  }
  return taken;
}"""


def page_of_the_stage():
    """Return the stage as a page that contains all its files."""
    records = (load_model(model).record for model in MODELS)
    data = add_network_scene(stage_payload(), records).data
    page = page_html("stage", data, "")
    page = page.replace("view = await mount(", "window.mounted = mount(")
    page = page.replace("opened = view.state", "view = await mounted;\nopened = view.state")
    return f'<!doctype html><body style="margin: 0"><div class="stage-host">{page}</div>'


def opened(browser, html, state, screen, slowed):
    """Open the stage's page, wait for its networks, and slow its processor by a factor `slowed`."""
    width, height = screen
    context = browser.new_context(viewport={"width": width, "height": height})
    context.route("**/*", lambda route: route.fulfill(body=html, content_type="text/html"))
    page = context.new_page()
    page.goto(f"{ADDRESS}#{state}")
    if "mode" in state:
        page.wait_for_selector(".network-content[aria-busy=false]")
    page.evaluate(HELPERS)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slowed})
    return page


def watched(browser, html, state, step, screen, slowed):
    """Return what one action takes, in milliseconds.

    These are the median and the 95th percentile of the time between frames, the 95th percentile of
    the time between drawings, and the longest task.
    """
    page = opened(browser, html, state, screen, slowed)
    found = page.evaluate(MEASURE, step)
    page.context.close()
    frames, drawings = map(percentile, (found["frames"], found["drawings"]))
    return statistics.median(found["frames"]), frames, drawings, found["longest"]


def percentile(times):
    """Return the 95th percentile, NaN of fewer than two numbers."""
    return statistics.quantiles(times, n=20)[-1] if len(times) > 1 else float("nan")


def main():
    html = page_of_the_stage()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        print(f"Chromium {browser.version}, {processor()}, no graphics card. Milliseconds.\n")
        print(
            "| | screen | slowed | frames: median | 95th percentile | drawings: 95th percentile"
            " | longest task |\n|---|---|---|---|---|---|---|"
        )
        for name, (state, step) in ACTS.items():
            for screen, slowed in SCREENS:
                rounds = [
                    watched(browser, html, state, step, screen, slowed) for _ in range(ROUNDS)
                ]
                *typical, _ = map(statistics.median, zip(*rounds, strict=True))
                numbers = [slowed, *typical, max(longest for *_, longest in rounds)]
                size = " x ".join(map(str, screen))
                print(f"| {name} | {size} | {' | '.join(f'{x:.0f}' for x in numbers)} |")
        print("\n| network | alpha | answer |\n|---|---|---|")
        page = opened(browser, html, "scene=network&mode=twin", *SCREENS[0])
        for model in MODELS:
            for alpha, time in page.evaluate(RUNS, load_model(model).record.name):
                print(f"| {model} | {alpha or '-'} | {time:.0f} |")
        browser.close()


if __name__ == "__main__":
    main()
