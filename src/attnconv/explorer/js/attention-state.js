/** The view of trained heads, first half: which model, layer, head, image and query; loading them. */
import { bytesOf, load } from "./files.js";
import { ContentModel, PositionModel } from "./models.js";
import { box, canvasOf, choice, colorsOf, element, labelled, paint, pointing } from "./dom.js";
import { View, keeping, numbersOf } from "./view.js";

export const PARTS = { score: "whole score", position: "position part (where), q · r", content: "content part (what), q · k" };
export const FINE = 2; // canvas pixels for each pixel of a style, so that discs and numbers are sharp

export const CONTROLS = {
  model: "Model",
  layer: "Layer",
  head: "Head",
  image: "Image",
  part: "Show",
  softmax: "As",
  scale: "Colours",
};
export const LEGEND = [
  "Under each head: H, the entropy of this map in nats; m, the head's mean probability at its best shift, over all query pixels",
  "that have it (with content: of the whole score, over test images), and that shift, or none where all are nearly alike. Pixels and shifts are (row, column), down",
  "and right. On its own scale a map runs from 0 to its largest value: a head that attends everywhere alike is all yellow.",
].join(" ");

export class AttentionState extends View {
  notes = [];

  constructor(root, data, host) {
    super(root, data, host);
    this.colors = colorsOf(bytesOf(data.colors.amounts));
    this.touch = matchMedia("(hover: none)");
    this.build();
  }

  /** The elements, once. */
  build() {
    const change = (name) => (value) => this.change({ [name]: value });
    this.controls = Object.fromEntries(Object.keys(CONTROLS).map((name) => [name, choice(name, change(name))]));
    this.labels = Object.fromEntries(Object.entries(CONTROLS).map(([name, text]) => [name, labelled(text, this.controls[name])]));
    this.status = element("p", { class: "explorer-status", role: "status" });
    this.source = element("p", { class: "explorer-source" });
    this.keep = keeping("attention", this);
    this.buildTraining();
    this.buildStage();
    const controls = box("explorer-controls", ...Object.values(this.labels));
    this.root.replaceChildren(controls, this.status, this.stage, this.source, this.keep);
    this.listen();
  }

  buildTraining() {
    this.slider = element("input", { type: "range", min: 0, oninput: () => this.change({ moment: +this.slider.value }) });
    this.epoch = element("output");
    this.play = element("button", { type: "button", onclick: () => this.playing(!this.timer) }, "Play");
    this.training = box("explorer-training", labelled("Training", this.slider), this.epoch, this.play);
    this.untrained = element("p", { class: "explorer-source" }, "Of this model only the end of training is kept.");
  }

  /** What a message can stand in place of. */
  buildStage() {
    this.pad = element("canvas", { class: "explorer-pad", tabindex: 0, role: "application" });
    this.map = element("canvas", { class: "explorer-map", tabindex: 0, role: "application" });
    this.bar = element("canvas", { class: "explorer-bar", "aria-hidden": "true" });
    const levels = Uint8Array.from({ length: 256 }, (_, n) => n);
    paint(this.bar, levels, 1, 256, 0, 255, this.colors);
    [this.low, this.high] = [element("span"), element("span")];
    [this.padNote, this.mapNote] = [element("figcaption"), element("figcaption")];
    this.reading = element("p", { class: "explorer-reading" });
    this.grid = box("explorer-grid");
    const scale = element("div", { class: "explorer-scale", "aria-hidden": "true" }, this.low, this.bar, this.high);
    const image = element("figure", {}, this.pad, this.padNote),
      map = element("figure", {}, this.map, scale, this.mapNote);
    const legend = element("p", { class: "explorer-source" }, LEGEND);
    const below = [this.reading, this.training, this.untrained, this.grid, legend];
    this.stage = element("div", {}, box("explorer-pair", image, map), ...below);
  }

