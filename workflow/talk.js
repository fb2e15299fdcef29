/* Starts the slides. A scene that has the focus gets the keys; Escape gives them back to the slides. */
Reveal.initialize({ width: 1280, height: 720, margin: 0.03, center: false, hash: true, controlsTutorial: false, plugins: [RevealNotes] });
addEventListener("message", ({ data }) => {
  if (data !== "leave") return;
  document.activeElement?.blur();
  window.focus();
});
