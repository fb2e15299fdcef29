/* Scene 1 of the stage, without a browser: its fast attention against the slow one, its journey, its addresses. */
import assert from "node:assert/strict";
import { test } from "node:test";

import * as heads from "../../../src/companion/explorer/js/heads/state.js";
import { HARD_ALPHA, SHIFTS, convolve } from "../../../src/companion/explorer/js/numerics/numbers.js";
import { SeparableLayer } from "../../../src/companion/explorer/js/numerics/separable.js";

const [height, width] = [9, 13];
const bytes = Uint8Array.from({ length: height * width * 3 }, (_, n) => (97 * n + ((n * n) % 71)) % 256);
const picture = { label: "a picture", height, width, base64: Buffer.from(bytes).toString("base64") };
const data = () => ({ stage: ["one", "two"], images: { one: picture, two: picture } });
const image = Float64Array.from(bytes, (byte) => byte / 255);
const values = [-1, 0, 1, -2, 0.5, 2, -1, 0, 3];
const far = SHIFTS.map(([i, j], n) => [1.6 * i + 0.3 * n - 1, 0.9 * j - 0.2 * n]);

/** The sum over heads of value times average for one channel in its frame of zeros, by a plain sum over all keys. */
function attendPadded(channel, centers, alpha) {
  const pixels = Array.from({ length: (height + 2) * (width + 2) }, (_, k) => [Math.floor(k / (width + 2)) - 1, (k % (width + 2)) - 1]);
  const at = ([r, c]) => (r >= 0 && r < height && c >= 0 && c < width ? channel[r * width + c] : 0);
  return channel.map((_, q) =>
    centers.reduce((total, [i, j], head) => {
      const [row, column] = [Math.floor(q / width) + i, (q % width) + j];
      const scores = pixels.map(([r, c]) => -alpha * ((r - row) ** 2 + (c - column) ** 2)),
        weights = scores.map((score) => Math.exp(score - Math.max(...scores)));
      const sum = weights.reduce((a, b) => a + b);
      return total + values[head] * pixels.reduce((seen, k, n) => seen + (weights[n] / sum) * at(k), 0);
    }, 0),
  );
}

for (const [centers, alpha, close] of [
  [SHIFTS, 0.1, 1e-5],
  [far, 0.1, 1e-5],
  [far, 0.7, 1e-5],
  [SHIFTS, 2, 1e-5],
  [SHIFTS, 8, 1e-8],
  [SHIFTS, 25, 1e-14],
  [far, 25, 1e-12],
  [SHIFTS, HARD_ALPHA, 0],
  [far, HARD_ALPHA, 0],
])
  test(`attention one axis after the other, alpha ${alpha}, ${centers === far ? "off" : "on"} the grid`, () => {
    const ours = new SeparableLayer(image, height, width).attend(centers, alpha, values);
    for (let channel = 0; channel < 3; channel++) {
      const theirs = attendPadded(
        image.filter((_, n) => n % 3 === channel),
        centers,
        alpha,
      );
      theirs.forEach((value, n) => assert.ok(Math.abs(ours[3 * n + channel] - value) <= close, `${ours[3 * n + channel]} ${value}`));
    }
  });

for (const [tall, wide] of [
  [1, 1],
  [2, 7],
  [4, 5],
  [6, 3],
])
  test(`each pixel of ${tall} x ${wide} is attended by its own query, whatever is computed together`, () => {
    const small = image.slice(0, tall * wide * 3),
      layer = new SeparableLayer(small, tall, wide);
    for (const alpha of [0.1, 0.7, 8, HARD_ALPHA])
      for (const centers of [SHIFTS, far]) {
        const whole = layer.attend(centers, alpha, values);
        assert.equal(whole.length, small.length);
        for (let n = 0; n < tall * wide; n++) {
          const query = [Math.floor(n / wide), n % wide],
            seen = centers.map((center) => layer.seenFrom(query, center, alpha));
          for (let channel = 0; channel < 3; channel++) {
            const sum = seen.reduce((total, colors, head) => total + values[head] * colors[channel], 0);
            assert.ok(Math.abs(whole[3 * n + channel] - sum) < 1e-12, `${query} at ${alpha}`);
          }
        }
      }
  });

test("a layer gives the same picture again", () => {
  const layer = new SeparableLayer(image, height, width),
    first = layer.attend(far, 0.3, values);
  layer.attend(SHIFTS, 2, values);
  assert.deepEqual(layer.attend(far, 0.3, values), first);
});

test("what is left out does not show in the difference to the convolution", () => {
  const red = image.filter((_, n) => n % 3 === 0),
    layer = new SeparableLayer(image, height, width);
  for (const alpha of [0.1, 1, 8, 20]) {
    const gap = (attention) => Math.max(...convolve(red, height, width, values).map((x, n) => Math.abs(x - attention[n])));
    const [ours, theirs] = [
      gap(layer.attend(SHIFTS, alpha, values).filter((_, n) => n % 3 === 0)),
      gap(attendPadded(red, SHIFTS, alpha)),
    ];
    assert.ok(Math.abs(ours / theirs - 1) < 1e-4, `${alpha}: ${ours} ${theirs}`);
  }
});

