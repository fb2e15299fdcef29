/** The controls that the two views of one layer share: the image, the kernel by name and by number, alpha. */
import { SHIFTS } from "./numbers.js";
import { numbersOf, pair } from "./text.js";
import { KERNELS, alphaAt, alphaText, nameOf, positionOf } from "./layer-state.js";
import { box, choice, element, labelled } from "./dom.js";

/** `nodes` for the page, `update()` to show the view's state, and a line, `status`, for what is wrong. */
export function layerControls(view) {
  const status = element("p", { class: "explorer-status", role: "status" });
  const image = choice("image", (value) => view.change({ image: value }));
  const preset = choice("kernel", (name) => KERNELS[name] && view.change({ kernel: KERNELS[name] }));
  const typed = (n) => () => {
    const number = numbersOf(cells[n].value, 1);
    status.textContent = number ? "" : "The kernel needs nine numbers; the last good one is shown.";
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
    const { state } = view;
    image.offer(
      state.images.map((id) => [id, state.pictures[id].label]),
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
  return { nodes, status, update };
}
