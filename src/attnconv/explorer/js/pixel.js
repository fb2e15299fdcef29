/** The view of one pixel, shift by shift and head by head. */
import { pair, show } from "./text.js";
import { valuesOf } from "./files.js";
import { PixelState, alphaText, nameOf } from "./layer-state.js";
import { ARROWS, Drawing, box, element, labelled, shape } from "./dom.js";
import { View, keeping } from "./view.js";
import { layerControls } from "./layer.js";

export const STEP_SECONDS = 1.2;

export class PixelView extends View {
  constructor(root, data, host) {
    super(root, data, host, new PixelState(data));
    this.controls = layerControls(this);
    this.build();
  }

  build() {
    this.panels = ["Convolution, shift by shift", "Self-attention, head by head"].map((title, n) => {
      const role = n ? { role: "img" } : { role: "application", tabindex: 0 };
      return {
        title,
        note: element("figcaption"),
        svg: shape("svg", { viewBox: "0 0 420 250", class: "explorer-pixel", ...role }),
      };
    });
    const region = { class: "explorer-table", tabindex: 0, role: "region", "aria-label": "The nine steps in numbers" };
    this.table = element("div", region);
    this.keep = keeping("one-pixel", this);
    const figures = this.panels.map(({ title, svg, note }) =>
      element("figure", {}, element("p", { class: "explorer-title" }, title), svg, note),
    );
    const numbers = element("summary", {}, "The nine steps in numbers");
    const folded = element("details", { open: this.still.matches }, numbers, this.table);
    const above = [box("explorer-controls", ...this.controls.nodes), this.controls.status, this.buildSteps()];
    this.root.replaceChildren(...above, box("explorer-pair", ...figures), folded, this.keep);
    this.follow();
    const stop = () => {
      this.playing(false);
      this.draw();
    };
    this.still.addEventListener("change", stop, { signal: this.life.signal });
  }

  buildSteps() {
    const go = (step) => {
      this.playing(false);
      this.change({ step });
    };
    const button = (text, act) => element("button", { type: "button", onclick: act }, text);
    this.play = button("Play", () => this.playing(!this.timer));
    this.slider = element("input", { type: "range", min: 0, max: 9, oninput: () => go(+this.slider.value) });
    this.count = element("output");
    const [back, next] = [-1, 1].map((by) => button(by < 0 ? "Back" : "Next", () => go(this.state.step + by)));
    return box("explorer-steps", this.play, back, next, labelled("Step", this.slider), this.count);
  }

  /** The query pixel follows a click, a touch or the arrow keys on the convolution's image. */
  follow() {
    const { svg } = this.panels[0];
    const inside = (event) => event.target.closest("[data-pixel]")?.dataset.pixel.split(",").map(Number);
    svg.addEventListener("pointerdown", (event) => {
      const query = inside(event);
      if (query) this.change({ query });
    });
    svg.addEventListener("keydown", (event) => {
      const step = ARROWS[event.key];
      if (!step) return;
      event.preventDefault();
      this.change({ query: this.state.query.map((x, axis) => x + step[axis]) });
    });
  }

  open(wanted) {
    this.playing(false);
    this.state.open(wanted);
    this.controls.status.textContent = this.state.note;
    this.draw();
  }

  change(patch) {
    this.state.change(patch);
    this.draw();
  }

