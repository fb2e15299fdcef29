/* Previews: a link to a statement, an equation, a figure or a reference shows it while the pointer rests on the link or
   the keyboard is on it. Escape closes a preview. Pages opened as files have none, since they cannot be fetched. */
(function () {
  const LINKS = ".bd-article a.reference.internal[href*='#']";
  const SHOWN = ".proof, figure, div.math, .citation";
  const INTERACTIVE = "script, style, button, input, iframe, .headerlink, .explorer, .widget-subarea";
  const DELAY = 250; // milliseconds: a pointer on its way across a link opens nothing
  const GAP = 8; // pixels between a link and its preview
  const pages = new Map(); // documents by address
  const box = Object.assign(document.createElement("div"), { className: "preview", hidden: true });
  box.setAttribute("role", "tooltip");
  let timer = 0;
  let shown = null; // the link of the open preview

  function fetchPage(address) {
    if (!pages.has(address)) {
      const page = fetch(address).then((response) => (response.ok ? response.text() : Promise.reject(response.status)));
      pages.set(address, page.then((text) => new DOMParser().parseFromString(text, "text/html")));
      pages.get(address).catch(() => pages.delete(address));
    }
    return pages.get(address);
  }

  /** Return the element that a link leads to, if it is one of SHOWN; a label may stand just before its figure. */
  function target(page, name) {
    const found = name && page.getElementById(name);
    const inside = found?.closest(SHOWN);
    if (inside) return inside;
    const after = found?.matches("span:empty") ? found.nextElementSibling : null;
    return after?.matches(SHOWN) ? after : null;
  }

  /** Return a copy that can be read and does nothing else: no links, no names, pictures with whole addresses. */
  function copyOf(element, address) {
    const copy = document.importNode(element, true);
    copy.querySelectorAll(INTERACTIVE).forEach((part) => part.remove());
    copy.querySelectorAll("a").forEach((link) => link.replaceWith(...link.childNodes));
    [copy, ...copy.querySelectorAll("[id], [tabindex], [role]")].forEach((part) => {
      for (const name of ["id", "tabindex", "role"]) part.removeAttribute(name);
    });
    copy.querySelectorAll("img").forEach((image) => (image.src = new URL(image.getAttribute("src"), address)));
    return copy;
  }

  function place(link) {
    const lines = link.getClientRects();
    const line = lines[0];
    const { clientWidth: width, clientHeight: height } = document.documentElement;
    const { offsetWidth, offsetHeight } = box;
    const above = line.top - GAP - offsetHeight;
    const below = lines[lines.length - 1].bottom + GAP;
    const fitsBelow = below + offsetHeight <= height;
    box.style.top = `${fitsBelow || above < 0 ? below : above}px`;
    box.style.left = `${Math.max(GAP, Math.min(line.left, width - offsetWidth - GAP))}px`;
    box.classList.toggle("cut", box.scrollHeight > box.clientHeight + 1);
  }

  async function open(link) {
    const { origin, pathname, search, hash } = new URL(link.href);
    const address = origin + pathname + search;
    const page = await fetchPage(address).catch(() => null);
    const found = page && target(page, decodeURIComponent(hash.slice(1)));
    if (!found || shown !== link) return;
    box.replaceChildren(copyOf(found, address));
    box.style.visibility = "hidden"; // until it has its size
    box.hidden = false;
    await Promise.all([window.formulas?.typeset([box]), ...[...box.querySelectorAll("img")].map((image) => image.decode().catch(() => {}))]);
    if (shown !== link) return;
    box.querySelectorAll("[tabindex]").forEach((part) => part.removeAttribute("tabindex"));
    place(link);
    box.style.visibility = "";
  }

  function start(link) {
    clearTimeout(timer);
    if (shown === link) return;
    timer = setTimeout(() => {
      close();
      shown = link;
      open(link);
    }, DELAY);
  }

  function close() {
    clearTimeout(timer);
    shown = null;
    box.hidden = true;
    window.MathJax?.typesetClear?.([box]);
  }

  const linkOf = (event) => event.target.closest?.(LINKS);
  const isInside = (node) => node instanceof Node && (box.contains(node) || shown?.contains(node));

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse") return; // a finger follows the link
    if (linkOf(event)) return start(linkOf(event));
    clearTimeout(timer);
    if (shown && !isInside(event.target)) timer = setTimeout(close, DELAY); // time to move from the link into its preview
  });
  document.addEventListener("focusin", (event) => linkOf(event)?.matches(":focus-visible") && start(linkOf(event)));
  document.addEventListener("focusout", (event) => linkOf(event) && close());
  document.addEventListener("keydown", (event) => event.key === "Escape" && close());
  document.addEventListener("scroll", () => shown && close(), { passive: true });
  document.querySelector("main")?.append(box);
})();
