/* The states of the views, without a browser: what a link asks for, what is changed, what is told. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { AttentionState } from "../../src/attnconv/explorer/js/attention-state.js";
import { crc32 } from "../../src/attnconv/explorer/js/files.js";
import { ConvolutionState, KERNELS, PixelState } from "../../src/attnconv/explorer/js/layer-state.js";
import { HARD_ALPHA, SHIFTS } from "../../src/attnconv/explorer/js/numbers.js";

const base64 = (bytes) => Buffer.from(bytes).toString("base64");

/** Tensors `{name: [shape, numbers]}` as a file that a page holds. */
function fileOf(name, tensors) {
  const header = {},
    parts = [];
  let end = 0;
  for (const [key, [shape, numbers]] of Object.entries(tensors)) {
    const whole = key === "epochs" || key === "queries";
    const data = whole ? BigInt64Array.from(numbers, BigInt) : Float32Array.from(numbers);
    header[key] = { dtype: whole ? "I64" : "F32", shape, data_offsets: [end, (end += data.byteLength)] };
    parts.push(new Uint8Array(data.buffer));
  }
  const text = new TextEncoder().encode(JSON.stringify(header).padEnd(8 * 64));
  const length = new Uint8Array(new BigUint64Array([BigInt(text.length)]).buffer);
  const bytes = Buffer.concat([length, text, ...parts]);
  return { name, crc32: crc32(bytes), base64: base64(bytes) };
}

/** Two layers of two quadratic heads at epochs 0 and 4; head 2 of layer 2 ends as the sharpest. */
const quadratic = fileOf("quadratic", {
  epochs: [[2], [0, 4]],
  "layer1.centers": [[2, 2, 2], Array(8).fill(0)],
  "layer1.alpha": [
    [2, 2],
    [1, 1, 1, 1],
  ],
  "layer2.centers": [
    [2, 2, 2],
    [0, 0, 0, 0, 0, 0, 1, -1],
  ],
  "layer2.alpha": [
    [2, 2],
    [1, 1, 1, 9],
  ],
});
/** Given maps of one layer and one head on 1 x 2 pixels, for one query. */
const given = fileOf("given", {
  queries: [
    [1, 2],
    [0, 1],
  ],
  probabilities: [
    [1, 1, 1, 2],
    [0.25, 0.75],
  ],
});

const data = () => ({
  images: { one: { label: "the first" }, two: { label: "the second" } },
  models: [
    { id: "a", label: "model A", tier: "quick", source: "", size: [5, 6], file: quadratic, images: ["one", "two"] },
    { id: "b", label: "model B", tier: "given", source: "", size: [1, 2], content: { one: [given] }, images: ["one"] },
    { id: "c", label: "model C", tier: "quick", source: "", size: [5, 6], images: ["one"], file: { ...quadratic, crc32: 1 } },
  ],
});

async function opened(wanted = {}) {
  const state = new AttentionState(data());
  state.open(wanted);
  assert.ok(await state.load());
  return state;
}

test("it opens on the sharpest head, the middle query and the end of training", async () => {
  const state = await opened();
  const { model, layer, head, image, query, moment, frozen } = state.selection;
  assert.deepEqual(
    { model, layer, head, image, query, moment, frozen },
    {
      ...{ model: "a", layer: 2, head: 2, image: "one" },
      ...{ query: [2, 3], moment: 1, frozen: false },
    },
  );
  assert.deepEqual(state.notes, []);
});

test("what a link asks for is taken, and the address says it again", async () => {
  const wanted = { model: "a", layer: "1", head: "2", image: "two", part: "score", softmax: "0", scale: "shared" };
  const state = await opened({ ...wanted, query: "4,0", epoch: "0" });
  assert.deepEqual(state.address(), { ...wanted, layer: 1, head: 2, query: "4,0", epoch: 0 });
  assert.ok(state.selection.frozen);
});

test("what is not there is replaced, and noted", async () => {
  const state = await opened({
    model: "x",
    layer: "9",
    image: "three",
    part: "content",
    softmax: "true",
    epoch: "77",
    query: "9,0",
  });
  assert.deepEqual(state.notes, [
    "There is no model x here; this is model A.",
    "There is no image three for this model.",
    "There is no picture of epoch 77; this is the last.",
    "There is no layer 9; here they go from 1 to 2.",
    "content part (what), q · k: not there for this model and image.",
    "The link's softmax is true, expected 1 or 0.",
  ]);
  assert.deepEqual(state.selection.query, [2, 3]);
});

test("a change says what is to be done", async () => {
  const state = await opened();
  assert.equal(state.change({ query: [0, 0], frozen: true }), "draw");
  assert.equal(state.change({ moment: 0 }), "draw");
  assert.equal(state.model.moment, 0);
  assert.equal(state.change({ image: "two" }), "load");
  await state.load();
  assert.equal(state.address().epoch, 0, "another image keeps the moment");
  assert.equal(state.change({ model: "b" }), "load");
  assert.equal(state.selection.layer, undefined);
});