test("the terms of an output pixel add up to it", () => {
  const state = new heads.HeadsState(data());
  for (const patch of [{ seam: 0 }, { seam: 1 }, { seam: 0, alpha: 0.4, centers: far }]) {
    state.change(patch);
    for (const query of [
      [0, 0],
      [4, 7],
      [8, 12],
    ]) {
      const whole = (patch.seam ? state.convolution : state.attention).values,
        at = (query[0] * width + query[1]) * 3;
      assert.ok(Math.abs(state.terms(query).sum - (whole[at] + whole[at + 1] + whole[at + 2]) / 3) < 1e-6);
    }
  }
});

test("the journey begins soft and scattered and ends as the convolution, in five seconds", () => {
  const state = new heads.HeadsState(data());
  let last = Infinity;
  for (const seconds of [0, 1.5, 2.5, 3.5, 4.5, 5]) {
    state.change(heads.journeyAt(seconds));
    assert.ok(state.attention.difference < last, `at ${seconds} s`);
    last = state.attention.difference;
  }
  assert.deepEqual(heads.journeyAt(0), { alpha: heads.SOFTEST, centers: heads.SCATTERED });
  assert.equal(last, 0);
  assert.ok(!state.moved());
});

test("a disc goes to a pixel near it, and stays within reach", () => {
  const state = new heads.HeadsState(data());
  state.place(2, [-0.85, 0.9], true);
  assert.deepEqual(state.centers[2], [-1, 1]);
  assert.equal(state.attention.difference, 0);
  state.place(2, [-0.85, 0.7], true);
  assert.deepEqual(state.centers[2], [-0.85, 0.7], "near on one axis only");
  state.place(2, [-9, 0.123]);
  assert.deepEqual(state.centers[2], [-3, 0.12]);
  assert.ok(state.attention.difference > 0.01);
});

test("an address gives the state again", () => {
  const [state, other] = [new heads.HeadsState(data()), new heads.HeadsState(data())];
  state.change({ picture: "two", kernel: values, alpha: 0.73, query: [3, 4], seam: 0.25 });
  state.place(4, [0.25, -1.5]);
  assert.equal(other.open(state.text()), "");
  assert.deepEqual(other.text(), state.text());
  assert.deepEqual(other.attention, state.attention);
});

for (const [name, text] of [
  ["alpha", ""],
  ["alpha", "-1"],
  ["alpha", "1e9"],
  ["alpha", "NaN"],
  ["kernel", "nonsense"],
  ["kernel", "toString"],
  ["kernel", "1,2,3"],
  ["kernel", `1e308${",1".repeat(8)}`],
  ["centers", "0,0"],
  ["centers", `9${",0".repeat(17)}`],
  ["query", "99,0"],
  ["query", "1.5,2"],
  ["picture", "__proto__"],
  ["seam", "2"],
])
  test(`${name}=${text.slice(0, 12)} gives the usual state and one sentence`, () => {
    const state = new heads.HeadsState(data()),
      usual = state.text();
    const sentence = state.open({ kernel: "blur", [name]: text });
    assert.match(sentence, new RegExp(`^This link says ${name}=.*; expected .*\\. The scene shows its usual state\\.$`));
    assert.deepEqual(state.text(), usual);
  });

test("the slider has exact as its last stop", () => {
  assert.equal(heads.alphaOf(100), heads.EXACT);
  assert.equal(heads.alphaOf(0), heads.SOFTEST);
  assert.equal(heads.alphaOf(88), heads.SHARPEST);
  for (const softest of [heads.SOFTEST, 0.5])
    for (const position of [0, 17, 60, 88, 100])
      assert.ok(Math.abs(heads.positionFor(heads.alphaOf(position, softest), softest) - position) < 0.5, `${position}`);
});

test("arrow keys lead from exact to the sharpest alpha and back, and elsewhere by one position", () => {
  for (const [away, back] of [
    ["ArrowLeft", "ArrowRight"],
    ["ArrowDown", "ArrowUp"],
  ]) {
    assert.equal(heads.alphaOf(heads.keyedPosition(100, away)), heads.SHARPEST);
    assert.equal(heads.keyedPosition(heads.positionFor(heads.SHARPEST), back), 100);
    for (const [position, key] of [
      [100, back],
      [88, away],
      [87, back],
      [0, away],
    ])
      assert.equal(heads.keyedPosition(position, key), undefined, `${position} ${key}`);
  }
  assert.equal(heads.keyedPosition(100, "Tab"), undefined);
});

test("the number on a disc has a contrast of at least 4.5 with the head's colour", async () => {
  const { drawDisc, inkOn } = await import("../../../src/companion/explorer/js/shell/dom.js");
  const brightness = (color) => {
    const digits = color.length === 4 ? [...color.slice(1)].map((x) => x + x) : color.slice(1).match(/../g);
    const [r, g, b] = digits.map((text) => parseInt(text, 16) / 255);
    const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  for (let n = 0; n < 4096; n += 37) {
    const color = `#${[8, 4, 0].map((shift) => (((n >> shift) & 15) * 17).toString(16).padStart(2, "0")).join("")}`;
    const written = { setLineDash() {}, beginPath() {}, arc() {}, fill() {}, stroke() {}, fillText: () => (written.ink = written.fillStyle) };
    drawDisc(written, [0, 0], 9, { color, line: 1, font: "10px sans-serif" }, 1);
    for (const ink of [inkOn(color), written.ink]) {
      const [low, high] = [brightness(color), brightness(ink)].sort((a, b) => a - b);
      assert.ok((high + 0.05) / (low + 0.05) >= 4.5, color);
    }
  }
});
