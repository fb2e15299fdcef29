/* Returns a text for each thing that is hard to read, to hit or to see whole on a page as wide as a phone. */
({ smallestText, smallestTarget }) => {
  const HIDDEN = ".sr-only, .visually-hidden, .explorer-said, .skip-link, mjx-assistive-mml, thead, script, style, noscript, option";
  const TARGETS = "a[href], button, select, summary, input:not([type=hidden]), [role=button], [role=tab], [role=slider]";
  const TEXTS = "p, li, td, th, dd, dt, figcaption, caption, h1, h2, h3, h4";
  const PICTURES = "main :is(img, svg:not(mjx-container svg), canvas)";
  const found = new Set();
  const isShown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const nameOf = (node) => `${node.tagName} ${node.closest("[class]")?.getAttribute("class")}`;
  const excerpt = (text) => `"${(text ?? "").trim().slice(0, 40)}"`;
  /** How much larger than in itself a drawing appears on the screen. */
  const scaleOf = (node) => (node instanceof SVGGraphicsElement ? Math.abs(node.getScreenCTM().d) : 1);

  function checkText(node, size, text) {
    if (size < smallestText - 0.05) found.add(`small text: ${size.toFixed(1)} px, ${nameOf(node)}, ${excerpt(text)}`);
  }

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const { data } = walker.currentNode;
    if (!data.trim() || node.closest(HIDDEN) || !isShown(node)) continue;
    checkText(node, parseFloat(getComputedStyle(node).fontSize) * scaleOf(node), data);
  }
  for (const glyph of document.querySelectorAll("mjx-container use")) {
    if (isShown(glyph)) checkText(glyph, 1000 * scaleOf(glyph), glyph.closest(".math")?.textContent);
  }

  /** Links within a text may be as high as its lines. */
  const isInText = (node) => node.matches("a") && getComputedStyle(node).display === "inline" && node.closest(TEXTS);
  for (const node of document.querySelectorAll(TARGETS)) {
    const { width, height } = node.getBoundingClientRect();
    const isApart = isInText(node) || node.matches("pre *, svg *, .skip-link *");
    if (isApart || !isShown(node) || Math.min(width, height) < 2) continue;
    if (Math.min(width, height) < smallestTarget - 0.5) {
      found.add(`small target: ${Math.round(width)} x ${Math.round(height)} px, ${nameOf(node)}, ${excerpt(node.textContent)}`);
    }
  }

  for (const picture of document.querySelectorAll(PICTURES)) {
    const box = picture.getBoundingClientRect();
    if (!picture.checkVisibility() || !box.width) continue;
    let [left, right] = [0, innerWidth];
    for (let around = picture.parentElement; around; around = around.parentElement) {
      if (getComputedStyle(around).overflowX === "visible") continue;
      const edges = around.getBoundingClientRect();
      [left, right] = [Math.max(left, edges.left), Math.min(right, edges.right)];
    }
    if (box.left < left - 1 || box.right > right + 1) {
      found.add(`cut picture: ${Math.round(box.width)} px wide, ${nameOf(picture)}, ${excerpt(picture.getAttribute("alt"))}`);
    }
  }
  return [...found];
}
