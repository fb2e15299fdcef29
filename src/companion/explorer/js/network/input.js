/** Pictures as input of a network: the middle square, reduced as the package does (`TrainedModel.transform`). PIL filters along
 *  rows or along columns first, here it is always along rows: so a number may differ by 1 of 255. */

const LARGEST = 8000; // pixels a side
const ONE = 1 << 22; // what the weights of a filter sum to, as in PIL's integers

/** Why a picture of this size cannot be used, in one sentence; nothing if it can. */
export function refusal(width, height) {
  const size = `${width} × ${height} pixels`;
  if (![width, height].every(Number.isInteger)) return `The size of this picture cannot be read (${size}); choose another one.`;
  if (width < 1 || height < 1) return `This picture is empty (${size}); choose another one.`;
  if (Math.max(width, height) > LARGEST) return `This picture has ${size}; no side may exceed ${LARGEST}, so reduce it first.`;
}

/** PIL's bilinear filter for `length` pixels on `count`: the outputs from `first` on, each the pixel at which it starts and the
 *  weights from there on. It is a triangle as wide as two outputs, or two pixels where it enlarges. */
function filters(length, count, first, outputs) {
  const scale = length / count,
    reach = Math.max(scale, 1);
  return Array.from({ length: outputs }, (_, n) => {
    const center = (first + n + 0.5) * scale,
      start = Math.max(0, Math.trunc(center - reach + 0.5)),
      end = Math.min(length, Math.trunc(center + reach + 0.5));
    const weights = Float64Array.from({ length: end - start }, (_, k) =>
      Math.max(0, 1 - Math.abs(start + k + 0.5 - center) / reach),
    );
    const sum = weights.reduce((a, b) => a + b);
    return { start, weights: Int32Array.from(weights, (weight) => Math.round((weight / sum) * ONE)) };
  });
}

/** The middle `size` outputs of an axis whose `length` becomes `size` where it is the shorter one. */
function middle(length, shorter, size) {
  const count = Math.trunc((size * length) / shorter),
    half = (count - size) / 2;
  const first = half % 1 ? 2 * Math.round(half / 2) : half; // Python's round: to the even one of two
  return filters(length, count, first, size);
}

/** One row of a picture in opaque colours, 3 numbers a pixel: where it is transparent one sees white. */
function opaqueRow({ width, data }, row, colours) {
  for (let n = 0, from = 4 * row * width; n < colours.length; from += 4)
    for (let c = 0; c < 3; c++) {
      const alpha = data[from + 3];
      colours[n++] = alpha === 255 ? data[from + c] : Math.round((data[from + c] * alpha) / 255 + 255 - alpha);
    }
  return colours;
}

/** The weighted sum of every `stride`-th number, rounded to a whole one. */
function filtered(numbers, { start, weights }, offset, stride) {
  let sum = ONE / 2;
  for (let k = 0, n = start * stride + offset; k < weights.length; k++, n += stride) sum += weights[k] * numbers[n];
  return sum >> 22;
}

/** A picture `{width, height, data}`, RGBA, as `size` x `size` pixels of 3 numbers from 0 to 255: its middle square. Throws, with a
 *  sentence for the reader, for what is no picture. */
export function reduced(picture, size) {
  const { width, height, data } = picture,
    problem = refusal(width, height);
  if (problem) throw new Error(problem);
  if (data.length !== 4 * width * height) throw new Error("This picture is incomplete; choose another one.");
  const columns = middle(width, Math.min(width, height), size),
    rows = middle(height, Math.min(width, height), size);
  const top = rows[0].start,
    end = rows[size - 1].start + rows[size - 1].weights.length;
  const narrow = new Uint8Array((end - top) * size * 3),
    colours = new Uint8Array(3 * width);
  for (let row = top, n = 0; row < end; row++) {
    opaqueRow(picture, row, colours);
    for (const column of columns) for (let c = 0; c < 3; c++) narrow[n++] = filtered(colours, column, c, 3);
  }
  const pixels = new Uint8Array(size * size * 3);
  rows.forEach(({ start, weights }, row) => {
    for (let n = 0; n < 3 * size; n++)
      pixels[3 * size * row + n] = filtered(narrow, { start: start - top, weights }, n, 3 * size);
  });
  return pixels;
}

/** Pixels as a network takes them: `(value / 255 - mean) / std` in each channel. */
export function normalised(pixels, { mean, std }) {
  return Float32Array.from(pixels, (value, n) => (value / 255 - mean[n % 3]) / std[n % 3]);
}
