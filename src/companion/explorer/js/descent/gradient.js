/** Gradient descent of nine heads that are asked for one-pixel filters, or for one kernel. Away from the border a quadratic head with
 *  centre c averages its input over the offsets k of a window by p(k) = softmax_k(-alpha |k - c|^2), a product of a row and a column
 *  softmax. For an input of white noise the squared error of the filters sum_h v_h p_h against those asked for is a sum of squares over
 *  the window, so no image is needed. Spreads are trained too, alpha = spread^2 / 2, as in chapter 12. */
import { SHIFTS } from "../numerics/numbers.js";

const FARTHEST = 6; // offsets of the window go from -6 to 6
const OFFSETS = Float64Array.from({ length: 2 * FARTHEST + 1 }, (_, n) => n - FARTHEST);
export const HEADS = SHIFTS.length;
/** As in chapter 12: Adam, and a cosine from these rates to zero; the decay of the values is AdamW's. */
export const RECIPE = { steps: 1500, centerRate: 3e-2, valueRate: 1e-2, decay: 1, alpha: 0.25, square: 2.5 };
/** What differs for a single kernel: with a decay of 1 its values stay too small for it. */
export const ONE_KERNEL = { decay: 0.1 };
const [BETA, BETA_SQUARES, TINY] = [0.9, 0.999, 1e-8];

/** The targets of scene 2: nine filters, each of which takes the pixel at one offset of the kernel. A single kernel is one row of nine. */
const ONE_PIXEL_FILTERS = SHIFTS.map((_, t) => SHIFTS.map((_, n) => (n === t ? 1 : 0)));

/** A generator of numbers from 0 to 1: mulberry32. */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const dot = (x, y) => {
  let sum = 0;
  for (let n = 0; n < x.length; n++) sum += x[n] * y[n];
  return sum;
};

/** The softmax of -alpha (k - center)^2 over the offsets. */
function weightsOf(center, alpha) {
  const nearest = Math.max(-FARTHEST, Math.min(FARTHEST, Math.round(center)));
  const weights = OFFSETS.map((k) => Math.exp(alpha * ((nearest - center) ** 2 - (k - center) ** 2)));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((weight) => weight / sum);
}

/** The derivatives of a loss by a head's centre along one axis and by its alpha, from those by its weights along that axis. */
function throughSoftmax(slopes, weights, center, alpha) {
  const mean = dot(slopes, weights),
    derivatives = { center: 0, alpha: 0 };
  OFFSETS.forEach((k, n) => {
    const ofScore = weights[n] * (slopes[n] - mean);
    derivatives.center += 2 * alpha * (k - center) * ofScore;
    derivatives.alpha -= (k - center) ** 2 * ofScore;
  });
  return derivatives;
}

/** The loss, sum_r |sum_h v_hr p_h - K_r|^2 / |K|^2, and its gradient. `centers`: `(9, 2)`, `spreads`: `(9)`, `values`: `(9, R)`, one
 *  number after the other; `targets` K: R rows of nine. With G_gh = p_g . p_h, M = V V^T and P_h = p_h at the offsets of the kernel it is
 *  (sum M G - 2 sum (V K) P) / |K|^2 + 1, where p_g . p_h is the product of one sum along the rows and one along the columns. */
