/** The networks of self-attention of section 4.1, from their trained weights: one image at a time. */
import { addProduct, filled, gelu, linear, linearOf, matricesOf } from "../numerics/arrays.js";
import { scoresByShift, scoresFrom, softmax } from "../numerics/numbers.js";

/** Y += the sum over the heads of P^(h) X W^(h). Maps: `(heads, T, T)`. */
function attendAndAdd(Y, maps, X, matrices, pixels) {
  const inputs = X.length / pixels,
    outputs = Y.length / pixels;
  matrices.forEach((W, head) => {
    const values = addProduct(filled(outputs, pixels), W, X, inputs, pixels); // (X W)^T: `(outputs, T)`
    addProduct(Y, maps.subarray(head * pixels ** 2, (head + 1) * pixels ** 2), values, pixels, outputs);
  });
  return Y;
}

/** To mean 0 and variance 1 for each pixel, in place, then times the weight plus the bias. */
function normalise(X, { weight, bias, epsilon }) {
  const width = weight.length;
  for (let x = 0; x < X.length; x += width) {
    let mean = 0,
      variance = 0;
    for (let k = 0; k < width; k++) mean += X[x + k] / width;
    for (let k = 0; k < width; k++) variance += (X[x + k] - mean) ** 2 / width;
    const scale = 1 / Math.sqrt(variance + epsilon);
    for (let k = 0; k < width; k++) X[x + k] = (X[x + k] - mean) * scale * weight[k] + bias[k];
  }
  return X;
}

function plus(X, Y) {
  for (let n = 0; n < X.length; n++) Y[n] += X[n];
  return Y;
}

/** The parameters of position-only heads as `scoreOf` takes them. `of(name)`: a tensor of the encoding. */
const POSITIONS = {
  quadratic: (of, { alphaForm }) => ({
    centers: of("centers").data,
    alpha: of("spread").data.map((spread) => (alphaForm === "square" ? spread ** 2 / 2 : spread)),
  }),
  generalized: (of) => {
    const root = of("root").data;
    const product = (head, i, j) => root[head + 2 * i] * root[head + 2 * j] + root[head + 2 * i + 1] * root[head + 2 * j + 1];
    return { centers: of("centers").data, precision: root.map((_, n) => product(n - (n % 4), (n % 4) >> 1, n % 2)) };
  },
  learned: (of) => {
    const [rows, columns] = [0, 1].map((axis) => {
      const targets = of(`targets.${axis}.weight`),
        shifts = of(`embedding.axes.${axis}.weight`);
      const scores = filled(targets.shape[0], shifts.shape[0]);
      return addProduct(scores, targets.data, shifts.data, shifts.shape[1], shifts.shape[0]);
    });
    return { row_scores: rows, column_scores: columns };
  },
};

/** Maps that depend on positions alone, `(heads, T, T)`, computed once. */
function positionMaps(tensors, name, layer, size) {
  const encoding = POSITIONS[layer.encoding]((key) => tensors[`${name}.encoding.${key}`], layer),
    pixels = size * size;
  const maps = new Float32Array(layer.heads * pixels ** 2);
  for (let head = 0, n = 0; head < layer.heads; head++) {
    const table = scoresByShift({ heads: layer.heads, ...encoding }, head, size, size);
    for (let q = 0; q < pixels; q++, n += pixels)
      maps.set(softmax(scoresFrom(table, [Math.floor(q / size), q % size], size, size)), n);
  }
  return () => maps;
}

