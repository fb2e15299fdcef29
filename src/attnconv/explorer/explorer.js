/* The explorer: attention and convolution computed in the page. No framework, no other file, no other host.

Letters as in the paper: H x W pixels, N_h heads, q query and k key pixel, delta = k - q. A pixel is [row, column], from 0; an
image or a map is one array of H * W numbers, row by row. Layers and heads are counted from 1 where they are shown. */

// --- numbers: attention -----------------------------------------------------------------------------------------------

/** The smallest whole alpha at which a neighbour's weight e^-alpha is zero: `hard_alpha` of the package, in float64. */
export const HARD_ALPHA = Math.floor(Math.LN2 - Math.log(Number.MIN_VALUE)) + 1;

/** One layer's parameters at one moment of training, from a run record's tensors: `{heads, centers, alpha}` and so on. */
export function layerAt(tensors, number, moment) {
  const layer = { heads: 0 };
  for (const [key, { shape, data }] of Object.entries(tensors)) {
    if (!key.startsWith(`layer${number}.`)) continue;
    const size = shape.slice(1).reduce((product, n) => product * n, 1);
    layer[key.split(".")[1]] = data.subarray(moment * size, (moment + 1) * size);
    layer.heads = shape[1];
  }
  return layer;
}

/** A head's score as a function of the shift (i, j): equation (14), equation (19), or learned, section 4.3. */
function scoreOf(layer, head) {
  if (layer.row_scores) {
    const size = layer.row_scores.length / layer.heads,
      width = layer.column_scores.length / layer.heads;
    const rows = layer.row_scores.subarray(head * size),
      columns = layer.column_scores.subarray(head * width);
    return (i, j) => rows[i + (size >> 1)] + columns[j + (width >> 1)];
  }
  const [row, column] = layer.centers.subarray(2 * head, 2 * head + 2);
  if (layer.alpha) {
    const alpha = layer.alpha[head];
    return (i, j) => -alpha * ((i - row) ** 2 + (j - column) ** 2);
  }
  const [a, b, c, d] = layer.precision.subarray(4 * head, 4 * head + 4);
  return (i, j) => {
    const x = i - row,
      y = j - column;
    return -0.5 * (a * x * x + (b + c) * x * y + d * y * y);
  };
}

/** A head's scores for all shifts of an H x W image, (2H - 1) x (2W - 1) numbers from the most negative shift. */
export function scoresByShift(layer, head, height, width) {
  const table = new Float64Array((2 * height - 1) * (2 * width - 1));
  const score = scoreOf(layer, head);
  let n = 0;
  for (let i = 1 - height; i < height; i++) for (let j = 1 - width; j < width; j++) table[n++] = score(i, j);
  return table;
}

/** The scores of all key pixels for one query: the window of a table by shift that the image leaves. */
export function scoresFrom(table, [row, column], height, width) {
  const scores = new Float64Array(height * width),
    columns = 2 * width - 1;
  for (let i = 0; i < height; i++) {
    const start = (i - row + height - 1) * columns + (width - 1 - column);
    scores.set(table.subarray(start, start + width), i * width);
  }
  return scores;
}

export function softmax(scores) {
  let largest = -Infinity,
    sum = 0;
  for (const score of scores) if (score > largest) largest = score;
  const probabilities = new Float64Array(scores.length);
  for (let k = 0; k < scores.length; k++) sum += probabilities[k] = Math.exp(scores[k] - largest);
  for (let k = 0; k < scores.length; k++) probabilities[k] /= sum;
  return probabilities;
}

/** In nats: 0 for one pixel, ln(HW) for all alike. */
export function entropy(probabilities) {
  let sum = 0;
  for (const p of probabilities) if (p > 0) sum -= p * Math.log(p);
  return sum;
}

/** The mean probability of each shift, over the queries that have it inside the image: `maps.mean_by_shift` of the package. */
export function meanByShift(table, height, width) {
  const columns = 2 * width - 1,
    sum = new Float64Array(table.length),
    count = new Float64Array(table.length);
  const largest = table.reduce((a, b) => Math.max(a, b)),
    weights = table.map((score) => Math.exp(score - largest));
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++) {
      let p = scoresFrom(weights, [row, column], height, width);
      const Z = p.reduce((a, b) => a + b);
      p = Z > 1e-200 ? p.map((weight) => weight / Z) : softmax(scoresFrom(table, [row, column], height, width));
      for (let i = 0, k = 0; i < height; i++)
        for (let j = 0; j < width; j++, k++) {
          const shift = (i - row + height - 1) * columns + j - column + width - 1;
          sum[shift] += p[k];
          count[shift] += 1;
        }
    }
  return sum.map((value, shift) => value / count[shift]);
}

/** The largest mean probability of a shift up to half the image, and that shift: `Heads.mass` and `.shifts` of the package. */
export function bestShift(byShift, height, width) {
  const up = height >> 1,
    left = width >> 1;
  let best = { mass: -1, shift: [0, 0] };
  for (let i = -up; i <= up; i++)
    for (let j = -left; j <= left; j++) {
      const mass = byShift[(i + height - 1) * (2 * width - 1) + j + width - 1];
      if (mass > best.mass) best = { mass, shift: [i, j] };
    }
  return best;
}

