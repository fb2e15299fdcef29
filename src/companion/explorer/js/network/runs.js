/** Scene 3: what the networks make of its pictures, computed one after the other in the worker. */
import { load } from "../numerics/files.js";
import { canvasOf } from "../shell/dom.js";
import { NetworkClient } from "./client.js";
import { MODES, alikeHeads } from "./state.js";

export class NetworkRuns {
  /** `scene`: has a `state`, a `picture` `{canvas, made}`, and a `stage`. */
  constructor(scene) {
    Object.assign(this, { scene, status: {} }); // by mode: {loaded} or {failure}, a sentence for the reader
  }

  /** Load the weights of all networks, before a picture is chosen; again where that failed. */
  load() {
    const { stage, state } = this.scene;
    if (!this.client) {
      this.client = new NetworkClient(stage.data.worker);
      stage.life.signal.addEventListener("abort", () => this.client.close());
    }
    for (const mode of Object.keys(MODES)) this.loadOne(mode, state.entries[mode]);
  }

  async loadOne(mode, entry) {
    if (this.status[mode] && !this.status[mode].failure) return;
    this.status[mode] = {};
    try {
      await this.client.load(entry);
      this.status[mode].loaded = true;
      this.compute();
    } catch ({ message }) {
      this.status[mode].failure = message;
    }
    this.scene.stage.redraw();
  }

  /** Whether all that the scene's state asks for is there. */
  get done() {
    const { mode, alpha } = this.scene.state,
      made = this.scene.picture.made[mode];
    return mode === "twin" ? made.twin?.alpha === alpha : Boolean(made.maps);
  }

  get busy() {
    return !this.done && !this.status[this.scene.state.mode].failure;
  }

  /** Compute what the state asks for; what changes meanwhile is computed next. */
  async compute() {
    if (this.working) return;
    this.working = true;
    const { state, stage } = this.scene;
    while (this.busy && this.status[state.mode].loaded) {
      const { mode } = state; // it may be another one when the answer comes
      try {
        await this.advance();
      } catch ({ message }) {
        this.status[mode] = { failure: message };
      }
      stage.redraw();
    }
    this.working = false;
    stage.redraw();
  }

  /** The next step towards what the state asks for. */
  async advance() {
    const { picture, state, stage } = this.scene,
      { mode, alpha, entries, grid } = state,
      made = picture.made[mode],
      run = (sharpness) => this.client.run(entries[mode].id, picture.seen.image, sharpness);
    if (!picture.canvas) {
      const { pixels } = await load(picture.file);
      picture.canvas = canvasOf(picture, pixels.data);
    } else if (!picture.seen) {
      const { width, height } = picture.canvas,
        pixels = picture.canvas.getContext("2d").getImageData(0, 0, width, height);
      picture.seen = await this.client.look(pixels, stage.data.input);
    } else if (mode !== "twin") {
      const { logits, maps } = await run();
      Object.assign(made, { logits, maps, alike: maps.map((layer) => alikeHeads(layer, grid)) });
    } else if (!made.cnn) made.cnn = (await run()).logits;
    else made.twin = { alpha, logits: (await run(alpha)).logits };
  }
}
