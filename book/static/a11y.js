/* Names and landmarks for screen readers that the theme and ipywidgets leave out, and on a phone, figures that can be enlarged. */
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
    if (matchMedia("(max-width: 600px)").matches) {
      // They scroll on a narrow screen, so the keyboard must reach them.
      document.querySelectorAll(".jupyter-widgets.widget-box:not([tabindex])").forEach((box) => (box.tabIndex = 0));
      // A figure is as wide as the screen, and leads to itself in its own size.
      document.querySelectorAll(".cell_output figure > img").forEach((picture) => {
        const link = Object.assign(document.createElement("a"), { href: picture.src });
        picture.replaceWith(link);
        link.append(picture);
      });
    }
    document.querySelectorAll("li.has-children > details > summary:not([aria-label])").forEach((toggle) => {
      const link = toggle.closest("li").querySelector("a"); // the toggle of a section of the sidebar has an icon only
      toggle.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this one"}`);
    });
    document.querySelectorAll("table.stacked").forEach((table) => {
      const names = [...table.querySelectorAll("thead th")].map((name) => name.textContent.trim());
      table.querySelectorAll("tbody tr > *").forEach((cell) => (cell.dataset.column = names[cell.cellIndex]));
    });
  }

  mend();
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
})();
