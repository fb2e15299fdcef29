/** The plane of offsets: what lies around a pixel, the kernel's nine pixels in it, and where each head looks, as a disc to move. */
import { SHIFTS } from "../numerics/numbers.js";
import { ARROWS, box, element, inkOn } from "./dom.js";
import { REACH } from "../heads/state.js";

export const SPAN = 2 * REACH + 1; // pixels across
const CLOUDS = 14; // of the clouds' canvas, for each pixel of the plane
const GRAB = 26; // px from a disc's centre within which a pointer takes it

/** What a scene sets: `on.grab(head)`, `on.move(head, center)` and `on.drop(head)` by the pointer, `on.choose(head)`,
 *  `on.nudge(head, by)` and `on.home(head)` by keys. */
export class Plane {
  constructor(colors) {
    Object.assign(this, { colors, on: {}, chosen: 4, held: null });
    this.canvas = element("canvas");
    this.clouds = element("canvas", { width: SPAN * CLOUDS, height: SPAN * CLOUDS });
    this.discs = SHIFTS.map((_, head) => {
      const disc = element("div", { class: "stage-disc", "aria-hidden": "true" }, element("span", {}, `${head + 1}`));
      disc.firstChild.style.cssText = `background: ${colors[head]}; color: ${inkOn(colors[head])}`;
      return disc;
    });
    this.hint = element("span", { class: "stage-hint", "aria-hidden": "true" });
    this.node = box("stage-plane", this.canvas, this.hint, ...this.discs);
    this.node.tabIndex = 0;
    this.node.setAttribute("role", "application");
    this.followPointer();
    this.node.addEventListener("keydown", (event) => this.key(event));
  }

  /** The offset [row, column] of a place on the screen. */
  offsetAt({ clientX, clientY }) {
    const { left, top, width, height } = this.node.getBoundingClientRect();
    return [((clientY - top) / height - 0.5) * SPAN, ((clientX - left) / width - 0.5) * SPAN];
  }

  followPointer() {
    const { node } = this;
    let grip;
    node.addEventListener("pointerdown", (event) => {
      const at = this.offsetAt(event),
        far = this.centers.map((center) => Math.hypot(center[0] - at[0], center[1] - at[1])),
        head = far.indexOf(Math.min(...far));
      if ((far[head] * node.clientWidth) / SPAN > GRAB) return;
      node.setPointerCapture(event.pointerId);
      this.chosen = this.held = head;
      grip = this.centers[head].map((x, axis) => x - at[axis]);
      this.on.grab?.(head);
    });
    node.addEventListener("pointermove", (event) => {
      if (this.held === null || !node.hasPointerCapture(event.pointerId)) return;
      const at = this.offsetAt(event);
      this.on.move?.(
        this.held,
        at.map((x, axis) => x + grip[axis]),
      );
    });
    for (const kind of ["pointerup", "pointercancel"])
      node.addEventListener(kind, () => {
        if (this.held === null) return;
        const head = this.held;
        this.held = null;
        this.on.drop?.(head);
      });
  }

  key(event) {
    const step = ARROWS[event.key],
      head = Number(event.key) - 1;
    if (SHIFTS[head] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      this.chosen = head;
      this.on.choose?.(head);
    } else if (event.key === "Home") this.on.home?.(this.chosen);
    else if (step) {
      const by = event.shiftKey ? 1 : 0.25;
      this.on.nudge?.(
        this.chosen,
        step.map((x) => by * x),
      );
    } else return;
    event.preventDefault();
  }

  /** Draw the plane. `patch`: SPAN x SPAN x 3 numbers from 0 to 1 around the pixel; `kernel`: its nine weights; `centers` and
   *  `sigma`, the standard deviation of the heads' clouds or of each head's, in pixels; `landed`: the kernel's pixels that have their
   *  head; `frames`: their colours. */
  draw({ patch, kernel, centers, sigma, landed, frames = this.colors }) {
    this.centers = centers;
    const { width } = this.box, // as it was measured: asked for between two discs, it would be laid out again for each
      side = Math.round(width * Math.min(2, devicePixelRatio)),
      cell = side / SPAN;
    if (this.canvas.width !== side) Object.assign(this.canvas, { width: side, height: side });
    const context = this.canvas.getContext("2d");
    for (let k = 0; k < SPAN * SPAN; k++) {
      const [x, y] = [k % SPAN, Math.floor(k / SPAN)].map((n) => Math.round(n * cell));
      context.fillStyle = `rgb(${[0, 1, 2].map((channel) => Math.round(255 * patch[3 * k + channel])).join()})`;
      context.fillRect(x, y, Math.ceil(cell), Math.ceil(cell));
    }
    this.drawClouds(sigma);
    context.imageSmoothingEnabled = true;
    context.drawImage(this.clouds, 0, 0, side, side);
    SHIFTS.forEach((delta, n) => drawPixel(context, delta, frames[n], cell, landed.includes(n)));
    this.discs.forEach((disc, head) => {
      const [y, x] = centers[head].map((offset) => ((offset + SPAN / 2) * width) / SPAN);
      disc.style.translate = `${x}px ${y}px`;
      disc.classList.toggle("stage-chosen", head === this.chosen);
      disc.classList.toggle("stage-weightless", !kernel[head]);
    });
  }

  /** Each head's Gaussian in its colour, coarse and then stretched: it is smooth. */
  drawClouds(sigma) {
    const context = this.clouds.getContext("2d");
    context.clearRect(0, 0, this.clouds.width, this.clouds.height);
    this.centers.forEach((center, head) => {
      const own = sigma[head] ?? sigma,
        radius = 3 * own * CLOUDS;
      if (own < 0.12) return;
      const [y, x] = center.map((offset) => (offset + SPAN / 2) * CLOUDS),
        gradient = context.createRadialGradient(x, y, 0, x, y, radius);
      for (let n = 0; n <= 6; n++) {
        const opacity = 0.75 * Math.exp(-0.5 * (n / 2) ** 2);
        gradient.addColorStop(
          n / 6,
          this.colors[head] +
            Math.round(255 * opacity)
              .toString(16)
              .padStart(2, "0"),
        );
      }
      context.fillStyle = gradient;
      context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
    });
  }
}

/** One pixel of the kernel: a frame in a colour, filled faintly when its head is there. */
function drawPixel(context, [i, j], color, cell, landed) {
  const [x, y] = [(j + REACH) * cell, (i + REACH) * cell],
    line = Math.max(2, cell / 14);
  for (const [stroke, width] of [
    ["#fff", line + 2 * devicePixelRatio],
    [color, line],
  ]) {
    Object.assign(context, { strokeStyle: stroke, lineWidth: width });
    context.strokeRect(x + line, y + line, cell - 2 * line, cell - 2 * line);
  }
  if (landed) {
    context.fillStyle = `${color}66`;
    context.fillRect(x + line, y + line, cell - 2 * line, cell - 2 * line);
  }
}
