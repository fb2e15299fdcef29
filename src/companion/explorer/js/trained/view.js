/** The view of trained heads: its elements, and the drawing of its state. */
import { pair, show } from "../numerics/text.js";
import { bytesOf } from "../numerics/files.js";
import { AttentionState } from "./state.js";
import { HeadGrid } from "./grid.js";
import {
  Drawing,
  box,
  canvasOf,
  choice,
  colorsOf,
  drawDisc,
  element,
  framePixel,
  labelled,
  paint,
  pointing,
} from "../shell/dom.js";
import { View, keeping } from "../shell/view.js";

const FINE = 2; // canvas pixels for each pixel of a style, so that discs and numbers are sharp

const CONTROLS = {
  model: "Model",
  layer: "Layer",
  head: "Head",
  image: "Image",
  part: "Show",
  softmax: "As",
  scale: "Colours",
};
const LEGEND = [
  "Under each head: H, the entropy of this map in nats; m, the head's mean probability at its best offset, over the query pixels",
  "for which the offset stays in the image (with content: of the whole score, over test images); and that offset, or none",
  "if all are nearly equal. Pixels and offsets are (row, column), down and right. On its own scale, a map runs",
  "from 0 to its largest value, so a head that attends uniformly is all yellow.",
].join(" ");

export class AttentionView extends View {
  constructor(root, data, host) {
    super(root, data, host, new AttentionState(data));
    this.colors = colorsOf(bytesOf(data.colors.amounts));
    this.touch = matchMedia("(hover: none)");
    this.build();
  }

  // --- the elements, once ---------------------------------------------------------------------------------------------

  build() {
    const change = (name) => (value) => this.change({ [name]: value });
    this.controls = Object.fromEntries(Object.keys(CONTROLS).map((name) => [name, choice(name, change(name))]));
    this.labels = Object.fromEntries(Object.entries(CONTROLS).map(([name, text]) => [name, labelled(text, this.controls[name])]));
    this.status = element("p", { class: "explorer-status", role: "status" });
    this.said = element("p", { class: "explorer-said", role: "status" });
    this.source = element("p", { class: "explorer-source" });
    this.keep = keeping("attention", this);
    this.buildTraining();
    this.buildStage();
    const controls = box("explorer-controls", ...Object.values(this.labels));
    this.root.replaceChildren(controls, this.status, this.stage, this.source, this.keep, this.said);
    this.listen();
  }

  buildTraining() {
    this.slider = element("input", { type: "range", min: 0, oninput: () => this.change({ moment: +this.slider.value }) });
    this.epoch = element("output");
    this.play = element("button", { type: "button", onclick: () => this.playing(!this.timer) }, "Play");
    this.training = box("explorer-training", labelled("Training", this.slider), this.epoch, this.play);
    this.untrained = element("p", { class: "explorer-source" }, "For this model, only the end of training is stored.");
  }

  /** The parts of the view that a message may replace. */
  buildStage() {
    this.pad = element("canvas", { class: "explorer-pad", tabindex: 0, role: "application" });
    this.map = element("canvas", { class: "explorer-map", tabindex: 0, role: "application" });
    this.bar = element("canvas", { class: "explorer-bar", "aria-hidden": "true" });
    const levels = Uint8Array.from({ length: 256 }, (_, n) => n);
    paint(this.bar, levels, 1, 256, 0, 255, this.colors);
    [this.low, this.high] = [element("span"), element("span")];
    [this.padNote, this.mapNote] = [element("figcaption"), element("figcaption")];
    this.reading = element("p", { class: "explorer-reading" });
    this.grid = new HeadGrid(this.colors, (head) => this.change(head));
    const scale = element("div", { class: "explorer-scale", "aria-hidden": "true" }, this.low, this.bar, this.high);
    const image = element("figure", {}, this.pad, this.padNote),
      map = element("figure", {}, this.map, scale, this.mapNote);
    const legend = element("p", { class: "explorer-source" }, LEGEND);
    const below = [this.reading, this.training, this.untrained, this.grid.node, legend];
    this.stage = box("explorer-stage", box("explorer-pair", image, map), ...below);
  }

