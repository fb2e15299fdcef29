/** The view of trained heads, second half: what is drawn and told of the state. */
import { entropy, softmax } from "./numbers.js";
import { Drawing, box, element, paint, pair, show } from "./dom.js";
import { AttentionState, FINE, PARTS } from "./attention-state.js";

export class AttentionView extends AttentionState {
  /** All layers and heads, a button each. */
  buildGrid() {
    const { model, grid } = this;
    this.cells = model.layers.map((_, layer) =>
      Array.from({ length: model.heads(layer) }, (_, head) => {
        const canvas = element("canvas"),
          text = element("span");
        const choose = () => this.change({ layer: layer + 1, head: head + 1 });
        const button = element(
          "button",
          { type: "button", "aria-label": `layer ${layer + 1}, head ${head + 1}`, onclick: choose },
          element("span", { class: "explorer-cell" }, canvas),
          text,
        );
        return { canvas, text, button };
      }),
    );
    grid.replaceChildren(
      ...this.cells.map((cells, layer) =>
        element(
          "div",
          { role: "group", "aria-label": `layer ${layer + 1}` },
          element("p", { class: "explorer-title", "aria-hidden": "true" }, `Layer ${layer + 1}`),
          box("explorer-row", ...cells.map(({ button }) => button)),
        ),
      ),
    );
    grid.style.setProperty("--heads", Math.max(...this.cells.map((cells) => cells.length)));
    grid.style.setProperty("--rows", model.height);
    grid.style.setProperty("--columns", model.width);
  }