  playing(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.walk(), 1000 * STEP_SECONDS) : null;
    this.play.textContent = on ? "Pause" : "Play";
    if (on && this.state.step === 9) this.change({ step: 0 });
  }

  walk() {
    if (!this.root.isConnected || this.state.step >= 9) return this.playing(false);
    this.change({ step: this.state.step + 1 });
  }

  draw() {
    const terms = this.state.terms(),
      { step } = this.state,
      now = terms[step - 1];
    const marked = (n) => (step === 9 ? true : n === step - 1); // the still shows all nine at once
    this.panels.forEach((panel, side) => {
      panel.svg.replaceChildren(...this.grid(terms, side, marked), ...this.kernel(step), ...this.sum(now, side));
      panel.note.textContent = this.state.sentence(now, side);
      panel.svg.setAttribute(
        "aria-label",
        `${panel.title}. ${panel.note.textContent}${side ? "" : " Arrow keys move the query pixel."}`,
      );
    });
    this.play.hidden = this.still.matches;
    this.slider.value = step;
    this.count.textContent = `${step} of 9`;
    this.tabulate(terms);
    this.controls.update();
    this.tellHost();
  }

  /** The image with the query, and the key pixel or the head's map of this step. */
  grid(terms, side, marked) {
    const { image, query } = this.state,
      { height, width } = this.data.images[image],
      heads = this.data.colors.heads;
    const X = valuesOf(this.data.images[image]),
      cell = 250 / (2 + Math.max(height, width)),
      nodes = []; // a cell of margin around
    const square = ([r, c], attributes) =>
      shape("rect", { x: (1 + c) * cell, y: (1 + r) * cell, width: cell, height: cell, "pointer-events": "none", ...attributes });
    X.forEach((x, k) => {
      const pixel = [Math.floor(k / width), k % width],
        level = Math.round(255 * x);
      nodes.push(
        square(pixel, { fill: `rgb(${level}, ${level}, ${level})`, "data-pixel": pixel.join(","), "pointer-events": "all" }),
      );
    });
    for (const [color, line] of [
      ["#000", 4],
      ["#fff", 1.5],
    ])
      nodes.push(square(query, { fill: "none", stroke: color, "stroke-width": line }));
    terms.forEach((term, n) => {
      if (!marked(n)) return;
      const frame = (pixel, opacity, dashes) =>
        [
          ["#fff", 5],
          [heads[n], 3],
        ].forEach(([stroke, line]) =>
          nodes.push(
            square(pixel, { fill: "none", stroke, "stroke-width": line, "stroke-opacity": opacity, "stroke-dasharray": dashes }),
          ),
        );
      if (!side) {
        frame(term.key, 1, term.inside ? null : "4 3");
        if (!term.inside) nodes.push(this.letter((1.5 + term.key[1]) * cell, (1.5 + term.key[0]) * cell + 4, "0"));
      } else if (this.state.step < 9)
        term.map.forEach((p, k) => {
          if (p > 0.004) frame([Math.floor(k / width), k % width], Math.min(1, 0.1 + p ** 0.7));
        });
      else nodes.push(...this.disc(term, n, cell, width));
    });
    return nodes;
  }

  letter(x, y, text, fill = "currentColor") {
    return shape(
      "text",
      { x, y, "text-anchor": "middle", "font-size": 12, "font-weight": "bold", "pointer-events": "none", fill },
      text,
    );
  }

  /** A head of the whole: a numbered disc at the mean of where it looks. */
  disc({ map }, n, cell, width) {
    let row = 0,
      column = 0;
    map.forEach((p, k) => {
      row += p * Math.floor(k / width);
      column += p * (k % width);
    });
    const [x, y] = [(column + 1.5) * cell, (row + 1.5) * cell];
    return [
      shape("circle", {
        cx: x,
        cy: y,
        r: 8,
        fill: this.data.colors.heads[n],
        stroke: "#fff",
        "stroke-width": 1.5,
        "pointer-events": "none",
      }),
      this.letter(x, y + 4, n + 1, "#fff"),
    ];
  }

  /** The nine weights, this step's framed. */
  kernel(step) {
    return this.state.kernel.flatMap((weight, n) => {
      const x = 270 + 48 * (n % 3),
        y = 34 + 34 * Math.floor(n / 3),
        now = n === step - 1;
      return [
        shape("rect", {
          x,
          y,
          width: 44,
          height: 30,
          rx: 3,
          fill: now ? this.data.colors.heads[n] : "none",
          stroke: this.data.colors.heads[n],
          "stroke-width": 2,
        }),
        shape(
          "text",
          { x: x + 22, y: y + 20, "text-anchor": "middle", "font-size": 13, fill: now ? "#fff" : "currentColor" },
          show(+weight.toFixed(2)),
        ),
      ];
    });
  }

  /** The output pixel as it fills. */
  sum(now, side) {
    const total = now ? now.sums[side] : 0,
      reach = (sign) => this.state.kernel.reduce((sum, weight) => sum + Math.max(0, sign * weight), 0);
    const [low, high] = [-reach(-1), reach(1)],
      level = high > low ? Math.round((255 * (total - low)) / (high - low)) : 0;
    return [
      shape(
        "text",
        { x: 342, y: 26, "text-anchor": "middle", "font-size": 13, fill: "currentColor" },
        side ? "value of each head" : "weight of each shift",
      ),
      shape(
        "text",
        { x: 342, y: 246, "text-anchor": "middle", "font-size": 10, fill: "currentColor" },
        `black ${show(+low.toFixed(2))}, white ${show(+high.toFixed(2))}`,
      ),
      shape("rect", { x: 318, y: 164, width: 48, height: 48, fill: `rgb(${level}, ${level}, ${level})`, stroke: "currentColor" }),
      shape("text", { x: 342, y: 158, "text-anchor": "middle", "font-size": 13, fill: "currentColor" }, "output pixel q"),
      shape("text", { x: 342, y: 230, "text-anchor": "middle", "font-size": 14, fill: "currentColor" }, show(+total.toFixed(4))),
    ];
  }

  tabulate(terms) {
    const heads = ["step", "shift", "weight", "pixel", "sum, convolution", "head's average", "sum, attention"];
    const row = (tag, cells) =>
      element("tr", {}, ...cells.map((cell) => element(tag, tag === "th" ? { scope: "col" } : {}, cell)));
    const rows = terms.map(({ delta, weight, seen, sums }, n) =>
      row("td", [`${n + 1}`, pair(delta), show(+weight.toFixed(4)), show(seen[0]), show(sums[0]), show(seen[1]), show(sums[1])]),
    );
    this.table.replaceChildren(element("table", {}, element("thead", {}, row("th", heads)), element("tbody", {}, ...rows)));
  }

  drawing() {
    const drawing = new Drawing(900, 380),
      { image, kernel, alpha, query } = this.state;
    drawing.text(
      20,
      26,
      `${this.data.images[image].label}; kernel ${nameOf(kernel)}; ${alphaText(alpha)}; query ${pair(query)}`,
      14,
    );
    this.panels.forEach(({ title, svg, note }, n) => {
      drawing.text(20 + 440 * n, 52, title, 14);
      drawing.node(svg, 20 + 440 * n, 60, 420, 250);
      drawing.paragraph(20 + 440 * n, 328, note.textContent, 11, 70);
    });
    return drawing;
  }
}
