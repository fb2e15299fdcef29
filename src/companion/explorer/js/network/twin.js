/** Scene 3, mode "twin": ten bars for the CNN and ten beside them for the same network computed by attention. */
import { box, element, setText } from "../shell/dom.js";
import { answerOf, percent } from "./state.js";

export class TwinPanel {
  /** `accuracy`: of the CNN, and so of its twin with exact heads. */
  constructor(classes, accuracy) {
    const bar = (side) => element("span", { class: `network-bar network-bar-${side}` });
    this.rows = classes.map((name) => {
      const bars = ["cnn", "attention"].map(bar),
        shares = bars.map(() => element("span", { class: "network-share" }));
      const node = element("li", {}, element("span", {}, name), box("network-bars", ...bars), ...shares);
      return { node, bars, shares };
    });
    const title = (side, text) => element("span", { class: `network-key network-key-${side}` }, text);
    const head = box("network-keys", title("cnn", "CNN"), title("attention", "CNN computed by attention"));
    const right = element(
      "p",
      { class: "network-right" },
      `Test accuracy ${percent(accuracy, 1)}. Attention has the same weights, in nine heads.`,
    );
    const label = "Probability of each class: by the CNN, then by its attention twin";
    this.node = box("network-twin", head, right, element("ul", { "aria-label": label }, ...this.rows.map(({ node }) => node)));
  }

  /** Show the CNN's logits and the twin's; either may be missing. */
  show(cnn, twin) {
    const answers = [cnn, twin].map((logits) => logits && answerOf(logits));
    this.rows.forEach(({ node, bars, shares }, row) => {
      answers.forEach((answer, side) => {
        const share = answer?.probabilities[row] ?? 0;
        bars[side].style.scale = `${share} 1`;
        setText(shares[side], answer ? percent(share) : "");
      });
      node.classList.toggle("network-best", answers[0]?.best === row);
    });
  }
}