  /** Everything that depends on the query: all maps, the enlarged one, the numbers. */
  draw() {
    const { state, model, cells } = this;
    const values = cells.map((heads, layer) =>
      heads.map((_, head) => {
        const scores = model.scores(layer, head, state.query, state.part);
        return { scores, probabilities: softmax(scores) };
      }),
    );
    const seen = (map) => (state.softmax === "1" ? map.probabilities : map.scores);
    const shared = state.scale === "shared" ? this.range(values.flat().map(seen)) : null;
    cells.forEach((heads, layer) =>
      heads.forEach(({ canvas, text, button }, head) => {
        const map = values[layer][head],
          [low, high] = shared ?? this.range([seen(map)]);
        paint(canvas, seen(map), model.height, model.width, low, high, this.colors);
        text.textContent = `H ${entropy(map.probabilities).toFixed(2)}`;
        button.setAttribute("aria-pressed", layer === state.layer - 1 && head === state.head - 1);
      }),
    );
    const chosen = values[state.layer - 1][state.head - 1];
    this.values = { ...chosen, range: shared ?? this.range([seen(chosen)]) };
    const unit = (axis) => `${(100 * state.query[axis]) / [model.height, model.width][axis]}%`;
    this.grid.style.setProperty("--query-top", unit(0));
    this.grid.style.setProperty("--query-left", unit(1));
    this.drawLarge();
    this.read();
    this.tell();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.rest(), 120);
  }

  range(maps) {
    let low = this.state.softmax === "1" ? 0 : Infinity,
      high = -Infinity;
    for (const map of maps)
      for (const value of map) {
        if (value > high) high = value;
        if (value < low && value > -Infinity) low = value;
      }
    return [low, high];
  }

  /** The image with the query, and the chosen head's map, both with the centres of the layer's heads. */
  drawLarge() {
    const { state, model, picture } = this,
      { width, height } = model;
    const cell = FINE * Math.max(1, Math.round(336 / width));
    for (const [canvas, source] of [
      [this.pad, picture],
      [this.map, this.cells[state.layer - 1][state.head - 1].canvas],
    ]) {
      if (canvas.width !== cell * width || canvas.height !== cell * height)
        Object.assign(canvas, { width: cell * width, height: cell * height });
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.fillStyle = "#bbb";
      context.fillRect(0, 0, canvas.width, canvas.height);
      if (source) context.drawImage(source, 0, 0, canvas.width, canvas.height);
      this.drawCenters(context, cell);
      this.frame(context, state.query, cell);
      if (this.key && canvas === this.map) this.frame(context, this.key, cell, [4 * FINE, 4 * FINE]);
    }
  }

  frame(context, [row, column], cell, dashes = []) {
    context.setLineDash(dashes);
    for (const [color, line] of [
      ["#000", 4 * FINE],
      ["#fff", 1.5 * FINE],
    ]) {
      Object.assign(context, { strokeStyle: color, lineWidth: line });
      context.strokeRect(column * cell, row * cell, cell, cell);
    }
  }

  drawCenters(context, cell) {
    const { state, model } = this,
      layer = state.layer - 1,
      [row, column] = state.query;
    const order = Array.from({ length: model.heads(layer) }, (_, head) => head).sort(
      (a, b) => (a === state.head - 1) - (b === state.head - 1),
    );
    context.setLineDash([]);
    for (const head of order) {
      // the chosen one last, so on top
      const center = model.center(layer, head);
      if (!center) return;
      const x = (column + center[1] + 0.5) * cell,
        y = (row + center[0] + 0.5) * cell,
        chosen = head === state.head - 1;
      context.beginPath();
      context.arc(x, y, FINE * (chosen ? 9 : 7), 0, 2 * Math.PI);
      Object.assign(context, {
        fillStyle: this.data.colors.heads[head % this.data.colors.heads.length],
        strokeStyle: "#fff",
        lineWidth: FINE * (chosen ? 3 : 1),
      });
      context.fill();
      context.stroke();
      Object.assign(context, {
        fillStyle: "#fff",
        font: `bold ${10 * FINE}px sans-serif`,
        textAlign: "center",
        textBaseline: "middle",
      });
      context.fillText(head + 1, x, y);
    }
  }

  /** The numbers of the key pixel under the pointer, or else of the most attended one. */
  read() {
    const { state, model, values } = this,
      { probabilities } = values;
    const best = probabilities.indexOf(Math.max(...probabilities));
    const [i, j] = this.key ?? [Math.floor(best / model.width), best % model.width],
      k = i * model.width + j;
    const shift = [i - state.query[0], j - state.query[1]];
    const what = this.key ? "Key pixel" : "Most attended key pixel";
    const numbers = `probability ${show(probabilities[k])}, ${model.logarithms ? "its logarithm" : "score"} ${show(values.scores[k])}`;
    this.reading.textContent = `Query ${pair(state.query)}. ${what} ${pair([i, j])}, shift ${pair(shift)}: ${numbers}.`;
  }

  /** Of given and averaged maps there are no scores; their logarithms are the same up to a constant per query. */
  what() {
    return this.state.softmax === "1" ? "probabilities" : this.model.logarithms ? "logarithms of the probabilities" : "scores";
  }

  /** What is seen, in words. */
  tell() {
    const { state, model } = this,
      layer = state.layer - 1,
      head = state.head - 1;
    const name = `Layer ${state.layer}, head ${state.head}`,
      center = model.center(layer, head);
    [this.low.textContent, this.high.textContent] = this.values.range.map(show);
    const where = center ? `, centre ${pair(center)}` : "";
    const spread = `entropy ${show(entropy(this.values.probabilities))} nats`;
    this.mapNote.textContent = `${name}: ${this.what()}, ${PARTS[state.part]}; ${spread}${where}.`;
    const only =
      model.queries && model.queries.length < model.height * model.width
        ? ` Its record has maps of ${model.queries.length} query pixels; this is the nearest.`
        : "";
    const frozen = `Query ${pair(state.query)}, frozen; a click lets it go. Hover over the map to read any key pixel.`;
    const loose = "The query follows the pointer. Click to keep it, then hover over the map to read any key pixel.";
    const touched = "Tap or drag to choose the query pixel; tap the map to read a key pixel.";
    this.padNote.textContent = (this.touch.matches ? touched : state.frozen ? frozen : loose) + only;
    this.pad.setAttribute(
      "aria-label",
      `Query pixel ${pair(state.query)} of ${model.height} by ${model.width}; arrow keys move it, Enter freezes it`,
    );
    this.map.setAttribute("aria-label", `Map of layer ${state.layer}, head ${state.head}; arrow keys read its numbers`);
    this.status.textContent = this.notes.join(" ");
    if (model.epochs) {
      this.slider.value = state.moment;
      this.play.hidden = this.still.matches;
      this.epoch.textContent = `after epoch ${model.epochs[state.moment]} of ${model.epochs.at(-1)}`;
    }
  }

  /** What may wait until the pointer rests: each head's mass at its best shift, the address, the notebook. */
  rest() {
    this.cells.forEach((heads, layer) =>
      heads.forEach(({ text, button }, head) => {
        const best = this.model.bestShift(layer, head, this.state.part);
        if (!best) return;
        const [H] = text.textContent.split("\n"),
          flat = best.mass * this.model.height * this.model.width < 1.1, // every shift alike: rounding would choose
          [m, shift] = [best.mass.toFixed(2), flat ? "no best shift" : pair(best.shift)];
        text.textContent = `${H}\nm ${m}\n${shift}`;
        button.title = `entropy ${H.slice(2)} nats; mass ${m}, ${flat ? shift : `at the shift ${shift}`}`;
      }),
    );
    this.tellHost();
    this.notes = [];
  }

  playing(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.walk(), 1000 / Math.min(20, Math.max(4, this.model.epochs.length / 10))) : null;
    this.play.textContent = on ? "Pause" : "Play";
    if (on && this.state.moment === this.model.epochs.length - 1) this.change({ moment: 0 });
  }

  walk() {
    if (!this.root.isConnected || this.state.moment >= this.model.epochs.length - 1) return this.playing(false);
    this.change({ moment: this.state.moment + 1 });
  }

  drawing() {
    const { state, model } = this,
      heads = Math.max(...this.cells.map((cells) => cells.length)),
      cell = 60,
      ratio = model.height / model.width;
    const large = 300,
      step = cell * ratio + 66,
      below = 40 + large * ratio;
    const drawing = new Drawing(Math.max(2 * large + 60, 40 + heads * (cell + 6)), below + 90 + this.cells.length * step);
    const when = model.epochs ? this.epoch.textContent : this.untrained.hidden ? "as given" : "end of training",
      image = this.controls.image.selectedOptions[0].textContent;
    drawing.text(20, 26, `${this.entry().label}; ${this.entry().tier}; ${when}; ${image}`, 14);
    drawing.canvas(this.pad, 20, 40, large, large * ratio);
    drawing.canvas(this.map, 40 + large, 40, large, large * ratio);
    drawing.canvas(this.bar, 40 + large, below + 10, large, 10);
    drawing.text(40 + large, below + 34, this.values.range.map(show).join(" to "), 11);
    drawing.text(20, below + 34, `query ${pair(state.query)}`, 11);
    drawing.text(20, below + 52, this.mapNote.textContent, 11);
    this.cells.forEach((cells, layer) => {
      const y = below + 70 + layer * step,
        unit = cell / model.width;
      drawing.text(20, y + 10, `Layer ${layer + 1}`, 12);
      cells.forEach(({ canvas, text }, head) => {
        drawing.canvas(canvas, 20 + head * (cell + 6), y + 16, cell, cell * ratio);
        drawing.frame(20 + head * (cell + 6) + state.query[1] * unit, y + 16 + state.query[0] * unit, unit, unit);
        text.textContent
          .split("\n")
          .forEach((line, n) => drawing.text(20 + head * (cell + 6), y + 28 + cell * ratio + 11 * n, line, 9));
      });
    });
    drawing.text(20, drawing.height - 6, this.entry().source, 9);
    return drawing;
  }
}
