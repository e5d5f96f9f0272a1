"use strict";
// A click on a column's name sorts by it: numbers by size, text by letters, empty cells last; a second click reverses the order.
for (const head of document.querySelectorAll("thead th")) {
  const sort = () => {
    const body = head.closest("table").tBodies[0], down = head.getAttribute("aria-sort") === "descending";
    const key = (row) => {
      const text = row.cells[head.cellIndex].textContent.trim(), number = parseFloat(text.replace(/,/g, "").replace(/^< /, ""));
      return [text, head.classList.contains("number") ? number : NaN];
    };
    const order = (one, other) => {
      const [a, x] = key(one), [b, y] = key(other), sign = down ? 1 : -1;
      if (head.classList.contains("number")) return isNaN(x) - isNaN(y) || (isNaN(x) ? 0 : sign * (x - y));
      return (a === "") - (b === "") || -sign * a.localeCompare(b);
    };
    for (const other of head.parentNode.cells) if (other !== head) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    body.append(...[...body.rows].sort(order));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
}

// A long table has a field above it: rows stay that have all of its words, whatever their column; a word with ! leaves rows out.
for (const table of document.querySelectorAll("table")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 20) continue;
  const field = document.createElement("input");
  Object.assign(field, { type: "search", className: "filter", placeholder: "Filter rows, such as: bpr movielens" });
  field.setAttribute("aria-label", "Filter rows");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => (word[0] === "!" && word[1] ? !text.includes(word.slice(1)) : text.includes(word)));
    }
  });
  table.parentNode.before(field);
}

// Charts are drawn when they come into sight, in the colours of the page; the pictures in the page are for paper.
if (window.Bokeh) {
  document.documentElement.classList.add("live");
  const COLOURS = {
    grid_line_color: "--line", axis_line_color: "--soft", major_tick_line_color: "--soft",
    major_label_text_color: "--soft", axis_label_text_color: "--ink",
  };
  const hidden = new Set();
  const models = () => Bokeh.documents.flatMap((each) => [...each.all_models]);
  const paint = () => {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
    for (const model of models()) {
      const names = Object.keys(COLOURS).filter((name) => name in model.properties && model[name] !== null);
      if (names.length) model.setv(Object.fromEntries(names.map((name) => [name, colour(COLOURS[name])])));
      if (model.tags.includes("ink"))
        for (const name of ["line_color", "text_color"]) if (name in model.properties) model.setv({ [name]: colour("--ink") });
      // One finger scrolls the page; the tools above a chart are still there.
      if (model.type === "Toolbar" && matchMedia("(pointer: coarse)").matches) model.gestures.pan.active?.setv({ active: false });
      if (model.name?.startsWith("arm-")) model.visible = !hidden.has(model.name);
    }
  };
  const draw = async (place) => {
    const item = JSON.parse(document.getElementById(place.id.replace("chart", "data")).textContent);
    await Bokeh.embed.embed_item(item, place.id);
    place.dataset.drawn = "yes";
    paint();
  };
  const sight = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) { sight.unobserve(target); draw(target); }
  }, { rootMargin: "400px" });
  for (const place of document.querySelectorAll(".chart")) sight.observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  for (const button of document.querySelectorAll(".legend button")) button.addEventListener("click", () => {
    const arm = button.dataset.arm, show = hidden.delete(arm);
    if (!show) hidden.add(arm);
    button.setAttribute("aria-pressed", show);
    paint();
  });
}
