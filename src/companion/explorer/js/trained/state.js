/** The state of the view of trained heads, without a page: the selection, the loaded model, its maps, and their words. */
import { entropy, softmax } from "../numerics/numbers.js";
import { numbersOf, pair, show } from "../numerics/text.js";
import { load } from "../numerics/files.js";
import { ContentModel, PositionModel } from "./models.js";

const PARTS = {
  __proto__: null, // a link may name anything
  score: "whole score",
  position: "position part (where), q · r",
  content: "content part (what), q · k",
};

/** What a link says, so that an empty or endless text can be read in a sentence. */
const quoted = (text) => `“${String(text).slice(0, 40)}”`;

/** The smallest and the largest value of some maps: probabilities from 0, scores that are finite. */
function rangeOf(maps, low = Infinity) {
  let high = -Infinity;
  for (const map of maps)
    for (const value of map) {
      if (value > high) high = value;
      if (value < low && value > -Infinity) low = value;
    }
  return [low, high];
}

export class AttentionState {
  model = null; // loaded; the selection has its name
  loading = null; // the turn of what is being loaded
  problem = null; // why nothing can be shown
  key = null; // the key pixel whose numbers are read
  notes = []; // what was asked for and is not there

  /** `data`: the models, and the images by name. */
  constructor(data) {
    this.data = data;
  }

  entry() {
    return this.data.models.find(({ id }) => id === this.selection.model);
  }

  /** Take the selection of a link or a notebook, as text by name; then `load`. What does not fit the model is replaced then. */
  open(wanted) {
    this.selection = {
      model: wanted.model ?? this.data.models[0].id,
      layer: wanted.layer,
      head: wanted.head,
      image: wanted.image,
      part: wanted.part ?? "score",
      softmax: wanted.softmax ?? "1",
      scale: wanted.scale ?? "own",
      query: wanted.query,
      epoch: wanted.epoch,
      frozen: Boolean(numbersOf(wanted.query, 2)),
    };
  }

  /** What a link needs to say to give this view. */
  address() {
    const { model, layer, head, image, part, softmax, scale, query, moment } = this.selection;
    return { model, layer, head, image, part, softmax, scale, query: query.join(","), epoch: this.model.epochs?.[moment] };
  }

  /** Change the selection. Returns what is to be done: "load", "draw", or nothing while there is no model to change. */
  change(patch) {
    const { selection, model } = this,
      another = "model" in patch || "image" in patch,
      shown = !this.problem && !this.loading;
    if (!shown && !another) return null;
    if (shown) selection.epoch = model.epochs?.[selection.moment]; // another image keeps it
    Object.assign(selection, patch);
    if ("model" in patch) Object.assign(selection, { layer: undefined, head: undefined, image: undefined, epoch: undefined });
    if (another) return "load";
    if ("query" in patch) selection.query = this.nearest(selection.query);
    else {
      model.moveTo(selection.moment);
      this.settle();
    }
    return "draw";
  }

  /** Load the model, or the model's maps of the image. Returns false when a later call has overtaken this one; a failure
   *  is the state's `problem`. */
  async load() {
    const { selection, data } = this;
    this.notes = [];
    if (!this.entry()) {
      this.notes.push(`There is no model ${quoted(selection.model)} here; this is ${data.models[0].label}.`);
      selection.model = data.models[0].id;
    }
    const entry = this.entry();
    if (!entry.images.includes(selection.image)) {
      if (selection.image) this.notes.push(`There is no image ${quoted(selection.image)} for this model.`);
      selection.image = entry.images[0];
    }
    const turn = (this.loading = {});
    try {
      const model = await this.read(entry, selection.image);
      if (turn !== this.loading) return false;
      this.model = model;
      this.problem = null;
      this.begin();
    } catch (error) {
      if (turn !== this.loading) return false;
      this.problem = error.message;
    }
    this.loading = null;
    return true;
  }

  async read(entry, image) {
    if (entry.content) return new ContentModel(entry, await Promise.all(entry.content[image].map(load)));
    return new PositionModel(entry, await load(entry.file));
  }

  /** A model that was just loaded: at the moment that was asked for, or the last. */
  begin() {
    const { selection, model } = this,
      asked = model.epochs?.indexOf(numbersOf(selection.epoch, 1)?.[0]) ?? -1;
    if (selection.epoch !== undefined && asked < 0)
      this.notes.push(`Epoch ${quoted(selection.epoch)} was not recorded; this is the last.`);
    selection.moment = asked < 0 ? this.lastMoment() : asked;
    model.moveTo(selection.moment);
    this.key = null;
    if (selection.layer === undefined && selection.head === undefined) Object.assign(selection, this.sharpest());
    this.settle();
  }

  lastMoment() {
    return (this.model.epochs?.length ?? 1) - 1;
  }

  /** The layer and head with the largest mass at one offset: what to look at first. */
  sharpest() {
    const { model } = this,
      mass = ({ layer, head }) => model.bestShift(layer - 1, head - 1, "score")?.mass ?? 0;
    const all = model.layers.flatMap((_, layer) =>
      Array.from({ length: model.heads(layer) }, (_, head) => ({ layer: layer + 1, head: head + 1 })),
    );
    return all.reduce((best, one) => (mass(one) > mass(best) ? one : best));
  }

