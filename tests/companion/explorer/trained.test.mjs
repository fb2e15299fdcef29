/* The states of the views, without a browser: what a link asks for, what is changed, what is told. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { AttentionState } from "../../../src/companion/explorer/js/trained/state.js";
import { crc32 } from "../../../src/companion/explorer/js/numerics/files.js";

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
    "There is no model “x” here; this is model A.",
    "There is no image “three” for this model.",
    "Epoch “77” was not recorded; this is the last.",
    "There is no layer “9”; expected a number from 1 to 2.",
    "content part (what), q · k: not there for this model and image.",
    "The link's softmax is “true”, expected 1 or 0.",
    "The link's query is “9,0”, expected a row below 5 and a column below 6.",
  ]);
  assert.deepEqual(state.selection.query, [2, 3]);
});

const NONE = ["", "abc", "NaN", "1e999", "toString", "x".repeat(10_000)];
for (const name of ["model", "layer", "head", "part", "softmax", "scale", "query", "epoch"])
  test(`a link's ${name} that is none is noted, and the usual one is shown`, async () => {
    const usual = (await opened({ layer: "1", head: "1" })).address();
    for (const text of NONE) {
      const state = await opened({ layer: "1", head: "1", [name]: text });
      assert.deepEqual(state.address(), usual);
      assert.equal(state.notes.length, 1, `${text}: ${state.notes}`);
      assert.ok(state.notes[0].includes(`“${text.slice(0, 40)}”`) && state.notes[0].length < 200, state.notes[0]);
    }
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
    /^Query \(2, 3\)\. Most attended key pixel \(3, 2\), offset \(1, −1\): probability 1, score 0\.$/,
  );
  state.key = [0, 0];
  assert.match(state.reading(map), /Key pixel \(0, 0\), offset \(−2, −3\)/);
  assert.equal(state.bestShift(1, 1).shift, "(1, −1)");
  assert.match(state.instruction(false), /^The query is fixed; click to release it/);
});

test("a model with maps of few queries goes to the nearest", async () => {
  const state = await opened({ model: "b", query: "0,0" });
  assert.deepEqual(state.selection.query, [0, 1]);
  assert.match(state.instruction(true), /Only 1 query pixels were recorded; this is the nearest/);
  const [[{ probabilities }]] = state.maps();
  assert.deepEqual(
    Array.from(probabilities, (p) => +p.toFixed(6)),
    [0.25, 0.75],
  );
});
