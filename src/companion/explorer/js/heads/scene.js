/** Scene 1 of the stage: nine heads become a convolution of a photograph. */
import { SHIFTS } from "../numerics/numbers.js";
import { pair, show, stepText } from "../numerics/text.js";
import {
  EXACT,
  FILTERS,
  HeadsState,
  JOURNEY_SECONDS,
  REACH,
  SHARPEST,
  SOFTEST,
  journeyAt,
  nameOfFilter,
  shareOf,
} from "./state.js";
import { box, button, choice, element, labelled, setText } from "../shell/dom.js";
import { AlphaSlider } from "../shell/slider.js";
import { leadBeams } from "../shell/beams.js";

const JOURNEY_STEPS = [0, 1.6, 2.7, 3.6, JOURNEY_SECONDS]; // moments of the journey, for readers who ask for less motion
const HEAL_SECONDS = 0.5;
const REST_SECONDS = 3; // after the journey within a text, before it starts again
const HINT = "drag a head";
const KEYS_OF_THE_PLANE = [
  "The offsets around the output pixel, with nine discs where the heads look.",
  "Keys 1 to 9 choose a head, arrow keys move it, with Shift by a whole pixel; Home puts it back on its pixel of the kernel.",
].join(" ");

/** A number with so many decimals. */
const signed = (x, decimals) =>
  x
    .toFixed(decimals)
    .replace(/^-(?=.*[1-9])/, "−")
    .replace(/^-/, "");

/** Give two lists of choices, of filters and of pictures, the entries and the selection of a `HeadsState`. */
export function offerFilterAndPicture(filters, pictures, state) {
  const kernel = nameOfFilter(state.kernel) ?? "your own";
  if (filters.value !== kernel || !filters.options.length)
    filters.offer(
      [...new Set([...Object.keys(FILTERS), kernel])].map((name) => [name, name]),
      kernel,
    );
  if (pictures.value !== state.picture)
    pictures.offer(
      state.names.map((name) => [name, state.pictures[name].label]),
      state.picture,
    );
}

export class HeadsScene {
  static id = "heads";
  static title = "Nine heads become a convolution";
  static names = ["picture", "kernel", "alpha", "centers", "query", "seam"];

  constructor(stage) {
    Object.assign(this, { stage, state: new HeadsState(stage.data), colors: stage.data.colors.heads, hover: null });
    this.buildTerms();
    this.buildMeter();
    this.buildBar();
    this.side = [this.meter];
    this.below = [this.list, this.sum];
    this.repeatUntilTouched();
  }

  /** Within a text the journey starts again and again, until the reader does something on the stage or stops it. */
  repeatUntilTouched() {
    const { root, data, life, still } = this.stage;
    this.repeats = Boolean(data.scene) && !still.matches;
    const stop = ({ target }) => {
      if (!this.play.contains(target)) this.repeats = false;
    };
    for (const kind of ["pointerdown", "keydown"]) root.addEventListener(kind, stop, { signal: life.signal, capture: true });
  }

  buildTerms() {
    const term = (n) => {
      const product = element("span", { class: "stage-product" }),
        factors = element("span");
      const node = element("li", {}, factors, product);
      node.style.setProperty("--head", this.colors[n]);
      return { node, factors, product };
    };
    this.terms = SHIFTS.map((_, n) => term(n));
    this.total = element("b");
    this.by = element("span", { class: "stage-by" });
    this.sum = element("p", { class: "stage-sum" }, "sum: ", this.total, this.by);
    const label = "How the output pixel is computed: nine products of a weight and what a head sees, and their sum";
    this.list = element("ol", { class: "stage-terms", "aria-label": label }, ...this.terms.map(({ node }) => node));
  }

  buildMeter() {
    this.difference = element("output", { class: "stage-number" });
    this.level = element("div", { class: "stage-level" });
    const ticks = [0, -4, -8, -12].map((power) => {
      const tick = element(
        "span",
        {},
        power ? `10${[...String(power)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}` : "1",
      );
      tick.style.insetInlineStart = `${100 * shareOf(10 ** power)}%`;
      return tick;
    });
    const zero = element("span", { class: "stage-zero" }, "0");
    const scale = element("div", { class: "stage-ticks", "aria-hidden": "true" }, zero, ...ticks);
    const title = element("p", {}, "Largest difference ", this.difference);
    this.meter = box("stage-meter", title, box("stage-gauge", this.level), scale);
  }

