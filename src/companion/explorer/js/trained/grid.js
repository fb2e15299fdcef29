/** All layers and heads of a model, a small map each; one of them is chosen, by pointer or arrow keys. */
import { entropy } from "../numerics/numbers.js";
import { clamp } from "../numerics/text.js";
import { ARROWS, box, element, paint, setText } from "../shell/dom.js";

const WIDEST = 9; // heads in a row; a layer of more has two rows

export class HeadGrid {
  /** `choose({ layer, head })` is told of another choice. */
  constructor(colors, choose) {
    const label = "Heads; arrow keys choose another one";
    Object.assign(this, { colors, choose, chosen: { layer: 1, head: 1 }, cells: [] });
    this.node = element("div", { class: "explorer-grid", role: "toolbar", "aria-label": label });
    this.node.addEventListener("keydown", (event) => this.key(event));
  }

  build(model) {
    const cell = (layer, head) => {
      const canvas = element("canvas"),
        text = element("span"),
        map = element("span", { class: "explorer-cell" }, canvas);
      const name = { type: "button", "aria-label": `layer ${layer}, head ${head}`, onclick: () => this.choose({ layer, head }) };
      return { canvas, text, button: element("button", name, map, text) };
    };
    this.cells = model.layers.map((_, n) => Array.from({ length: model.heads(n) }, (_, head) => cell(n + 1, head + 1)));
    const rows = this.cells.map((cells, n) => {
      const title = element("p", { class: "explorer-title", "aria-hidden": "true" }, `Layer ${n + 1}`),
        row = box("explorer-row", ...cells.map(({ button }) => button));
      return element("div", { role: "group", "aria-label": `layer ${n + 1}` }, title, row);
    });
    this.node.replaceChildren(...rows);
    const most = Math.max(...this.cells.map((cells) => cells.length));
    this.node.style.setProperty("--heads", most > WIDEST ? Math.ceil(most / 2) : most);
    this.node.style.setProperty("--rows", model.height);
    this.node.style.setProperty("--columns", model.width);
  }

  key(event) {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const layer = clamp(this.chosen.layer + step[0], 1, this.cells.length),
      heads = this.cells[layer - 1],
      head = clamp(this.chosen.head + step[1], 1, heads.length);
    this.choose({ layer, head });
    heads[head - 1].button.focus();
  }

  /** Draw the maps of a query. What does not depend on it stays below them, or goes where it is `stale`. */
  draw(maps, { layer, head, query }, { height, width }, stale) {
    this.chosen = { layer, head };
    this.node.style.setProperty("--query-top", `${(100 * query[0]) / height}%`);
    this.node.style.setProperty("--query-left", `${(100 * query[1]) / width}%`);
    this.cells.forEach((cells, row) =>
      cells.forEach(({ canvas, text, button }, column) => {
        const { shown, range, probabilities } = maps[row][column],
          kept = stale ? [] : text.textContent.split("\n").slice(1),
          chosen = row === layer - 1 && column === head - 1;
        paint(canvas, shown, height, width, ...range, this.colors);
        setText(text, [`H ${entropy(probabilities).toFixed(2)}`, ...kept].join("\n"));
        button.setAttribute("aria-pressed", chosen);
        button.tabIndex = chosen ? 0 : -1; // one stop of the Tab key for all heads
      }),
    );
  }

  /** Add each head's mass at its best offset. `bestShift(layer, head)`: in words, from 0, or nothing. */
  tell(bestShift) {
    this.cells.forEach((cells, layer) =>
      cells.forEach(({ text, button }, head) => {
        const best = bestShift(layer, head);
        if (!best) return;
        const [H] = text.textContent.split("\n");
        setText(text, [H, `m ${best.mass}`, best.shift ?? "none"].join("\n"));
        button.title = `entropy ${H.slice(2)} nats; mass ${best.mass}, ${best.shift ? `at the offset ${best.shift}` : "no best offset"}`;
      }),
    );
  }
}
