/** Scene 3, modes "where" and "what": the attention of a layer's heads, as clouds on the picture and one by one beside it. */
import { pair } from "../numerics/text.js";
import { box, element, framePixel, inkOn, setText } from "../shell/dom.js";
import { mapOf, percent } from "./state.js";

const FAINT = 0.04; // how strong the cloud of a head is that looks everywhere alike; others have 0.9
const DOT = 0.18; // of a query pixel's side: the radius of the dot where a head looks most
const NUMBERED = 8; // px of a dot's radius from which it has its head's number

const channelsOf = (color) => [1, 3, 5].map((n) => parseInt(color.slice(n, n + 2), 16));

/** The heads of a layer from one query pixel: where each looks, and whether it looks everywhere alike. */
export function headsAt(maps, alike, query, grid) {
  return alike.map((uniform, head) => {
    const map = mapOf(maps, head, query, grid);
    return { map, uniform, largest: Math.max(...map) };
  });
}

/** Where the maps of heads are largest, in words. */
const placeOf = ({ map, largest }, grid) => pair([Math.floor(map.indexOf(largest) / grid), map.indexOf(largest) % grid]);

export function looksSentence(heads, grid) {
  const places = heads.map((head, n) => `${n + 1} ${head.uniform ? "flat" : `at ${placeOf(head, grid)}`}`);
  return `Where the heads look most: ${places.join(", ")}.`;
}

/** Clouds of all heads on a picture's canvas, each as strong as the head's attention there, and a dot where it is strongest. */
export function drawClouds(canvas, heads, colors, query, grid) {
  const side = canvas.width,
    cell = side / grid,
    context = canvas.getContext("2d");
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(cloudsOf(heads, colors.map(channelsOf), grid), 0, 0, side, side);
  framePixel(context, query, cell, [side / 90, side / 220]);
  drawDots(context, heads, colors, cell, grid);
}

/** A dot where each head looks most; several in one place stand around its middle. */
function drawDots(context, heads, colors, cell, grid) {
  const places = new Map();
  heads.forEach(({ map, uniform, largest }, head) => {
    const at = map.indexOf(largest);
    if (!uniform) places.set(at, [...(places.get(at) ?? []), head]);
  });
  const radius = DOT * cell,
    numbered = radius / Math.min(2, devicePixelRatio) >= NUMBERED;
  for (const [at, there] of places)
    there.forEach((head, n) => {
      const angle = (2 * Math.PI * n) / there.length,
        away = there.length > 1 ? 0.3 : 0;
      const x = ((at % grid) + 0.5 + away * Math.sin(angle)) * cell,
        y = (Math.floor(at / grid) + 0.5 - away * Math.cos(angle)) * cell;
      drawDot(context, [x, y], radius, colors[head], numbered ? head + 1 : "");
    });
}

function drawDot(context, [x, y], radius, color, text) {
  context.setLineDash([]);
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  Object.assign(context, { fillStyle: color, strokeStyle: "#fff", lineWidth: radius / 5 });
  context.fill();
  context.stroke();
  const font = `bold ${1.3 * radius}px sans-serif`;
  Object.assign(context, { fillStyle: inkOn(color), font, textAlign: "center", textBaseline: "middle" });
  context.fillText(text, x, y + radius / 12);
}

/** One pixel for each key: the heads' colours, mixed by their strengths. */
function cloudsOf(heads, channels, grid) {
  const small = element("canvas", { width: grid, height: grid }),
    context = small.getContext("2d"),
    image = context.createImageData(grid, grid);
  for (let k = 0, to = 0; k < grid * grid; k++, to += 4) {
    let sum = 0,
      through = 1;
    const mixed = [0, 0, 0];
    heads.forEach(({ map, uniform, largest }, head) => {
      const strength = (uniform ? FAINT : 0.9) * (map[k] / largest);
      sum += strength;
      through *= 1 - strength;
      for (let c = 0; c < 3; c++) mixed[c] += strength * channels[head][c];
    });
    for (let c = 0; c < 3; c++) image.data[to + c] = sum ? mixed[c] / sum : 0;
    image.data[to + 3] = 255 * (1 - through);
  }
  context.putImageData(image, 0, 0);
  return small;
}

/** The heads of a layer one by one. */
export class HeadsPanel {
  constructor(entry, colors) {
    Object.assign(this, { colors, channels: colors.map(channelsOf) });
    const accuracy = `${entry.label}, trained from scratch: test accuracy ${percent(entry.accuracy, 1)}.`;
    this.count = element("p", {});
    this.cells = colors.map((color, head) => {
      const canvas = element("canvas", { "aria-hidden": "true" }),
        name = element("b", {}, `${head + 1}`),
        note = element("span", {}),
        words = element("span", { class: "network-words" });
      name.style.cssText = `background: ${color}; color: ${inkOn(color)}`;
      note.setAttribute("aria-hidden", "true"); // it is among the words
      return { node: element("li", {}, canvas, element("span", {}, name, note), words), canvas, note, words };
    });
    const list = element("ul", { "aria-label": "The nine heads of the layer" }, ...this.cells.map(({ node }) => node));
    this.node = box("network-heads", element("p", {}, accuracy), this.count, list);
  }

  show(heads, query, grid, sentence) {
    setText(this.count, sentence);
    this.cells.forEach(({ canvas, note, words }, head) => {
      const { map, uniform, largest } = heads?.[head] ?? {};
      setText(note, uniform ? "flat" : "");
      const looks = map && `looks most at ${placeOf(heads[head], grid)}, ${percent(largest)}`;
      setText(words, uniform ? "flat" : (looks ?? ""));
      drawMap(canvas, map, uniform ? 3 * largest : largest, this.channels[head], query, grid);
    });
  }
}

/** A map, from white to a head's colour at `full`, with the query framed. */
function drawMap(canvas, map, full, color, query, grid) {
  const cell = 16,
    side = grid * cell;
  if (canvas.width !== side) Object.assign(canvas, { width: side, height: side });
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, side, side);
  if (!map) return;
  map.forEach((p, k) => {
    context.fillStyle = `rgb(${color.join(" ")} / ${Math.min(1, p / full)})`;
    context.fillRect((k % grid) * cell, Math.floor(k / grid) * cell, cell, cell);
  });
  framePixel(context, query, cell, [3, 1]);
}
