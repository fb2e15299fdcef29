/** Scene 2 without a page: nine heads that gradient descent moves; what a link says, the starts that were tried, the numbers. */
import { SHIFTS } from "../numerics/numbers.js";
import { clamp, numbersOf, refuse } from "../numerics/text.js";
import { HeadsState, REACH, nameOfFilter } from "../heads/state.js";
import { Descent, HEADS, ONE_KERNEL, RECIPE, found } from "./gradient.js";

export const RUN_SECONDS = 12;
export const MOMENTS = [0, 100, 160, RECIPE.steps]; // numbers of steps, for readers who ask for less motion
const NEAR = 0.2; // pixels within which a head is at a position
const LAST_SEED = 9999;
const TRAIL = 0.04; // pixels between two points of a trail
const SEAM = 0.35; // so that most of the picture is the heads'
const FEW = 0.02; // of the largest weight of a kernel: a head with less is drawn as one without a value

/** Steps after some seconds: few at first, since most heads find their pixel within the first 300. */
export const stepsAt = (seconds) => Math.floor(RECIPE.steps * Math.min(1, seconds / RUN_SECONDS) ** 2);

export class DescentState {
  /** `data`: the names of its photographs, and the photographs by name. */
  constructor(data) {
    Object.assign(this, { view: new HeadsState(data), tried: new Map() });
    this.open({});
  }

  /** Take the state of a link, as text by name. Returns a sentence on the first thing in it that is malformed, in which case the
   *  state is the usual one. */
  open(wanted) {
    const problem = this.problemOf(wanted),
      { seed = "0", targets, picture, kernel, query, seam = `${SEAM}` } = problem ? {} : wanted;
    this.view.open({ picture, kernel, query, seam });
    this.single = targets === "kernel";
    this.start(Number(seed));
    return problem && `${problem} The scene shows its usual state.`;
  }

  problemOf({ seed = "0", targets = "positions", picture, kernel, query, seam }) {
    const empty = (weights) => weights?.every((weight) => !Number.isFinite(1 / weight));
    if (!/^\d{1,4}$/.test(seed)) return refuse("seed", seed, `a whole number from 0 to ${LAST_SEED}`);
    if (targets !== "positions" && targets !== "kernel") return refuse("targets", targets, "positions or kernel");
    if (empty(numbersOf(kernel, 9))) return refuse("kernel", kernel, "a kernel with a weight other than 0");
    return this.view.problemOf({ picture, kernel, query, seam });
  }

  /** What a link needs to say to give this state, as text by name. */
  text() {
    const { picture, kernel, query, seam } = this.view.text();
    return { seed: `${this.seed}`, targets: this.single ? "kernel" : undefined, picture, kernel, query, seam };
  }

  /** The largest weight of the kernel. A single kernel is imitated up to this factor: Adam's steps have a size of their own. */
  get size() {
    return Math.max(...this.view.kernel.map(Math.abs));
  }

  /** Begin from the seed's centres. */
  start(seed = this.seed) {
    this.seed = seed % (LAST_SEED + 1);
    const { kernel } = this.view;
    this.descent = this.single
      ? new Descent(this.seed, [kernel.map((weight) => weight / this.size)], ONE_KERNEL)
      : new Descent(this.seed);
    Object.assign(this, { seconds: 0, touched: false, trails: this.centers.map((center) => [center]) });
  }

  /** Take the steps up to a number of them, or fewer if that takes longer than some milliseconds. */
  advance(goal, budget = Infinity) {
    const end = performance.now() + budget;
    while (!this.descent.done && this.descent.steps < goal) {
      this.descent.step();
      this.centers.forEach((center, head) => {
        const trail = this.trails[head],
          [i, j] = trail.at(-1);
        if (Math.hypot(center[0] - i, center[1] - j) > TRAIL) trail.push(center);
      });
      if (performance.now() >= end) break;
    }
    if (this.descent.done && !this.touched) this.results.set(this.seed, this.found);
  }

  /** Put a head somewhere within reach, where it stays until it is let go. */
  move(head, center) {
    const limited = center.map((x) => clamp(x, -REACH, REACH));
    this.touched = true;
    this.descent.parameters.centers.set(limited, 2 * head);
    this.trails[head] = [limited];
  }

  /** Let a head go where it is: descent goes on from there. */
  drop(head) {
    this.descent.pull(head, this.centers[head]);
    this.seconds = 0;
  }

  // --- numbers ---

  get centers() {
    const { centers } = this.descent.parameters;
    return SHIFTS.map((_, head) => [...centers.subarray(2 * head, 2 * head + 2)]);
  }

  get alphas() {
    return [...this.descent.parameters.spreads].map((spread) => spread ** 2 / 2);
  }

  /** The standard deviations of the heads' clouds, in pixels. */
  get sigmas() {
    return this.alphas.map((alpha) => 1 / Math.sqrt(2 * alpha));
  }

  /** Each head's weight in the filter that is shown. Nine one-pixel filters make up any kernel. */
  get weights() {
    const { values } = this.descent.parameters,
      { kernel } = this.view;
    if (this.single) return [...values].map((value) => value * this.size);
    return SHIFTS.map((_, head) => kernel.reduce((sum, weight, n) => sum + weight * values[head * HEADS + n], 0));
  }

  /** Which heads are drawn as those that have a value. */
  get used() {
    return [...this.weights].map((weight) => Number(!this.single || Math.abs(weight) > FEW * this.size));
  }

  /** For each position of the kernel the head that is at it, if there is one. */
  get owners() {
    const { centers } = this;
    return SHIFTS.map(([i, j]) => {
      const far = centers.map((center) => Math.hypot(center[0] - i, center[1] - j)),
        nearest = Math.min(...far);
      return nearest <= NEAR ? far.indexOf(nearest) : undefined;
    });
  }

  get found() {
    return found(this.descent.parameters.centers, NEAR);
  }

  /** The nine heads' layer on the photograph: height x width x 3 numbers. */
  picture() {
    return this.view.layer.attend(this.centers, this.alphas, this.weights);
  }

  /** What the starts for the present targets found, by seed; failed ones as well. */
  get results() {
    const targets = this.single ? this.view.kernel.join() : "";
    if (!this.tried.has(targets)) this.tried.set(targets, new Map());
    return this.tried.get(targets);
  }

  // --- in words ---

  get filter() {
    return nameOfFilter(this.view.kernel) ?? "your own filter";
  }

  /** What descent is asked for or, once it is done, what came of it. */
  sentence() {
    const { found: count, single, descent, touched } = this;
    if (!descent.done)
      return single
        ? `Gradient descent trains the nine heads to imitate one filter: ${this.filter}.`
        : "Gradient descent trains the nine heads to see nine pixels. No head is told which pixel is its own.";
    if (single)
      return `The heads imitate the filter with an error of ${(100 * Math.sqrt(descent.loss)).toPrecision(2)}\u00a0% but stay between the pixels: ${count} of 9 positions found.`;
    return count === HEADS
      ? "All nine pixels have a head. Together the nine heads compute any 3 × 3 filter."
      : `${touched ? "This run" : "This start"} failed: ${count} of 9 positions found, so the filter is incomplete. Try a new start.`;
  }

  /** The starts tried: "3 starts: 9, 9, 8 of 9". */
  tally() {
    const all = [...this.results.values()],
      last = all.slice(-8);
    if (!all.length) return "";
    return `${all.length} start${all.length > 1 ? "s" : ""}: ${all.length > last.length ? "… " : ""}${last.join(", ")} of 9`;
  }
}
