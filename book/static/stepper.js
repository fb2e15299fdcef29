/* Proofs, sentence by sentence: the list of all steps becomes a panel that shows one of them, at the size of the panel
   whichever it is. And the graph of statements, narrowed by address: #graph=theorem_1. */
(function () {
  const SWIPE = 40; // pixels

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function stepper(details) {
    const name = details.querySelector("summary code").textContent;
    const list = details.querySelector("ol");
    const steps = [...list.children];
    const last = steps.length - 1;
    let at = 0;

    const back = make("button", { type: "button", textContent: "Back", onclick: () => show(at - 1) });
    const next = make("button", { type: "button", textContent: "Next", onclick: () => show(at + 1) });
    const place = make("span", { className: "place" });
    place.setAttribute("aria-live", "polite");
    const script = make("div", { className: "script" });
    const sentences = steps.map((step, number) => {
      const text = step.querySelector(".sentence").textContent;
      return make("button", { type: "button", textContent: text, onclick: () => show(number) });
    });
    script.append(...sentences);
    const state = make("div", { className: "state", tabIndex: 0 }, list); // it scrolls, so the keyboard must reach it
    state.setAttribute("role", "group");
    state.setAttribute("aria-label", `What is left to prove of ${name}`);
    const hint = make("span", { className: "hint", textContent: "or the arrow keys, or swipe" });
    details.append(make("div", { className: "bar" }, back, next, place, hint), make("div", { className: "panel" }, script, state));
    details.classList.add("live");

    function show(number) {
      if (number < 0 || number > last) return;
      at = number;
      steps.forEach((step, n) => (step.hidden = n !== at));
      sentences.forEach((sentence, n) => {
        if (n === at) sentence.setAttribute("aria-current", "step");
        else sentence.removeAttribute("aria-current");
      });
      place.textContent = at ? `Sentence ${at} of ${last}` : "Before the proof";
      back.setAttribute("aria-disabled", at === 0); // not disabled: that would lose the focus
      next.setAttribute("aria-disabled", at === last);
      state.scrollTop = 0;
      const { offsetTop, offsetHeight } = sentences[at];
      const above = offsetTop - script.offsetTop;
      const seen = script.clientHeight;
      if (above < script.scrollTop || above + offsetHeight > script.scrollTop + seen) script.scrollTop = above - seen / 3;
    }

    details.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
      if (to === undefined || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      show(to);
    });
    let touch = null;
    state.addEventListener("touchstart", (event) => (touch = event.touches.length === 1 ? event.touches[0] : null), { passive: true });
    state.addEventListener("touchend", (event) => {
      if (!touch) return;
      const x = event.changedTouches[0].clientX - touch.clientX;
      const y = event.changedTouches[0].clientY - touch.clientY;
      if (Math.abs(x) > SWIPE && Math.abs(x) > 2 * Math.abs(y)) show(at + (x < 0 ? 1 : -1));
    });
    show(0);
  }

  /* Theorems once stood on the page of the graph: an address of one there leads to its page. */
  function follow() {
    const mark = document.getElementById(`graph=${location.hash.slice(1)}`);
    if (mark && !document.getElementById(location.hash.slice(1))) location.replace(mark.getAttribute("href"));
  }

  /* Keeps the theorem that the address names, those that it uses and those that use it; #graph=all shows all again. */
  function narrow() {
    const svg = document.querySelector("svg.statement-graph");
    const name = location.hash.match(/^#graph=(\w+)$/)?.[1];
    if (!svg || !name) return;
    const marks = new Map([...svg.querySelectorAll("a")].map((mark) => [mark.id.replace("graph=", ""), mark]));
    const uses = (user, used) => marks.get(user).dataset.uses.split(" ").includes(used);
    const whole = !marks.has(name);
    const rows = [...marks.values()].map((mark) => Number(mark.querySelector("text").getAttribute("y")));
    const y = new Map(); // of those that stay
    for (const [other, mark] of marks) {
      const stays = whole || other === name || uses(name, other) || uses(other, name);
      mark.style.display = stays ? "" : "none";
      if (stays) y.set(other, rows[y.size]);
      mark.setAttribute("transform", `translate(0 ${(y.get(other) ?? 0) - mark.querySelector("text").getAttribute("y")})`);
      mark.classList.toggle("chosen", other === name);
    }
    svg.querySelectorAll(":scope > path").forEach((edge) => {
      const [y0, y1] = edge.dataset.ends.split(" ").map((end) => y.get(end));
      const [x0, , , , , x1] = edge.getAttribute("d").match(/[\d.]+/g);
      edge.style.display = y0 === undefined || y1 === undefined ? "none" : "";
      if (!edge.style.display) edge.setAttribute("d", `M${x0} ${y0} V${y1 - (rows[1] - rows[0]) / 2} Q${x0} ${y1} ${x1} ${y1}`);
    });
    svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${rows[y.size - 1] + rows[0]}`);
    svg.previousElementSibling.hidden = whole;
    svg.parentElement.scrollIntoView();
  }

  document.querySelectorAll("details.stepper").forEach(stepper);
  follow();
  addEventListener("hashchange", narrow);
  narrow();
})();
