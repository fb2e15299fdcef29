/** What all views share: they tell the link below them, and their host, what they show. */
import { addressOf } from "../numerics/text.js";
import { element, saveDrawing } from "./dom.js";

/** The buttons below each view: the picture of what is seen and, where the host has an address, a link to it. */
export function keeping(name, view) {
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

/** A view draws its `state`, an object without a page, which says what a link needs to give it again. */
export class View {
  constructor(root, data, host, state) {
    Object.assign(this, { root, data, host, state, life: new AbortController() });
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
      Object.entries(this.state.address())
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => [name, String(value)]),
    );
  }

  tellHost() {
    this.keep.address(this.text());
    this.host.changed?.(this.text());
  }
}