  buildBar() {
    this.play = button("Replay", () => (this.repeats ? this.stop() : this.replay()));
    this.home = button("Discs back", () => this.displaced && this.heal(SHIFTS));
    this.kernel = choice("kernel", (name) => FILTERS[name] && this.change({ kernel: FILTERS[name] }));
    this.picture = choice("picture", (picture) => this.change({ picture }));
    this.slider = new AlphaSlider("Sharpness of the heads", [SOFTEST, 1, SHARPEST], (alpha) => this.turn(alpha));
    this.bar = [this.play, labelled("Filter", this.kernel), labelled("Picture", this.picture), this.slider.node, this.home];
  }

  /** Take the stage: its picture, seam and plane now act on this scene. */
  enter() {
    const { picture, plane } = this.stage;
    Object.assign(picture.on, {
      point: (pixel, how) => (how === "hover" ? this.look(pixel) : this.change({ query: pixel }, how)),
      pin: (pixel) => this.change({ query: pixel }),
      leave: () => this.look(null),
      seam: (seam) => this.change({ seam }),
    });
    Object.assign(plane.on, {
      grab: () => this.settle(),
      move: (head, center) => this.place(head, center, true),
      drop: () => this.stage.tell(),
      choose: (head) => this.changed(this.state.headSentence(head)),
      nudge: (head, by) => {
        this.settle();
        this.place(
          head,
          this.state.centers[head].map((x, axis) => x + by[axis]),
        );
      },
      home: (head) => {
        this.settle();
        this.place(head, SHIFTS[head]);
      },
    });
    plane.node.setAttribute("aria-label", KEYS_OF_THE_PLANE);
    plane.hint.textContent = HINT;
    if (this.interrupted) this.replay();
  }

  /** Take the state of a link, as text by name, and return a sentence on what is wrong with it. Without one the journey starts. */
  open(wanted) {
    const problem = this.state.open(wanted);
    if (problem || !Object.keys(wanted).length) this.replay();
    else this.halt();
    return problem;
  }

  /** What a link needs to say; while the heads are on their way, what they end as. */
  text() {
    return this.motion ? { ...this.state.text(), alpha: "exact", centers: undefined } : this.state.text();
  }

  // --- movement ---

  /** From soft and scattered heads to the convolution, in five seconds, or step by step for readers who ask for less motion. */
  replay() {
    if (!this.stage.still.matches) {
      this.motion = { journey: true, seconds: 0 };
      this.state.change(journeyAt(0));
    } else {
      this.step = this.step === undefined ? 0 : (this.step + 1) % JOURNEY_STEPS.length;
      this.state.change(journeyAt(JOURNEY_STEPS[this.step]));
      this.stage.say(this.state.sentence());
    }
    this.stage.redraw();
  }

  stop() {
    this.repeats = false;
    this.settle();
    this.stage.redraw();
  }

  /** Whether a disc is not on its pixel of the kernel, or on its way. */
  get displaced() {
    return Boolean(this.motion) || this.state.moved();
  }

  /** Move the discs to some centres within half a second. */
  heal(to) {
    this.halt();
    if (this.stage.still.matches) return this.change({ centers: to });
    this.motion = { from: this.state.centers, to, seconds: 0 };
    this.stage.redraw();
  }

  /** The reader goes to another scene: a journey starts again on return, and discs on their way are there at once. */
  leave() {
    const { journey, to } = this.motion ?? {};
    this.interrupted = Boolean(journey);
    clearTimeout(this.again);
    if (to) this.state.change({ centers: to });
    Object.assign(this, { motion: null, hover: null });
  }

  /** Something that the reader does ends the movement. */
  halt() {
    clearTimeout(this.again);
    this.motion = null;
    this.step = undefined;
  }

  /** A hand takes hold: what is on its way is there at once. */
  settle() {
    if (this.motion?.journey || this.step !== undefined) this.state.change({ alpha: EXACT, centers: SHIFTS });
    this.halt();
  }