// --- numbers: convolution, and convolution as attention ---------------------------------------------------------------

/** The shifts of a 3 x 3 kernel, row by row: Delta_K. */
export const SHIFTS = [-1, 0, 1].flatMap((i) => [-1, 0, 1].map((j) => [i, j]));

/** Equation (5) for one channel: the sum over the shifts of kernel[shift] * X[q + shift], zero outside the image. */
export function convolve(image, height, width, kernel) {
  const output = new Float64Array(height * width);
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++) {
      let sum = 0;
      SHIFTS.forEach(([i, j], n) => {
        const r = row + i,
          c = column + j;
        if (r >= 0 && r < height && c >= 0 && c < width) sum += kernel[n] * image[r * width + c];
      });
      output[row * width + column] = sum;
    }
  return output;
}

/** A quadratic head's attention along one axis: `size` rows, one a query, of `size` probabilities. */
export function axisProbabilities(center, alpha, size) {
  const maps = new Float64Array(size * size);
  for (let q = 0; q < size; q++) {
    const scores = Float64Array.from({ length: size }, (_, k) => -alpha * (k - q - center) ** 2);
    maps.set(softmax(scores), q * size);
  }
  return maps;
}

/** Equation (6) for one quadratic head and one channel: what it sees from every pixel, rows first, then columns. */
export function headAverages(image, height, width, [row, column], alpha) {
  const rows = axisProbabilities(row, alpha, height),
    columns = axisProbabilities(column, alpha, width);
  const byRows = new Float64Array(height * width),
    averages = new Float64Array(height * width);
  for (let q = 0; q < height; q++)
    for (let k = 0; k < height; k++) {
      const p = rows[q * height + k];
      if (p) for (let c = 0; c < width; c++) byRows[q * width + c] += p * image[k * width + c];
    }
  for (let q = 0; q < width; q++)
    for (let k = 0; k < width; k++) {
      const p = columns[q * width + k];
      if (p) for (let r = 0; r < height; r++) averages[r * width + q] += p * byRows[r * width + k];
    }
  return averages;
}

/** The layer: the sum over the heads of their value times what they see. */
export function attend(image, height, width, centers, alpha, values) {
  const output = new Float64Array(height * width);
  centers.forEach((center, head) => {
    if (!values[head]) return;
    headAverages(image, height, width, center, alpha).forEach((x, q) => {
      output[q] += values[head] * x;
    });
  });
  return output;
}

/** The paper's remedy for the border: a frame of zeros around the image, attention, and the frame's queries dropped. */
export function attendPadded(image, height, width, centers, alpha, values) {
  const padded = new Float64Array((height + 2) * (width + 2)),
    output = new Float64Array(height * width);
  for (let r = 0; r < height; r++) for (let c = 0; c < width; c++) padded[(r + 1) * (width + 2) + c + 1] = image[r * width + c];
  const whole = attend(padded, height + 2, width + 2, centers, alpha, values);
  for (let r = 0; r < height; r++) for (let c = 0; c < width; c++) output[r * width + c] = whole[(r + 1) * (width + 2) + c + 1];
  return output;
}

/** The largest absolute difference of two images: in the frame of border pixels, and inside it. */
export function largestDifference(a, b, height, width) {
  const largest = { inside: 0, border: 0 };
  for (let q = 0; q < a.length; q++) {
    const row = Math.floor(q / width),
      column = q % width;
    const where = row && column && row < height - 1 && column < width - 1 ? "inside" : "border";
    largest[where] = Math.max(largest[where], Math.abs(a[q] - b[q]));
  }
  return largest;
}

// --- files ------------------------------------------------------------------------------------------------------------

/** The checksum of zip and PNG. */
export function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ -1) >>> 0;
}

function half(bits) {
  const sign = bits >> 15 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 25) * (1024 + fraction) : sign * 2 ** -24 * fraction;
}

const READERS = {
  F16: (buffer) => Float32Array.from(new Uint16Array(buffer), half),
  F32: (buffer) => new Float32Array(buffer),
  I64: (buffer) => Int32Array.from(new BigInt64Array(buffer), Number),
};

