/** What leads from the output pixel to where the heads look: a beam for each head, as wide as its cloud, which narrows to a line. */
import { element } from "./dom.js";
import { SPAN } from "./plane.js";

export class Beams {
  constructor() {
    this.canvas = element("canvas", { class: "stage-beams" });
  }

  /** `from`: [x, y] in px of this canvas' element, around a pixel `size` px wide; `ends`: for each head `{x, y, radius, color,
   *  weak}`; `block`: how many pixels of the picture are framed around it. */
  draw(from, size, ends, block) {
    const scale = Math.min(2, devicePixelRatio),
      [width, height] = [this.box.width, this.box.height].map((x) => Math.round(x * scale));
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    for (const end of ends) if (end.radius > 4 && !end.weak) drawCone(context, from, end);
    for (const end of ends) drawLine(context, from, end);
    for (const [side, color, width] of [
      [block * size, "#000", 3],
      [block * size, "#fff", 1.5],
      [size + 3, "#000", 3],
      [size + 3, "#fff", 1.5],
    ]) {
      Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: 1 });
      context.setLineDash([]);
      context.strokeRect(from[0] - side / 2, from[1] - side / 2, side, side);
    }
  }
}

/** Beams of a stage from a pixel of its picture to the heads on its plane; `heads`: `{center, sigma, color, weak}`, in pixels. */
export function leadBeams({ picture, plane, beams }, [row, column], heads) {
  const [height, width] = picture.size,
    cell = picture.box.width / width,
    pixel = plane.box.width / SPAN;
  const from = [picture.box.x + (column + 0.5) * cell, picture.box.y + ((row + 0.5) / height) * picture.box.height];
  const ends = heads.map(({ center: [i, j], sigma, color, weak }) => ({
    x: plane.box.x + (j + SPAN / 2) * pixel,
    y: plane.box.y + (i + SPAN / 2) * pixel,
    radius: sigma * pixel,
    color,
    weak,
  }));
  beams.draw(from, cell, ends, 3);
}

function drawCone(context, [x, y], end) {
  const [dx, dy] = [end.x - x, end.y - y],
    length = Math.hypot(dx, dy) || 1,
    [nx, ny] = [(-dy / length) * end.radius, (dx / length) * end.radius];
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(end.x + nx, end.y + ny);
  context.lineTo(end.x - nx, end.y - ny);
  const fading = context.createLinearGradient(x, y, end.x, end.y);
  fading.addColorStop(0, `${end.color}70`);
  fading.addColorStop(1, `${end.color}00`);
  Object.assign(context, { fillStyle: fading, globalAlpha: 1 });
  context.fill();
}

function drawLine(context, [x, y], end) {
  context.setLineDash(end.weak ? [2, 5] : []);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(end.x, end.y);
  const opacity = Math.max(0.25, Math.min(1, 1.15 - end.radius / 60));
  for (const [color, width, share] of [
    ["#fff", 4, 0.55],
    [end.color, 2, 1],
  ]) {
    Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: share * opacity });
    context.stroke();
  }
}
