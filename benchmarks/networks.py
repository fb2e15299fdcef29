"""Measure the time that the explorer's networks and gradient descent take in JavaScript (node).

Prints one Markdown table: for a forward pass of each network and for a step of gradient descent,
the median time and the mean processor time, which other work on the machine hardly changes, both in
milliseconds. Usage: python benchmarks/networks.py [--passes 30]
"""

import argparse
import json
import subprocess
from importlib import resources

from attnconv import load_model
from companion.explorer.networks import add_networks
from companion.explorer.payload import Payload
from companion.runs.record import processor

NETWORKS = ("sa-quadratic", "sa-learned", "sa-generalized", "sa-learned-content", "cnn")
MEASURE = """
import { readFileSync } from "node:fs";
const [{ build }, { bytesOf, readTensors }, { HARD_ALPHA }, { Descent }] =
  await Promise.all(["network/build", "numerics/files", "numerics/numbers", "descent/gradient"].map((name) => import(`FOLDER/${name}.js`)));
const { networks, passes } = JSON.parse(readFileSync(0));
function time(act, times) {
  for (let n = 0; n < 5; n++) act();
  const before = process.cpuUsage(), taken = [];
  for (let n = 0; n < times; n++) {
    const start = performance.now();
    act();
    taken.push(performance.now() - start);
  }
  const { user, system } = process.cpuUsage(before), median = taken.sort((a, b) => a - b)[times >> 1];
  return { median, processor: (user + system) / 1000 / times };
}
const image = Float32Array.from({ length: 3072 }, () => 4 * Math.random() - 2), rows = [];
for (const { label, file, architecture } of networks) {
  const network = build(readTensors(bytesOf(file.base64)), architecture);
  const measure = (way, alpha) => rows.push({ name: label + way, ...time(() => network.forward(image, alpha), passes) });
  measure("");
  if (!architecture.steps) continue;
  measure(", as attention, exact", HARD_ALPHA);
  measure(", as attention, alpha 1", 1);
}
const descent = new Descent(0);
rows.push({ name: "a step of gradient descent", ...time(() => descent.step(), 1000) });
console.log(JSON.stringify(rows));
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=30, help="forward passes of each network")
    passes = parser.parse_args().passes
    payload = add_networks(Payload(), (load_model(name).record for name in NETWORKS))
    given = json.dumps({"networks": payload.data["networks"], "passes": passes})
    folder = resources.files("companion.explorer").joinpath("js")
    command = ["node", "--input-type=module", "--eval", MEASURE.replace("FOLDER", str(folder))]
    shell = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    print(f"One image of 32 x 32 pixels, node {version}, {processor()}.\n")
    print("| | median, ms | processor, ms |\n|---|---|---|")
    for row in json.loads(shell.stdout):
        print(f"| {row['name']} | {row['median']:.2f} | {row['processor']:.2f} |")


if __name__ == "__main__":
    main()
