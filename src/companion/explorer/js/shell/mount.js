/** Puts a view into a page or a notebook. */
import { MEND } from "../numerics/files.js";
import { element } from "./dom.js";
import { AttentionView } from "../trained/view.js";
import { Stage } from "./stage.js";

const VIEWS = { attention: AttentionView, stage: Stage };

/** Put a view into an element. `data`: what `payload.py` makes, or its JSON text. `state`: text by name, as in an address.
 *  `host.changed(state)` is told of every other one, and `host.address` says whether the state is the page's address. */
export async function mount(root, name, data, state = {}, host = {}) {
  root.classList.add("explorer");
  try {
    const view = new VIEWS[name](root, typeof data === "string" ? JSON.parse(data) : data, host);
    await view.open(state);
    return view;
  } catch (error) {
    root.replaceChildren(
      element("p", { class: "explorer-message", role: "alert" }, `This view could not be shown: ${error.message}. ${MEND}`),
    );
    throw error;
  }
}
