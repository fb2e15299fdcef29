/** Models: scores for a query, from a few numbers or from maps. */
import { bestShift, layerAt, meanByShift, scoresByShift, scoresFrom } from "../numerics/numbers.js";

/** A model whose attention depends on the offset alone: computed here, at any moment of its training. */
export class PositionModel {
  parts = ["score"]; // which is the position part
  queries = null; // every pixel may be the query

  constructor(entry, tensors) {
    [this.height, this.width] = entry.size;
    this.tensors = tensors;
    this.epochs = Array.from(tensors.epochs.data);
    const layers = Object.keys(tensors).filter((key) => key.includes("."));
    this.count = new Set(layers.map((key) => key.split(".")[0])).size;
    this.moveTo(this.epochs.length - 1);
  }

  moveTo(moment) {
    if (moment === this.moment) return;
    this.moment = moment;
    this.layers = Array.from({ length: this.count }, (_, n) => layerAt(this.tensors, n + 1, moment));
    this.tables = this.layers.map((layer) =>
      Array.from({ length: layer.heads }, (_, head) => scoresByShift(layer, head, this.height, this.width)),
    );
    this.best = this.tables.map(() => []);
  }

  heads(layer) {
    return this.layers[layer].heads;
  }

  scores(layer, head, query) {
    return scoresFrom(this.tables[layer][head], query, this.height, this.width);
  }

  /** Where a head's centre is, as an offset; undefined for encodings without centres. */
  center(layer, head) {
    return this.layers[layer].centers?.subarray(2 * head, 2 * head + 2);
  }

  bestShift(layer, head) {
    const known = this.best[layer];
    return (known[head] ??= bestShift(meanByShift(this.tables[layer][head], this.height, this.width), this.height, this.width));
  }
}

/** The logarithms that bytes stand for: none for 0, and evenly spaced ones from 1 to 255. */
export function decoded(codes, low, high) {
  return Float64Array.from(codes, (code) => (code ? low + ((code - 1) / 254) * (high - low) : -Infinity));
}

/** A model whose attention depends on the image: a file for each layer, of one image. */
export class ContentModel {
  epochs = null; // only the end of training is kept
  moveTo() {}
  center() {}

  constructor(entry, layers) {
    [this.height, this.width] = entry.size;
    this.layers = layers;
    this.best = entry.best;
    this.logarithms = !layers[0].content;
    this.parts = this.logarithms ? ["score"] : ["score", "position", "content"];
    const pairs = layers[0].queries.data;
    this.queries = Array.from({ length: pairs.length / 2 }, (_, n) => [pairs[2 * n], pairs[2 * n + 1]]);
  }

  heads(layer) {
    const { content, probabilities, codes } = this.layers[layer];
    return (content ?? probabilities ?? codes).shape[0];
  }

  scores(layer, head, query, part) {
    const { content, rows, columns, probabilities, codes, logarithms } = this.layers[layer],
      size = this.height * this.width;
    const n = head * this.queries.length + this.queries.findIndex(([i, j]) => i === query[0] && j === query[1]);
    if (probabilities) return Float64Array.from(probabilities.data.subarray(n * size, (n + 1) * size), Math.log);
    if (codes) return decoded(codes.data.subarray(n * size, (n + 1) * size), ...logarithms.data.subarray(2 * n, 2 * n + 2));
    const scores = new Float64Array(size);
    for (let k = 0; k < size; k++) {
      if (part !== "position") scores[k] += content.data[n * size + k];
      if (part !== "content")
        scores[k] += rows.data[n * this.height + Math.floor(k / this.width)] + columns.data[n * this.width + (k % this.width)];
    }
    return scores;
  }

  /** Of the whole score, as the package has measured it over the test images. */
  bestShift(layer, head, part) {
    return part === "score" ? this.best?.[layer][head] : undefined;
  }
}