export function lossAndGradient({ centers, spreads, values }, targets) {
  const count = targets.length,
    scale = 1 / targets.flat().reduce((sum, k) => sum + k * k, 0),
    heads = SHIFTS.map((_, h) => h),
    alphas = heads.map((h) => spreads[h] ** 2 / 2);
  const own = heads.map((h) => values.subarray(h * count, (h + 1) * count)),
    weights = [0, 1].map((axis) => heads.map((h) => weightsOf(centers[2 * h + axis], alphas[h]))),
    gram = weights.map((along) => heads.map((g) => heads.map((h) => dot(along[g], along[h]))));
  const gradient = { centers: centers.map(() => 0), spreads: spreads.map(() => 0), values: values.map(() => 0) };
  let loss = 1;
  for (const h of heads) {
    const slopes = [0, 1].map(() => new Float64Array(OFFSETS.length)); // by the head's weights along each axis
    const ofValues = gradient.values.subarray(h * count, (h + 1) * count);
    for (const g of heads) {
      const product = scale * dot(own[g], own[h]);
      loss += product * gram[0][g][h] * gram[1][g][h];
      for (let r = 0; r < count; r++) ofValues[r] += 2 * scale * gram[0][g][h] * gram[1][g][h] * own[g][r];
      for (const axis of [0, 1]) {
        const factor = 2 * product * gram[1 - axis][g][h];
        for (let n = 0; n < OFFSETS.length; n++) slopes[axis][n] += factor * weights[axis][g][n];
      }
    }
    SHIFTS.forEach((shift, t) => {
      const [row, column] = shift.map((k, axis) => weights[axis][h][k + FARTHEST]);
      let asked = 0;
      for (let r = 0; r < count; r++) {
        asked += 2 * scale * own[h][r] * targets[r][t];
        ofValues[r] -= 2 * scale * targets[r][t] * row * column;
      }
      loss -= asked * row * column;
      slopes[0][shift[0] + FARTHEST] -= asked * column;
      slopes[1][shift[1] + FARTHEST] -= asked * row;
    });
    slopes.forEach((along, axis) => {
      const derivatives = throughSoftmax(along, weights[axis][h], centers[2 * h + axis], alphas[h]);
      gradient.centers[2 * h + axis] = derivatives.center;
      gradient.spreads[h] += derivatives.alpha * spreads[h];
    });
  }
  return { loss, gradient };
}

/** The number of kernel positions that have a centre within `radius` pixels. */
export function found(centers, radius = 0.2) {
  const near = ([i, j]) => SHIFTS.some((_, h) => Math.hypot(centers[2 * h] - i, centers[2 * h + 1] - j) <= radius);
  return SHIFTS.filter(near).length;
}

/** A descent: its `parameters` after `steps` of `RECIPE.steps`, and their `loss` before the last one, a squared relative error. */
export class Descent {
  /** Centres are drawn from a square around the query pixel; values start from zero. */
  constructor(seed, targets = ONE_PIXEL_FILTERS, recipe = {}) {
    this.recipe = { ...RECIPE, ...recipe };
    this.targets = targets;
    const random = randomNumbers(seed),
      { square, alpha } = this.recipe;
    this.parameters = {
      centers: Float64Array.from({ length: 2 * HEADS }, () => square * (2 * random() - 1)),
      spreads: new Float64Array(HEADS).fill(Math.sqrt(2 * alpha)),
      values: new Float64Array(HEADS * targets.length),
    };
    this.begin();
  }

  /** Restart the optimizer and its schedule from the current parameters. */
  begin() {
    this.steps = 0;
    const like = () =>
      Object.fromEntries(Object.entries(this.parameters).map(([key, { length }]) => [key, new Float64Array(length)]));
    [this.means, this.squares] = [like(), like()];
  }

  get done() {
    return this.steps >= this.recipe.steps;
  }

  step() {
    const { steps, centerRate, valueRate, decay } = this.recipe,
      share = (1 + Math.cos((Math.PI * this.steps) / steps)) / 2;
    const { loss, gradient } = lossAndGradient(this.parameters, this.targets);
    this.loss = loss;
    this.steps++;
    for (const [key, values] of Object.entries(this.parameters)) {
      const rate = share * (key === "values" ? valueRate : centerRate),
        kept = key === "values" ? 1 - rate * decay : 1;
      for (let n = 0; n < values.length; n++) {
        const slope = gradient[key][n];
        const mean = (this.means[key][n] += (1 - BETA) * (slope - this.means[key][n]));
        const square = (this.squares[key][n] += (1 - BETA_SQUARES) * (slope * slope - this.squares[key][n]));
        const size = Math.sqrt(square / (1 - BETA_SQUARES ** this.steps)) + TINY;
        values[n] = values[n] * kept - (rate * mean) / (1 - BETA ** this.steps) / size;
      }
    }
  }

  /** Put a head elsewhere: it starts over there, soft and without values, and the schedule begins again. */
  pull(head, [row, column]) {
    const { centers, spreads, values } = this.parameters,
      count = this.targets.length;
    centers.set([row, column], 2 * head);
    spreads[head] = Math.sqrt(2 * this.recipe.alpha);
    values.fill(0, head * count, (head + 1) * count);
    this.begin();
  }
}
