/** Scene 2 of the stage: nine heads, moved by gradient descent, find the pixels of the kernel by themselves. */
import { SHIFTS } from "../numerics/numbers.js";
import { pair, stepText } from "../numerics/text.js";
import { DescentState, MOMENTS, stepsAt } from "./state.js";
import { FILTERS, REACH } from "../heads/state.js";
import { offerFilterAndPicture } from "../heads/scene.js";
import { button, choice, element, labelled, setText } from "../shell/dom.js";
import { SPAN } from "../shell/plane.js";
import { leadBeams } from "../shell/beams.js";

const STEP_BUDGET = 8; // ms of a frame for steps
const PICTURE_PAUSE = 2; // times as long as the last picture took to the next one
const DIMMED = 0.4; // of the photograph behind the trails
const NOBODYS = "#000"; // the frame of a position without a head
const LEMMA = "spans.html#lemma-3";
const DESCENT_KEYS = [
  "The offsets around the output pixel, with nine discs where the heads look.",
  "Keys 1 to 9 choose a head, arrow keys move it, with Shift by a whole pixel; gradient descent continues from there.",
].join(" ");

export class DescentScene {
  static id = "descent";
  static title = "Gradient descent finds the pixels";
  static names = ["seed", "targets", "picture", "kernel", "query", "seam"];

  constructor(stage) {
    Object.assign(this, { stage, state: new DescentState(stage.data), colors: stage.data.colors.heads, hover: null, moment: 0 });
    this.interrupted = true; // so that it begins on the first visit
    this.number = element("b");
    this.count = element("p", { class: "stage-count" }, this.number, " of 9 kernel positions found");
    this.tally = element("p", { class: "stage-tally" });
    this.words = element("span");
    this.lemma = element("a", { href: LEMMA }, "Lemma 3: what all filters need");
    this.side = [this.count, this.tally];
    this.below = [element("p", { class: "stage-task" }, this.words, " ", this.lemma)];
    this.buildBar();
  }

  buildBar() {
    this.play = button("Descend", () => this.goOn());
    this.next = button("New start", () => this.begin(this.state.seed + 1));
    this.kernel = choice("kernel", (name) => FILTERS[name] && this.change({ kernel: FILTERS[name] }));
    this.picture = choice("picture", (picture) => this.change({ picture }));
    this.only = element("input", { type: "checkbox", onchange: () => this.imitate(this.only.checked) });
    const only = element("label", { class: "stage-check" }, this.only, "imitate one kernel only");
    this.bar = [this.play, this.next, labelled("Filter", this.kernel), labelled("Picture", this.picture), only];
  }

  /** Take the stage, and descend if that was going on. */
  enter() {
    const { picture, plane } = this.stage,
      { view } = this.state;
    const pin = (query) => {
      this.hover = null;
      view.change({ query });
      this.changed();
    };
    Object.assign(picture.on, {
      point: (pixel, how) => (how === "hover" ? this.look(pixel) : pin(pixel)),
      pin,
      leave: () => this.look(null),
      seam: (seam) => {
        view.change({ seam });
        this.changed();
      },
    });
    Object.assign(plane.on, {
      grab: () => (this.pulled = false),
      move: (head, center) => {
        this.pulled = true;
        this.state.move(head, center);
        this.fresh = false;
        this.stage.redraw();
      },
      drop: (head) => this.pulled && this.drop(head),
      choose: (head) => this.stage.say(`Head ${head + 1} looks at the offset ${pair(this.state.centers[head])}.`),
      nudge: (head, by) => {
        this.state.move(
          head,
          this.state.centers[head].map((x, axis) => x + by[axis]),
        );
        this.drop(head);
      },
    });
    plane.node.setAttribute("aria-label", DESCENT_KEYS);
    plane.hint.textContent = "pull a head away";
    this.running = this.interrupted;
  }

  /** Take the state of a link, as text by name, begin, and return a sentence on what is wrong with it. */
  open(wanted) {
    const problem = this.state.open(wanted);
    this.begin();
    return problem;
  }

  text() {
    return this.state.text();
  }

  // --- movement ---

  begin(seed) {
    this.state.start(seed);
    this.run();
    this.changed();
  }

  /** Descent goes on from the schedule's start. */
  run() {
    Object.assign(this, { running: true, moment: 0, fresh: false, heard: undefined });
    this.stage.redraw();
  }

  /** The first button: pause, go on, begin again or, for readers who ask for less motion, the next moment. */
  goOn() {
    if (this.stage.still.matches) {
      if (this.moment === MOMENTS.length - 1) return this.begin();
      this.moment++;
      this.running = true;
    } else if (this.state.descent.done) return this.begin();
    else this.running = !this.running;
    this.stage.redraw();
  }

  leave() {
    Object.assign(this, { interrupted: this.running, running: false, hover: null });
  }

  drop(head) {
    this.state.drop(head);
    this.run();
  }

