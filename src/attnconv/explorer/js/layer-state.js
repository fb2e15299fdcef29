/** The state of the two views of one layer, without a page: image, kernel, alpha, and what a convolution and attention make of them. */
import { HARD_ALPHA, SHIFTS, attend, attendPadded, convolve, largestDifference, steps } from "./numbers.js";
import { clamp, numbersOf, pair, show } from "./text.js";
import { valuesOf } from "./files.js";

export const KERNELS = {
  __proto__: null, // a link may name anything
  "Sobel, vertical edges": [-1, 0, 1, -2, 0, 2, -1, 0, 1],
  "Sobel, horizontal edges": [-1, -2, -1, 0, 0, 0, 1, 2, 1],
  blur: Array(9).fill(1 / 9),
  sharpen: [0, -1, 0, -1, 5, -1, 0, -1, 0],
  Laplace: [0, 1, 0, 1, -4, 1, 0, 1, 0],
  emboss: [-2, -1, 0, -1, 1, 1, 0, 1, 2],
  identity: [0, 0, 0, 0, 1, 0, 0, 0, 0],
};
export const REACH = 3; // pixels that a head's centre may be dragged from the query

export const nameOf = (kernel) =>
  Object.keys(KERNELS).find((name) => KERNELS[name].every((value, n) => value === kernel[n])) ?? "your own";

/** Alpha for a slider's position from 0 to 100, the last being hard; and back. */
export const alphaAt = (position) => (position >= 100 ? HARD_ALPHA : +Math.expm1((position / 99) * Math.log(61)).toPrecision(3));
export const positionOf = (alpha) => (alpha >= HARD_ALPHA ? 100 : Math.min(99, (Math.log1p(alpha) / Math.log(61)) * 99));
export const alphaText = (alpha) => (alpha >= HARD_ALPHA ? `α = ${HARD_ALPHA}, hard: one pixel only` : `α = ${show(alpha)}`);
/** A kernel in a link: its name, or its numbers. */
export const kernelText = (kernel) => (KERNELS[nameOf(kernel)] ? nameOf(kernel) : kernel.join(","));

/** What a link says of the image, the kernel and alpha, brought within what there is, with notes on what was not. */
export function layerOf(images, wanted, usual) {
  const notes = [],
    kernel = KERNELS[wanted.kernel] ?? numbersOf(wanted.kernel, 9),
    alpha = Number(wanted.alpha ?? usual.alpha);
  if (wanted.image && !images.includes(wanted.image)) notes.push(`There is no image ${wanted.image} here.`);
  if (wanted.kernel && !kernel) notes.push("The link's kernel is neither one of those by name nor nine numbers.");
  if (!(alpha >= 0)) notes.push(`The link's alpha, ${wanted.alpha}, is not a number from 0 to ${HARD_ALPHA}.`);
  return {
    image: images.includes(wanted.image) ? wanted.image : images[0],
    kernel: kernel ?? usual.kernel,
    alpha: alpha >= 0 ? Math.min(alpha, HARD_ALPHA) : usual.alpha,
    note: notes.join(" "),
  };
}

/** A convolution beside nine heads, whose centres may be anywhere. */
export class ConvolutionState {
  /** `data`: the names of its images, and the images by name. */
  constructor(data) {
    Object.assign(this, { images: data.convolution, pictures: data.images });
  }

  /** Take the state of a link or a notebook, as text by name. */
  open(wanted) {
    Object.assign(this, layerOf(this.images, wanted, { kernel: KERNELS["Sobel, vertical edges"], alpha: 2 }));
    const flat = numbersOf(wanted.centers, 18);
    if (wanted.centers && !flat) this.note = "The link's centres are not nine pairs of numbers.";
    this.centers = flat
      ? SHIFTS.map((_, head) => flat.slice(2 * head, 2 * head + 2).map((x) => clamp(x, -REACH, REACH)))
      : SHIFTS;
    this.border = wanted.border === "as it is" ? "as it is" : "padded";
    this.difference = wanted.difference === "own" ? "own" : "convolution";
  }

