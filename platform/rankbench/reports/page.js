"use strict";
// A click on a column's name sorts by it: numbers by size, text by letters, empty cells last; a second click reverses the order.
const sort = (head) => {
  const body = head.closest("table").tBodies[0], number = head.classList.contains("number");
  const words = number ? ["descending", "ascending"] : ["ascending", "descending"], down = head.getAttribute("aria-sort") === words[0];
  const key = (row) => {
    const text = row.cells[head.cellIndex].textContent.trim();
    return [text, number ? parseFloat(text.replace(/,/g, "").replace(/^< /, "")) : NaN];
  };
  const order = (one, other) => {
    const [a, x] = key(one), [b, y] = key(other), sign = down ? 1 : -1;
    if (number) return isNaN(x) - isNaN(y) || (isNaN(x) ? 0 : sign * (x - y));
    // Runs of digits are compared as whole numbers, which the digits behind a point are not.
    return (a === "") - (b === "") || -sign * a.localeCompare(b, undefined, { numeric: !/\d\.\d/.test(a + b) });
  };
  for (const other of head.parentNode.cells) if (other !== head) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", words[+down]);
  body.append(...[...body.rows].sort(order));
};
// The page as a whole listens, for tables that come later, too.
for (const kind of ["click", "keydown"]) document.addEventListener(kind, (event) => {
  const head = event.target.closest?.("thead th");
  if (!head || (kind === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  sort(head);
});

// A long table has a field above it: rows stay that have all of its words, whatever their column; a word with ! leaves rows out.
for (const table of document.querySelectorAll("section > .scroll > table")) {
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

// A click on a name in the legend hides a method in all figures.
for (const button of document.querySelectorAll(".legend button")) button.addEventListener("click", () => {
  const shown = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", shown);
  for (const part of document.querySelectorAll(".panels [data-arm]"))
    if (part.dataset.arm === button.dataset.arm) part.style.display = shown ? "" : "none";
});

// A point tells what it is, under the mouse or a finger: at once, and not as late as the titles of a browser.
const tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));
document.addEventListener("pointerover", ({ target, clientX, clientY }) => {
  const mark = target.closest?.(".panels use"), title = mark?.querySelector("title");
  if (title) { mark.dataset.tip = title.textContent; title.remove(); }
  tip.hidden = !mark?.dataset.tip;
  if (tip.hidden) return;
  tip.textContent = mark.dataset.tip;
  tip.style.left = `${Math.max(0, Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${clientY + tip.offsetHeight + 22 > innerHeight ? clientY - tip.offsetHeight - 10 : clientY + 14}px`;
});

// Drag over a part of a figure to enlarge it; a double click shows all of it again.
for (const svg of document.querySelectorAll(".panels svg")) {
  const whole = svg.getAttribute("viewBox"), [, , wide, high] = whole.split(" ").map(Number);
  const place = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  let start = null;
  svg.addEventListener("pointerdown", (event) => { start = event.pointerType === "mouse" ? place(event) : null; });
  svg.addEventListener("pointerup", (event) => {
    const end = place(event), across = start ? Math.abs(end.x - start.x) : 0, down = start ? Math.abs(end.y - start.y) : 0;
    const size = Math.max(across / wide, down / high);
    if (size > 0.04) svg.setAttribute("viewBox", [
      (start.x + end.x - size * wide) / 2, (start.y + end.y - size * high) / 2, size * wide, size * high].join(" "));
    start = null;
  });
  svg.addEventListener("dblclick", () => svg.setAttribute("viewBox", whole));
}
