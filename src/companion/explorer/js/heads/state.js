/** Scene 1 without a page: nine heads that become a convolution of a photograph; what a link says, what is moved, the numbers. */
import { HARD_ALPHA, SHIFTS, convolve } from "../numerics/numbers.js";
import { clamp, numbersOf, pair, refuse, show, within } from "../numerics/text.js";
import { bytesOf } from "../numerics/files.js";
import { SeparableLayer } from "../numerics/separable.js";

export const FILTERS = {
  __proto__: null, // a link may name anything
  "vertical edges": [-1, 0, 1, -2, 0, 2, -1, 0, 1],
  "horizontal edges": [-1, -2, -1, 0, 0, 0, 1, 2, 1],
  outline: [0, 1, 0, 1, -4, 1, 0, 1, 0],
  emboss: [-2, -1, 0, -1, 1, 1, 0, 1, 2],
  sharpen: [0, -1, 0, -1, 5, -1, 0, -1, 0],
  blur: Array(9).fill(1 / 9),
};
export const REACH = 3; // pixels that a head's centre may be dragged from the query
export const SOFTEST = 0.1;
export const SHARPEST = 8; // of the slider; beyond it is only the limit
export const EXACT = HARD_ALPHA;
/** Where the heads are at first: the grid, turned and spread. */
export const SCATTERED = SHIFTS.map(([i, j]) => (i || j ? [1.7 * i + 1.2 * j, 1.7 * j - 1.2 * i] : [0.7, 1.1]));
const SNAP = 0.2; // pixels within which a dragged centre goes to a pixel
const LARGEST_WEIGHT = 100;
export const JOURNEY_SECONDS = 5;

/** Where a slider from 0 to 100 has the sharpest alpha; the last part of its way is exact. */
const LAST = 88;
export const alphaOf = (position, softest = SOFTEST) =>
  position > 94 ? EXACT : +(softest * (SHARPEST / softest) ** Math.min(1, position / LAST)).toPrecision(3);
export const positionFor = (alpha, softest = SOFTEST) =>
  alpha >= EXACT ? 100 : clamp((LAST * Math.log(alpha / softest)) / Math.log(SHARPEST / softest), 0, LAST);
/** Where an arrow key leads from a position, if not to the next one. Between the sharpest alpha and exact there is no position that
 *  stays, so a key would never get from the one to the other by small steps. */
export function keyedPosition(position, key) {
  if (position === 100 && (key === "ArrowLeft" || key === "ArrowDown")) return LAST;
  return position === LAST && (key === "ArrowRight" || key === "ArrowUp") ? 100 : undefined;
}

export const sharpness = (alpha) => (alpha >= EXACT ? "exact" : `α = ${show(+alpha.toPrecision(2))}`);

/** The share of a logarithmic scale from 1e-16 to 10 that a difference takes; 0 for none. */
export const shareOf = (difference) => (difference > 0 ? clamp((Math.log10(difference) + 16) / 17, 0, 1) : 0);

const smooth = (share) => ((x) => x * x * (3 - 2 * x))(clamp(share, 0, 1));

/** Alpha and the centres after some seconds: the heads move to the kernel's pixels while they sharpen. */
export function journeyAt(seconds) {
  const moved = smooth((seconds - 0.5) / 2.8),
    share = clamp((seconds - 0.5) / 3.7, 0, 1);
  const centers = SHIFTS.map((delta, head) => delta.map((x, axis) => moved * x + (1 - moved) * SCATTERED[head][axis]));
  if (seconds >= JOURNEY_SECONDS) return { alpha: EXACT, centers: SHIFTS };
  return { alpha: SOFTEST * (SHARPEST / SOFTEST) ** share * (40 / SHARPEST) ** clamp((seconds - 4.2) / 0.8, 0, 1), centers };
}

export class HeadsState {
  /** `data`: the names of its photographs, and the photographs by name. */
  constructor(data) {
    Object.assign(this, { names: data.stage, pictures: data.images, layers: {} });
    this.change(this.usual());
  }

  usual() {
    const { height, width } = this.pictures[this.names[0]];
    const query = [Math.round(0.54 * height), Math.round(0.52 * width)];
    return { picture: this.names[0], kernel: FILTERS["vertical edges"], alpha: EXACT, centers: SHIFTS, query, seam: 0.5 };
  }

  /** Take the state of a link, as text by name. Returns a sentence on the first thing in it that is malformed, in which case the
   *  state is the usual one. */
  open(wanted) {
    const problem = this.problemOf(wanted);
    this.change(this.usual());
    if (problem) return `${problem} The scene shows its usual state.`;
    const { picture, kernel, alpha, centers, query, seam } = wanted,
      flat = numbersOf(centers, 18);
    if (picture) this.change({ picture });
    if (kernel) this.change({ kernel: FILTERS[kernel] ?? numbersOf(kernel, 9) });
    if (alpha) this.change({ alpha: alpha === "exact" ? EXACT : Number(alpha) });
    if (flat) this.change({ centers: SHIFTS.map((_, head) => flat.slice(2 * head, 2 * head + 2)) });
    if (query) this.change({ query: numbersOf(query, 2) });
    if (seam) this.change({ seam: Number(seam) });
    return "";
  }

