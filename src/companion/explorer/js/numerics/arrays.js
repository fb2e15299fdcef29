/** Arrays of trained networks: products, weights, the Gaussian unit. A layer is an array of T pixels, row by row, of D numbers each;
 *  a matrix is row by row as in torch, `(outputs, inputs)`. Sums are float64, what is kept between them is float32. */

/** Y += X W^T. Two pixels and four outputs at a time, which is three times as fast as one and one. */
export function addProduct(Y, X, W, inputs, outputs) {
  for (let x = 0, y = 0; x < X.length; x += 2 * inputs, y += 2 * outputs) {
    const last = x + inputs === X.length, // a pixel without a second one is computed twice and written once
      z = last ? x : x + inputs;
    let o = 0;
    for (; o + 3 < outputs; o += 4) {
      let [a0, a1, a2, a3, b0, b1, b2, b3] = [0, 0, 0, 0, 0, 0, 0, 0];
      for (let k = 0, w = o * inputs; k < inputs; k++, w++) {
        const a = X[x + k],
          b = X[z + k];
        const w0 = W[w],
          w1 = W[w + inputs],
          w2 = W[w + 2 * inputs],
          w3 = W[w + 3 * inputs];
        a0 += a * w0;
        a1 += a * w1;
        a2 += a * w2;
        a3 += a * w3;
        b0 += b * w0;
        b1 += b * w1;
        b2 += b * w2;
        b3 += b * w3;
      }
      add(Y, y + o, a0, a1, a2, a3);
      if (!last) add(Y, y + outputs + o, b0, b1, b2, b3);
    }
    for (; o < outputs; o++)
      for (let pixel = 0; pixel < (last ? 1 : 2); pixel++) {
        let sum = 0;
        for (let k = 0; k < inputs; k++) sum += X[x + pixel * inputs + k] * W[o * inputs + k];
        Y[y + pixel * outputs + o] += sum;
      }
  }
  return Y;
}

function add(Y, n, s0, s1, s2, s3) {
  Y[n] += s0;
  Y[n + 1] += s1;
  Y[n + 2] += s2;
  Y[n + 3] += s3;
}

/** T pixels of D numbers, each pixel the bias (or zero). */
export function filled(pixels, width, bias) {
  const Y = new Float32Array(pixels * width);
  if (bias) for (let y = 0; y < Y.length; y += width) Y.set(bias, y);
  return Y;
}

export const linear = (X, { weight, bias, inputs, outputs }) =>
  addProduct(filled(X.length / inputs, outputs, bias), X, weight, inputs, outputs);

/** The error function's complement for x >= 0, to 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
function erfc(x) {
  const t = 1 / (1 + 0.3275911 * x);
  const polynomial = (((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592;
  return polynomial * t * Math.exp(-x * x);
}

/** x times the normal distribution function of x, in place. */
export function gelu(X) {
  for (let n = 0; n < X.length; n++) {
    const tail = erfc(Math.abs(X[n]) * Math.SQRT1_2) / 2;
    X[n] *= X[n] < 0 ? tail : 1 - tail;
  }
  return X;
}

/** A linear layer, or a convolution with its kernel's matrices side by side. */
export function linearOf(tensors, name) {
  const { shape, data } = tensors[`${name}.weight`];
  return { weight: data, bias: tensors[`${name}.bias`]?.data, outputs: shape[0], inputs: data.length / shape[0] };
}

/** W^(h), `(outputs, inputs)`, of each head. Weight: `(outputs, inputs of all heads)`, where `entry(head, input)` is a column. */
export function matricesOf(weight, outputs, heads, entry) {
  const columns = weight.length / outputs,
    inputs = columns / heads;
  return Array.from({ length: heads }, (_, head) => {
    const matrix = new Float32Array(outputs * inputs);
    for (let o = 0, n = 0; o < outputs; o++)
      for (let i = 0; i < inputs; i++) matrix[n++] = weight[o * columns + entry(head, i, inputs)];
    return matrix;
  });
}
