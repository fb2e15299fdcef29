/** The stage: one picture, one plane of offsets and one control bar, which its scenes share.
 *
 *  A scene is a class with a static `id`, `title` and the `names` of what a link may say, made with the stage when it is first
 *  shown. It has nodes for the places beside and below the picture, `side` and `below`, and for the `bar`; `enter()` takes the
 *  picture and the plane, and goes on with what `leave()` stopped; `open(state)` takes a link's state as text by name and returns
 *  a sentence on what is wrong with it, `text()` gives that state back; `frame(passed)` goes on with what moves, by the seconds
 *  since the last frame, and is true while it lasts; `draw()` draws. It calls `stage.redraw()`, `stage.say(sentence)` for screen
 *  readers, `stage.warn(message)` for all, and `stage.tell()` when its state has changed. */
import { box, element } from "./dom.js";
import { Plane } from "./plane.js";
import { StagePicture } from "./picture.js";
import { Beams } from "./beams.js";
import { HeadsScene } from "../heads/scene.js";
import { DescentScene } from "../descent/scene.js";
import { NetworkScene } from "../network/scene.js";

const SCENES = [HeadsScene, DescentScene, NetworkScene];
const LONGEST_FRAME = 0.25; // seconds, at most, that a frame stands for: what was out of sight goes on where it was
const SAID_SECONDS = 0.7; // a sentence is announced if none replaces it within this time

export class Stage {
  constructor(root, data, host) {
    Object.assign(this, { root, data, host, state: {}, life: new AbortController() });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.picture = new StagePicture();
    this.plane = new Plane(data.colors.heads);
    this.beams = new Beams();
    this.scenes = []; // made when they are first shown
    this.build();
    const sizes = new ResizeObserver(() => this.measure()),
      sight = new IntersectionObserver(([{ isIntersecting }]) => (this.seen = isIntersecting) && this.redraw(), {
        threshold: 0.3,
      });
    sizes.observe(this.set);
    sight.observe(this.data.scene ? this.plane.node : this.set); // within a text, the heads are to be seen from the start
    for (const watch of [sizes, sight]) {
      this.life.signal.addEventListener("abort", () => watch.disconnect());
    }
    this.still.addEventListener("change", () => this.redraw(), { signal: this.life.signal });
  }

  build() {
    this.tabs = SCENES.map(({ id, title }, n) =>
      element(
        "button",
        { type: "button", role: "tab", id: `stage-tab-${id}`, "aria-controls": "stage-set", onclick: () => this.show(n) },
        title,
      ),
    );
    const list = element("div", { class: "stage-tabs", role: "tablist", "aria-label": "Scenes" }, ...this.tabs);
    list.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const next = (this.at + by + SCENES.length) % SCENES.length;
      this.show(next);
      this.tabs[next].focus();
    });
    this.side = box("stage-beside");
    this.below = box("stage-below");
    this.note = element("p", { class: "stage-note" });
    const attributes = { class: "stage-set", id: "stage-set", role: "tabpanel" };
    this.set = element(
      "div",
      attributes,
      this.picture.node,
      this.plane.node,
      this.side,
      this.below,
      this.beams.canvas,
      this.note,
    );
    this.bar = element("div", { class: "stage-bar", role: "group", "aria-label": "Controls" });
    this.said = element("p", { class: "stage-said", role: "status" });
    const above = this.data.scene ? [] : [list];
    this.root.replaceChildren(...above, this.set, this.bar, this.said);
    const { signal } = this.life;
    // in the capturing phase, before what is done puts another note there
    for (const kind of ["pointerdown", "keydown", "change"])
      this.root.addEventListener(kind, () => this.clearNote(), { signal, capture: true });
  }

  /** Show a scene, by number. */
  show(n) {
    if (n === this.at) return;
    this.scene?.leave();
    this.clearNote();
    this.at = n;
    this.scene = this.scenes[n] ??= new SCENES[n](this);
    this.picture.on = {};
    this.picture.offerPixels(true);
    this.plane.on = {};
    this.tabs.forEach((tab, other) => {
      tab.setAttribute("aria-selected", String(other === n));
      tab.tabIndex = other === n ? 0 : -1;
    });
    this.set.setAttribute("aria-labelledby", this.tabs[n].id);
    this.set.dataset.scene = SCENES[n].id;
    this.side.replaceChildren(...this.scene.side);
    this.below.replaceChildren(...this.scene.below);
    this.bar.replaceChildren(...this.scene.bar);
    this.scene.enter();
    this.tell();
    this.measure(); // scenes may place the picture differently
  }

  /** Take the state of a link, as text by name: which scene, and its state. */
  open({ scene: asked, ...wanted }) {
    const scene = this.data.scene ?? asked ?? SCENES[0].id;
    const found = SCENES.findIndex(({ id }) => id === scene),
      known = found >= 0;
    this.show(Math.max(0, found));
    const { names } = SCENES[this.at],
      strange = Object.keys(wanted).find((name) => !names.includes(name)),
      kept = Object.fromEntries(Object.entries(wanted).filter(([name]) => names.includes(name)));
    const problem = this.scene.open(known ? kept : {});
    const other = `This link says scene=${String(scene).slice(0, 40)}; expected ${SCENES.map(({ id }) => id).join(" or ")}.`,
      unknown =
        strange === undefined ? "" : `This link says ${strange.slice(0, 40)}=; expected ${names.join(", ")}. It is ignored.`;
    this.state.problem = known ? problem || unknown : `${other} The first one is shown.`;
    this.clearNote();
    if (this.state.problem) this.warn(this.state.problem);
    this.redraw();
  }

  text() {
    const state = { scene: SCENES[this.at].id, ...this.scene.text() };
    return Object.fromEntries(Object.entries(state).filter(([, value]) => value !== undefined));
  }

  tell() {
    if (!this.data.scene) this.host.changed?.(this.text());
  }

  /** Say a sentence to screen readers, once nothing has followed it for a moment; before it, what was warned of meanwhile. */
  say(sentence) {
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      this.said.textContent = [this.warning, sentence].filter(Boolean).join(" ");
      this.warning = "";
    }, 1000 * SAID_SECONDS);
  }

  /** Put a note over the picture until the reader does something, and say it. */
  warn(message) {
    this.note.textContent = this.warning = message;
    this.say("");
  }

  clearNote() {
    this.note.textContent = "";
  }

  /** Where the picture and the plane are, in px of the beams' canvas. */
  measure() {
    const { left, top, width, height } = this.set.getBoundingClientRect();
    this.beams.box = { width, height };
    for (const part of [this.picture, this.plane]) {
      const { x, y, width, height } = part.node.getBoundingClientRect();
      part.box = { x: x - left, y: y - top, width, height };
    }
    this.redraw();
  }

  redraw() {
    this.waiting ??= requestAnimationFrame((now) => {
      this.waiting = null;
      const passed = Math.min(LONGEST_FRAME, (now - (this.last ?? now)) / 1000);
      const moves = this.seen && this.scene.frame(passed); // what moves waits until it is seen
      this.last = moves ? now : undefined;
      if (moves) this.redraw();
      if (this.picture.box?.width) this.scene.draw();
    });
  }

  close() {
    cancelAnimationFrame(this.waiting);
    clearTimeout(this.later);
    this.scene?.leave();
    this.life.abort();
  }
}