  problemOf({ picture, kernel, alpha, centers, query, seam }) {
    const { height, width } = this.pictures[this.names.includes(picture) ? picture : this.names[0]];
    const inside = numbersOf(query, 2)?.every((x, axis) => Number.isInteger(x) && x >= 0 && x < [height, width][axis]);
    if (picture !== undefined && !this.names.includes(picture)) return refuse("picture", picture, this.names.join(" or "));
    if (kernel !== undefined && !FILTERS[kernel] && !within(kernel, 9, -LARGEST_WEIGHT, LARGEST_WEIGHT))
      return refuse("kernel", kernel, `${Object.keys(FILTERS).join(", ")}, or nine numbers from −100 to 100`);
    if (alpha !== undefined && alpha !== "exact" && !within(alpha, 1, SOFTEST, EXACT))
      return refuse("alpha", alpha, `a number from ${SOFTEST} to ${EXACT}, or exact`);
    if (centers !== undefined && !within(centers, 18, -REACH, REACH))
      return refuse("centers", centers, `nine pairs of numbers from −${REACH} to ${REACH}`);
    if (query !== undefined && !inside) return refuse("query", query, `a row below ${height} and a column below ${width}`);
    if (seam !== undefined && !within(seam, 1, 0, 1)) return refuse("seam", seam, "a number from 0 to 1");
    return "";
  }

  /** What a link needs to say to give this state, as text by name. */
  text() {
    const { picture, kernel, alpha, centers, query, seam } = this;
    const state = { picture, kernel: nameOfFilter(kernel) ?? kernel.join(","), alpha: alpha >= EXACT ? "exact" : `${alpha}` };
    if (this.moved()) state.centers = centers.map((center) => center.map((x) => +x.toFixed(2)).join(",")).join(",");
    return { ...state, query: query.join(","), seam: `${+seam.toFixed(3)}` };
  }

  /** Whether a head's centre is not on its pixel of the kernel. */
  moved() {
    return this.centers.some((center, head) => center.some((x, axis) => x !== SHIFTS[head][axis]));
  }

  change(patch) {
    Object.assign(this, patch);
    if (patch.picture || patch.kernel) this.convolved = null;
    if (patch.picture || patch.kernel || patch.centers || patch.alpha !== undefined) this.attended = null;
  }

  /** Put a head's centre somewhere within reach; near a pixel it goes there if it is to `snap`. */
  place(head, center, snap = false) {
    const near = snap && center.every((x) => Math.abs(x - Math.round(x)) < SNAP);
    const limited = center.map((x) => +clamp(near ? Math.round(x) : x, -REACH, REACH).toFixed(2) + 0);
    this.change({ centers: this.centers.map((other, n) => (n === head ? limited : other)) });
  }

  get size() {
    const { height, width } = this.pictures[this.picture];
    return [height, width];
  }

  get layer() {
    return (this.layers[this.picture] ??= new SeparableLayer(
      new Float64Array(bytesOf(this.pictures[this.picture].base64)).map((byte) => byte / 255),
      ...this.size,
    ));
  }

  /** By convolution: height x width x 3 numbers, and the range of them that is drawn from black to white. */
  get convolution() {
    if (!this.convolved) {
      const [height, width] = this.size,
        channels = [0, 1, 2].map((channel) => convolve(this.layer.channel(channel), height, width, this.kernel));
      const values = new Float64Array(height * width * 3);
      channels.forEach((channel, c) => channel.forEach((value, n) => (values[3 * n + c] = value)));
      this.convolved = { values, channels, range: drawnRange(values, this.kernel) };
    }
    return this.convolved;
  }

  /** By nine heads: height x width x 3 numbers, and the largest difference to the convolution. */
  get attention() {
    if (!this.attended) {
      const values = this.layer.attend(this.centers, this.alpha, this.kernel),
        expected = this.convolution.values;
      let difference = 0;
      for (let n = 0; n < values.length; n++) difference = Math.max(difference, Math.abs(values[n] - expected[n]));
      this.attended = { values, difference };
    }
    return this.attended;
  }

  /** How one output pixel is made, in mean brightness: nine terms `{weight, seen, product}` and their sum. On the convolution's
   *  side of the seam each sees one pixel, else the average of its head. */
  terms(query) {
    const byConvolution = this.isConvolution(query),
      mean = ([a, b, c]) => (a + b + c) / 3;
    const terms = this.kernel.map((weight, n) => {
      const center = byConvolution ? SHIFTS[n] : this.centers[n];
      const seen = mean(this.layer.seenFrom(query, center, byConvolution ? EXACT : this.alpha));
      return { weight, center, seen, product: weight * seen };
    });
    return { byConvolution, terms, sum: terms.reduce((sum, { product }) => sum + product, 0) };
  }

  isConvolution([, column]) {
    return column < Math.round(this.seam * this.size[1]);
  }

  /** The state in one sentence. */
  sentence() {
    const { difference } = this.attention;
    return `${sharpness(this.alpha)}: the largest difference between attention and convolution is ${show(difference)}.`;
  }

  headSentence(head) {
    return `Head ${head + 1} looks at the offset ${pair(this.centers[head])} from its pixel; its value is ${show(+this.kernel[head].toFixed(2))}.`;
  }
}

export const nameOfFilter = (kernel) =>
  Object.keys(FILTERS).find((name) => FILTERS[name].every((value, n) => value === kernel[n]));

/** What is drawn black and white: for weights that add up to 0 a range around 0 that leaves out two values of a hundred, else the
 *  range from 0 to the sum. */
function drawnRange(values, kernel) {
  const sum = kernel.reduce((a, b) => a + b);
  if (Math.abs(sum) > 1e-9) return [Math.min(0, sum), Math.max(0, sum)];
  const limit = values.map(Math.abs).sort()[Math.floor(0.98 * values.length)] || 1;
  return [-limit, limit];
}
