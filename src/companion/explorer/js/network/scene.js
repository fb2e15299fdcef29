/** Scene 3 of the stage: trained networks that see a picture, the visitor's own too. They run in a worker of the page. */
import { pair } from "../numerics/text.js";
import { box, button, choice, element, labelled, setText } from "../shell/dom.js";
import { EXACT, SHARPEST } from "../heads/state.js";
import { MODES, NetworkState, SOFTEST_TWIN, TWIN_SECONDS, answerOf, percent, twinAlphaAt, twinSentence } from "./state.js";
import { AlphaSlider, StageSlider } from "../shell/slider.js";
import { NetworkRuns } from "./runs.js";
import { pictureFromCamera, pictureFromFile } from "./upload.js";
import { TwinPanel } from "./twin.js";
import { HeadsPanel, drawClouds, headsAt, looksSentence } from "./clouds.js";

const OWN = "own";
const TITLES = { twin: "One network, twice", where: "Heads by position", what: "Heads by content" };

export class NetworkScene {
  static id = "network";
  static title = "Trained networks look at your picture";
  static names = ["mode", "picture", "alpha", "layer", "query"];

  constructor(stage) {
    const { data } = stage,
      { heads } = data.colors;
    Object.assign(this, { stage, state: new NetworkState(data), colors: heads, hover: null, pictures: {} });
    this.interrupted = true; // so that alpha moves on the first visit
    this.runs = new NetworkRuns(this);
    for (const name of data.pictures) this.add(name, data.images[name]);
    this.panels = {
      twin: new TwinPanel(data.classes, this.state.entries.twin.accuracy),
      where: new HeadsPanel(this.state.entries.where, heads),
      what: new HeadsPanel(this.state.entries.what, heads),
    };
    this.buildOwn();
    this.buildBar();
    this.content = box("network-content", ...Object.values(this.panels).map(({ node }) => node));
    this.sentence = element("p", { class: "network-sentence" });
    this.side = [this.own, this.content];
    this.below = [this.sentence];
    this.followFiles();
  }

  /** A picture by name, `{label, canvas}`, or with a file to load the canvas from; what the networks made of it comes later. */
  add(name, picture) {
    this.pictures[name] = { ...picture, made: { twin: {}, where: {}, what: {} } };
  }

  get picture() {
    return this.pictures[this.state.picture];
  }

  buildOwn() {
    this.select = choice("picture", (picture) => this.change({ picture }));
    this.file = element("input", { type: "file", accept: "image/*", hidden: true, tabindex: -1, "aria-hidden": "true" });
    this.file.addEventListener("change", () => {
      if (this.file.files[0]) this.take(pictureFromFile(this.file.files[0]));
      this.file.value = "";
    });
    this.seen = element("canvas", { class: "network-seen", role: "img" });
    this.own = box(
      "network-own",
      labelled("Picture", this.select),
      button("Your picture", () => this.file.click()),
      button("Camera", () => this.take(pictureFromCamera())),
      element("p", { class: "network-private" }, "It stays on this page.", element("span", {}, " Drop it here, or paste it.")),
      this.seen,
      element("p", { class: "network-caption" }, "What the networks see: 32 × 32 pixels"),
      this.file,
    );
  }

  buildBar() {
    this.modes = Object.keys(MODES).map((mode) => button(TITLES[mode], () => this.enterMode(mode)));
    const alphas = [SOFTEST_TWIN, 1, 2, 4, SHARPEST];
    this.alpha = new AlphaSlider("Sharpness of all heads", alphas, (alpha) => this.change({ alpha }), SOFTEST_TWIN);
    const { layers } = this.state,
      stops = Array.from({ length: layers }, (_, n) => [`${n + 1}`, n / (layers - 1)]);
    this.layer = new StageSlider({ title: "Layer", min: 1, max: layers, stops, changed: (layer) => this.change({ layer }) });
    this.bar = [...this.modes, this.alpha.node, this.layer.node];
  }

  /** Take the stage, and load the networks' weights. */
  enter() {
    const { picture } = this.stage;
    Object.assign(picture.on, {
      point: (pixel, how) => (how === "hover" ? this.look(pixel) : this.ask(pixel, how)),
      pin: (pixel) => this.ask(pixel),
      leave: () => this.look(null),
    });
    picture.placeSeam(null, ["", ""], 0);
    this.runs.load();
    if (this.interrupted) this.replay();
  }