/** A safetensors file: `{name: {shape, data}}`. Throws for anything else. */
export function readTensors(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const { __metadata__, ...entries } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const tensors = {};
  for (const [
    name,
    {
      dtype,
      shape,
      data_offsets: [start, end],
    },
  ] of Object.entries(entries)) {
    tensors[name] = { shape, data: READERS[dtype](bytes.slice(8 + length + start, 8 + length + end).buffer) };
  }
  return tensors;
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

const MEND = "Reload the page; if that does not help, build the book again.";

async function download(file) {
  if (location.protocol === "file:") {
    throw new Error(
      `${file.name} lies in a file of its own, which browsers do not load from a folder.` +
        " Read the book through a server: make serve.",
    );
  }
  let response;
  try {
    response = await fetch(file.url);
  } catch {
    throw new Error(`${file.name} could not be loaded: the server did not answer. ${MEND}`);
  }
  if (!response.ok) throw new Error(`${file.name} could not be loaded: the server answered ${response.status}. ${MEND}`);
  return new Uint8Array(await response.arrayBuffer());
}

const loaded = new Map();

/** The tensors of `{name, base64 or url, crc32}`, loaded once. Throws, with a message for the reader, when they are damaged. */
export async function load(file) {
  if (!loaded.has(file.crc32)) {
    const bytes = file.base64 === undefined ? await download(file) : bytesOf(file.base64);
    if (crc32(bytes) !== file.crc32) throw new Error(`${file.name} is damaged: it is not what this page was built with. ${MEND}`);
    loaded.set(file.crc32, readTensors(bytes));
  }
  return loaded.get(file.crc32);
}

// --- models: scores for a query, from a few numbers or from maps ------------------------------------------------------

/** A model whose attention depends on the shift alone: computed here, at any moment of its training. */
export class PositionModel {
  parts = ["score"]; // which is the position part
  queries = null; // every pixel may be the query

  constructor(entry, tensors) {
    [this.height, this.width] = entry.size;
    this.tensors = tensors;
    this.epochs = Array.from(tensors.epochs.data);
    const layers = Object.keys(tensors).filter((key) => key.includes("."));
    this.count = new Set(layers.map((key) => key.split(".")[0])).size;
    this.moveTo(this.epochs.length - 1);
  }

  moveTo(moment) {
    if (moment === this.moment) return;
    this.moment = moment;
    this.layers = Array.from({ length: this.count }, (_, n) => layerAt(this.tensors, n + 1, moment));
    this.tables = this.layers.map((layer) =>
      Array.from({ length: layer.heads }, (_, head) => scoresByShift(layer, head, this.height, this.width)),
    );
    this.best = this.tables.map(() => []);
  }

  heads(layer) {
    return this.layers[layer].heads;
  }

  scores(layer, head, query) {
    return scoresFrom(this.tables[layer][head], query, this.height, this.width);
  }

  /** Where a head's centre is, as a shift; undefined for encodings without centres. */
  center(layer, head) {
    return this.layers[layer].centers?.subarray(2 * head, 2 * head + 2);
  }

  bestShift(layer, head) {
    const known = this.best[layer];
    return (known[head] ??= bestShift(meanByShift(this.tables[layer][head], this.height, this.width), this.height, this.width));
  }
}

/** A model whose attention depends on the image: a file for each layer, of one image. */
export class ContentModel {
  epochs = null; // only the end of training is kept
  moveTo() {}
  center() {}

  constructor(entry, layers) {
    [this.height, this.width] = entry.size;
    this.layers = layers;
    this.best = entry.best;
    this.logarithms = !layers[0].content;
    this.parts = this.logarithms ? ["score"] : ["score", "position", "content"];
    const pairs = layers[0].queries.data;
    this.queries = Array.from({ length: pairs.length / 2 }, (_, n) => [pairs[2 * n], pairs[2 * n + 1]]);
  }

  heads(layer) {
    return (this.layers[layer].content ?? this.layers[layer].probabilities).shape[0];
  }

  scores(layer, head, query, part) {
    const { content, rows, columns, probabilities } = this.layers[layer],
      size = this.height * this.width;
    const n = head * this.queries.length + this.queries.findIndex(([i, j]) => i === query[0] && j === query[1]);
    if (probabilities) return Float64Array.from(probabilities.data.subarray(n * size, (n + 1) * size), Math.log);
    const scores = new Float64Array(size);
    for (let k = 0; k < size; k++) {
      if (part !== "position") scores[k] += content.data[n * size + k];
      if (part !== "content")
        scores[k] += rows.data[n * this.height + Math.floor(k / this.width)] + columns.data[n * this.width + (k % this.width)];
    }
    return scores;
  }

  /** Of the whole score, as the package has measured it over the test images. */
  bestShift(layer, head, part) {
    return part === "score" ? this.best?.[layer][head] : undefined;
  }
}

// --- the page: elements, colours, pictures ----------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

function shape(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

const box = (name, ...children) => element("div", { class: name }, ...children);

/** A labelled control; named outright, since a name taken from around a list of choices would have the choices in it. */
function labelled(text, control) {
  control.setAttribute("aria-label", text);
  return element("label", {}, element("span", {}, text), control);
}

/** A drop-down list of `[value, text]` or `[value, text, group]`. */
function choice(name, changed) {
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
function colorsOf(bytes) {
  return Uint32Array.from(
    { length: 256 },
    (_, n) => (255 << 24) | (bytes[3 * n + 2] << 16) | (bytes[3 * n + 1] << 8) | bytes[3 * n],
  );
}

/** One pixel of canvas for each number; `colors` go from `low` to `high`. */
function paint(canvas, values, height, width, low, high, colors) {
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
function canvasOf({ height, width, channels, base64 }) {
  const bytes = bytesOf(base64),
    canvas = element("canvas", { width, height });
  const context = canvas.getContext("2d"),
    image = context.createImageData(width, height);
  for (let k = 0; k < height * width; k++) {
    for (let c = 0; c < 3; c++) image.data[4 * k + c] = bytes[channels * k + (channels === 3 ? c : 0)];
    image.data[4 * k + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const greys = colorsOf(Uint8Array.from({ length: 768 }, (_, n) => Math.floor(n / 3)));

/** Numbers from 0 to 1 of a picture with one channel. */
function valuesOf({ base64 }) {
  return Float64Array.from(bytesOf(base64), (byte) => byte / 255);
}

/** A number in four digits or fewer. */
export function show(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value).replace("-", "−");
  const size = Math.abs(value);
  return (size >= 1e-3 && size < 1e5 ? String(+value.toPrecision(3)) : value.toExponential(1)).replace(/-/g, "−");
}

const pair = ([i, j]) => `(${show(+i.toFixed(2))}, ${show(+j.toFixed(2))})`;

/** A picture to keep: text and canvases placed on white, as SVG; a PNG is made of the SVG. */
class Drawing {
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
  disc(x, y, color, text) {
    this.parts.push(
      `<circle cx="${x}" cy="${y}" r="9" fill="${color}" stroke="#fff" stroke-width="1.5"/>` +
        `<text x="${x}" y="${y + 4}" font-size="11" font-weight="bold" fill="#fff" text-anchor="middle">${text}</text>`,
    );
  }
  /** Text in lines of up to `count` letters, broken between words. */
  paragraph(x, y, text, size, count) {
    const lines = [""];
    for (const word of text.split(" ")) {
      if (lines.at(-1).length + word.length > count) lines.push("");
      lines[lines.length - 1] += `${word} `;
    }
    lines.forEach((line, n) => this.text(x, y + 1.3 * size * n, line, size));
  }
  node(node, x, y, width, height) {
    const copy = node.cloneNode(true);
    for (const [name, value] of Object.entries({ x, y, width, height, color: "#000" })) copy.setAttribute(name, value);
    this.parts.push(new XMLSerializer().serializeToString(copy));
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

async function saveDrawing(drawing, name, kind) {
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

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Pointer, touch and arrow keys on a canvas or drawing of `size()` pixels; `moved(pixel, how)` with how = hover, touch, key. */
function pointing(node, size, current, moved, pressed) {
  const pixelAt = (event) => {
    const box = node.getBoundingClientRect(),
      [height, width] = size();
    const at = (offset, length, count) => clamp(Math.floor((offset / length) * count), 0, count - 1);
    return [at(event.clientY - box.top, box.height, height), at(event.clientX - box.left, box.width, width)];
  };
  node.addEventListener("pointermove", (event) => moved(pixelAt(event), event.pointerType === "mouse" ? "hover" : "touch"));
  node.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse") pressed(pixelAt(event));
    else moved(pixelAt(event), "touch");
  });
  node.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (!step) return pressed(current());
    const limits = size();
    moved(
      current().map((n, axis) => clamp(n + step[axis], 0, limits[axis] - 1)),
      "key",
    );
  });
}

// --- the state in the address -----------------------------------------------------------------------------------------

/** The state that a link carries, as text by name; empty when it is a link to a heading. */
export function stateOf(hash) {
  return hash.includes("=") ? Object.fromEntries(new URLSearchParams(hash.slice(1))) : {};
}

export function addressOf(state) {
  return `#${String(new URLSearchParams(state)).replace(/%2C/g, ",")}`;
}

/** The buttons below each view: the picture of what is seen and, where the host has an address, a link to it. */
function keeping(name, view) {
  const link = element("a", { class: "explorer-link", href: "#" }, "Link to this view");
  const said = element("span", { role: "status" });
  link.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(link.href);
      said.textContent = "copied";
    } catch {
      said.textContent = "the address of this page is the link";
    }
  });
  const button = (kind) =>
    element(
      "button",
      { type: "button", onclick: () => saveDrawing(view.drawing(), name, kind) },
      `Save as ${kind.toUpperCase()}`,
    );
  const bar = element("p", { class: "explorer-keep" }, button("svg"), button("png"), ...(view.host.address ? [link, said] : []));
  bar.address = (state) => {
    link.href = addressOf(state);
  };
  return bar;
}

/** What the views have in common: they tell the link below them, and their host, what they show. */
class View {
  constructor(root, data, host) {
    Object.assign(this, { root, data, host, life: new AbortController() });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
  }

  /** When the view is no longer shown. */
  close() {
    this.playing?.(false);
    clearTimeout(this.later);
    this.life.abort();
  }

  /** The state as text by name: what a link says to give this view. */
  text() {
    return Object.fromEntries(
      Object.entries(this.address())
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => [name, String(value)]),
    );
  }

  tellHost() {
    this.keep.address(this.text());
    this.host.changed?.(this.text());
  }
}

/** A row of numbers or pixels given as text, or nothing if it is not one of `count` finite numbers. */
export function numbersOf(text, count) {
  const numbers = String(text ?? "")
    .split(",")
    .map((part) => (part.trim() ? Number(part) : NaN));
  return numbers.length === count && numbers.every(Number.isFinite) ? numbers : undefined;
}

// --- view 1: attention ------------------------------------------------------------------------------------------------

const PARTS = { score: "whole score", position: "position part (where), q · r", content: "content part (what), q · k" };
const FINE = 2; // canvas pixels for each pixel of a style, so that discs and numbers are sharp

const CONTROLS = {
  model: "Model",
  layer: "Layer",
  head: "Head",
  image: "Image",
  part: "Show",
  softmax: "As",
  scale: "Colours",
};
const LEGEND = [
  "Under each head: H, the entropy of this map in nats; m, the head's mean probability at its best shift, over all query pixels",
  "that have it (with content: of the whole score, over test images), and that shift. Pixels and shifts are (row, column), down",
  "and right. On its own scale a map runs from 0 to its largest value: a head that attends everywhere alike is all yellow.",
].join(" ");

class AttentionView extends View {
  notes = [];

  constructor(root, data, host) {
    super(root, data, host);
    this.colors = colorsOf(bytesOf(data.colors.amounts));
    this.touch = matchMedia("(hover: none)");
    this.build();
  }

  /** The elements, once. */
  build() {
    const change = (name) => (value) => this.change({ [name]: value });
    this.controls = Object.fromEntries(Object.keys(CONTROLS).map((name) => [name, choice(name, change(name))]));
    this.labels = Object.fromEntries(Object.entries(CONTROLS).map(([name, text]) => [name, labelled(text, this.controls[name])]));
    this.status = element("p", { class: "explorer-status", role: "status" });
    this.source = element("p", { class: "explorer-source" });
    this.keep = keeping("attention", this);
    this.buildTraining();
    this.buildStage();
    const controls = box("explorer-controls", ...Object.values(this.labels));
    this.root.replaceChildren(controls, this.status, this.stage, this.source, this.keep);
    this.listen();
  }

  buildTraining() {
    this.slider = element("input", { type: "range", min: 0, oninput: () => this.change({ moment: +this.slider.value }) });
    this.epoch = element("output");
    this.play = element("button", { type: "button", onclick: () => this.playing(!this.timer) }, "Play");
    this.training = box("explorer-training", labelled("Training", this.slider), this.epoch, this.play);
    this.untrained = element("p", { class: "explorer-source" }, "Of this model only the end of training is kept.");
  }

  /** What a message can stand in place of. */
  buildStage() {
    this.pad = element("canvas", { class: "explorer-pad", tabindex: 0, role: "application" });
    this.map = element("canvas", { class: "explorer-map", tabindex: 0, role: "application" });
    this.bar = element("canvas", { class: "explorer-bar", "aria-hidden": "true" });
    const levels = Uint8Array.from({ length: 256 }, (_, n) => n);
    paint(this.bar, levels, 1, 256, 0, 255, this.colors);
    [this.low, this.high] = [element("span"), element("span")];
    [this.padNote, this.mapNote] = [element("figcaption"), element("figcaption")];
    this.reading = element("p", { class: "explorer-reading" });
    this.grid = box("explorer-grid");
    const scale = element("div", { class: "explorer-scale", "aria-hidden": "true" }, this.low, this.bar, this.high);
    const image = element("figure", {}, this.pad, this.padNote),
      map = element("figure", {}, this.map, scale, this.mapNote);
    const legend = element("p", { class: "explorer-source" }, LEGEND);
    const below = [this.reading, this.training, this.untrained, this.grid, legend];
    this.stage = element("div", {}, box("explorer-pair", image, map), ...below);
  }

  listen() {
    const size = () => [this.model?.height ?? 1, this.model?.width ?? 1];
    const follow = (pixel, how) => {
      if (how === "hover" && this.state.frozen) return;
      this.change({ query: pixel, frozen: how !== "hover" || this.state.frozen });
    };
    const freeze = (pixel) => this.change({ query: pixel, frozen: !this.state.frozen });
    pointing(this.pad, size, () => this.state.query, follow, freeze);
    const read = (pixel) => {
      this.key = pixel;
      this.drawLarge();
      this.read();
    };
    pointing(this.map, size, () => this.key ?? this.state.query, read, read);
    this.map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && read(null));
    this.map.addEventListener("blur", () => read(null));
  }

  entry() {
    return this.data.models.find(({ id }) => id === this.state.model);
  }

  /** Take the state of a link or a notebook, as text by name. */
  async open(wanted) {
    const query = numbersOf(wanted.query, 2),
      epoch = wanted.epoch === undefined ? undefined : Number(wanted.epoch);
    const number = (text) => (text === undefined ? undefined : Number(text));
    this.state = {
      model: wanted.model ?? this.data.models[0].id,
      layer: number(wanted.layer),
      head: number(wanted.head),
      image: wanted.image,
      part: wanted.part ?? "score",
      softmax: wanted.softmax ?? "1",
      scale: wanted.scale ?? "own",
      query,
      epoch,
      frozen: Boolean(query),
    };
    await this.choose();
  }

  /** What a link needs to say to give this view. */
  address() {
    const { model, layer, head, image, part, softmax, scale, query, moment } = this.state;
    return { model, layer, head, image, part, softmax, scale, query: query.join(","), epoch: this.model.epochs?.[moment] };
  }

  change(patch) {
    const another = "model" in patch || "image" in patch;
    if ((this.broken || this.loading) && !another) return;
    if (!this.broken && !this.loading) this.state.epoch = this.model.epochs?.[this.state.moment]; // another image keeps it
    Object.assign(this.state, patch);
    if ("model" in patch) Object.assign(this.state, { layer: undefined, head: undefined, image: undefined, epoch: undefined });
    if (another) return this.choose();
    if ("query" in patch) this.state.query = this.nearest(this.state.query);
    else {
      this.model.moveTo(this.state.moment);
      this.settle();
    }
    this.draw();
  }

  /** Load the model, or the model's maps of the image, and show it; a message in its place when that fails. */
  async choose() {
    this.playing(false);
    clearTimeout(this.later);
    this.notes = [];
    const known = this.entry();
    if (!known) {
      this.notes.push(`There is no model ${this.state.model} here; this is ${this.data.models[0].label}.`);
      this.state.model = this.data.models[0].id;
    }
    const entry = this.entry(),
      wanted = this.state.image;
    if (!entry.images.includes(wanted)) {
      if (wanted) this.notes.push(`There is no image ${wanted} for this model.`);
      this.state.image = entry.images[0];
    }
    const turn = (this.loading = {});
    this.root.setAttribute("aria-busy", "true");
    try {
      const model = await this.loadModel(entry, this.state.image);
      if (turn !== this.loading) return;
      this.model = model;
      this.message(null);
      this.begin(entry);
    } catch (error) {
      if (turn !== this.loading) return;
      this.message(error.message);
    }
    this.loading = null;
    this.root.removeAttribute("aria-busy");
  }

  async loadModel(entry, image) {
    if (entry.content) return new ContentModel(entry, await Promise.all(entry.content[image].map(load)));
    return new PositionModel(entry, await load(entry.file));
  }

  /** A message in place of the view; none shows the view. */
  message(text) {
    this.broken = text;
    const shown = [this.stage, this.alert].find((node) => node?.isConnected);
    if (text) this.alert = element("p", { class: "explorer-message", role: "alert" }, text);
    shown.replaceWith(text ? this.alert : this.stage);
    if (text) this.offer();
    this.keep.hidden = this.source.hidden = Boolean(text);
  }

  /** A model that was just loaded. */
  begin(entry) {
    const { state, model } = this;
    const last = (model.epochs?.length ?? 1) - 1,
      asked = model.epochs?.indexOf(state.epoch) ?? -1;
    if (state.epoch !== undefined && asked < 0) this.notes.push(`There is no picture of epoch ${state.epoch}; this is the last.`);
    state.moment = asked < 0 ? last : asked;
    model.moveTo(state.moment);
    const picture = this.data.images[state.image];
    this.picture = picture ? canvasOf(picture) : null;
    this.slider.max = last;
    this.training.hidden = !last;
    this.untrained.hidden = Boolean(last) || entry.tier === "given";
    this.key = null;
    if (state.layer === undefined && state.head === undefined) Object.assign(state, this.sharpest());
    this.source.textContent = entry.source;
    this.settle();
    this.buildGrid();
    this.draw();
  }

  /** The layer and head with the largest mass at one shift: what to look at first. */
  sharpest() {
    const { model } = this,
      mass = ({ layer, head }) => model.bestShift(layer - 1, head - 1, "score")?.mass ?? 0;
    const all = model.layers.flatMap((_, layer) =>
      Array.from({ length: model.heads(layer) }, (_, head) => ({ layer: layer + 1, head: head + 1 })),
    );
    return all.reduce((best, one) => (mass(one) > mass(best) ? one : best));
  }

  /** Bring the state within what the model has, and say so. */
  settle() {
    const { state, model } = this;
    const within = (name, count) => {
      const given = state[name] ?? 1,
        value = Number(given);
      state[name] = Number.isInteger(value) && value >= 1 && value <= count ? value : 1;
      if (state[name] !== value) this.notes.push(`There is no ${name} ${given}; here they go from 1 to ${count}.`);
    };
    within("layer", model.layers.length);
    within("head", model.heads(state.layer - 1));
    if (!model.parts.includes(state.part)) {
      this.notes.push(`${PARTS[state.part] ?? state.part}: not there for this model and image.`);
      state.part = "score";
    }
    for (const [name, values] of [
      ["softmax", ["1", "0"]],
      ["scale", ["own", "shared"]],
    ]) {
      if (values.includes(state[name])) continue;
      this.notes.push(`The link's ${name} is ${state[name]}, expected ${values.join(" or ")}.`);
      state[name] = values[0];
    }
    const inside = (query) => query && query[0] >= 0 && query[1] >= 0 && query[0] < model.height && query[1] < model.width;
    const query = inside(state.query) ? state.query.map(Math.floor) : [model.height >> 1, model.width >> 1];
    state.query = this.nearest(query);
    this.offer();
  }

  /** The query pixel itself, or the nearest that the model has maps of. */
  nearest([i, j]) {
    const distance = ([r, c]) => (r - i) ** 2 + (c - j) ** 2;
    return this.model.queries?.reduce((best, query) => (distance(query) < distance(best) ? query : best)) ?? [i, j];
  }

  offer() {
    const { state, model, controls, data } = this,
      entry = this.entry();
    const numbers = (count) => Array.from({ length: count }, (_, n) => [n + 1, `${n + 1}`]);
    controls.model.offer(
      data.models.map(({ id, label, tier }) => [id, label, tier]),
      state.model,
    );
    controls.image.offer(
      entry.images.map((id) => [id, entry.labels?.[id] ?? data.images[id].label]),
      state.image,
    );
    controls.softmax.offer(
      [
        ["1", "probabilities (softmax)"],
        ["0", model?.logarithms ? "logarithms" : "scores"],
      ],
      state.softmax,
    );
    controls.scale.offer(
      [
        ["own", "each head's own scale"],
        ["shared", "one scale for all heads"],
      ],
      state.scale,
    );
    if (!model) return;
    controls.layer.offer(numbers(model.layers.length), state.layer);
    controls.head.offer(numbers(model.heads(state.layer - 1)), state.head);
    controls.part.offer(
      model.parts.map((part) => [part, PARTS[part]]),
      state.part,
    );
    this.labels.part.hidden = model.parts.length === 1;
  }

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
          [m, shift] = [best.mass.toFixed(2), pair(best.shift)];
        text.textContent = `${H}\nm ${m}\n${shift}`;
        button.title = `entropy ${H.slice(2)} nats; mass ${m} at the shift ${shift}`;
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

// --- view 2: a convolution, and nine heads that become it -------------------------------------------------------------

const KERNELS = {
  __proto__: null, // a link may name anything
  "Sobel, vertical edges": [-1, 0, 1, -2, 0, 2, -1, 0, 1],
  "Sobel, horizontal edges": [-1, -2, -1, 0, 0, 0, 1, 2, 1],
  blur: Array(9).fill(1 / 9),
  sharpen: [0, -1, 0, -1, 5, -1, 0, -1, 0],
  Laplace: [0, 1, 0, 1, -4, 1, 0, 1, 0],
  emboss: [-2, -1, 0, -1, 1, 1, 0, 1, 2],
  identity: [0, 0, 0, 0, 1, 0, 0, 0, 0],
};

const nameOf = (kernel) =>
  Object.keys(KERNELS).find((name) => KERNELS[name].every((value, n) => value === kernel[n])) ?? "your own";

/** Alpha for a slider's position from 0 to 100, the last being hard; and back. */
const alphaAt = (position) => (position >= 100 ? HARD_ALPHA : +Math.expm1((position / 99) * Math.log(61)).toPrecision(3));
const positionOf = (alpha) => (alpha >= HARD_ALPHA ? 100 : Math.min(99, (Math.log1p(alpha) / Math.log(61)) * 99));
const alphaText = (alpha) => (alpha >= HARD_ALPHA ? `α = ${HARD_ALPHA}, hard: one pixel only` : `α = ${show(alpha)}`);
/** A kernel in a link: its name, or its numbers. */
const kernelText = (kernel) => (KERNELS[nameOf(kernel)] ? nameOf(kernel) : kernel.join(","));

/** The controls that two views share: the image, the kernel by name and by number, alpha. */
function layerControls(view) {
  const image = choice("image", (value) => view.change({ image: value }));
  const preset = choice("kernel", (name) => KERNELS[name] && view.change({ kernel: KERNELS[name] }));
  const typed = (n) => () => {
    const number = numbersOf(cells[n].value, 1);
    view.say(number ? "" : "The kernel needs nine numbers; the last good one is shown.");
    if (number) view.change({ kernel: view.state.kernel.map((value, other) => (other === n ? number[0] : value)) });
  };
  const cells = SHIFTS.map((delta, n) =>
    element("input", { type: "number", step: "any", "aria-label": `W at the shift ${pair(delta)}`, oninput: typed(n) }),
  );
  const alpha = element("input", {
    type: "range",
    min: 0,
    max: 100,
    step: 1,
    oninput: () => view.change({ alpha: alphaAt(+alpha.value) }),
  });
  const output = element("output");
  cells.forEach((cell, n) => {
    cell.style.borderColor = view.data.colors.heads[n];
  });
  const kernel = element("fieldset", {}, element("legend", {}, "Kernel W"), box("explorer-kernel", ...cells));
  const nodes = [
    labelled("Image", image),
    labelled("Kernel", preset),
    kernel,
    element("div", {}, labelled("Sharpness of the heads, α", alpha), output),
  ];
  const update = () => {
    const { state, data } = view;
    image.offer(
      view.images.map((id) => [id, data.images[id].label]),
      state.image,
    );
    const name = nameOf(state.kernel);
    preset.offer(
      [...Object.keys(KERNELS), ...(KERNELS[name] ? [] : [name])].map((key) => [key, key]),
      name,
    );
    cells.forEach((cell, n) => {
      if (cell !== document.activeElement || !cell.value) cell.value = +state.kernel[n].toPrecision(4);
    });
    alpha.value = positionOf(state.alpha);
    output.textContent = alphaText(state.alpha);
  };
  return { nodes, update };
}

/** What a link says of the image, the kernel and alpha, brought within what there is. */
function openLayer(view, wanted, usual) {
  const notes = [],
    given = { kernel: KERNELS[wanted.kernel] ?? numbersOf(wanted.kernel, 9), alpha: Number(wanted.alpha ?? usual.alpha) };
  if (wanted.image && !view.images.includes(wanted.image)) notes.push(`There is no image ${wanted.image} here.`);
  if (wanted.kernel && !given.kernel) notes.push("The link's kernel is neither one of those by name nor nine numbers.");
  if (!(given.alpha >= 0)) notes.push(`The link's alpha, ${wanted.alpha}, is not a number from 0 to ${HARD_ALPHA}.`);
  view.say(notes.join(" "));
  return {
    image: view.images.includes(wanted.image) ? wanted.image : view.images[0],
    kernel: given.kernel ?? usual.kernel,
    alpha: given.alpha >= 0 ? Math.min(given.alpha, HARD_ALPHA) : usual.alpha,
  };
}

/** What the two views of a layer have in common: images to choose from, controls, and a line for what is wrong. */
class LayerView extends View {
  constructor(root, data, host, images) {
    super(root, data, host);
    this.images = images;
    this.status = element("p", { class: "explorer-status", role: "status" });
    this.controls = layerControls(this);
    this.build();
  }

  say(text) {
    this.status.textContent = text;
  }
}

const PANELS = ["The image X", "Convolution", "Self-attention, nine heads", "Attention − convolution"];
const PLANE = [
  "Where the heads look, as a shift from the query pixel (the square). Drag a centre, or choose it and use the arrow keys;",
  "the circle has the radius of one standard deviation.",
].join(" ");
const REACH = 3; // pixels that a head's centre may be dragged from the query

class ConvolutionView extends LayerView {
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

// --- view 3: one pixel, shift by shift and head by head ---------------------------------------------------------------

const STEP_SECONDS = 1.2;

class PixelView extends LayerView {
  constructor(root, data, host) {
    super(root, data, host, data.pixel);
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
    const above = [box("explorer-controls", ...this.controls.nodes), this.status, this.buildSteps()];
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
    const layer = openLayer(this, wanted, { kernel: KERNELS.blur, alpha: 1 });
    const { height, width } = this.data.images[layer.image];
    this.state = { ...layer, query: numbersOf(wanted.query, 2) ?? [height >> 1, width >> 1], step: Number(wanted.step ?? 9) };
    this.change({});
  }

  address() {
    const { image, kernel, alpha, query, step } = this.state;
    return { image, kernel: kernelText(kernel), alpha, query: query.join(","), step };
  }

  change(patch) {
    const state = Object.assign(this.state, patch),
      { height, width } = this.data.images[state.image];
    const within = (value, last) => clamp(Math.floor(value) || 0, 0, last);
    state.query = [within(state.query[0], height - 1), within(state.query[1], width - 1)];
    state.step = within(state.step, 9);
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

  /** For each shift and head: what is seen there, its weight, and the sum so far. */
  terms() {
    const { image, kernel, alpha, query } = this.state,
      { height, width } = this.data.images[image];
    const X = valuesOf(this.data.images[image]),
      sums = [0, 0];
    return SHIFTS.map(([i, j], n) => {
      const [r, c] = [query[0] + i, query[1] + j],
        inside = r >= 0 && c >= 0 && r < height && c < width;
      const rows = axisProbabilities(i, alpha, height).subarray(query[0] * height, (query[0] + 1) * height);
      const columns = axisProbabilities(j, alpha, width).subarray(query[1] * width, (query[1] + 1) * width);
      const map = Float64Array.from(X, (_, k) => rows[Math.floor(k / width)] * columns[k % width]);
      const seen = [inside ? X[r * width + c] : 0, map.reduce((sum, p, k) => sum + p * X[k], 0)];
      seen.forEach((x, side) => {
        sums[side] += kernel[n] * x;
      });
      return { delta: [i, j], key: [r, c], inside, map, weight: kernel[n], seen, sums: [...sums] };
    });
  }

  draw() {
    const terms = this.terms(),
      { step } = this.state,
      now = terms[step - 1];
    const marked = (n) => (step === 9 ? true : n === step - 1); // the still shows all nine at once
    this.panels.forEach((panel, side) => {
      panel.svg.replaceChildren(...this.grid(terms, side, marked), ...this.kernel(step), ...this.sum(now, side));
      panel.note.textContent = this.sentence(now, side);
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

  sentence(now, side) {
    const { step } = this.state;
    if (!now) return side ? "No head has been added yet." : "No shift has been added yet.";
    const seen = side
      ? `head ${step} sees the average ${show(now.seen[1])}${now.inside ? "" : " (its shift leads outside, so it looks at the nearest pixels inside)"}`
      : `the shift ${pair(now.delta)} leads to ${now.inside ? `a pixel of ${show(now.seen[0])}` : "outside the image, 0"}`;
    const product = `times ${show(+now.weight.toFixed(4))} is ${show(now.weight * now.seen[side])}`;
    const text = `Step ${step} of 9: ${seen}, ${product}; the sum so far ${show(now.sums[side])}.`;
    return step === 9 && side
      ? `${text} The difference to the convolution: ${show(now.sums[1] - now.sums[0])}, at ${alphaText(this.state.alpha)}.`
      : text;
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

// --- hosts ------------------------------------------------------------------------------------------------------------

const VIEWS = { attention: AttentionView, convolution: ConvolutionView, pixel: PixelView };

/** Put a view into an element. `data`: what `payload.py` makes, or its JSON text. `state`: text by name, as in an address.
 *  `host.changed(state)` is told of every other one, and `host.address` says whether the state is the page's address. */
export async function mount(root, name, data, state = {}, host = {}) {
  root.classList.add("explorer");
  try {
    const view = new VIEWS[name](root, typeof data === "string" ? JSON.parse(data) : data, host);
    await view.open(state);
    return view;
  } catch (error) {
    root.replaceChildren(
      element("p", { class: "explorer-message", role: "alert" }, `This view could not be shown: ${error.message}. ${MEND}`),
    );
    throw error;
  }
}