  /** Go on with the descent; true while it lasts. */
  frame(passed) {
    if (!this.running) return false;
    const { state, stage } = this,
      still = stage.still.matches;
    if (stage.plane.held !== null) return true; // a hand holds a disc
    state.seconds += passed;
    const goal = still ? MOMENTS[this.moment] : stepsAt(state.seconds),
      before = state.descent.steps;
    state.advance(goal, STEP_BUDGET);
    if (state.descent.steps > before) this.fresh = false;
    this.running = still ? state.descent.steps < goal : !state.descent.done;
    this.tell();
    return this.running;
  }

  /** Say what has changed since it was last said. */
  tell() {
    const { state } = this,
      heard = state.descent.done ? state.sentence() : `${state.found} of 9 kernel positions found.`;
    if (heard !== this.heard) this.stage.say(heard);
    this.heard = heard;
  }

  // --- what the reader does ---

  imitate(single) {
    this.state.single = single;
    this.begin();
  }

  change(patch) {
    this.state.view.change(patch);
    this.fresh = false;
    if (patch.kernel && this.state.single) this.begin();
    else this.changed();
  }

  look(pixel) {
    this.hover = pixel;
    this.stage.redraw();
  }

  changed() {
    this.stage.tell();
    this.stage.redraw();
  }

  // --- drawing ---

  draw() {
    const { state, stage } = this,
      query = this.hover ?? state.view.query;
    if (stage.still.matches && this.running) return; // a moment is on its way
    this.drawPicture();
    this.drawPlane(query);
    const { centers, sigmas, used } = state;
    leadBeams(
      stage,
      query,
      centers.map((center, head) => ({
        center,
        sigma: sigmas[head],
        color: this.colors[head],
        weak: !used[head],
      })),
    );
    this.write();
  }

  /** Filter the photograph by convolution and by the current heads; not in every frame if that takes long. */
  drawPicture() {
    const { state, stage } = this,
      { view } = state,
      start = performance.now();
    if (!this.fresh && (!this.running || start >= (this.due ?? 0))) {
      this.attended = state.picture();
      this.fresh = true;
      const now = performance.now();
      this.due = now + PICTURE_PAUSE * (now - start);
    }
    const seam = Math.round(view.seam * view.size[1]);
    stage.picture.paint(view.convolution.values, this.attended, view.size, view.convolution.range, seam);
    stage.picture.placeSeam(seam / view.size[1], ["convolution", "nine heads"], 1);
    stage.picture.pixel = view.query;
    stage.picture.canvas.setAttribute("aria-label", this.pictureLabel());
  }

  pictureLabel() {
    const { label } = this.stage.data.images[this.state.view.picture];
    return `The photograph ${label} filtered: by convolution left of the seam, by the nine heads to the right of it. Arrow keys move the output pixel.`;
  }

  drawPlane(query) {
    const { state, stage } = this,
      { owners } = state;
    stage.plane.draw({
      patch: state.view.layer.around(query, REACH).map((x) => DIMMED * x),
      kernel: state.used,
      centers: state.centers,
      sigma: state.sigmas,
      landed: SHIFTS.flatMap((_, n) => (owners[n] === undefined ? [] : [n])),
      frames: owners.map((head) => (head === undefined ? NOBODYS : this.colors[head])),
    });
    const cell = stage.plane.canvas.width / SPAN;
    state.trails.forEach((trail, head) =>
      drawTrail(stage.plane.canvas, [...trail, state.centers[head]], this.colors[head], cell),
    );
  }

  write() {
    const { state, stage } = this,
      { descent, view } = state;
    setText(this.number, `${state.found}`);
    setText(this.tally, state.tally());
    setText(this.words, state.sentence());
    this.lemma.hidden = !state.single;
    this.only.checked = state.single;
    setText(this.play, this.playText());
    offerFilterAndPicture(this.kernel, this.picture, view);
  }

  playText() {
    if (this.stage.still.matches) return stepText(this.moment + 1, MOMENTS.length);
    if (this.state.descent.done) return "Again";
    return this.running ? "Pause" : "Descend";
  }
}

/** Where a head has been, from a ring to where it is now. `cell`: px of the canvas for an offset of 1. */
function drawTrail(canvas, trail, color, cell) {
  const context = canvas.getContext("2d"),
    place = ([i, j]) => [(j + SPAN / 2) * cell, (i + SPAN / 2) * cell],
    line = Math.max(2, cell / 18);
  Object.assign(context, { lineJoin: "round", lineCap: "round" });
  for (const [stroke, width] of [
    ["#000", 1.6 * line],
    [color, line],
  ]) {
    context.beginPath();
    context.arc(...place(trail[0]), 1.5 * line, 0, 2 * Math.PI);
    context.moveTo(...place(trail[0]));
    for (const point of trail) context.lineTo(...place(point));
    Object.assign(context, { strokeStyle: stroke, lineWidth: width });
    context.stroke();
  }
}
