/* What a rendered page of the book does to become a part of the printed one: see print_book.py. */

/** Return a page's article as HTML whose ids, links and addresses are those of the printed book.
 *
 *  `slug` heads the page's ids, `slugs` names the slug of each printed page by its address,
 *  `depth` lowers the headings, and `stills` are pictures of the interactive parts, in their order. */
function partOfTheBook({ slug, slugs, depth, stills, interactive, captions }) {
  const article = document.querySelector("article.bd-article");
  for (const { math, typesetRoot } of window.MathJax?.startup?.document?.math ?? []) {
    const drawing = typesetRoot.querySelector("svg");
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", math); // a screen reader reads the formula's source
    drawing.removeAttribute("aria-hidden");
  }
  [...article.querySelectorAll(interactive)].forEach((part, n) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    figure.className = "still";
    for (const source of stills[n]) {
      const picture = document.createElement("img");
      picture.src = source;
      picture.alt = "A still of the interactive part of this page";
      figure.append(picture);
    }
    caption.textContent = captions.still;
    figure.append(caption);
    part.replaceWith(figure);
  });
  article.querySelectorAll("script, noscript, style, button, .headerlink, .stage-still, mjx-assistive-mml").forEach((node) => node.remove());
  article.querySelectorAll("details.stepper").forEach((steps) => {
    const note = document.createElement("p");
    note.textContent = captions.steps;
    steps.replaceChildren(steps.querySelector("summary"), note);
  });
  article.querySelectorAll("details").forEach((details) => {
    const summary = details.querySelector("summary"), box = document.createElement("div"), title = document.createElement("p");
    const [shut, open] = [".collapsed", ".expanded"].map((name) => summary.querySelector(name)?.textContent);
    title.className = "summary";
    title.textContent = open ?? summary.textContent;
    if (shut === open) box.append(title); // else it offers to show or hide what is always shown here
    summary.remove();
    box.append(...details.childNodes);
    if (details.id) box.id = details.id;
    details.replaceWith(box);
  });
  article.querySelectorAll(".dropdown, .toggle, .toggle-hidden").forEach((box) => box.classList.remove("dropdown", "toggle", "toggle-hidden"));

  const own = (id) => `${slug}--${id}`;
  article.querySelectorAll("[id]").forEach((node) => (node.id = own(node.id)));
  article.querySelectorAll("*").forEach((node) => {
    for (const { name, value } of [...node.attributes]) {
      if (name === "xlink:href" && value.startsWith("#")) node.setAttribute(name, `#${own(value.slice(1))}`);
      else if (value.includes("url(#")) node.setAttribute(name, value.replaceAll("url(#", `url(#${slug}--`));
      else if (/^(for|aria-(labelledby|describedby|controls))$/.test(name)) node.removeAttribute(name);
    }
  });
  article.querySelectorAll("a[href], a[*|href]").forEach((link) => {
    const url = new URL(link.getAttribute("href") ?? link.getAttribute("xlink:href"), location.href);
    if (url.origin !== location.origin) return;
    const page = slugs[url.pathname], place = decodeURIComponent(url.hash.slice(1));
    if (page) link.setAttribute("href", `#${page}${place && `--${place}`}`);
    else link.replaceWith(...link.childNodes); // a page that is not printed
  });
  article.querySelectorAll("img").forEach((picture) => (picture.src = picture.src)); // whole addresses
  article.querySelectorAll("h1, h2, h3, h4, h5, h6").forEach((heading) => {
    const lower = document.createElement(`h${Math.min(6, Number(heading.tagName[1]) + depth)}`);
    lower.append(...heading.childNodes);
    if (heading.id) lower.id = heading.id;
    heading.replaceWith(lower);
  });
  return {
    title: article.querySelector("h1, h2, h3").textContent.trim(),
    body: article.innerHTML,
    sheets: [...document.querySelectorAll("link[rel=stylesheet]")].map(({ href }) => href),
    styles: [...document.querySelectorAll("head style")].map(({ textContent }) => textContent).filter((text) => text.includes("mjx-")),
  };
}

/** Make the assembled book fit its page: turn tables with tall rows, narrow what is too wide, and let links to places that are
 *  not printed lead to their page. */
function fitThePage() {
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    const id = link.getAttribute("href").slice(1);
    if (!document.getElementById(id)) link.setAttribute("href", `#${id.split("--")[0]}`);
  }
  const width = document.querySelector("main").clientWidth, tallest = 130; // px
  for (const table of document.querySelectorAll("table:not(.admonition table)")) {
    if ([...table.rows].some((row) => row.cells.length > 6 && row.offsetHeight > tallest)) table.classList.add("turned");
  }
  for (const box of document.querySelectorAll("table:not(.turned), .math mjx-container, svg.statement-graph, dl, figure")) {
    const room = box.parentElement.clientWidth || width, needed = Math.max(box.scrollWidth, box.getBoundingClientRect().width);
    if (needed > room + 1) box.style.zoom = room / needed;
  }
}