/** Maps by content, q . (k + r_delta) / sqrt(D_k): a function of the layer's input. Section 4.3. */
function contentMaps(tensors, name, { heads }, size) {
  const pixels = size * size,
    shifts = 2 * size - 1;
  const [queries, keys] = ["query", "key"].map((part) => partsOf(linearOf(tensors, `${name}.${part}`), heads));
  const keySize = queries[0].outputs,
    half = keySize / 2;
  // The vectors of row offsets, then those of column offsets, each beside zeros: so both are products with whole queries.
  const vectors = new Float32Array(2 * shifts * keySize);
  [0, 1].forEach((axis) => {
    const { data } = tensors[`${name}.embedding.axes.${axis}.weight`];
    for (let n = 0; n < shifts; n++)
      vectors.set(data.subarray(n * half, (n + 1) * half), (axis * shifts + n) * keySize + axis * half);
  });
  return (X) => {
    const maps = new Float32Array(heads * pixels ** 2);
    for (let head = 0; head < heads; head++) {
      const query = linear(X, queries[head]),
        byShift = addProduct(filled(pixels, 2 * shifts), query, vectors, keySize, 2 * shifts);
      const scores = addProduct(filled(pixels, pixels), query, linear(X, keys[head]), keySize, pixels);
      for (let q = 0, n = 0; q < pixels; q++)
        for (let k = 0; k < pixels; k++, n++) {
          const row = Math.floor(k / size) - Math.floor(q / size) + size - 1,
            column = (k % size) - (q % size) + size - 1;
          scores[n] += byShift[2 * shifts * q + row] + byShift[2 * shifts * q + shifts + column];
          scores[n] /= Math.sqrt(keySize);
        }
      for (let q = 0; q < pixels; q++)
        maps.set(softmax(scores.subarray(q * pixels, (q + 1) * pixels)), (head * pixels + q) * pixels);
    }
    return maps;
  };
}

/** A linear layer's outputs in equal parts, one a head. */
function partsOf({ weight, bias, inputs, outputs }, heads) {
  const size = outputs / heads;
  return Array.from({ length: heads }, (_, head) => ({
    weight: weight.subarray(head * size * inputs, (head + 1) * size * inputs),
    bias: bias.subarray(head * size, (head + 1) * size),
    inputs,
    outputs: size,
  }));
}

/** Squares of p x p pixels side by side: `(size^2, channels)` to `((size / p)^2, p * p * channels)`. */
function downSampled(image, size, p) {
  const run = (image.length / size ** 2) * p,
    X = new Float32Array(image.length);
  for (let row = 0, n = 0; row < size; row += p)
    for (let column = 0; column < size; column += p)
      for (let r = 0; r < p; r++, n += run) {
        const start = ((row + r) * size + column) * (run / p);
        X.set(image.subarray(start, start + run), n);
      }
  return X;
}

function block(tensors, name, layer, size) {
  const attention = `${name}.attention`,
    value = linearOf(tensors, `${attention}.value`);
  const matrices = matricesOf(value.weight, value.outputs, layer.heads, (head, i, inputs) => head * inputs + i);
  const mapsOf = (layer.encoding === "content" ? contentMaps : positionMaps)(tensors, attention, layer, size);
  const [dense, widen, narrow] = ["dense", "mlp.0", "mlp.2"].map((part) => linearOf(tensors, `${name}.${part}`));
  const norms = ["attention_norm", "mlp_norm"].map((part) => ({
    ...linearOf(tensors, `${name}.${part}`),
    epsilon: layer.epsilon,
  }));
  return (X) => {
    const maps = mapsOf(X);
    const attended = attendAndAdd(filled(size * size, value.outputs, value.bias), maps, X, matrices, size * size);
    X = normalise(plus(X, linear(attended, dense)), norms[0]);
    return { maps, X: normalise(plus(X, linear(gelu(linear(X, widen)), narrow)), norms[1]) };
  };
}

export function selfAttentionNetwork(tensors, { size, pooling, layers }) {
  const embedding = linearOf(tensors, "embedding"),
    classifier = linearOf(tensors, "classifier");
  const blocks = layers.map((layer, n) => block(tensors, `blocks.${n}`, layer, size / pooling));
  return (image) => {
    let X = linear(downSampled(image, size, pooling), embedding);
    const maps = blocks.map((layer) => {
      const output = layer(X);
      X = output.X;
      return output.maps;
    });
    const mean = new Float32Array(embedding.outputs);
    X.forEach((value, n) => (mean[n % mean.length] += value));
    return {
      logits: linear(
        mean.map((sum) => (sum * mean.length) / X.length),
        classifier,
      ),
      maps,
    };
  };
}
