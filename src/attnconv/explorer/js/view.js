/** What all views share: the state in the address, notes, what is said where something fails. */
import { element, saveDrawing } from "./dom.js";

/** The state that a link carries, as text by name; empty when it is a link to a heading. */
export function stateOf(hash) {
  return hash.includes("=") ? Object.fromEntries(new URLSearchParams(hash.slice(1))) : {};
}

export function addressOf(state) {
  return `#${String(new URLSearchParams(state)).replace(/%2C/g, ",")}`;
}

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

/** What the views have in common: they tell the link below them, and their host, what they show. */
export class View {
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