  /** Take the state of a link, as text by name, and return a sentence on what is wrong with it. Without one alpha starts to move. */
  open(wanted) {
    this.halt();
    const problem = this.state.open(wanted);
    if (problem || !Object.keys(wanted).length) this.replay();
    this.runs.compute();
    return problem;
  }

  /** What a link needs to say; while alpha moves, where it ends. */
  text() {
    return { ...this.state.text(), ...(this.motion ? { alpha: "exact" } : {}) };
  }

  // --- movement ---

  /** Alpha from soft to exact in five seconds, or exact at once for readers who ask for less motion. */
  replay() {
    this.motion = this.stage.still.matches ? null : { seconds: 0 };
    this.state.change({ alpha: this.motion ? SOFTEST_TWIN : EXACT });
    this.runs.compute();
    this.stage.redraw();
  }

  leave() {
    this.interrupted = Boolean(this.motion);
    this.halt();
    this.hover = null;
  }

  halt() {
    if (this.motion) this.state.change({ alpha: EXACT });
    this.motion = null;
  }

  /** Go on with the movement once there is something to see; true while it lasts. */
  frame(passed) {
    if (!this.motion || !this.picture.made.twin.twin) return false;
    const seconds = (this.motion.seconds += passed);
    this.state.change({ alpha: twinAlphaAt(seconds) });
    this.runs.compute();
    if (seconds < TWIN_SECONDS) return true;
    this.motion = null;
    this.unsaid = "all";
    return false;
  }

  // --- what the visitor does ---

  enterMode(mode) {
    this.change({ mode });
    if (mode === "twin") this.replay();
  }

  change(patch, how) {
    this.halt();
    this.state.change(patch);
    if (patch.query) this.hover = null;
    this.unsaid = how === "key" ? "query" : "all";
    this.runs.compute();
    this.stage.tell();
    this.stage.redraw();
  }

  ask(query, how) {
    if (this.state.mode !== "twin") this.change({ query }, how);
  }

  look(pixel) {
    this.hover = pixel;
    this.stage.redraw();
  }

  /** Show a picture of the visitor's own once it is there, or say why not. */
  async take(promise) {
    try {
      const canvas = await promise;
      this.add(OWN, { label: "your picture", canvas });
      this.stage.clearNote();
      if (canvas.note) this.stage.warn(canvas.note);
      this.change({ picture: OWN });
    } catch ({ message }) {
      this.stage.warn(message);
    }
  }

  /** Pictures that are dropped on the stage or pasted while this scene is shown. */
  followFiles() {
    const { root, life } = this.stage,
      { signal } = life;
    const here = () => this.stage.scene === this;
    const drop = (over) => root.toggleAttribute("data-drop", over);
    const on = (node, kind, act) => node.addEventListener(kind, (event) => here() && act(event), { signal });
    on(root, "dragover", (event) => {
      event.preventDefault();
      drop(true);
    });
    on(root, "dragleave", () => drop(false));
    on(root, "drop", (event) => {
      event.preventDefault();
      drop(false);
      const [file] = event.dataTransfer.files;
      if (file) this.take(pictureFromFile(file));
      else this.stage.warn("That was not a file; drop a PNG, JPEG or WebP file.");
    });
    on(document, "paste", ({ clipboardData }) => clipboardData.files[0] && this.take(pictureFromFile(clipboardData.files[0])));
  }

  // --- drawing ---

  draw() {
    const { state, stage } = this,
      { mode, grid } = state,
      made = this.picture.made[mode],
      query = this.hover ?? state.query;
    const heads = made.maps && headsAt(made.maps[state.layer - 1], made.alike[state.layer - 1], query, grid);
    this.drawPicture(heads, query);
    for (const [other, { node }] of Object.entries(this.panels)) node.hidden = other !== mode;
    if (mode === "twin") this.panels.twin.show(made.cnn, made.twin?.logits);
    else this.panels[mode].show(heads, query, grid, heads ? this.alikeSentence(made.alike) : "");
    this.content.setAttribute("aria-busy", String(this.runs.busy));
    setText(this.sentence, this.runs.status[mode].failure ?? (this.ready ? this.resultSentence() : this.waitingSentence()));
    this.writeControls();
    if (this.unsaid && this.runs.done && !this.motion) {
      const looks = heads ? `Query pixel ${pair(query)}. ${looksSentence(heads, grid)}` : "";
      stage.say(this.unsaid === "query" ? looks : `${this.resultSentence()} ${looks}`);
      this.unsaid = "";
    }
  }

