/* Scene 3 of the stage, without a browser: its addresses, its way from soft to exact, what it reads from logits and maps. */
import assert from "node:assert/strict";
import { test } from "node:test";

import * as network from "../../../src/companion/explorer/js/network/state.js";
import { NetworkClient } from "../../../src/companion/explorer/js/network/client.js";
import { NetworkRuns } from "../../../src/companion/explorer/js/network/runs.js";
import { EXACT, SHARPEST } from "../../../src/companion/explorer/js/heads/state.js";

const architecture = { size: 12, pooling: 4, layers: [{}, {}] };
const networks = Object.values(network.MODES).map((model) => ({ model, architecture }));
const state = () => new network.NetworkState({ pictures: ["chelsea", "horse"], networks });

test("a link gives the state again", () => {
  for (const wanted of [
    { mode: "twin", picture: "horse", alpha: "2.5" },
    { mode: "twin", picture: "chelsea", alpha: "exact" },
    { mode: "what", picture: "horse", layer: "1", query: "2,0" },
  ]) {
    const opened = state();
    assert.equal(opened.open(wanted), "");
    assert.deepEqual(JSON.parse(JSON.stringify(opened.text())), wanted);
  }
});

test("what a link may not say is refused, and leaves the usual state", () => {
  for (const [name, value] of [
    ["mode", "__proto__"],
    ["picture", ""],
    ["alpha", "0.4"],
    ["alpha", "NaN"],
    ["alpha", ""],
    ["layer", "3"],
    ["layer", "1.5"],
    ["layer", "1e309"],
    ["query", "3,0"],
    ["query", "1"],
    ["query", "-1,0"],
  ]) {
    const opened = state();
    assert.match(opened.open({ mode: "where", [name]: value }), new RegExp(`This link says ${name}=`), `${name}=${value}`);
    assert.deepEqual(opened.text(), state().text());
  }
});

test("alpha goes from the softest to the sharpest and ends exact", () => {
  const seconds = Array.from({ length: 50 }, (_, n) => n / 10),
    alphas = seconds.map(network.twinAlphaAt);
  assert.equal(alphas[0], network.SOFTEST_TWIN);
  assert.deepEqual(alphas, [...alphas].sort((a, b) => a - b));
  assert.ok(Math.abs(alphas.at(-1) - SHARPEST) < 1e-9);
  assert.equal(network.twinAlphaAt(network.TWIN_SECONDS), EXACT);
});

test("a head that spreads over all pixels looks everywhere alike, one with a pixel or half of them does not", () => {
  const grid = 3,
    pixels = grid * grid,
    maps = new Float32Array(3 * pixels ** 2);
  for (let q = 0; q < pixels; q++)
    for (let k = 0; k < pixels; k++) {
      maps[q * pixels + k] = 1 / pixels;
      maps[(pixels + q) * pixels + k] = Number(k === (q + 1) % pixels);
      maps[(2 * pixels + q) * pixels + k] = k < 5 ? 0.2 : 0;
    }
  assert.deepEqual(network.alikeHeads(maps, grid), [true, false, false]);
  assert.equal(network.mapOf(maps, 1, [1, 2], grid).indexOf(1), 6);
});

test("a failure is that of the mode which was asked for", async () => {
  const scene = { state: state(), stage: { redraw() {} }, picture: { canvas: {}, seen: { image: [] }, made: { twin: {}, where: {}, what: {} } } };
  const runs = new NetworkRuns(scene);
  let fail;
  runs.client = { run: () => new Promise((_, reject) => (fail = reject)) };
  runs.status = { twin: { loaded: true }, where: {}, what: {} };
  const done = runs.compute();
  scene.state.change({ mode: "where" });
  fail(new Error("no memory"));
  await done;
  assert.deepEqual(runs.status, { twin: { failure: "no memory" }, where: {}, what: {} });
});

test("an answer that comes after the worker has failed is ignored", async () => {
  globalThis.Worker = class {
    postMessage() {}
  };
  const client = new NetworkClient("");
  const asked = client.ask({});
  client.fail();
  client.worker.onmessage({ data: { ticket: 0, result: 1 } });
  await assert.rejects(asked, client.failure);
  delete globalThis.Worker;
});

test("the sentence says the largest difference and both answers", () => {
  const classes = ["cat", "dog"],
    soft = { alpha: 2, logits: Float32Array.of(0, 1.5) };
  const sentence = network.twinSentence(classes, Float32Array.of(3, 0), soft);
  assert.match(sentence, /^At α = 2, .* differ by at most 3\. The CNN says cat \(95 %\), its attention twin says dog \(82 %\)\.$/);
  const exact = network.twinSentence(classes, Float32Array.of(3, 0), { alpha: EXACT, logits: Float32Array.of(3, 0) });
  assert.match(exact, /^With exact heads, .* at most 0\. .* twin also says cat \(95 %\)\.$/);
});