  listen() {
    const { state } = this,
      size = () => [state.model?.height ?? 1, state.model?.width ?? 1],
      frozen = () => state.selection.frozen,
      query = () => state.selection.query;
    const follow = (pixel, how) => {
      if (how === "hover" && frozen()) return;
      this.change({ query: pixel, frozen: how !== "hover" || frozen() });
    };
    pointing(this.pad, size, query, follow, (pixel) => this.change({ query: pixel, frozen: !frozen() }));
    const read = (pixel, how) => {
      state.key = pixel;
      this.drawLarge();
      this.reading.textContent = state.reading(this.chosen);
      if (how === "key") this.said.textContent = this.reading.textContent;
    };
    pointing(this.map, size, () => state.key ?? query(), read, read);
    this.map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && read(null));
    this.map.addEventListener("blur", () => read(null));
  }

  // --- another state --------------------------------------------------------------------------------------------------

  /** Take the state of a link or a notebook, as text by name. */
  async open(wanted) {
    this.state.open(wanted);
    await this.choose();
  }

  change(patch) {
    const next = this.state.change(patch);
    if (next === "load") return this.choose();
    this.unsaid ||= patch.frozen !== false && !this.timer; // a pointer that passes by, and what plays, are not read out
    if (next === "draw") {
      if (!("query" in patch)) {
        this.stale ||= !("head" in patch);
        this.offer();
      }
      this.draw();
    }
  }

  /** Load the model and show it; a message in its place when that fails. */
  async choose() {
    const { state } = this;
    this.playing(false);
    clearTimeout(this.later);
    this.root.setAttribute("aria-busy", "true");
    if (!(await state.load())) return;
    try {
      if (!state.problem) this.begin();
    } catch (error) {
      state.problem = error.message;
    }
    if (state.problem) this.message(state.problem);
    this.root.removeAttribute("aria-busy");
  }

  /** A model that was just loaded. */
  begin() {
    const { state } = this,
      entry = state.entry(),
      picture = this.data.images[state.selection.image],
      last = state.lastMoment();
    this.message(null);
    this.picture = picture ? canvasOf(picture, bytesOf(picture.base64)) : null;
    this.slider.max = last;
    this.training.hidden = !last;
    this.untrained.hidden = Boolean(last) || entry.tier === "given";
    this.source.textContent = entry.source;
    this.offer();
    this.grid.build(state.model);
    this.stale = true;
    // of the models by position only the picture changes
    const name = entry.content ? CONTROLS.image : `${CONTROLS.image} (no effect on the maps)`;
    this.labels.image.firstChild.textContent = name;
    this.controls.image.setAttribute("aria-label", name);
    this.draw();
  }

  /** A message in place of the view; none shows the view. */
  message(text) {
    // of the two the one that has a place; a widget's root may not be in the document yet
    const shown = [this.stage, this.alert].find((node) => node?.parentNode);
    if (text) this.alert = element("p", { class: "explorer-message", role: "alert" }, text);
    shown.replaceWith(text ? this.alert : this.stage);
    if (text) this.offer();
    this.keep.hidden = this.source.hidden = Boolean(text);
  }

  offer() {
    const choices = this.state.choices();
    for (const [name, options] of Object.entries(choices)) this.controls[name].offer(options, this.state.selection[name]);
    if (choices.part) this.labels.part.hidden = choices.part.length === 1;
  }

  playing(on) {
    const { selection, model } = this.state;
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.walk(), 1000 / Math.min(20, Math.max(4, model.epochs.length / 10))) : null;
    this.play.textContent = on ? "Pause" : "Play";
    if (on && selection.moment === this.state.lastMoment()) this.change({ moment: 0 });
  }

  walk() {
    const { selection } = this.state;
    if (!this.root.isConnected || selection.moment >= this.state.lastMoment()) return this.playing(false);
    this.change({ moment: selection.moment + 1 });
  }

  // --- drawing --------------------------------------------------------------------------------------------------------

  /** Everything that depends on the query: all maps, the enlarged one, the numbers. */
  draw() {
    const { selection, model } = this.state,
      maps = this.state.maps();
    this.grid.draw(maps, selection, model, this.stale);
    this.chosen = maps[selection.layer - 1][selection.head - 1];
    this.drawLarge();
    this.tell();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.rest(), 120);
  }

  /** The image with the query, and the chosen head's map, both with the centres of the layer's heads. */
  drawLarge() {
    const { selection, model, key } = this.state,
      { width, height } = model;
    const cell = FINE * Math.max(1, Math.round(336 / width)),
      lines = [4 * FINE, 1.5 * FINE];
    for (const [canvas, source] of [
      [this.pad, this.picture],
      [this.map, this.grid.cells[selection.layer - 1][selection.head - 1].canvas],
    ]) {
      if (canvas.width !== cell * width || canvas.height !== cell * height)
        Object.assign(canvas, { width: cell * width, height: cell * height });
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.fillStyle = "#bbb";
      context.fillRect(0, 0, canvas.width, canvas.height);
      if (source) context.drawImage(source, 0, 0, canvas.width, canvas.height);
      this.drawCenters(context, cell);
      framePixel(context, selection.query, cell, lines);
      if (key && canvas === this.map) framePixel(context, key, cell, lines, [4 * FINE, 4 * FINE]);
    }
  }

  /** The centres of the layer's heads, as offsets from the query; the chosen one last, so on top. */
  drawCenters(context, cell) {
    const { selection, model } = this.state,
      layer = selection.layer - 1,
      [row, column] = selection.query,
      colors = this.data.colors.heads;
    const isChosen = (head) => head === selection.head - 1;
    const heads = Array.from({ length: model.heads(layer) }, (_, head) => head);
    for (const head of heads.sort((a, b) => isChosen(a) - isChosen(b))) {
      const center = model.center(layer, head);
      if (!center) return;
      const at = [(column + center[1] + 0.5) * cell, (row + center[0] + 0.5) * cell],
        [radius, line] = isChosen(head) ? [9, 3] : [7, 1];
      const style = { color: colors[head % colors.length], line: FINE * line, font: `bold ${10 * FINE}px sans-serif` };
      drawDisc(context, at, FINE * radius, style, head + 1);
    }
  }

  /** What is seen, in words. */
  tell() {
    const { state, chosen } = this,
      { selection, model } = state;
    this.reading.textContent = state.reading(chosen);
    [this.low.textContent, this.high.textContent] = chosen.range.map(show);
    this.mapNote.textContent = state.caption(chosen);
    this.padNote.textContent = state.instruction(this.touch.matches);
    this.pad.setAttribute(
      "aria-label",
      `Query pixel ${pair(selection.query)} of ${model.height} by ${model.width}; arrow keys move it, Enter freezes it`,
    );
    this.map.setAttribute("aria-label", `Map of layer ${selection.layer}, head ${selection.head}; arrow keys read its numbers`);
    if (this.stale || state.notes.length) this.status.textContent = state.notes.join(" ");
    if (model.epochs) {
      this.slider.value = selection.moment;
      this.play.hidden = this.still.matches;
      this.epoch.textContent = `after epoch ${model.epochs[selection.moment]} of ${model.epochs.at(-1)}`;
      this.slider.setAttribute("aria-valuetext", this.epoch.textContent);
    }
  }

  /** What may wait until the pointer rests: each head's mass at its best offset, the address, the notebook. */
  rest() {
    this.grid.tell((layer, head) => this.state.bestShift(layer, head));
    this.stale = false;
    if (this.unsaid) this.said.textContent = `${this.mapNote.textContent} ${this.reading.textContent}`;
    this.unsaid = false;
    this.tellHost();
    this.state.notes = [];
  }

  /** A picture of the view to keep. */
  drawing() {
    const { selection, model } = this.state,
      entry = this.state.entry(),
      heads = Math.max(...this.grid.cells.map((cells) => cells.length)),
      cell = 60,
      ratio = model.height / model.width;
    const large = 300,
      step = cell * ratio + 66,
      below = 40 + large * ratio;
    const drawing = new Drawing(Math.max(2 * large + 60, 40 + heads * (cell + 6)), below + 90 + this.grid.cells.length * step);
    const when = model.epochs ? this.epoch.textContent : this.untrained.hidden ? "as given" : "end of training",
      image = this.controls.image.selectedOptions[0].textContent;
    drawing.text(20, 26, `${entry.label}; ${entry.tier}; ${when}; ${image}`, 14);
    drawing.canvas(this.pad, 20, 40, large, large * ratio);
    drawing.canvas(this.map, 40 + large, 40, large, large * ratio);
    drawing.canvas(this.bar, 40 + large, below + 10, large, 10);
    drawing.text(40 + large, below + 34, this.chosen.range.map(show).join(" to "), 11);
    drawing.text(20, below + 34, `query ${pair(selection.query)}`, 11);
    drawing.text(20, below + 52, this.mapNote.textContent, 11);
    this.grid.cells.forEach((cells, layer) => {
      const y = below + 70 + layer * step,
        unit = cell / model.width;
      drawing.text(20, y + 10, `Layer ${layer + 1}`, 12);
      cells.forEach(({ canvas, text }, head) => {
        const x = 20 + head * (cell + 6);
        drawing.canvas(canvas, x, y + 16, cell, cell * ratio);
        drawing.frame(x + selection.query[1] * unit, y + 16 + selection.query[0] * unit, unit, unit);
        text.textContent.split("\n").forEach((line, n) => drawing.text(x, y + 28 + cell * ratio + 11 * n, line, 9));
      });
    });
    drawing.text(20, drawing.height - 6, entry.source, 9);
    return drawing;
  }
}
