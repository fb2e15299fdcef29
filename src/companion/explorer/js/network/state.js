/** Scene 3 without a page: what a link says, and what is read from the logits and maps of networks. */
import { entropy, softmax } from "../numerics/numbers.js";
import { clamp, numbersOf, refuse, show, within } from "../numerics/text.js";
import { EXACT, SHARPEST, sharpness } from "../heads/state.js";

/** The model that each mode shows. */
export const MODES = { __proto__: null, twin: "cnn", where: "sa-quadratic", what: "sa-learned-content" };
export const SOFTEST_TWIN = 0.5;
export const TWIN_SECONDS = 5;
const USUAL_LAYER = 2;
const ALIKE = 60 / 64; // of the pixels: a head that on average spreads over more looks everywhere alike

/** Alpha after some seconds on the way from soft to exact. */
export function twinAlphaAt(seconds) {
  if (seconds >= TWIN_SECONDS) return EXACT;
  return SOFTEST_TWIN * (SHARPEST / SOFTEST_TWIN) ** clamp(seconds / (TWIN_SECONDS - 0.5), 0, 1);
}

export class NetworkState {
  /** `data`: the names of its pictures, and its networks. */
  constructor(data) {
    this.names = data.pictures;
    this.entries = Object.fromEntries(
      Object.entries(MODES).map(([mode, model]) => [mode, data.networks.find((entry) => entry.model === model)]),
    );
    const { size, pooling, layers } = this.entries.where.architecture;
    this.layers = layers.length;
    this.grid = size / pooling; // query pixels a side
    this.change(this.usual());
  }

  usual() {
    const middle = this.grid / 2;
    return { mode: "twin", picture: this.names[0], alpha: EXACT, layer: USUAL_LAYER, query: [middle - 1, middle] };
  }

  /** Take the state of a link, as text by name. Returns a sentence on the first thing in it that is malformed, in which case the
   *  state is the usual one. */
  open(wanted) {
    const problem = this.problemOf(wanted);
    this.change(this.usual());
    if (problem) return `${problem} The scene shows its usual state.`;
    const { mode, picture, alpha, layer, query } = wanted;
    if (mode !== undefined) this.change({ mode });
    if (picture !== undefined) this.change({ picture });
    if (alpha !== undefined) this.change({ alpha: alpha === "exact" ? EXACT : Number(alpha) });
    if (layer !== undefined) this.change({ layer: Number(layer) });
    if (query !== undefined) this.change({ query: numbersOf(query, 2) });
    return "";
  }

  problemOf({ mode, picture, alpha, layer, query }) {
    const { layers, grid, names } = this;
    const whole = (text, count, low, high) => within(text, count, low, high) && numbersOf(text, count).every(Number.isInteger);
    if (mode !== undefined && !MODES[mode]) return refuse("mode", mode, Object.keys(MODES).join(" or "));
    if (picture !== undefined && !names.includes(picture)) return refuse("picture", picture, names.join(" or "));
    if (alpha !== undefined && alpha !== "exact" && !within(alpha, 1, SOFTEST_TWIN, EXACT))
      return refuse("alpha", alpha, `a number from ${SOFTEST_TWIN} to ${EXACT}, or exact`);
    if (layer !== undefined && !whole(layer, 1, 1, layers)) return refuse("layer", layer, `a whole number from 1 to ${layers}`);
    if (query !== undefined && !whole(query, 2, 0, grid - 1))
      return refuse("query", query, `a row and a column from 0 to ${grid - 1}`);
    return "";
  }

  /** What a link needs to say to give this state, as text by name. A picture of the visitor's own is not in it. */
  text() {
    const { mode, picture, alpha, layer, query } = this;
    const state = { mode, picture: this.names.includes(picture) ? picture : undefined };
    if (mode === "twin") return { ...state, alpha: alpha >= EXACT ? "exact" : `${alpha}` };
    return { ...state, layer: `${layer}`, query: query.join(",") };
  }

  change(patch) {
    Object.assign(this, patch);
  }
}

/** A network's probabilities, and the number of the largest. */
export function answerOf(logits) {
  const probabilities = softmax(logits);
  return { probabilities, best: probabilities.indexOf(Math.max(...probabilities)) };
}

export const percent = (share, decimals = 0) => `${(100 * share).toFixed(decimals)} %`;

/** The twin's logits beside the CNN's, in a sentence. */
export function twinSentence(classes, cnn, { alpha, logits }) {
  const [own, twin] = [cnn, logits].map(answerOf),
    difference = Math.max(...logits.map((logit, n) => Math.abs(logit - cnn[n])));
  const said = (answer) => `${classes[answer.best]} (${percent(answer.probabilities[answer.best])})`;
  const agree = own.best === twin.best ? "also says" : "says";
  return (
    `${alpha >= EXACT ? "With exact heads" : `At ${sharpness(alpha)}`}, the ten outputs (logits) differ by at most ${show(difference)}.` +
    ` The CNN says ${said(own)}, its attention twin ${agree} ${said(twin)}.`
  );
}

/** One head's attention from a query pixel, of the maps `(heads, T, T)` of a layer. */
export function mapOf(maps, head, [row, column], grid) {
  const pixels = grid * grid,
    start = (head * pixels + row * grid + column) * pixels;
  return maps.subarray(start, start + pixels);
}

/** Which heads of a layer look everywhere alike: their entropy, on average over the queries, is near that of all pixels alike. */
export function alikeHeads(maps, grid) {
  const pixels = grid * grid;
  return Array.from({ length: maps.length / pixels ** 2 }, (_, head) => {
    let sum = 0;
    for (let q = 0; q < pixels; q++) sum += entropy(mapOf(maps, head, [Math.floor(q / grid), q % grid], grid));
    return Math.exp(sum / pixels) > ALIKE * pixels;
  });
}
