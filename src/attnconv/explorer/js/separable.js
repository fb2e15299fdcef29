/** Attention of quadratic heads to a colour image, fast enough to follow the pointer: one axis after the other, and without the
 *  keys whose weight cannot be seen. Tested against a plain sum over all keys. */
/** Weights below e^-CUT of the largest that matters, the neighbour's e^-alpha, are left out. */
const CUT = 15;

/** A head's attention along one axis, for each query: its first key and `count` probabilities. */
export function axisWindows(center, alpha, size) {
  const half = Math.min(size, Math.ceil(Math.sqrt((CUT + alpha) / Math.max(alpha, 1e-9)) + 0.5)),
    count = Math.min(size, 2 * half + 1);
  const first = new Int32Array(size),
    weights = new Float64Array(size * count);
  for (let q = 0; q < size; q++) {
    const from = (first[q] = Math.max(0, Math.min(size - count, Math.round(q + center) - half)));
    let largest = -Infinity,
      sum = 0;
    for (let n = 0; n < count; n++) {
      const score = -alpha * (from + n - q - center) ** 2;
      weights[q * count + n] = score;
      if (score > largest) largest = score;
    }
    for (let n = q * count; n < (q + 1) * count; n++) sum += weights[n] = Math.exp(weights[n] - largest);
    for (let n = q * count; n < (q + 1) * count; n++) weights[n] /= sum;
  }
  return { first, weights, count };
}

/** `rows` rows of `length` numbers become the rows' averages: row q of the output is the sum of p * row k of the input. Four keys
 *  at a time, which halves the time. */
function average({ first, weights, count }, input, output, rows, length, least) {
  output.fill(0);
  for (let q = 0; q < rows; q++) {
    let n = q * count,
      end = n + count;
    while (n < end && weights[n] < least) n++;
    while (end > n && weights[end - 1] < least) end--;
    const to = q * length;
    let from = (first[q] + n - q * count) * length;
    for (; n + 4 <= end; n += 4, from += 4 * length) {
      const [a, b, c, d] = [weights[n], weights[n + 1], weights[n + 2], weights[n + 3]],
        [second, third, fourth] = [from + length, from + 2 * length, from + 3 * length];
      for (let i = 0; i < length; i++)
        output[to + i] += a * input[from + i] + b * input[second + i] + c * input[third + i] + d * input[fourth + i];
    }
    for (; n < end; n++, from += length) {
      const p = weights[n];
      for (let i = 0; i < length; i++) output[to + i] += p * input[from + i];
    }
  }
}

/** Height x width x 3 numbers become width x height x 3. */
function turned(input, height, width, output) {
  for (let r = 0; r < height; r++)
    for (let c = 0; c < width; c++)
      for (let channel = 0; channel < 3; channel++) output[(c * height + r) * 3 + channel] = input[(r * width + c) * 3 + channel];
  return output;
}

/** A colour image, height x width x 3 numbers, in its frame of zeros, and the memory that attention to it needs. */
export class SeparableLayer {
  constructor(image, height, width) {
    const [tall, wide] = [height + 2, width + 2];
    Object.assign(this, { height, width, tall, wide, padded: new Float64Array(tall * wide * 3) });
    for (let r = 0; r < height; r++)
      this.padded.set(image.subarray(r * width * 3, (r + 1) * width * 3), ((r + 1) * wide + 1) * 3);
    this.byRows = new Float64Array(tall * wide * 3);
    this.seen = new Float64Array(tall * wide * 3);
  }

  /** The sum over the heads of value times average, from every pixel of the image, height x width x 3 numbers. `sharpness`: alpha,
   *  or an alpha for each head. */
  attend(centers, sharpness, values) {
    const { height, width, tall, wide } = this,
      alphas = centers.map((_, head) => sharpness[head] ?? sharpness),
      known = new Map(),
      sum = new Float64Array(tall * wide * 3); // columns first
    const rowsOf = (row, alpha) => {
      const key = `${row} ${alpha}`;
      if (!known.has(key)) {
        average(axisWindows(row, alpha, tall), this.padded, this.byRows, tall, 3 * wide, Math.exp(-CUT - alpha));
        known.set(key, turned(this.byRows, tall, wide, new Float64Array(tall * wide * 3)));
      }
      return known.get(key);
    };
    centers.forEach(([row, column], head) => {
      if (!values[head]) return;
      const alpha = alphas[head];
      average(axisWindows(column, alpha, wide), rowsOf(row, alpha), this.seen, wide, 3 * tall, Math.exp(-CUT - alpha));
      for (let n = 0; n < sum.length; n++) sum[n] += values[head] * this.seen[n];
    });
    const output = new Float64Array(height * width * 3);
    for (let r = 0; r < height; r++)
      for (let c = 0; c < width; c++)
        for (let channel = 0; channel < 3; channel++)
          output[(r * width + c) * 3 + channel] = sum[((c + 1) * tall + r + 1) * 3 + channel];
    return output;
  }

  /** One channel of the image, height x width numbers. */
  channel(channel) {
    const { height, width, wide, padded } = this;
    return Float64Array.from(
      { length: height * width },
      (_, n) => padded[((Math.floor(n / width) + 1) * wide + (n % width) + 1) * 3 + channel],
    );
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
    const rows = axisWindows(i, alpha, this.tall),
      columns = axisWindows(j, alpha, this.wide),
      seen = [0, 0, 0];
    for (let n = 0; n < rows.count; n++) {
      const p = rows.weights[(row + 1) * rows.count + n],
        r = rows.first[row + 1] + n;
      if (!p) continue;
      for (let m = 0; m < columns.count; m++) {
        const weight = p * columns.weights[(column + 1) * columns.count + m],
          k = (r * this.wide + columns.first[column + 1] + m) * 3;
        for (let channel = 0; channel < 3; channel++) seen[channel] += weight * this.padded[k + channel];
      }
    }
    return seen;
  }
}