  listen() {
    const size = () => [this.model?.height ?? 1, this.model?.width ?? 1];
    const follow = (pixel, how) => {
      if (how === "hover" && this.state.frozen) return;
      this.change({ query: pixel, frozen: how !== "hover" || this.state.frozen });
    };
    const freeze = (pixel) => this.change({ query: pixel, frozen: !this.state.frozen });
    pointing(this.pad, size, () => this.state.query, follow, freeze);
    const read = (pixel) => {
      this.key = pixel;
      this.drawLarge();
      this.read();
    };
    pointing(this.map, size, () => this.key ?? this.state.query, read, read);
    this.map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && read(null));
    this.map.addEventListener("blur", () => read(null));
  }

  entry() {
    return this.data.models.find(({ id }) => id === this.state.model);
  }

  /** Take the state of a link or a notebook, as text by name. */
  async open(wanted) {
    const query = numbersOf(wanted.query, 2),
      epoch = wanted.epoch === undefined ? undefined : Number(wanted.epoch);
    const number = (text) => (text === undefined ? undefined : Number(text));
    this.state = {
      model: wanted.model ?? this.data.models[0].id,
      layer: number(wanted.layer),
      head: number(wanted.head),
      image: wanted.image,
      part: wanted.part ?? "score",
      softmax: wanted.softmax ?? "1",
      scale: wanted.scale ?? "own",
      query,
      epoch,
      frozen: Boolean(query),
    };
    await this.choose();
  }

  /** What a link needs to say to give this view. */
  address() {
    const { model, layer, head, image, part, softmax, scale, query, moment } = this.state;
    return { model, layer, head, image, part, softmax, scale, query: query.join(","), epoch: this.model.epochs?.[moment] };
  }

  change(patch) {
    const another = "model" in patch || "image" in patch;
    if ((this.broken || this.loading) && !another) return;
    if (!this.broken && !this.loading) this.state.epoch = this.model.epochs?.[this.state.moment]; // another image keeps it
    Object.assign(this.state, patch);
    if ("model" in patch) Object.assign(this.state, { layer: undefined, head: undefined, image: undefined, epoch: undefined });
    if (another) return this.choose();
    if ("query" in patch) this.state.query = this.nearest(this.state.query);
    else {
      this.model.moveTo(this.state.moment);
      this.settle();
    }
    this.draw();
  }

  /** Load the model, or the model's maps of the image, and show it; a message in its place when that fails. */
  async choose() {
    this.playing(false);
    clearTimeout(this.later);
    this.notes = [];
    const known = this.entry();
    if (!known) {
      this.notes.push(`There is no model ${this.state.model} here; this is ${this.data.models[0].label}.`);
      this.state.model = this.data.models[0].id;
    }
    const entry = this.entry(),
      wanted = this.state.image;
    if (!entry.images.includes(wanted)) {
      if (wanted) this.notes.push(`There is no image ${wanted} for this model.`);
      this.state.image = entry.images[0];
    }
    const turn = (this.loading = {});
    this.root.setAttribute("aria-busy", "true");
    try {
      const model = await this.loadModel(entry, this.state.image);
      if (turn !== this.loading) return;
      this.model = model;
      this.message(null);
      this.begin(entry);
    } catch (error) {
      if (turn !== this.loading) return;
      this.message(error.message);
    }
    this.loading = null;
    this.root.removeAttribute("aria-busy");
  }

  async loadModel(entry, image) {
    if (entry.content) return new ContentModel(entry, await Promise.all(entry.content[image].map(load)));
    return new PositionModel(entry, await load(entry.file));
  }

  /** A message in place of the view; none shows the view. */
  message(text) {
    this.broken = text;
    // of the two the one that has a place; a widget's root may not be in the document yet
    const shown = [this.stage, this.alert].find((node) => node?.parentNode);
    if (text) this.alert = element("p", { class: "explorer-message", role: "alert" }, text);
    shown.replaceWith(text ? this.alert : this.stage);
    if (text) this.offer();
    this.keep.hidden = this.source.hidden = Boolean(text);
  }

  /** A model that was just loaded. */
  begin(entry) {
    const { state, model } = this;
    const last = (model.epochs?.length ?? 1) - 1,
      asked = model.epochs?.indexOf(state.epoch) ?? -1;
    if (state.epoch !== undefined && asked < 0) this.notes.push(`There is no picture of epoch ${state.epoch}; this is the last.`);
    state.moment = asked < 0 ? last : asked;
    model.moveTo(state.moment);
    const picture = this.data.images[state.image];
    this.picture = picture ? canvasOf(picture) : null;
    this.slider.max = last;
    this.training.hidden = !last;
    this.untrained.hidden = Boolean(last) || entry.tier === "given";
    this.key = null;
    if (state.layer === undefined && state.head === undefined) Object.assign(state, this.sharpest());
    this.source.textContent = entry.source;
    this.settle();
    this.buildGrid();
    this.draw();
  }

  /** The layer and head with the largest mass at one shift: what to look at first. */
  sharpest() {
    const { model } = this,
      mass = ({ layer, head }) => model.bestShift(layer - 1, head - 1, "score")?.mass ?? 0;
    const all = model.layers.flatMap((_, layer) =>
      Array.from({ length: model.heads(layer) }, (_, head) => ({ layer: layer + 1, head: head + 1 })),
    );
    return all.reduce((best, one) => (mass(one) > mass(best) ? one : best));
  }

  /** Bring the state within what the model has, and say so. */
  settle() {
    const { state, model } = this;
    const within = (name, count) => {
      const given = state[name] ?? 1,
        value = Number(given);
      state[name] = Number.isInteger(value) && value >= 1 && value <= count ? value : 1;
      if (state[name] !== value) this.notes.push(`There is no ${name} ${given}; here they go from 1 to ${count}.`);
    };
    within("layer", model.layers.length);
    within("head", model.heads(state.layer - 1));
    if (!model.parts.includes(state.part)) {
      this.notes.push(`${PARTS[state.part] ?? state.part}: not there for this model and image.`);
      state.part = "score";
    }
    for (const [name, values] of [
      ["softmax", ["1", "0"]],
      ["scale", ["own", "shared"]],
    ]) {
      if (values.includes(state[name])) continue;
      this.notes.push(`The link's ${name} is ${state[name]}, expected ${values.join(" or ")}.`);
      state[name] = values[0];
    }
    const inside = (query) => query && query[0] >= 0 && query[1] >= 0 && query[0] < model.height && query[1] < model.width;
    const query = inside(state.query) ? state.query.map(Math.floor) : [model.height >> 1, model.width >> 1];
    state.query = this.nearest(query);
    this.offer();
  }

  /** The query pixel itself, or the nearest that the model has maps of. */
  nearest([i, j]) {
    const distance = ([r, c]) => (r - i) ** 2 + (c - j) ** 2;
    return this.model.queries?.reduce((best, query) => (distance(query) < distance(best) ? query : best)) ?? [i, j];
  }

  offer() {
    const { state, model, controls, data } = this,
      entry = this.entry();
    const numbers = (count) => Array.from({ length: count }, (_, n) => [n + 1, `${n + 1}`]);
    controls.model.offer(
      data.models.map(({ id, label, tier }) => [id, label, tier]),
      state.model,
    );
    controls.image.offer(
      entry.images.map((id) => [id, entry.labels?.[id] ?? data.images[id].label]),
      state.image,
    );
    controls.softmax.offer(
      [
        ["1", "probabilities (softmax)"],
        ["0", model?.logarithms ? "logarithms" : "scores"],
      ],
      state.softmax,
    );
    controls.scale.offer(
      [
        ["own", "each head's own scale"],
        ["shared", "one scale for all heads"],
      ],
      state.scale,
    );
    if (!model) return;
    controls.layer.offer(numbers(model.layers.length), state.layer);
    controls.head.offer(numbers(model.heads(state.layer - 1)), state.head);
    controls.part.offer(
      model.parts.map((part) => [part, PARTS[part]]),
      state.part,
    );
    this.labels.part.hidden = model.parts.length === 1;
  }
}
