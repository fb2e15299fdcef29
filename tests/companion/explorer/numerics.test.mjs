/* The explorer's pure part, without a browser: against loops, closed forms and known values. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { crc32, readTensors } from "../../../src/companion/explorer/js/numerics/files.js";
import * as numbers from "../../../src/companion/explorer/js/numerics/numbers.js";
import { addressOf, numbersOf, stateOf } from "../../../src/companion/explorer/js/numerics/text.js";

const close = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);
const image = Float64Array.from({ length: 20 }, (_, n) => Math.sin(3 * n)); // 4 x 5

test("a softmax of equal scores is uniform, its entropy the logarithm of their number", () => {
  const p = numbers.softmax(new Float64Array(8));
  p.forEach((value) => close(value, 1 / 8));
  close(numbers.entropy(p), Math.log(8));
});

test("a softmax does not see a constant", () => {
  const shifted = numbers.softmax([1001, 1002, 1004]);
  numbers.softmax([1, 2, 4]).forEach((value, n) => close(value, shifted[n]));
});

test("a convolution is a sum over the offsets, zero outside", () => {
  const kernel = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const ours = numbers.convolve(image, 4, 5, kernel);
  for (let i = 0; i < 4; i++)
    for (let j = 0; j < 5; j++) {
      let sum = 0;
      for (let n = 0; n < 9; n++) {
        const [row, column] = [i + Math.floor(n / 3) - 1, j + (n % 3) - 1];
        if (row >= 0 && row < 4 && column >= 0 && column < 5) sum += kernel[n] * image[row * 5 + column];
      }
      close(ours[i * 5 + j], sum);
    }
});

test("CRC-32 of the check word", () => assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926));

test("a file of tensors is read as it was written", () => {
  const values = new Float32Array([1.5, -2, 3]);
  const header = new TextEncoder().encode(JSON.stringify({ x: { dtype: "F32", shape: [3], data_offsets: [0, 12] } }).padEnd(64));
  const bytes = new Uint8Array(8 + header.length + 12);
  new DataView(bytes.buffer).setUint32(0, header.length, true);
  bytes.set(header, 8);
  bytes.set(new Uint8Array(values.buffer), 8 + header.length);
  assert.deepEqual(Array.from(readTensors(bytes).x.data), [1.5, -2, 3]);
});

test("an address says what it was made of", () => {
  const state = { layer: "2", query: "4,4" };
  assert.deepEqual(stateOf(addressOf(state)), state);
  assert.deepEqual(numbersOf("1,2,x", 3), undefined);
});
