
/* The host on a page of the book: the state is in the page's address. */
const root = document.querySelector("[data-explorer]");
const data = JSON.parse(document.getElementById("explorer-data").textContent);
let written, later;
const changed = (state) => {
  clearTimeout(later); // browsers refuse an address that changes many times a second
  later = setTimeout(() => {
    written = addressOf(state);
    history.replaceState(null, "", written);
  }, 250);
};
let first = true; // the page opens with its plain address; it changes with the reader's first choice
const view = await mount(root, root.dataset.explorer, data, stateOf(location.hash), {
  address: true,
  changed: (state) => (first ? (first = false) : changed(state)),
});
addEventListener("hashchange", () => location.hash !== written && view.open(stateOf(location.hash)));
