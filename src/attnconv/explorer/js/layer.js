/** What the views of one layer share: image, kernel, alpha. */
import { HARD_ALPHA, SHIFTS } from "./numbers.js";
import { box, choice, element, labelled, pair, show } from "./dom.js";
import { View, numbersOf } from "./view.js";

export const KERNELS = {
  __proto__: null, // a link may name anything
  "Sobel, vertical edges": [-1, 0, 1, -2, 0, 2, -1, 0, 1],
  "Sobel, horizontal edges": [-1, -2, -1, 0, 0, 0, 1, 2, 1],
  blur: Array(9).fill(1 / 9),
  sharpen: [0, -1, 0, -1, 5, -1, 0, -1, 0],
  Laplace: [0, 1, 0, 1, -4, 1, 0, 1, 0],
  emboss: [-2, -1, 0, -1, 1, 1, 0, 1, 2],
  identity: [0, 0, 0, 0, 1, 0, 0, 0, 0],
};

export const nameOf = (kernel) =>
  Object.keys(KERNELS).find((name) => KERNELS[name].every((value, n) => value === kernel[n])) ?? "your own";

/** Alpha for a slider's position from 0 to 100, the last being hard; and back. */
export const alphaAt = (position) => (position >= 100 ? HARD_ALPHA : +Math.expm1((position / 99) * Math.log(61)).toPrecision(3));
export const positionOf = (alpha) => (alpha >= HARD_ALPHA ? 100 : Math.min(99, (Math.log1p(alpha) / Math.log(61)) * 99));
export const alphaText = (alpha) => (alpha >= HARD_ALPHA ? `α = ${HARD_ALPHA}, hard: one pixel only` : `α = ${show(alpha)}`);
/** A kernel in a link: its name, or its numbers. */
export const kernelText = (kernel) => (KERNELS[nameOf(kernel)] ? nameOf(kernel) : kernel.join(","));

/** The controls that two views share: the image, the kernel by name and by number, alpha. */
export function layerControls(view) {
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
export function openLayer(view, wanted, usual) {
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
export class LayerView extends View {
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
