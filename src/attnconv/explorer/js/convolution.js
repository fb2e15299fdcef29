/** The view of a convolution, and of nine heads that become it. */
import { SHIFTS, attend, attendPadded, convolve, largestDifference } from "./numbers.js";
import { bytesOf } from "./files.js";
import {
  ARROWS,
  Drawing,
  box,
  choice,
  clamp,
  colorsOf,
  element,
  greys,
  labelled,
  paint,
  pair,
  shape,
  show,
  valuesOf,
} from "./dom.js";
import { keeping, numbersOf } from "./view.js";
import { KERNELS, LayerView, alphaText, kernelText, nameOf, openLayer } from "./layer.js";

export const PANELS = ["The image X", "Convolution", "Self-attention, nine heads", "Attention − convolution"];
export const PLANE = [
  "Where the heads look, as a shift from the query pixel (the square). Drag a centre, or choose it and use the arrow keys;",
  "the circle has the radius of one standard deviation.",
].join(" ");
export const REACH = 3; // pixels that a head's centre may be dragged from the query

export class ConvolutionView extends LayerView {
  constructor(root, data, host) {
    super(root, data, host, data.convolution);
    this.signed = colorsOf(bytesOf(data.colors.signed));
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
    this.root.replaceChildren(box("explorer-controls", ...choices), this.status, this.result, pair, this.keep);
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
      const limited = center.map((x) => +clamp(x, -REACH, REACH).toFixed(2));
      this.change({ centers: this.state.centers.map((other, n) => (n === head ? limited : other)) });
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
    const layer = openLayer(this, wanted, { kernel: KERNELS["Sobel, vertical edges"], alpha: 2 });
    const flat = numbersOf(wanted.centers, 18);
    if (wanted.centers && !flat) this.say("The link's centres are not nine pairs of numbers.");
    const centers = flat
      ? SHIFTS.map((_, head) => flat.slice(2 * head, 2 * head + 2).map((x) => clamp(x, -REACH, REACH)))
      : SHIFTS;
    this.state = {
      ...layer,
      centers,
      border: wanted.border === "as it is" ? "as it is" : "padded",
      difference: wanted.difference === "own" ? "own" : "convolution",
    };
    this.draw();
  }

  address() {
    const { image, kernel, alpha, border, centers, difference } = this.state;
    const moved = centers.some((center, head) => center.some((x, axis) => x !== SHIFTS[head][axis]));
    return { image, kernel: kernelText(kernel), alpha, border, difference, centers: moved ? centers.join(",") : undefined };
  }

  change(patch) {
    Object.assign(this.state, patch);
    this.draw();
  }

  draw() {
    const { state, data } = this,
      { image, kernel, alpha, centers, border } = state;
    const { height, width } = data.images[image],
      X = valuesOf(data.images[image]);
    const convolution = convolve(X, height, width, kernel);
    const attention = (border === "padded" ? attendPadded : attend)(X, height, width, centers, alpha, kernel);
    const difference = attention.map((value, q) => value - convolution[q]);
    const { inside, border: frame } = largestDifference(attention, convolution, height, width);
    const low = Math.min(...convolution),
      high = Math.max(...convolution);
    const limit = (state.difference === "own" ? Math.max(inside, frame) : Math.max(high, -low)) || 1;
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
      border,
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
