"""Measure how quickly the explorer follows the pointer, in headless Chromium.

It shows one model for each encoding, with random parameters and 6 layers of 9 heads on 16 x 16
positions.

Prints one Markdown table: the median and the 95th percentile of the time that a move of the query
takes, from the event to the new layout (script, styles and layout, with all maps drawn); the median
time of a move to another moment of training, which also recomputes all tables of scores; and the
median time between frames while the query moves once in every frame. Usage: python
benchmarks/explorer.py [--moves 200]
"""

import argparse
import platform
import statistics
import sys
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

from attnconv.networks import build_model
from attnconv.theory.grid import pixels
from companion.explorer import page_html
from companion.explorer.payload import Payload
from companion.runs.history import snapshot
from companion.runs.record import processor

sys.path.append(str(Path(__file__).parents[1] / "tools"))
from chromium import find_chromium

SIZE, LAYERS, HEADS = 16, 6, 9
MODELS = ("sa-quadratic", "sa-generalized", "sa-learned", "sa-learned-content")
MEASURE = """async (moves) => {
  const pad = document.querySelector(".explorer-pad"), slider = document.querySelector(".explorer-training input");
  pad.scrollIntoView();
  const box = pad.getBoundingClientRect(), frame = () => new Promise(requestAnimationFrame);
  const move = () => pad.dispatchEvent(new PointerEvent("pointermove", {
    pointerType: "mouse", clientX: box.left + Math.random() * box.width, clientY: box.top + Math.random() * box.height,
  }));
  const walk = (n) => { slider.value = n % 3; slider.dispatchEvent(new Event("input")); };
  const time = (act) => { const start = performance.now(); act(); document.body.offsetHeight; return performance.now() - start; };
  const found = { move: [], frame: [], moment: [] };
  for (let n = 0; n < moves; n++) found.move.push(time(move));
  for (let n = 0; n < moves / 4; n++) found.moment.push(time(() => walk(n)));
  let last = await frame();
  for (let n = 0; n < moves; n++) { move(); const now = await frame(); found.frame.push(now - last); last = now; }
  return found;
}"""


def page_of(model):
    """Return a page that shows one model with random parameters."""
    torch.manual_seed(0)
    payload = Payload()
    image = payload.picture("image", "noise", torch.rand(SIZE, SIZE))
    entry = {
        "id": model,
        "label": model,
        "tier": "random",
        "source": "",
        "size": (SIZE, SIZE),
        "images": [image],
    }
    if model == "sa-learned-content":
        shape = HEADS, SIZE * SIZE, SIZE
        layers = [
            {"queries": pixels(SIZE, SIZE), "content": torch.randn(*shape, SIZE).half()}
            | {name: torch.randn(shape).half() for name in ("rows", "columns")}
            for _ in range(LAYERS)
        ]
        entry["content"] = {
            image: [payload.file(f"layer{n}", layer) for n, layer in enumerate(layers)]
        }
    else:
        moments = [snapshot(build_model(model, hidden=16, intermediate=16)) for _ in range(3)]
        tensors = {name: torch.stack([moment[name] for moment in moments]) for name in moments[0]}
        entry["file"] = payload.file(model, {"epochs": torch.arange(3)} | tensors)
    payload.data["models"] = [entry]
    return (
        f'<!doctype html><body style="max-width: 54rem">{page_html("attention", payload.data, "")}'
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--moves", type=int, default=200)
    moves = parser.parse_args().moves
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"]
        )
        print(
            f"{LAYERS} x {HEADS} heads, {SIZE} x {SIZE} positions, {moves} moves; Chromium"
            f" {chromium.version}, {processor()}"
        )
        print(f"({platform.machine()}, no graphics card). Milliseconds.\n")
        print(
            "| model | a move: median | 95th percentile | another moment: median | between frames:"
            " median |"
        )
        print("|---|---|---|---|---|")
        for model in MODELS:
            page = chromium.new_page(viewport={"width": 1280, "height": 900})
            page.set_content(page_of(model))
            page.wait_for_selector(".explorer-keep a[href*='=']")
            found = page.evaluate(MEASURE, moves)
            moment = (
                f"{statistics.median(found['moment']):.1f}"
                if model != "sa-learned-content"
                else "-"
            )
            high = statistics.quantiles(found["move"], n=20)[-1]
            medians = [statistics.median(found[name]) for name in ("move", "frame")]
            print(
                f"| {model} | {medians[0]:.1f} | {high:.1f} | {moment} | {medians[1]:.1f} |",
                flush=True,
            )
            page.close()


if __name__ == "__main__":
    main()