  /** Go on with the movement; true while it lasts. */
  frame(passed) {
    if (!this.motion) return false;
    const { journey, from, to } = this.motion,
      seconds = (this.motion.seconds += passed),
      share = Math.min(1, seconds / HEAL_SECONDS);
    if (journey) this.state.change(journeyAt(seconds));
    else this.state.change({ centers: share < 1 ? from.map((c, n) => c.map((x, axis) => x + share * (to[n][axis] - x))) : to });
    if (seconds < (journey ? JOURNEY_SECONDS : HEAL_SECONDS)) return true;
    this.motion = null;
    if (journey && this.repeats) this.again = setTimeout(() => this.repeats && this.replay(), 1000 * REST_SECONDS);
    else this.changed(this.state.sentence());
    return false;
  }

  // --- what the reader does ---

  turn(alpha) {
    const centers = this.motion?.journey || this.step !== undefined ? SHIFTS : this.state.centers;
    this.halt();
    this.change({ alpha, centers });
  }

  place(head, center, snap) {
    this.state.place(head, center, snap);
    this.stage.plane.hint.textContent = this.state.kernel[head] ? HINT : "weight 0: this head adds nothing";
    this.changed(`${this.state.headSentence(head)} ${this.state.sentence()}`);
  }

  look(pixel) {
    this.hover = pixel;
    this.stage.redraw();
  }

  change(patch, how) {
    this.state.change(patch);
    this.stage.plane.hint.textContent = HINT; // the head moved last may have another weight
    if (patch.query) this.hover = null;
    this.changed(how === "key" ? this.querySentence() : this.state.sentence());
  }

  changed(sentence) {
    this.stage.tell();
    this.stage.say(sentence);
    this.stage.redraw();
  }

  querySentence() {
    const { query } = this.state,
      { byConvolution, sum } = this.state.terms(query);
    return `Output pixel ${pair(query)}, by ${byConvolution ? "convolution" : "attention"}: ${show(sum)}.`;
  }

  // --- drawing ---

  draw() {
    const { state, stage } = this,
      query = this.hover ?? state.query,
      made = state.terms(query),
      { difference } = state.attention;
    const seam = Math.round(state.seam * state.size[1]),
      [left, right] = [state.convolution.values, state.attention.values];
    stage.picture.paint(left, right, state.size, state.convolution.range, seam);
    stage.picture.placeSeam(seam / state.size[1], ["convolution", "attention"], shareOf(difference));
    stage.picture.pixel = state.query;
    stage.picture.canvas.setAttribute("aria-label", this.pictureLabel());
    const sigma = state.alpha >= EXACT ? 0 : 1 / Math.sqrt(2 * state.alpha),
      landed = SHIFTS.flatMap((delta, n) => (Math.hypot(...delta.map((x, axis) => x - state.centers[n][axis])) < 0.5 ? [n] : []));
    stage.plane.draw({ patch: state.layer.around(query, REACH), kernel: state.kernel, centers: state.centers, sigma, landed });
    leadBeams(
      stage,
      query,
      made.terms.map(({ center, weight }, head) => ({
        center,
        sigma: made.byConvolution ? 0 : sigma,
        color: this.colors[head],
        weak: !weight,
      })),
    );
    this.write(made, difference);
  }

  pictureLabel() {
    const { label } = this.stage.data.images[this.state.picture];
    return `The photograph ${label} filtered: by convolution left of the seam, by nine attention heads right of it. Arrow keys move the output pixel.`;
  }

  write({ terms, sum, byConvolution }, difference) {
    const { state } = this;
    terms.forEach(({ weight, seen, product }, n) => {
      setText(this.terms[n].factors, `${show(+weight.toFixed(2))}\u2009×\u2009${seen.toFixed(2)}`);
      setText(this.terms[n].product, signed(product, 2));
    });
    setText(this.total, signed(sum, 3));
    setText(this.by, byConvolution ? "convolution" : "attention");
    setText(this.difference, show(difference));
    this.level.style.scale = `${shareOf(difference)} 1`;
    this.slider.showAlpha(state.alpha);
    const step = (this.step ?? JOURNEY_STEPS.length - 1) + 1;
    const next = this.repeats ? "Stop" : "Replay";
    setText(this.play, this.stage.still.matches ? stepText(step, JOURNEY_STEPS.length) : next);
    this.home.setAttribute("aria-disabled", String(!this.displaced)); // not `disabled`, which would take the focus away
    offerFilterAndPicture(this.kernel, this.picture, state);
  }
}
