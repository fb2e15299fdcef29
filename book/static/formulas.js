/* MathJax, which weighs 0.7 MB, is loaded once a formula is about to be seen or the reader does anything, and typesets a few
   formulas at a time, so that the page answers in between. `formulas.ready()` waits until all formulas of the page are typeset,
   `formulas.typeset(elements)` until those in some elements are that were added since. */
(function () {
  const SOURCE = new URL("mathjax/tex-svg-full.js", document.currentScript.src).href;
  const AT_ONCE = 8; // formulas, a few milliseconds
  const NEAR = "50% 0px"; // half a screen above and below what is seen
  const ACTIONS = ["pointerdown", "pointermove", "keydown", "scroll", "beforeprint"];
  const inPage = () => [...document.querySelectorAll(".math")];
  let loaded = null;

  const NARROW = matchMedia("(max-width: 600px)");
  const SMALLEST_SCRIPT = "0.8em"; // of subscripts, and of theirs, where formulas themselves are small

  const pause = () => new Promise((done) => setTimeout(done));

  async function typesetPage() {
    const parts = inPage();
    for (let start = 0; start < parts.length; start += AT_ONCE) {
      await MathJax.typesetPromise(parts.slice(start, start + AT_ONCE));
      await pause();
    }
  }

  function enlargeScripts() {
    MathJax._.core.MmlTree.MmlNodes.math.MmlMath.defaults.scriptminsize = SMALLEST_SCRIPT;
    MathJax.startup.defaultReady();
  }

  function load() {
    loaded ??= new Promise((done, failed) => {
      MathJax.startup = { ...MathJax.startup, pageReady: typesetPage };
      if (NARROW.matches) MathJax.startup.ready = enlargeScripts;
      const script = Object.assign(document.createElement("script"), { src: SOURCE, onerror: failed });
      script.onload = () => {
        MathJax.Hub = Hub;
        done(MathJax.startup.promise);
      };
      document.head.append(script);
    });
    return loaded;
  }

  const hasFormula = (element) => element.querySelector(".math") || /\$|\\[([]/.test(element.textContent);

  window.formulas = {
    ready: () => (inPage().length ? load() : Promise.resolve()),
    typeset: (elements) => (elements.some(hasFormula) ? load().then(() => MathJax.typesetPromise(elements)) : Promise.resolve()),
  };

  // ipywidgets typesets its labels through the queue that MathJax had in version 2.
  const Hub = { Queue: (command) => window.formulas.typeset([command[2]]) };
  MathJax.Hub = Hub;

  function watch() {
    const parts = inPage();
    if (!parts.length) return;
    const start = () => {
      observer.disconnect();
      for (const action of ACTIONS) removeEventListener(action, start);
      load();
    };
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && start(), { rootMargin: NEAR });
    for (const part of parts) observer.observe(part);
    for (const action of ACTIONS) addEventListener(action, start, { passive: true });
  }

  if (document.readyState === "complete") watch();
  else addEventListener("load", watch);
})();
