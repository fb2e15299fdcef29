/** A slider of the control bar: its title with the value it stands at, and names for some of its positions. */
import { show } from "../numerics/text.js";
import { EXACT, SOFTEST, alphaOf, keyedPosition, positionFor, sharpness } from "../heads/state.js";
import { element, setText } from "./dom.js";

export class StageSlider {
  /** `stops`: `[text, share of the way]`. `jump(position, key)`: where a key leads, if not to the next position.
   *  `changed(position)` is told of another position. */
  constructor({ title, name = title, stops, jump = () => undefined, changed, ...limits }) {
    this.input = element("input", { type: "range", ...limits, step: 1, "aria-label": name });
    this.value = element("output", { class: "stage-number", "aria-hidden": "true" });
    const marks = stops.map(([text, at]) => {
      const mark = element("span", {}, text);
      mark.style.setProperty("--at", at);
      return mark;
    });
    const under = element("span", { class: "stage-stops", "aria-hidden": "true" }, ...marks);
    this.node = element("label", { class: "stage-slider" }, element("span", {}, title, " ", this.value), this.input, under);
    this.input.addEventListener("input", () => changed(+this.input.value));
    this.input.addEventListener("keydown", (event) => {
      const to = jump(+this.input.value, event.key);
      if (to === undefined) return;
      event.preventDefault();
      this.input.value = to;
      changed(to);
    });
  }

  /** Show a position, the value there, and the value as screen readers say it. */
  show(position, value, said) {
    this.input.value = position;
    setText(this.value, value);
    this.input.setAttribute("aria-valuetext", said);
  }
}

/** A slider from a softest alpha over the sharpest to exact. `numbers`: the alphas with a stop. */
export class AlphaSlider extends StageSlider {
  constructor(title, numbers, changed, softest = SOFTEST) {
    const stops = numbers.map((alpha) => [`${alpha}`, positionFor(alpha, softest) / 100]);
    super({
      title,
      name: `${title}, alpha`,
      min: 0,
      max: 100,
      stops: [...stops, ["exact", 1]],
      jump: keyedPosition,
      changed: (position) => changed(alphaOf(position, softest)),
    });
    this.softest = softest;
  }

  showAlpha(alpha) {
    const said = alpha >= EXACT ? `exact, alpha ${EXACT}` : `alpha ${show(+alpha.toPrecision(2))}`;
    this.show(positionFor(alpha, this.softest), sharpness(alpha), said);
  }
}
