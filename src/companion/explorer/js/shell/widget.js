/* The host in a notebook: the state is shared with Python, as text by name. */
import { mount } from "./mount.js";

export default {
  async render({ model, el }) {
    const root = el.appendChild(document.createElement("div"));
    const changed = (state) => {
      if (JSON.stringify(state) === JSON.stringify(model.get("state"))) return;
      model.set("state", state);
      model.save_changes();
    };
    const view = await mount(root, "attention", model.get("data"), model.get("state"), { changed });
    model.on("change:state", () => {
      const state = model.get("state");
      if (JSON.stringify(state) !== JSON.stringify(view.text())) view.open(state);
    });
    return () => view.close();
  },
};