  /** What a link needs to say to give this view. */
  address() {
    const { image, kernel, alpha, border, centers, difference } = this;
    const moved = centers.some((center, head) => center.some((x, axis) => x !== SHIFTS[head][axis]));
    return { image, kernel: kernelText(kernel), alpha, border, difference, centers: moved ? centers.join(",") : undefined };
  }

  change(patch) {
    Object.assign(this, patch);
  }

  /** Put a head's centre somewhere, in hundredths of a pixel and not too far away. */
  place(head, center) {
    const limited = center.map((x) => +clamp(x, -REACH, REACH).toFixed(2));
    this.change({ centers: this.centers.map((other, n) => (n === head ? limited : other)) });
  }

  /** The image X, the convolution, attention and their difference, the largest difference inside and in the frame of border
   *  pixels, the convolution's range, and the limit of the scale of differences. */
  result() {
    const { kernel, alpha, centers } = this,
      { height, width } = this.pictures[this.image],
      X = valuesOf(this.pictures[this.image]);
    const convolution = convolve(X, height, width, kernel);
    const attention = (this.border === "padded" ? attendPadded : attend)(X, height, width, centers, alpha, kernel);
    const difference = attention.map((value, q) => value - convolution[q]);
    const { inside, border: frame } = largestDifference(attention, convolution, height, width);
    const low = Math.min(...convolution),
      high = Math.max(...convolution);
    const limit = (this.difference === "own" ? Math.max(inside, frame) : Math.max(high, -low)) || 1;
    return { height, width, X, convolution, attention, difference, inside, frame, low, high, limit };
  }
}

/** One output pixel, shift by shift and head by head. */
export class PixelState {
  constructor(data) {
    Object.assign(this, { images: data.pixel, pictures: data.images });
  }

  /** Take the state of a link or a notebook, as text by name. */
  open(wanted) {
    Object.assign(this, layerOf(this.images, wanted, { kernel: KERNELS.blur, alpha: 1 }));
    const { height, width } = this.pictures[this.image];
    this.change({ query: numbersOf(wanted.query, 2) ?? [height >> 1, width >> 1], step: Number(wanted.step ?? 9) });
  }

  /** What a link needs to say to give this view. */
  address() {
    const { image, kernel, alpha, query, step } = this;
    return { image, kernel: kernelText(kernel), alpha, query: query.join(","), step };
  }

  change(patch) {
    Object.assign(this, patch);
    const { height, width } = this.pictures[this.image];
    const within = (value, last) => clamp(Math.floor(value) || 0, 0, last);
    this.query = [within(this.query[0], height - 1), within(this.query[1], width - 1)];
    this.step = within(this.step, 9);
  }

  /** For each shift and head: what is seen there, its weight, and the sum so far; see `steps`. */
  terms() {
    const { height, width } = this.pictures[this.image];
    return steps(valuesOf(this.pictures[this.image]), height, width, this.kernel, this.alpha, this.query);
  }

  /** The output pixel in the step reached, by convolution (side 0) or attention (side 1), in words. */
  sentence(now, side) {
    const { step } = this;
    if (!now) return side ? "No head has been added yet." : "No shift has been added yet.";
    const seen = side
      ? `head ${step} sees the average ${show(now.seen[1])}${now.inside ? "" : " (its shift leads outside, so it looks at the nearest pixels inside)"}`
      : `the shift ${pair(now.delta)} leads to ${now.inside ? `a pixel of ${show(now.seen[0])}` : "outside the image, 0"}`;
    const product = `times ${show(+now.weight.toFixed(4))} is ${show(now.weight * now.seen[side])}`;
    const text = `Step ${step} of 9: ${seen}, ${product}; the sum so far ${show(now.sums[side])}.`;
    return step === 9 && side
      ? `${text} The difference to the convolution: ${show(now.sums[1] - now.sums[0])}, at ${alphaText(this.alpha)}.`
      : text;
  }
}
