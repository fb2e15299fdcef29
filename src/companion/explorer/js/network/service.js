/** What the worker answers: networks loaded, pictures made their input, networks run. */
import { load } from "../numerics/files.js";
import { build } from "./build.js";
import { normalised, reduced } from "./input.js";

const networks = new Map(); // by id: a network, or the promise of one
const fetched = async ({ file, architecture }) => build(await load(file), architecture);

/** By name. Their arguments are those of `add_networks`: `input` has `{size, mean, std}`. */
const TASKS = {
  /** `{id, file, architecture}`: gives nothing. */
  async load({ id, ...given }) {
    if (!networks.has(id)) networks.set(id, fetched(given));
    try {
      networks.set(id, await networks.get(id));
    } catch (error) {
      networks.delete(id); // so that it can be asked for again
      throw error;
    }
  },
  /** `{picture, input}`: gives the `pixels` that a network sees, 3 bytes each, and the `image` to run it on. */
  look({ picture, input }) {
    const pixels = reduced(picture, input.size);
    return { pixels, image: normalised(pixels, input) };
  },
  /** `{id, image, alpha}`: gives `{logits, maps}`, as `forward` does. */
  run({ id, image, alpha }) {
    if (!networks.get(id)?.forward) throw new Error(`The network ${id} is not loaded; load it first.`);
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
