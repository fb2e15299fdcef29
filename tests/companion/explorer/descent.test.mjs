/* Scene 2 of the stage, without a browser: its steps, its numbers, its addresses. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { RECIPE } from "../../../src/companion/explorer/js/descent/gradient.js";
import { DescentState, MOMENTS, RUN_SECONDS, stepsAt } from "../../../src/companion/explorer/js/descent/state.js";
import { FILTERS } from "../../../src/companion/explorer/js/heads/state.js";
import { SeparableLayer } from "../../../src/companion/explorer/js/numerics/separable.js";

const [height, width] = [9, 13];
const bytes = Uint8Array.from({ length: height * width * 3 }, (_, n) => (97 * n + ((n * n) % 71)) % 256);
const picture = { label: "a picture", height, width, base64: Buffer.from(bytes).toString("base64") };
const data = () => ({ stage: ["one", "two"], images: { one: picture, two: picture } });
const stateOf = (wanted) => {
  const state = new DescentState(data());
  assert.equal(state.open(wanted), "");
  return state;
};
const largest = (a, b) => a.reduce((most, x, n) => Math.max(most, Math.abs(x - b[n])), 0);

test("all steps are taken within the seconds of a run, never fewer than before", () => {
  const steps = Array.from({ length: 100 }, (_, n) => stepsAt((n * RUN_SECONDS) / 99));
  assert.deepEqual([steps[0], steps.at(-1), stepsAt(1e9)], [0, RECIPE.steps, RECIPE.steps]);
  assert.deepEqual(
    steps,
    [...steps].sort((a, b) => a - b),
  );
  assert.equal(MOMENTS.at(-1), RECIPE.steps);
});

test("steps end when their time is over", () => {
  const state = stateOf({});
  state.advance(RECIPE.steps, 0);
  assert.equal(state.descent.steps, 1);
  state.advance(40);
  assert.equal(state.descent.steps, 40);
});

test("heads of different sharpness are the sum of single heads", () => {
  const layer = new SeparableLayer(
    Float64Array.from(bytes, (byte) => byte / 255),
    height,
    width,
  );
  const centers = [0.3, -1.2, 0.3].map((x, n) => [x, n - 0.7]),
    alphas = [0.4, 3, 9],
    values = [1, -2, 0.5];
  const single = centers.map((center, n) => layer.attend([center], alphas[n], [values[n]]));
  const expected = single[0].map((x, n) => x + single[1][n] + single[2][n]);
  assert.ok(largest(layer.attend(centers, alphas, values), expected) < 1e-12);
});

test("the pixels around one are those of the picture, and zero outside", () => {
  const patch = stateOf({}).view.layer.around([0, 12], 3);
  for (let i = -3; i <= 3; i++)
    for (let j = -3; j <= 3; j++)
      for (let channel = 0; channel < 3; channel++) {
        const inside = i >= 0 && j <= 0;
        const expected = inside ? bytes[(i * width + 12 + j) * 3 + channel] / 255 : 0;
        assert.equal(patch[((i + 3) * 7 + j + 3) * 3 + channel], expected);
      }
});

test("nine heads that have found their pixels compute the filter, smaller by the decay of the values", () => {
  const state = stateOf({ kernel: "blur" });
  state.advance(RECIPE.steps);
  assert.equal(state.found, 9);
  assert.deepEqual([...state.owners].sort(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  const shares = state.weights.map((weight) => weight / (1 / 9));
  assert.ok(shares.every((share) => share > 0.8 && share < 1));
  const [ours, theirs] = [state.picture(), state.view.convolution.values];
  assert.ok(largest(ours, theirs) < 0.15 && ours.every((x, n) => x < theirs[n] + 0.02));
});

test("a single kernel is imitated whatever its size", () => {
  const kernel = FILTERS["vertical edges"],
    ends = [1, 1e-200, 40].map((size) => {
      const state = stateOf({ targets: "kernel", kernel: kernel.map((weight) => weight * size).join(",") });
      state.advance(300);
      return state.weights.map((weight) => weight / size);
    });
  assert.ok(ends[0].some((weight) => Math.abs(weight) > 0.2));
  for (const end of ends) assert.ok(largest(end, ends[0]) < 1e-9);
});

test("a head that is pulled stays within reach and starts anew; the start is not counted", () => {
  const state = stateOf({});
  state.advance(RECIPE.steps);
  assert.equal(state.tally(), "1 start: 9 of 9");
  state.start(1);
  state.advance(300);
  assert.notEqual(state.weights[4], 0);
  state.move(4, [9, -9]);
  assert.deepEqual(state.centers[4], [3, -3]);
  state.drop(4);
  assert.deepEqual([state.descent.steps, state.weights[4]], [0, 0]);
  assert.ok(Math.abs(state.alphas[4] - RECIPE.alpha) < 1e-12);
  state.advance(RECIPE.steps);
  assert.equal(state.tally(), "1 start: 9 of 9");
});

test("many starts are counted, and the last ones named", () => {
  const state = stateOf({});
  for (let seed = 0; seed < 10; seed++) state.results.set(seed, seed);
  assert.equal(state.tally(), "10 starts: … 2, 3, 4, 5, 6, 7, 8, 9 of 9");
  state.single = true;
  assert.equal(state.tally(), "");
});

test("a link gives the state again; after the last seed comes the first", () => {
  const wanted = { seed: "9999", targets: "kernel", picture: "two", kernel: "emboss", query: "3,4", seam: "0.2" };
  const state = stateOf(wanted);
  assert.deepEqual(state.text(), wanted);
  assert.deepEqual(new DescentState(data()).open(state.text()), "");
  assert.deepEqual(stateOf(state.text()).text(), state.text());
  assert.deepEqual(stateOf(state.text()).centers, state.centers);
  state.start(state.seed + 1);
  assert.deepEqual(state.centers, stateOf({ seed: "0" }).centers);
});
