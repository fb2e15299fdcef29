/** Attention of quadratic heads to a colour image, fast enough to follow the pointer: one axis after the other, without the keys
 *  whose weight cannot be seen, and three queries at a time. Tested against a plain sum over all keys. */
import { clamp } from "./text.js";

/** Weights below e^-CUT of the largest that matters, the neighbour's e^-alpha, are left out. */
const CUT = 15;
const TOGETHER = 3; // queries for which each key is read once
const reachOf = (alpha) => Math.ceil(Math.sqrt((CUT + alpha) / Math.max(alpha, 1e-9)) + 0.5); // pixels

/** Attention along one axis from a `place`, the query plus the head's centre: the first key that is not left out, and the
 *  probabilities from there on. */
function axisWindow(place, alpha, size) {
  const half = Math.min(size, reachOf(alpha)),
    count = Math.min(size, 2 * half + 1),
    from = clamp(Math.round(place) - half, 0, size - count),
    scores = Array.from({ length: count }, (_, n) => -alpha * (from + n - place) ** 2),
    largest = Math.max(...scores),
    weights = scores.map((score) => Math.exp(score - largest)),
    sum = weights.reduce((a, b) => a + b),
    least = Math.exp(-CUT - alpha) * sum;
  let [low, high] = [0, count];
  while (weights[low] < least) low++;
  while (weights[high - 1] < least) high--;
  return { first: from + low, weights: weights.slice(low, high).map((weight) => weight / sum) };
}

/** The windows of all queries of the image, three queries together: the first key of any of the three and, for each key from there
 *  on, three probabilities. `size`: with the frame of zeros, to which the keys belong but no query. */
function windowsTogether(center, alpha, size) {
  const blocks = [],
    end = size - 1,
    reach = reachOf(alpha),
    whole = (q) => Math.round(q + center) >= reach && Math.round(q + center) + reach < size;
  for (let q = 1; q < end; q += TOGETHER) {
    const before = blocks.at(-1),
      next = Math.min(end, q + TOGETHER);
    if (before && next === q + TOGETHER && whole(q - TOGETHER) && whole(next - 1))
      blocks.push({ first: before.first + TOGETHER, weights: before.weights }); // the same, moved on
    else blocks.push(joined(Array.from({ length: next - q }, (_, n) => axisWindow(q + n + center, alpha, size))));
  }
  return blocks;
}

/** Some queries' windows as one: its first key and, for each key from there on, a probability for each query. */
function joined(windows) {
  const first = Math.min(...windows.map((window) => window.first)),
    end = Math.max(...windows.map((window) => window.first + window.weights.length)),
    weights = new Float64Array(TOGETHER * (end - first));
  windows.forEach((window, n) => {
    window.weights.forEach((weight, k) => (weights[TOGETHER * (window.first - first + k) + n] = weight));
  });
  return { first, weights };
}

/** Add `value` times the averages along one axis to `output`, for each of the `lines` across it. `[step, line]`: how far apart
 *  neighbours on the axis and on two lines are. A last block of fewer queries adds zeros to what follows. */
function addAverages(blocks, value, lines, input, [step, line], output, [outStep, outLine]) {
  for (let block = 0; block < blocks.length; block++) {
    const { first, weights } = blocks[block],
      end = weights.length;
    for (let n = 0; n < lines; n++) {
      let a, b, c, d, e, f, g, h, i;
      a = b = c = d = e = f = g = h = i = 0;
      for (let k = 0, at = n * line + first * step; k < end; k += TOGETHER, at += step) {
        const red = input[at],
          green = input[at + 1],
          blue = input[at + 2],
          p = weights[k],
          q = weights[k + 1],
          r = weights[k + 2];
        a += p * red;
        b += p * green;
        c += p * blue;
        d += q * red;
        e += q * green;
        f += q * blue;
        g += r * red;
        h += r * green;
        i += r * blue;
      }
      const to = n * outLine + TOGETHER * block * outStep,
        second = to + outStep,
        third = second + outStep;
      output[to] += value * a;
      output[to + 1] += value * b;
      output[to + 2] += value * c;
      output[second] += value * d;
      output[second + 1] += value * e;
      output[second + 2] += value * f;
      output[third] += value * g;
      output[third + 1] += value * h;
      output[third + 2] += value * i;
    }
  }
}

/** A colour image, height x width x 3 numbers, in its frame of zeros, and the memory that attention to it needs. */
export class SeparableLayer {
  constructor(image, height, width) {
    const [tall, wide] = [height + 2, width + 2];
    Object.assign(this, { height, width, tall, wide, padded: new Float64Array(tall * wide * 3) });
    for (let r = 0; r < height; r++)
      this.padded.set(image.subarray(r * width * 3, (r + 1) * width * 3), ((r + 1) * wide + 1) * 3);
    this.byRows = []; // for each distinct row and alpha of the heads
  }

  /** The sum over the heads of value times average, from every pixel of the image, height x width x 3 numbers. `sharpness`: alpha,
   *  or an alpha for each head. */
  attend(centers, sharpness, values) {
    const { height, width, tall, wide } = this,
      known = new Map(),
      sum = new Float64Array((height * width + TOGETHER) * 3);
    const rowsOf = (row, alpha) => {
      const key = `${row} ${alpha}`;
      if (!known.has(key)) {
        const rows = (this.byRows[known.size] ??= new Float64Array((height + TOGETHER) * wide * 3)).fill(0);
        addAverages(windowsTogether(row, alpha, tall), 1, wide, this.padded, [3 * wide, 3], rows, [3 * wide, 3]);
        known.set(key, rows);
      }
      return known.get(key);
    };
    centers.forEach(([row, column], head) => {
      if (!values[head]) return;
      const alpha = sharpness[head] ?? sharpness,
        columns = windowsTogether(column, alpha, wide);
      addAverages(columns, values[head], height, rowsOf(row, alpha), [3, 3 * wide], sum, [3, 3 * width]);
    });
    return sum.subarray(0, height * width * 3);
  }

  /** One channel of the image, height x width numbers. */
  channel(channel) {
    const { height, width, wide, padded } = this,
      values = new Float64Array(height * width);
    for (let i = 0, n = 0; i < height; i++)
      for (let j = 0; j < width; j++) values[n++] = padded[((i + 1) * wide + j + 1) * 3 + channel];
    return values;
  }

  /** The image around a pixel, up to `reach` pixels from it and zero outside: (2 reach + 1)^2 x 3 numbers. */
  around([row, column], reach) {
    const span = 2 * reach + 1,
      patch = new Float64Array(span * span * 3);
    for (let i = 0; i < span; i++)
      for (let j = 0; j < span; j++) {
        const [r, c] = [row + i - reach + 1, column + j - reach + 1];
        if (r < 0 || c < 0 || r >= this.tall || c >= this.wide) continue;
        const from = (r * this.wide + c) * 3;
        patch.set(this.padded.subarray(from, from + 3), (i * span + j) * 3);
      }
    return patch;
  }

  /** What a head sees from one pixel of the image, in its three channels. */
  seenFrom([row, column], [i, j], alpha) {
    const rows = axisWindow(row + 1 + i, alpha, this.tall),
      columns = axisWindow(column + 1 + j, alpha, this.wide),
      seen = [0, 0, 0];
    rows.weights.forEach((p, n) => {
      columns.weights.forEach((q, m) => {
        const k = ((rows.first + n) * this.wide + columns.first + m) * 3;
        for (let channel = 0; channel < 3; channel++) seen[channel] += p * q * this.padded[k + channel];
      });
    });
    return seen;
  }
}
