/** The numbers: attention for a query, and convolution. As the package computes them; tested against it. */
/** The smallest whole alpha at which a neighbour's weight e^-alpha is zero: `hard_alpha` of the package, in float64. */
export const HARD_ALPHA = Math.floor(Math.LN2 - Math.log(Number.MIN_VALUE)) + 1;

/** One layer's parameters at one moment of training, from a run record's tensors: `{heads, centers, alpha}` and so on. */
export function layerAt(tensors, number, moment) {
  const layer = { heads: 0 };
  for (const [key, { shape, data }] of Object.entries(tensors)) {
    if (!key.startsWith(`layer${number}.`)) continue;
    const size = shape.slice(1).reduce((product, n) => product * n, 1);
    layer[key.split(".")[1]] = data.subarray(moment * size, (moment + 1) * size);
    layer.heads = shape[1];
  }
  return layer;
}

/** A head's score as a function of the offset (i, j): equation (14), equation (19), or learned, section 4.3. */
export function scoreOf(layer, head) {
  if (layer.row_scores) {
    const size = layer.row_scores.length / layer.heads,
      width = layer.column_scores.length / layer.heads;
    const rows = layer.row_scores.subarray(head * size),
      columns = layer.column_scores.subarray(head * width);
    return (i, j) => rows[i + (size >> 1)] + columns[j + (width >> 1)];
  }
  const [row, column] = layer.centers.subarray(2 * head, 2 * head + 2);
  if (layer.alpha) {
    const alpha = layer.alpha[head];
    return (i, j) => -alpha * ((i - row) ** 2 + (j - column) ** 2);
  }
  const [a, b, c, d] = layer.precision.subarray(4 * head, 4 * head + 4);
  return (i, j) => {
    const x = i - row,
      y = j - column;
    return -0.5 * (a * x * x + (b + c) * x * y + d * y * y);
  };
}

/** A head's scores for all offsets of an H x W image, (2H - 1) x (2W - 1) numbers from the most negative offset. */
export function scoresByShift(layer, head, height, width) {
  const table = new Float64Array((2 * height - 1) * (2 * width - 1));
  const score = scoreOf(layer, head);
  let n = 0;
  for (let i = 1 - height; i < height; i++) for (let j = 1 - width; j < width; j++) table[n++] = score(i, j);
  return table;
}

/** The scores of all key pixels for one query: the window of a table by offset that the image leaves. */
export function scoresFrom(table, [row, column], height, width) {
  const scores = new Float64Array(height * width),
    columns = 2 * width - 1;
  for (let i = 0; i < height; i++) {
    const start = (i - row + height - 1) * columns + (width - 1 - column);
    scores.set(table.subarray(start, start + width), i * width);
  }
  return scores;
}

export function softmax(scores) {
  let largest = -Infinity,
    sum = 0;
  for (const score of scores) if (score > largest) largest = score;
  const probabilities = new Float64Array(scores.length);
  for (let k = 0; k < scores.length; k++) sum += probabilities[k] = Math.exp(scores[k] - largest);
  for (let k = 0; k < scores.length; k++) probabilities[k] /= sum;
  return probabilities;
}

/** In nats: 0 for one pixel, ln(HW) for all alike. */
export function entropy(probabilities) {
  let sum = 0;
  for (const p of probabilities) if (p > 0) sum -= p * Math.log(p);
  return sum;
}

/** The mean probability of each offset, over the queries that have it inside the image: `mean_by_offset` of the package. */
export function meanByShift(table, height, width) {
  const columns = 2 * width - 1,
    sum = new Float64Array(table.length),
    count = new Float64Array(table.length);
  const largest = table.reduce((a, b) => Math.max(a, b)),
    weights = table.map((score) => Math.exp(score - largest));
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++) {
      let p = scoresFrom(weights, [row, column], height, width);
      const Z = p.reduce((a, b) => a + b);
      p = Z > 1e-200 ? p.map((weight) => weight / Z) : softmax(scoresFrom(table, [row, column], height, width));
      for (let i = 0, k = 0; i < height; i++)
        for (let j = 0; j < width; j++, k++) {
          const shift = (i - row + height - 1) * columns + j - column + width - 1;
          sum[shift] += p[k];
          count[shift] += 1;
        }
    }
  return sum.map((value, shift) => value / count[shift]);
}

/** The largest mean probability of an offset up to half the image, and that offset: `Heads.mass` and `.offsets` of the package. */
export function bestShift(byShift, height, width) {
  const up = height >> 1,
    left = width >> 1;
  let best = { mass: -1, shift: [0, 0] };
  for (let i = -up; i <= up; i++)
    for (let j = -left; j <= left; j++) {
      const mass = byShift[(i + height - 1) * (2 * width - 1) + j + width - 1];
      if (mass > best.mass) best = { mass, shift: [i, j] };
    }
  return best;
}

// --- convolution ------------------------------------------------------------------------------------------------------

/** The offsets of a 3 x 3 kernel, row by row: Delta_K. */
export const SHIFTS = [-1, 0, 1].flatMap((i) => [-1, 0, 1].map((j) => [i, j]));

/** Equation (5) for one channel: the sum over the offsets of kernel[delta] * X[q + delta], zero outside the image. */
export function convolve(image, height, width, kernel) {
  const output = new Float64Array(height * width);
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++) {
      let sum = 0;
      SHIFTS.forEach(([i, j], n) => {
        const r = row + i,
          c = column + j;
        if (r >= 0 && r < height && c >= 0 && c < width) sum += kernel[n] * image[r * width + c];
      });
      output[row * width + column] = sum;
    }
  return output;
}

/** A quadratic head's attention along one axis: `size` rows, one a query, of `size` probabilities. */
export function axisProbabilities(center, alpha, size) {
  const maps = new Float64Array(size * size);
  for (let q = 0; q < size; q++) {
    const scores = Float64Array.from({ length: size }, (_, k) => -alpha * (k - q - center) ** 2);
    maps.set(softmax(scores), q * size);
  }
  return maps;
}