test("a file that is damaged is the state's problem until another model is chosen", async () => {
  const state = await opened({ model: "c" });
  assert.match(state.problem, /is damaged/);
  assert.equal(state.change({ layer: 1 }), null);
  assert.deepEqual(Object.keys(state.choices()), ["model", "image", "softmax", "scale"]);
  assert.equal(state.change({ model: "a" }), "load");
  assert.ok(await state.load());
  assert.equal(state.problem, null);
});

test("a load that is overtaken changes nothing", async () => {
  const state = new AttentionState(data());
  state.open({});
  const first = state.load();
  state.change({ model: "b" });
  const second = state.load();
  assert.deepEqual([await first, await second], [false, true]);
  assert.equal(state.selection.model, "b");
  assert.deepEqual([state.model.height, state.model.width], [1, 2]);
});

test("maps are probabilities on their own scale, or scores on one for all", async () => {
  const state = await opened({ query: "2,3" });
  for (const { probabilities, shown, range } of state.maps().flat()) {
    assert.equal(shown, probabilities);
    assert.ok(Math.abs(probabilities.reduce((a, b) => a + b) - 1) < 1e-12);
    assert.deepEqual(range, [0, Math.max(...probabilities)]);
  }
  state.change({ softmax: "0", scale: "shared" });
  const maps = state.maps().flat(),
    all = maps.flatMap(({ shown }) => Array.from(shown));
  for (const { shown, scores, range } of maps) {
    assert.equal(shown, scores);
    assert.deepEqual(range, [Math.min(...all), Math.max(...all)]);
  }
});

test("the words name the head, its centre and the pixel that is read", async () => {
  const state = await opened({ query: "2,3" }),
    map = state.maps()[1][1];
  assert.match(state.caption(map), /^Layer 2, head 2: probabilities, whole score; entropy .* nats, centre \(1, −1\)\.$/);
  assert.match(
    state.reading(map),
    /^Query \(2, 3\)\. Most attended key pixel \(3, 2\), shift \(1, −1\): probability 1, score 0\.$/,
  );
  state.key = [0, 0];
  assert.match(state.reading(map), /Key pixel \(0, 0\), shift \(−2, −3\)/);
  assert.equal(state.bestShift(1, 1).shift, "(1, −1)");
  assert.match(state.instruction(false), /frozen; a click lets it go/);
});

test("a model with maps of few queries goes to the nearest", async () => {
  const state = await opened({ model: "b", query: "0,0" });
  assert.deepEqual(state.selection.query, [0, 1]);
  assert.match(state.instruction(true), /maps of 1 query pixels; this is the nearest/);
  const [[{ probabilities }]] = state.maps();
  assert.deepEqual(
    Array.from(probabilities, (p) => +p.toFixed(6)),
    [0.25, 0.75],
  );
});

// --- one layer ------------------------------------------------------------------------------------

const grey = { label: "grey", height: 4, width: 5, base64: base64(Uint8Array.from({ length: 20 }, (_, n) => 12 * n)) };
const layer = { images: { grey }, convolution: ["grey"], pixel: ["grey"] };

test("hard heads on the grid are the convolution, and others are not", () => {
  const state = new ConvolutionState(layer);
  state.open({ alpha: `${HARD_ALPHA}` });
  assert.ok(state.result().inside < 1e-12 && state.result().frame < 1e-12);
  assert.equal(state.address().centers, undefined);
  state.place(0, [-9, 0.123]);
  assert.deepEqual(state.centers[0], [-3, 0.12]);
  assert.ok(state.result().inside > 0.01);
  assert.deepEqual(state.address().centers.split(",").slice(0, 4), ["-3", "0.12", "-1", "0"]);
});

test("a link that one layer cannot show is brought within what there is, with a note", () => {
  const state = new ConvolutionState(layer);
  state.open({ kernel: "nonsense", alpha: "-1", image: "red" });
  assert.match(state.note, /no image red .* nor nine numbers.* alpha, -1, is not a number/);
  assert.deepEqual(
    [state.image, state.kernel, state.alpha, state.centers],
    ["grey", KERNELS["Sobel, vertical edges"], 2, SHIFTS],
  );
});

test("nine steps add up to the convolution and to attention", () => {
  const state = new PixelState(layer);
  state.open({ alpha: `${HARD_ALPHA}`, query: "1,2", kernel: "Laplace" });
  const last = state.terms()[8];
  assert.ok(Math.abs(last.sums[0] - last.sums[1]) < 1e-12);
  assert.match(state.sentence(last, 1), /^Step 9 of 9: head 9 sees .* The difference to the convolution: /);
  state.change({ query: [-3, 99], step: 77 });
  assert.deepEqual([state.query, state.step], [[0, 4], 9]);
  assert.equal(state.sentence(undefined, 0), "No shift has been added yet.");
});
