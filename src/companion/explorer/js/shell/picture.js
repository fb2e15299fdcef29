/** The picture of the stage: pixels drawn large, a pointer over them, and a seam between its two sides. */
import { clamp } from "../numerics/text.js";
import { box, element, pointing, setText } from "./dom.js";

/** What a scene sets: `on.point(pixel, how)` with how = hover, touch or key, `on.pin(pixel)`, `on.leave()`, `on.seam(share)`. */
export class StagePicture {
  constructor() {
    this.on = {};
    this.size = [1, 1];
    this.pixel = [0, 0]; // from which the arrow keys go on
    this.canvas = element("canvas", { class: "stage-pixels" });
    this.sides = [0, 1].map((side) => element("span", { class: `stage-side stage-side-${side}`, "aria-hidden": "true" }));
    this.seam = element("div", {
      class: "stage-seam",
      tabindex: 0,
      role: "slider",
      "aria-orientation": "horizontal",
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    });
    this.node = box("stage-picture", this.canvas, ...this.sides, this.seam);
    const size = () => this.size;
    pointing(
      this.canvas,
      size,
      () => (this.canvas.hasAttribute("tabindex") ? this.pixel : null),
      (pixel, how) => {
        if (how !== "hover") this.pixel = pixel; // keys may come faster than frames
        this.on.point?.(pixel, how);
      },
      (pixel) => {
        this.pixel = pixel;
        this.on.pin?.(pixel);
      },
    );
    this.canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.on.leave?.());
    this.followSeam();
  }

  /** Whether a pixel of the picture can be chosen; else it is only to be looked at. */
  offerPixels(offered) {
    this.canvas.setAttribute("role", offered ? "application" : "img");
    if (offered) this.canvas.tabIndex = 0;
    else this.canvas.removeAttribute("tabindex");
  }

  followSeam() {
    const { seam } = this;
    seam.addEventListener("pointerdown", (event) => {
      seam.setPointerCapture(event.pointerId);
      const { left, width } = seam.getBoundingClientRect();
      this.grip = event.clientX - left - width / 2;
    });
    seam.addEventListener("pointermove", (event) => {
      if (!seam.hasPointerCapture(event.pointerId)) return;
      const { left, width } = this.canvas.getBoundingClientRect();
      this.on.seam?.(clamp((event.clientX - this.grip - left) / width, 0, 1));
    });
    seam.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: this.share - 0.05, ArrowRight: this.share + 0.05, Home: 0, End: 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.share = clamp(to, 0, 1);
      this.on.seam?.(this.share);
    });
  }

  /** Show the seam at a share of the width, or none. `names`: of the two sides. `strength`: how visible its line is. */
  placeSeam(share, names, strength) {
    this.share = share;
    this.seam.hidden = share === null;
    this.node.style.setProperty("--seam", share ?? 0.5);
    this.seam.style.setProperty("--strength", strength);
    this.sides.forEach((side, n) => {
      setText(side, names[n]);
      side.hidden = share === null;
    });
    this.seam.setAttribute("aria-valuenow", Math.round(100 * share));
    this.seam.setAttribute("aria-valuetext", `${names[0]} on the left ${Math.round(100 * share)} % of the picture`);
    this.seam.setAttribute("aria-label", `Seam between ${names.join(" and ")}`);
  }

  /** Draw height x width x 3 numbers, black at `low` and white at `high`: the first from the left up to column `from`, then the
   *  second. */
  paint(left, right, [height, width], [low, high], from) {
    const { canvas } = this;
    this.size = [height, width];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d"),
      image = context.createImageData(width, height),
      scale = 255 / (high - low || 1);
    for (let k = 0, n = 0, to = 0; k < height * width; k++, to += 4) {
      const values = k % width < from ? left : right;
      for (let channel = 0; channel < 3; channel++, n++) image.data[to + channel] = (values[n] - low) * scale; // clamped and rounded
      image.data[to + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }
}
