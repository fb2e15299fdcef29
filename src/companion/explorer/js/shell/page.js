/* The host on a page of the book: the state is in the page's address. */
import { addressOf, stateOf } from "../numerics/text.js";
import { mount } from "./mount.js";

const root = document.querySelector("[data-explorer]");
let view, opened, written, later;
const changed = (state) => {
  clearTimeout(later); // browsers refuse an address that changes many times a second
  if (!view || (!written && JSON.stringify(state) === opened)) return; // a page opens, and stays for now, with its own address
  later = setTimeout(() => {
    written = addressOf(state);
    history.replaceState(null, "", written);
  }, 250);
};
view = await mount(root, root.dataset.explorer, document.getElementById("explorer-data").textContent, stateOf(location.hash), {
  address: true,
  changed,
});
opened = view.state.problem ? null : JSON.stringify(view.text());
addEventListener(
  "hashchange",
  () => location.hash.includes("=") && location.hash !== written && view.open(stateOf(location.hash)),
);
