/** The view of a convolution, and of nine heads that become it. */
import { SHIFTS } from "./numbers.js";
import { pair, show } from "./text.js";
import { bytesOf } from "./files.js";
import { ConvolutionState, REACH, alphaText, nameOf } from "./layer-state.js";
import { ARROWS, Drawing, box, choice, colorsOf, element, greys, labelled, paint, shape } from "./dom.js";
import { View, keeping } from "./view.js";
import { layerControls } from "./layer.js";

export const PANELS = ["The image X", "Convolution", "Self-attention, nine heads", "Attention − convolution"];
export const PLANE = [
  "Where the heads look, as a shift from the query pixel (the square). Drag a centre, or choose it and use the arrow keys;",
  "the circle has the radius of one standard deviation.",
].join(" ");

export class ConvolutionView extends View {
  constructor(root, data, host) {
    super(root, data, host, new ConvolutionState(data));
    this.signed = colorsOf(bytesOf(data.colors.signed));
    this.controls = layerControls(this);
    this.build();
  }

  build() {
    this.border = choice("border", (border) => this.change({ border }));
    this.difference = choice("difference", (difference) => this.change({ difference }));
    this.panels = PANELS.map((title) => ({ title, canvas: element("canvas", { role: "img" }), note: element("figcaption") }));
    this.result = element("p", { class: "explorer-result" });
    this.keep = keeping("convolution", this);
    const choices = [...this.controls.nodes, labelled("Border", this.border), labelled("Difference", this.difference)];
    const pictures = this.panels.map(({ canvas, note }) => element("figure", {}, canvas, note));
    const pair = box("explorer-pair explorer-wide", this.buildPlane(), box("explorer-panels", ...pictures));
    this.root.replaceChildren(box("explorer-controls", ...choices), this.controls.status, this.result, pair, this.keep);
  }

  /** The plane of shifts, with the heads' centres to drag. */
  buildPlane() {
    const span = 2 * REACH + 1;
    const label = "The shifts around the query pixel, with the centres of the nine heads";
    const viewBox = `${-span / 2} ${-span / 2} ${span} ${span}`;
    this.pad = shape("svg", { class: "explorer-shifts", viewBox, role: "img", "aria-label": label });
    this.handles = SHIFTS.map((_, head) => this.handle(head));
    const back = element(
      "button",
      { type: "button", onclick: () => this.change({ centers: SHIFTS }) },
      "Centres back to the grid",
    );
    return element("figure", {}, box("explorer-drag", this.pad, ...this.handles), element("figcaption", {}, PLANE), back);
  }

  /** The button that stands for a head's centre. */
  handle(head) {
    const button = element("button", { type: "button", class: "explorer-handle" }, `${head + 1}`);
    const place = (center) => {
      this.state.place(head, center);
      this.draw();
    };
    const at = (event) => {
      const box = this.pad.getBoundingClientRect(),
        span = 2 * REACH + 1;
      return [
        ((event.clientY - box.top) / box.height) * span - span / 2,
        ((event.clientX - box.left) / box.width) * span - span / 2,
      ];
    };
    button.addEventListener("pointerdown", (event) => button.setPointerCapture(event.pointerId));
    button.addEventListener("pointermove", (event) => button.hasPointerCapture(event.pointerId) && place(at(event)));
    button.addEventListener("pointerup", () => {
      const near = (x) => (Math.abs(x - Math.round(x)) < 0.15 ? Math.round(x) : x); // a pixel is easy to hit again
      place(this.state.centers[head].map(near));
    });
    button.addEventListener("keydown", (event) => {
      const step = ARROWS[event.key];
      if (!step) return;
      event.preventDefault();
      place(this.state.centers[head].map((x, axis) => x + step[axis] * (event.shiftKey ? 1 : 0.25)));
    });
    return button;
  }

  open(wanted) {
    this.state.open(wanted);
    this.controls.status.textContent = this.state.note;
    this.draw();
  }

  change(patch) {
    this.state.change(patch);
    this.draw();
  }

