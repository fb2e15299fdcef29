/* Names and landmarks for screen readers that the theme and ipywidgets leave out. */
(function () {
  const unlabel = (selector) => document.querySelectorAll(selector).forEach((element) => element.removeAttribute("aria-label"));

  function mend() {
    unlabel("button.search-button-field");
    unlabel("details > summary[aria-label]");
    document.querySelectorAll(".theme-switch-button svg:not([aria-hidden])").forEach((icon) => {
      icon.setAttribute("aria-hidden", "true");
      icon.removeAttribute("role");
      icon.removeAttribute("aria-labelledby");
      icon.querySelector("title")?.remove();
    });
    const bar = document.getElementById("pst-primary-sidebar");
    if (bar && !bar.getAttribute("role")) {
      bar.setAttribute("role", "complementary");
      bar.setAttribute("aria-label", "Book navigation");
    }
    document.querySelectorAll(".widget-slider .noUi-handle:not([aria-label])").forEach((handle) => {
      const label = handle.closest(".widget-slider").querySelector(".widget-label");
      handle.setAttribute("aria-label", label?.textContent.trim() || "slider");
    });
    document.querySelectorAll(".citation-list[role], .citation-list [role]").forEach((entry) => entry.removeAttribute("role"));
    document.querySelectorAll(".jupyter-widgets.widget-hbox:not([tabindex])").forEach((box) => {
      box.tabIndex = 0; // it scrolls on a narrow screen, so the keyboard must reach it
    });
    document.querySelectorAll(".widget-output img:not([alt])").forEach((image) => {
      image.alt = "The picture for the present values of the sliders; a still of the same kind, described, follows.";
    });
  }

  mend();
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
})();