  /** Bring the selection within what the model has, and note what was changed. */
  settle() {
    const { selection, model } = this;
    const within = (name, count) => {
      const given = selection[name] ?? 1,
        value = numbersOf(given, 1)?.[0];
      selection[name] = Number.isInteger(value) && value >= 1 && value <= count ? value : 1;
      if (selection[name] !== value)
        this.notes.push(`There is no ${name} ${quoted(given)}; expected a number from 1 to ${count}.`);
    };
    within("layer", model.layers.length);
    within("head", model.heads(selection.layer - 1));
    if (!model.parts.includes(selection.part)) {
      this.notes.push(`${PARTS[selection.part] ?? quoted(selection.part)}: not there for this model and image.`);
      selection.part = "score";
    }
    for (const [name, values] of [
      ["softmax", ["1", "0"]],
      ["scale", ["own", "shared"]],
    ]) {
      if (values.includes(selection[name])) continue;
      this.notes.push(`The link's ${name} is ${quoted(selection[name])}, expected ${values.join(" or ")}.`);
      selection[name] = values[0];
    }
    const { height, width } = model,
      query = numbersOf(selection.query, 2);
    const inside = query?.every((x, axis) => Number.isInteger(x) && x >= 0 && x < [height, width][axis]);
    if (typeof selection.query === "string" && !inside)
      this.notes.push(
        `The link's query is ${quoted(selection.query)}, expected a row below ${height} and a column below ${width}.`,
      );
    selection.query = this.nearest(inside ? query : [height >> 1, width >> 1]);
  }

  /** The query pixel itself, or the nearest that the model has maps of. */
  nearest([i, j]) {
    const distance = ([r, c]) => (r - i) ** 2 + (c - j) ** 2;
    return this.model.queries?.reduce((best, query) => (distance(query) < distance(best) ? query : best)) ?? [i, j];
  }

  /** What may be chosen of each kind: `[value, text]`, of models also their group. */
  choices() {
    const { data, model, selection } = this,
      entry = this.entry(),
      numbers = (count) => Array.from({ length: count }, (_, n) => [n + 1, `${n + 1}`]);
    const always = {
      model: data.models.map(({ id, label, tier }) => [id, label, tier]),
      image: entry.images.map((id) => [id, entry.labels?.[id] ?? data.images[id].label]),
      softmax: [
        ["1", "probabilities (softmax)"],
        ["0", model?.logarithms ? "logarithms" : "scores"],
      ],
      scale: [
        ["own", "each head's own scale"],
        ["shared", "one scale for all heads"],
      ],
    };
    if (!model || this.problem) return always;
    return {
      ...always,
      layer: numbers(model.layers.length),
      head: numbers(model.heads(selection.layer - 1)),
      part: model.parts.map((part) => [part, PARTS[part]]),
    };
  }

  /** For each layer and head the scores and probabilities from the query, which of them is shown, and between which values. */
  maps() {
    const { selection, model } = this,
      lowest = selection.softmax === "1" ? 0 : Infinity;
    const maps = model.layers.map((_, layer) =>
      Array.from({ length: model.heads(layer) }, (_, head) => {
        const scores = model.scores(layer, head, selection.query, selection.part),
          probabilities = softmax(scores);
        return { scores, probabilities, shown: selection.softmax === "1" ? probabilities : scores };
      }),
    );
    const all = maps.flat(),
      shared =
        selection.scale === "shared"
          ? rangeOf(
              all.map(({ shown }) => shown),
              lowest,
            )
          : null;
    for (const map of all) map.range = shared ?? rangeOf([map.shown], lowest);
    return maps;
  }

  /** A head's mass at its best offset, and that offset, in words; nothing where they are not known. */
  bestShift(layer, head) {
    const { model, selection } = this,
      best = model.bestShift(layer, head, selection.part);
    if (!best) return null;
    const flat = best.mass * model.height * model.width < 1.1; // every offset alike: rounding would choose
    return { mass: best.mass.toFixed(2), shift: flat ? null : pair(best.shift) };
  }

  /** The numbers of the key pixel that is read, or else of the most attended one. */
  reading({ scores, probabilities }) {
    const { selection, model } = this,
      best = probabilities.indexOf(Math.max(...probabilities));
    const [i, j] = this.key ?? [Math.floor(best / model.width), best % model.width],
      k = i * model.width + j;
    const shift = [i - selection.query[0], j - selection.query[1]],
      what = this.key ? "Key pixel" : "Most attended key pixel";
    const numbers = `probability ${show(probabilities[k])}, ${model.logarithms ? "its logarithm" : "score"} ${show(scores[k])}`;
    return `Query ${pair(selection.query)}. ${what} ${pair([i, j])}, offset ${pair(shift)}: ${numbers}.`;
  }

  /** Of given and averaged maps there are no scores; their logarithms are the same up to a constant per query. */
  quantity() {
    return this.selection.softmax === "1"
      ? "probabilities"
      : this.model.logarithms
        ? "logarithms of the probabilities"
        : "scores";
  }

  /** The chosen head and its map in words. */
  caption({ probabilities }) {
    const { layer, head, part } = this.selection,
      center = this.model.center(layer - 1, head - 1);
    const where = center ? `, centre ${pair(center)}` : "",
      spread = `entropy ${show(entropy(probabilities))} nats`;
    return `Layer ${layer}, head ${head}: ${this.quantity()}, ${PARTS[part]}; ${spread}${where}.`;
  }

  /** How to choose the query pixel, with a finger or with a pointer. */
  instruction(touch) {
    const { selection, model } = this,
      few = model.queries && model.queries.length < model.height * model.width;
    const only = few ? ` Only ${model.queries.length} query pixels were recorded; this is the nearest.` : "",
      unseen = this.data.images[selection.image] ? "" : " The book does not contain this image.";
    const frozen = "The query is fixed; click to release it. Hover over the map to read any key pixel.";
    const loose = "The query follows the pointer; click to fix it. Hover over the map to read any key pixel.";
    const touched = "Tap or drag to choose the query pixel; tap the map to read a key pixel.";
    return (touch ? touched : selection.frozen ? frozen : loose) + only + unseen;
  }
}
