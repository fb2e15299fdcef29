/** The CNN of chapter 14 from its trained weights, and the same network as attention. Images are `{X, size, channels}`: squares. */
import { addProduct, filled, gelu, linear, linearOf, matricesOf } from "../numerics/arrays.js";
import { axisProbabilities } from "../numerics/numbers.js";

/** The image in a frame of zeros. */
function padded({ X, size, channels }, padding) {
  const wide = size + 2 * padding,
    Y = new Float32Array(wide * wide * channels);
  for (let row = 0; row < size; row++)
    Y.set(X.subarray(row * size * channels, (row + 1) * size * channels), ((row + padding) * wide + padding) * channels);
  return { X: Y, size: wide, channels };
}

/** The part of an image of `size` x `size` pixels whose upper left pixel is (row, column). */
function part({ X, size: wide, channels }, [row, column], size) {
  const Y = new Float32Array(size * size * channels),
    run = size * channels;
  for (let r = 0; r < size; r++) {
    const start = ((row + r) * wide + column) * channels;
    Y.set(X.subarray(start, start + run), r * run);
  }
  return Y;
}

/** The image as a head with its centre on the query sees it: the average by rows, then by columns. Where the softmax is
 *  one-hot, it is the image itself. */
function averaged(image, alpha) {
  const { X, size, channels } = image,
    maps = axisProbabilities(0, alpha, size);
  if (maps.every((p, n) => p === (n % (size + 1) ? 0 : 1))) return image;
  const mix = (from, to, length) => {
    for (let q = 0, n = 0; q < size; q++)
      for (let k = 0; k < size; k++) {
        const p = maps[n++];
        if (p) for (let i = 0; i < length; i++) to[q * length + i] += p * from[k * length + i];
      }
  };
  const byRows = new Float32Array(X.length),
    Y = new Float32Array(X.length),
    run = size * channels;
  mix(X, byRows, run);
  for (let row = 0; row < X.length; row += run) mix(byRows.subarray(row, row + run), Y.subarray(row, row + run), channels);
  return { X: Y, size, channels };
}

/** A convolution; with an `alpha`, as one quadratic head for each offset of its kernel, on the image in a frame of zeros
 *  (Theorem 1). Heads on pixels with one alpha are shifts of one another (Lemma 1): one average of the image serves all. */
function convolution(tensors, { name, kernel, padding }) {
  const { weight, bias, outputs, inputs } = linearOf(tensors, name),
    heads = kernel * kernel;
  const byHead = matricesOf(weight, outputs, heads, (head, i) => i * heads + head);
  const corners = byHead.map((_, head) => [Math.floor(head / kernel), head % kernel]);
  const convolve = (image, size) => {
    const patches = new Float32Array(size * size * inputs); // all inputs of a pixel in the kernel's order: channel, row, column
    corners.forEach((corner, head) =>
      part(image, corner, size).forEach((value, n) => {
        patches[n * heads + head] = value;
      }),
    );
    return addProduct(filled(size * size, outputs, bias), patches, weight, inputs, outputs);
  };
  const attend = (image, size, alpha) => {
    const seen = averaged(image, alpha),
      Y = filled(size * size, outputs, bias);
    byHead.forEach((W, head) => addProduct(Y, part(seen, corners[head], size), W, inputs / heads, outputs));
    return Y;
  };
  return (image, alpha) => {
    const framed = padded(image, padding),
      size = framed.size - kernel + 1;
    return { X: alpha === undefined ? convolve(framed, size) : attend(framed, size, alpha), size, channels: outputs };
  };
}

/** The largest of each p x p pixels; what is left over at the end is dropped. */
function maxPool({ X, size, channels }, p) {
  const small = Math.floor(size / p),
    Y = new Float32Array(small * small * channels).fill(-Infinity);
  for (let row = 0; row < small * p; row++)
    for (let column = 0; column < small * p; column++) {
      const from = (row * size + column) * channels,
        to = (Math.floor(row / p) * small + Math.floor(column / p)) * channels;
      for (let c = 0; c < channels; c++) Y[to + c] = Math.max(Y[to + c], X[from + c]);
    }
  return { X: Y, size: small, channels };
}

/** Batch normalisation as it is after training: one scale and one shift a channel. */
function batchNorm(tensors, { name, epsilon }) {
  const [weight, bias, mean, variance] = ["weight", "bias", "running_mean", "running_var"].map(
    (k) => tensors[`${name}.${k}`].data,
  );
  const scale = Float64Array.from(weight, (value, c) => value / Math.sqrt(variance[c] + epsilon));
  return (image) => ({ ...image, X: image.X.map((x, n, _, c = n % image.channels) => (x - mean[c]) * scale[c] + bias[c]) });
}

const STEPS = {
  convolution,
  "batch norm": batchNorm,
  "max pool":
    (_, { size }) =>
    (image) =>
      maxPool(image, size),
  gelu: () => (image) => ({ ...image, X: gelu(image.X) }),
};

export function convolutionalNetwork(tensors, { size, steps, divisor }) {
  const layers = steps.map((step) => STEPS[step.kind](tensors, step)),
    classifier = linearOf(tensors, "classifier");
  return (X, alpha) => {
    let image = { X, size, channels: X.length / size ** 2 };
    for (const layer of layers) image = layer(image, alpha);
    const { X: largest } = maxPool(image, image.size);
    return { logits: linear(largest, classifier).map((logit) => logit / divisor) };
  };
}
