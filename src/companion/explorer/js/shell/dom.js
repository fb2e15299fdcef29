/** The page: elements, colours, pictures, what the keyboard and the pointer do. */
import { clamp } from "../numerics/text.js";

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const box = (name, ...children) => element("div", { class: name }, ...children);

export const button = (text, act) => element("button", { type: "button", onclick: act }, text);

/** Give an element a text, unless it has it. A text node that stays is laid out alone; a new one makes the browser measure
 *  everything around it again. */
export function setText(node, text) {
  if (node.textContent === text) return;
  const { firstChild } = node;
  if (firstChild?.nodeType === Node.TEXT_NODE && node.childNodes.length === 1) firstChild.data = text;
  else node.textContent = text;
}

/** A labelled control; named outright, since a name taken from around a list of choices would have the choices in it. */
export function labelled(text, control) {
  control.setAttribute("aria-label", text);
  return element("label", {}, element("span", {}, text), control);
}

/** A drop-down list of `[value, text]` or `[value, text, group]`. */
export function choice(name, changed) {
  const select = element("select", { name, onchange: () => changed(select.value) });
  select.offer = (options, value) => {
    const groups = new Map();
    select.replaceChildren();
    for (const [key, text, group] of options) {
      if (group && !groups.has(group)) groups.set(group, select.appendChild(element("optgroup", { label: group })));
      (groups.get(group) ?? select).append(element("option", { value: key }, text));
    }
    select.value = value;
  };
  return select;
}

/** 256 colours, three bytes each, as canvases keep them. */
export function colorsOf(bytes) {
  return Uint32Array.from(
    { length: 256 },
    (_, n) => (255 << 24) | (bytes[3 * n + 2] << 16) | (bytes[3 * n + 1] << 8) | bytes[3 * n],
  );
}

/** One pixel of canvas for each number; `colors` go from `low` to `high`. */
export function paint(canvas, values, height, width, low, high, colors) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"),
    image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let k = 0; k < values.length; k++) {
    const share = high > low ? (values[k] - low) / (high - low) : Number(values[k] >= high);
    pixels[k] = colors[share > 0 ? Math.min(255, Math.floor(256 * share)) : 0]; // not a number: as the lowest
  }
  context.putImageData(image, 0, 0);
}

/** A picture of the data, `channels` bytes a pixel, as a canvas. */
export function canvasOf({ height, width, channels }, bytes) {
  const canvas = element("canvas", { width, height });
  const context = canvas.getContext("2d"),
    image = context.createImageData(width, height);
  for (let k = 0; k < height * width; k++) {
    for (let c = 0; c < 3; c++) image.data[4 * k + c] = bytes[channels * k + (channels === 3 ? c : 0)];
    image.data[4 * k + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A frame around a pixel of a canvas whose pixels are `cell` wide, in lines of these widths: black, with white on it. */
export function framePixel(context, [row, column], cell, [outer, inner], dashes = []) {
  context.setLineDash(dashes);
  for (const [color, line] of [
    ["#000", outer],
    ["#fff", inner],
  ]) {
    Object.assign(context, { strokeStyle: color, lineWidth: line });
    context.strokeRect(column * cell, row * cell, cell, cell);
  }
}

/** Black or white, whichever has the larger contrast with a colour: at least 4.58. */
export function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((n) => {
    const share = parseInt(color.slice(n, n + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

/** A disc with a number in it on a canvas. */
export function drawDisc(context, [x, y], radius, { color, line, font }, number) {
  context.setLineDash([]);
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  Object.assign(context, { fillStyle: color, strokeStyle: "#fff", lineWidth: line });
  context.fill();
  context.stroke();
  Object.assign(context, { fillStyle: inkOn(color), font, textAlign: "center", textBaseline: "middle" });
  context.fillText(number, x, y);
}

/** A picture to keep: text and canvases placed on white, as SVG; a PNG is made of the SVG. */
export class Drawing {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [] });
  }
  text(x, y, text, size = 12) {
    this.parts.push(`<text x="${x}" y="${y}" font-size="${size}">${text.replace(/&/g, "&amp;").replace(/</g, "&lt;")}</text>`);
  }
  canvas(canvas, x, y, width, height) {
    this.parts.push(
      `<image x="${x}" y="${y}" width="${width}" height="${height}" preserveAspectRatio="none" style="image-rendering: pixelated" href="${canvas.toDataURL()}"/>`,
    );
  }
  frame(x, y, width, height) {
    for (const [color, line] of [
      ["#000", 2],
      ["#fff", 0.8],
    ]) {
      this.parts.push(
        `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="none" stroke="${color}" stroke-width="${line}"/>`,
      );
    }
  }
  toString() {
    return (
      `<svg xmlns="${SVG}" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="sans-serif">` +
      `<rect width="100%" height="100%" fill="#fff"/>${this.parts.join("")}</svg>`
    );
  }
}

function save(name, blob) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export async function saveDrawing(drawing, name, kind) {
  const svg = new Blob([String(drawing)], { type: "image/svg+xml" });
  if (kind === "svg") return save(`${name}.svg`, svg);
  const image = new Image(),
    url = URL.createObjectURL(svg),
    scale = 2;
  image.src = url;
  await image.decode();
  const canvas = element("canvas", { width: scale * drawing.width, height: scale * drawing.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
}

export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

const TAP = 8; // px that a finger may move in a tap

/** What a finger or a pen does: `act(event)` on a tap, and all along a movement to the side. Up and down it scrolls the page. */
function following(node, act) {
  let down = null; // where it went down
  const on = (kind, does) =>
    node.addEventListener(kind, (event) => event.pointerType !== "mouse" && event.isPrimary && does(event));
  on("pointerdown", ({ clientX, clientY }) => (down = { x: clientX, y: clientY, aside: false }));
  on("pointermove", (event) => {
    if (!down) return;
    const [x, y] = [event.clientX - down.x, event.clientY - down.y].map(Math.abs);
    down.aside ||= x > TAP && x > y;
    if (down.aside) act(event);
  });
  on("pointerup", (event) => {
    if (down && !down.aside && Math.hypot(event.clientX - down.x, event.clientY - down.y) < TAP) act(event);
    down = null;
  });
  on("pointercancel", () => (down = null)); // the page scrolls
}

/** Pointer, touch and arrow keys on a canvas or drawing of `size()` pixels; `moved(pixel, how)` with how = hover, touch, key.
 *  `current()`: the pixel from which keys go on; none leaves them to the page. */
export function pointing(node, size, current, moved, pressed) {
  const pixelAt = (event) => {
    const box = node.getBoundingClientRect(),
      [height, width] = size();
    const at = (offset, length, count) => clamp(Math.floor((offset / length) * count), 0, count - 1);
    return [at(event.clientY - box.top, box.height, height), at(event.clientX - box.left, box.width, width)];
  };
  node.addEventListener("pointermove", (event) => event.pointerType === "mouse" && moved(pixelAt(event), "hover"));
  node.addEventListener("pointerdown", (event) => event.pointerType === "mouse" && pressed(pixelAt(event)));
  following(node, (event) => moved(pixelAt(event), "touch"));
  node.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key],
      from = current();
    if (!from) return;
    if (!step && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (!step) return pressed(from);
    const limits = size();
    moved(
      from.map((n, axis) => clamp(n + step[axis], 0, limits[axis] - 1)),
      "key",
    );
  });
}
