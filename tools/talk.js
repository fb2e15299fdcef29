/* Starts the slides: upright on a phone, one below another. A scene that has the focus gets the keys; Escape gives them back. */
const [width, height] = innerWidth < 600 ? [640, 1300] : [1280, 720];
Reveal.initialize({ width, height, margin: 0.03, center: false, hash: true, controlsTutorial: false, plugins: [RevealNotes] });
addEventListener("message", ({ data }) => {
  if (data !== "leave") return;
  document.activeElement?.blur();
  window.focus();
});