  draw() {
    const { state } = this,
      { height, width, X, convolution, attention, difference, inside, frame, low, high, limit } = state.result();
    const scales = [
      [X, 0, 1, greys],
      [convolution, low, high, greys],
      [attention, low, high, greys],
      [difference, -limit, limit, this.signed],
    ];
    this.panels.forEach(({ title, canvas, note }, n) => {
      const [values, from, to, colors] = scales[n];
      paint(canvas, values, height, width, from, to, colors);
      note.textContent =
        n < 3
          ? `${title}: ${show(from)} (black) to ${show(to)} (white)`
          : `${title}: ${show(from)} (brown), 0 (white), ${show(to)} (violet)`;
      canvas.setAttribute("aria-label", note.textContent);
    });
    const range = `the convolution goes from ${show(low)} to ${show(high)}`;
    this.result.textContent = `Largest difference: ${show(inside)} inside, ${show(frame)} in the frame of border pixels (${range}).`;
    this.controls.update();
    this.border.offer(
      [
        ["padded", "zeros around the image, then cropped"],
        ["as it is", "as it is: heads look at the nearest pixel"],
      ],
      state.border,
    );
    this.difference.offer(
      [
        ["convolution", "on the convolution's scale"],
        ["own", "stretched to its own range"],
      ],
      state.difference,
    );
    this.drawShifts();
    this.tellHost();
  }

  /** The plane of shifts: pixels, the heads' widths, and the handles over it. */
  drawShifts() {
    const { centers, alpha, kernel } = this.state,
      heads = this.data.colors.heads,
      span = 2 * REACH + 1;
    const pixels = Array.from({ length: span * span }, (_, n) => [Math.floor(n / span) - REACH, (n % span) - REACH]);
    const sigma = 1 / Math.sqrt(2 * alpha),
      rings = sigma < 2 * REACH ? centers : []; // wider ones would not be seen as rings
    this.pad.replaceChildren(
      ...pixels.map(([i, j]) =>
        shape("rect", { x: j - 0.5, y: i - 0.5, width: 1, height: 1, fill: "#fff", stroke: "#bbb", "stroke-width": 0.02 }),
      ),
      shape("rect", { x: -0.5, y: -0.5, width: 1, height: 1, fill: "none", stroke: "#000", "stroke-width": 0.08 }),
      ...rings.map(([i, j], head) =>
        shape("circle", {
          cx: j,
          cy: i,
          r: sigma,
          fill: heads[head],
          "fill-opacity": 0.08,
          stroke: heads[head],
          "stroke-width": 0.03,
        }),
      ),
    );
    this.handles.forEach((button, head) => {
      const [i, j] = centers[head];
      Object.assign(button.style, {
        top: `${(100 * (i + span / 2)) / span}%`,
        left: `${(100 * (j + span / 2)) / span}%`,
        background: heads[head],
      });
      button.setAttribute(
        "aria-label",
        `head ${head + 1}, centre ${pair(centers[head])}, value ${show(kernel[head])}; arrow keys move it`,
      );
    });
  }

  drawing() {
    const { height, width } = this.data.images[this.state.image],
      w = 300,
      h = (w * height) / width;
    const drawing = new Drawing(2 * w + 340, Math.max(360, 2 * h + 120));
    const { image, kernel, alpha, border, centers } = this.state,
      scale = 260 / (2 * REACH + 1),
      at = (x) => (x + REACH + 0.5) * scale;
    drawing.text(
      20,
      26,
      `${this.data.images[image].label}; kernel ${nameOf(kernel)} [${kernel.map(show).join(", ")}]; ${alphaText(alpha)}; border ${border}`,
      14,
    );
    this.panels.forEach(({ canvas, note }, n) => {
      const x = 20 + (n % 2) * (w + 20),
        y = 40 + Math.floor(n / 2) * (h + 30);
      drawing.canvas(canvas, x, y, w, h);
      drawing.text(x, y + h + 16, note.textContent, 10);
    });
    drawing.node(this.pad, 2 * w + 60, 40, 260, 260);
    centers.forEach(([i, j], head) => drawing.disc(2 * w + 60 + at(j), 40 + at(i), this.data.colors.heads[head], head + 1));
    drawing.text(2 * w + 60, 318, "Where the heads look, as a shift from the query", 10);
    drawing.text(20, drawing.height - 14, this.result.textContent, 11);
    return drawing;
  }
}