  get ready() {
    const made = this.picture.made[this.state.mode];
    return this.state.mode === "twin" ? made.twin : made.maps;
  }

  drawPicture(heads, query) {
    const { picture } = this.stage,
      { canvas } = picture,
      side = Math.round(canvas.clientWidth * Math.min(2, devicePixelRatio));
    if (canvas.width !== side || canvas.height !== side) Object.assign(canvas, { width: side, height: side });
    picture.size = [this.state.grid, this.state.grid];
    picture.pixel = this.state.query;
    picture.offerPixels(this.state.mode !== "twin");
    if (this.picture.canvas) canvas.getContext("2d").drawImage(this.square(side, Boolean(heads)), 0, 0);
    if (heads) drawClouds(canvas, heads, this.colors, query, this.state.grid);
    const keys = "Arrow keys move the query pixel, from which the heads look.";
    canvas.setAttribute("aria-label", `The picture: ${this.picture.label}. ${heads ? keys : ""}`);
    this.seen.setAttribute("aria-label", `${this.picture.label}, as the networks see it`);
    this.drawSeen();
  }

  /** Return a cached canvas with the central square of the picture, in grey if clouds are drawn on it. */
  square(side, grey) {
    const { picture, squared } = this,
      { width, height } = picture.canvas,
      short = Math.min(width, height);
    if (squared?.picture === picture && squared.side === side && squared.grey === grey) return squared.canvas;
    const canvas = element("canvas", { width: side, height: side }),
      context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    if (grey) context.filter = "grayscale(1) contrast(0.7) brightness(1.15)";
    context.drawImage(picture.canvas, (width - short) / 2, (height - short) / 2, short, short, 0, 0, side, side);
    this.squared = { picture, side, grey, canvas };
    return canvas;
  }

  /** The pixels that the networks take. */
  drawSeen() {
    const { size } = this.stage.data.input,
      pixels = this.picture.seen?.pixels;
    if (this.drawn === pixels) return;
    this.drawn = pixels;
    Object.assign(this.seen, { width: size, height: size });
    if (!pixels) return;
    const context = this.seen.getContext("2d"),
      image = context.createImageData(size, size);
    for (let k = 0; k < size * size; k++) image.data.set([...pixels.subarray(3 * k, 3 * k + 3), 255], 4 * k);
    context.putImageData(image, 0, 0);
  }

  alikeSentence(alike) {
    const all = alike.flat(),
      count = all.filter(Boolean).length;
    return count ? `${count} of ${all.length} heads attend uniformly (flat).` : "No head attends uniformly.";
  }

  waitingSentence() {
    return this.runs.status[this.state.mode].loaded
      ? "The network looks at the picture."
      : "The network's weights are being loaded.";
  }

  resultSentence() {
    const { mode, layer } = this.state,
      { classes } = this.stage.data,
      made = this.picture.made[mode];
    if (mode === "twin") return twinSentence(classes, made.cnn, made.twin);
    const { best, probabilities } = answerOf(made.logits);
    const by = {
      where: "by position only, so the same on every picture",
      what: "also by what the pixels contain, so they follow the picture",
    }[mode];
    return (
      `Layer ${layer} of ${this.state.layers}. Point at a pixel: the clouds show where its nine heads look, ${by}.` +
      ` The network says ${classes[best]} (${percent(probabilities[best])}).`
    );
  }

  writeControls() {
    const { mode, alpha, layer, picture } = this.state;
    this.modes.forEach((button, n) => button.setAttribute("aria-pressed", String(Object.keys(MODES)[n] === mode)));
    this.alpha.node.hidden = mode !== "twin";
    this.layer.node.hidden = mode === "twin";
    this.alpha.showAlpha(alpha);
    this.layer.show(layer, `${layer}`, `${layer} of ${this.state.layers}`);
    const names = Object.entries(this.pictures);
    if (this.select.value !== picture || this.select.options.length !== names.length)
      this.select.offer(
        names.map(([name, { label }]) => [name, label]),
        picture,
      );
  }
}
