/** What the worker answers: networks loaded, pictures made their input, networks run. */
import { load } from "./files.js";
import { build } from "./networks.js";
import { normalised, reduced } from "./picture.js";

const networks = new Map();

/** By name. Their arguments are those of `networks_payload`: `input` has `{size, mean, std}`. */
const TASKS = {
  /** `{id, file, architecture}`: gives nothing. */
  async load({ id, file, architecture }) {
    if (!networks.has(id)) networks.set(id, build(await load(file), architecture));
  },
  /** `{picture, input}`: gives the `pixels` that a network sees, 3 bytes each, and the `image` to run it on. */
  look({ picture, input }) {
    const pixels = reduced(picture, input.size);
    return { pixels, image: normalised(pixels, input) };
  },
  /** `{id, image, alpha}`: gives `{logits, maps}`, as `forward` does. */
  run({ id, image, alpha }) {
    if (!networks.has(id)) throw new Error(`The network ${id} is not loaded; load it first.`);
    return networks.get(id).forward(image, alpha);
  },
};

/** The reply to `{ticket, task, ...}`: `{ticket, result}`, or `{ticket, error}` with one sentence for the reader. */
export async function reply({ ticket, task, ...given }) {
  try {
    return { ticket, result: await TASKS[task](given) };
  } catch (error) {
    return { ticket, error: error.message };
  }
}
