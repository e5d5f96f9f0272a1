"use strict";
// The standings of what the reader selects, computed from the values in the page: mean ranks, shares of the best value with their
// intervals by resampling sources of datasets, what tuning gains, and the curves of quality over seconds.
(() => {
  const root = document.getElementById("explorer"), data = JSON.parse(document.getElementById("explorer-data").textContent);
  const RESAMPLES = 2000, NONE = -1;
  const sum = (values) => values.reduce((a, b) => a + b, 0), mean = (values) => sum(values) / values.length;
  const median = (values) => {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };
  const make = (name, attributes = {}, ...children) => {
    const svg = ["svg", "path", "line", "text", "circle", "g", "title"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  const size = ({ interactions }) => (interactions < 2e5 ? "below 200,000 interactions" : interactions < 1e6 ? "200,000 to 1 million" : "above 1 million");
  const density = (each) => (each.density < 0.002 ? "below 0.2 %" : each.density < 0.01 ? "0.2 to 1 %" : "above 1 %");
  const distinct = (values) => [...new Set(values)].sort();
  const joined = (processors) => (processors ?? []).join(" and ") || "not known";
  const all = "all";
  const controls = {
    metric: ["metric", data.metrics],
    budget: ["budget", data.budgets],
    variant: ["settings", ["tuned", "default"]],
    split: ["split", [all, ...distinct(data.datasets.map((each) => each.split))]],
    size: ["size of the data", [all, ...distinct(data.datasets.map(size)).sort((a, b) => "b2a".indexOf(a[0]) - "b2a".indexOf(b[0]))]],
    density: ["density", [all, ...distinct(data.datasets.map(density)).sort((a, b) => "b0a".indexOf(a[0]) - "b0a".indexOf(b[0]))]],
    processor: ["processor", [all, ...distinct(data.datasets.flatMap((each) => Object.values(each.processors).map(joined)))]],
    family: ["family of methods", [all, ...distinct(data.methods.flatMap((each) => each.families))]],
  };
  const wanted = new URLSearchParams(location.hash.slice(1)), state = {};
  for (const [key, [, options]] of Object.entries(controls)) state[key] = options.includes(wanted.get(key)) ? wanted.get(key) : options[0];
  if (!data.budgets.includes(wanted.get("budget"))) state.budget = data.start;

  // Places, 1 for the largest value; equals share the mean of their places, and methods without a result the last ones.
  const ranks = (values) => values.map((value) =>
    1 + values.filter((other) => other > value).length + (values.filter((other) => other === value).length - 1) / 2);
  const quantile = (sorted, share) => {
    const at = share * (sorted.length - 1), below = Math.floor(at);
    return sorted[below] + (at - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
  };
  // The same numbers in every browser, and in judge/over_datasets.py.
  const random = (seed) => () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;

  const selected = () => data.datasets.map((each, i) => [each, i]).filter(([each]) =>
    (state.split === all || each.split === state.split) && (state.size === all || size(each) === state.size)
    && (state.density === all || density(each) === state.density) && (state.processor === all || joined(each.processors[state.budget]) === state.processor));

  function standings() {
    const values = data[state.variant][state.budget][state.metric], other = data.default[state.budget][state.metric];
    // A dataset counts if half as many methods were run on it as on another one, with this budget and with any; a method, if it
    // was run on all that count.
    const families = data.methods.map((each, m) => [each, m]).filter(([each]) => state.family === all || each.families.includes(state.family));
    const run = (d, budgets) => families.filter(([, m]) => budgets.some((budget) => data[state.variant][budget][state.metric][d][m] !== null)).length;
    const half = (budgets) => {
      const most = Math.max(0, ...selected().map(([, d]) => run(d, budgets)));
      return ([, d]) => 2 * run(d, budgets) >= most;
    };
    const counting = selected().filter(half([state.budget])).filter(half(data.budgets)).filter(([, d]) => families.some(([, m]) => values[d][m] > 0));
    const methods = families.filter(([, m]) => counting.length && counting.every(([, d]) => values[d][m] !== null));
    const datasets = counting.filter(([, d]) => methods.some(([, m]) => values[d][m] > 0)); // the others' results are left out
    const table = datasets.map(([each, d]) => {
      const row = methods.map(([, m]) => values[d][m]), best = Math.max(...row);
      return { source: each.source, ranks: ranks(row), shares: row.map((value) => Math.max(value, 0) / best), best, d };
    });
    // Datasets of one source count once together.
    const sources = [...new Set(table.map((each) => each.source))].map((source) => table.filter((each) => each.source === source));
    const draw = random(1), resamples = Array.from({ length: RESAMPLES }, () => sources.map(() => Math.floor(draw() * sources.length)));
    return {
      used: datasets, datasets: datasets.length, sources: sources.length,
      rows: methods.map(([each, m], column) => {
        const by = (key) => sources.map((members) => mean(members.map((row) => row[key][column])));
        const interval = (found) => {
          if (sources.length < 2) return []; // of one source nothing can be drawn
          const means = resamples.map((drawn) => mean(drawn.map((s) => found[s]))).sort((a, b) => a - b);
          return [quantile(means, 0.025), quantile(means, 0.975)];
        };
        const rank = by("ranks"), share = by("shares");
        const gains = datasets.filter(([, d]) => other[d][m] > 0 && data.tuned[state.budget][state.metric][d][m] > 0)
          .map(([, d]) => data.tuned[state.budget][state.metric][d][m] / other[d][m] - 1);
        const seconds = datasets.map(([, d]) => data.seconds[state.budget][d][m]).filter((value) => value !== null);
        const ended = datasets.map(([, d]) => data.settled[state.budget][d][m]).filter((value) => value !== null);
        return {
          m, name: each.name, families: each.families, rank: mean(rank), share: mean(share),
          ranks: interval(rank), shares: interval(share), wins: table.filter((row) => row.shares[column] === 1).length,
          none: datasets.filter(([, d]) => values[d][m] === NONE).length, gain: gains.length ? median(gains) : null,
          seconds: seconds.length ? median(seconds) : null, settled: ended.length ? mean(ended) : null,
        };
      }).sort((a, b) => a.rank - b.rank || (a.name < b.name ? -1 : 1)),
      leftOut: families.filter((each) => !methods.includes(each)).map(([each]) => each.name),
      apart: selected().filter(([, d]) => !datasets.some(([, other]) => other === d)).map(([each]) => each.name),
    };
  }

  const brackets = (bounds) => (bounds.length ? ` [${bounds.join(", ")}]` : "");
  const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)} %`;
  const columns = [
    ["place", (each, i, rows) => String(1 + rows.filter((other) => other.rank < each.rank - 1e-9).length), "number"],
    ["mean rank", (each) => `${each.rank.toFixed(1)}${brackets(each.ranks.map((x) => x.toFixed(1)))}`, "number"],
    ["share of the best value", (each) => `${percent(each.share)}${brackets(each.shares.map((x) => (100 * x).toFixed(0)))}`, "number"],
    ["best on", (each) => String(each.wins), "number"],
    ["tuning gains", (each) => (each.gain === null ? "" : `${each.gain < 0 ? "" : "+"}${percent(each.gain, 1)}`), "number"],
    ["race over", (each) => (each.settled === null ? "" : percent(each.settled)), "number"],
    ["seconds", (each) => (each.seconds === null ? "" : each.seconds.toFixed(each.seconds < 10 ? 1 : 0)), "number"],
    ["no result", (each) => String(each.none), "number"],
    ["families", (each) => each.families.join(", "), ""],
  ];

  function drawTable({ rows }) {
    const head = make("tr", {}, make("th", { scope: "col", tabindex: "0" }, "method"),
      ...columns.map(([name, , kind]) => make("th", { scope: "col", tabindex: "0", class: kind }, name)));
    const body = rows.map((each, i) => make("tr", {},
      make("th", { scope: "row" }, make("div", { class: "name" }, make("a", { href: `method-${encodeURIComponent(each.name)}.html` }, each.name))),
      ...columns.map(([, cell, kind]) => make("td", { class: kind }, cell(each, i, rows)))));
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  }

  // Quality over seconds: at each budget that all of the datasets have, the mean share of the best value at any of these.
  function drawCurves({ rows, used: shown }) {
    const sources = distinct(shown.map(([each]) => each.source));
    const budgets = data.budgets.filter((budget) => shown.every(([, d]) => data.tuned[budget][state.metric][d].some((value) => value !== null)));
    const values_of = (d) => budgets.flatMap((budget) => data.tuned[budget][state.metric][d].map((value) => value ?? 0));
    const best = Object.fromEntries(shown.map(([, d]) => [d, Math.max(...values_of(d))]));
    const curve = ({ m }) => budgets.flatMap((budget) => {
      const of = (d) => data[state.variant][budget][state.metric][d][m];
      const known = shown.filter(([, d]) => of(d) !== null && best[d] > 0);
      if (known.length < shown.filter(([, d]) => best[d] > 0).length || !known.length) return [];
      const groups = sources.map((source) => known.filter(([each]) => each.source === source)).filter((each) => each.length);
      return [[parseFloat(budget), mean(groups.map((each) => mean(each.map(([, d]) => Math.max(of(d), 0) / best[d]))))]];
    });
    const lines = rows.map((each, place) => ({ ...each, place, points: curve(each) })).filter((each) => each.points.length);
    const values = lines.flatMap((each) => each.points.map(([, y]) => y)), seconds = budgets.map(parseFloat);
    if (!values.length) return make("p", {}, selected().length ? "No method was measured on all of these datasets." : "There are no such datasets.");
    const narrow = root.clientWidth < 600, wide = narrow ? 400 : 760, high = 330, left = 44, right = narrow ? 134 : 180, top = 12, bottom = 40;
    const low = Math.max(0, Math.floor(10 * Math.min(...lines.slice(0, 20).flatMap((each) => each.points.map(([, y]) => y)))) / 10 - 0.05);
    const [first, end] = [Math.log(seconds[0]), Math.log(seconds.at(-1))], span = end - first || 1;
    const x = (value) => left + ((Math.log(value) - first) / span) * (wide - left - right);
    const y = (value) => top + (1 - (Math.max(value, low) - low) / (1.001 - low)) * (high - top - bottom);
    const svg = make("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": "Share of the best value over seconds" });
    for (const value of seconds) svg.append(
      make("line", { x1: x(value), x2: x(value), y1: top, y2: high - bottom, class: "grid" }),
      make("text", { x: x(value), y: high - bottom + 16, "text-anchor": "middle" }, `${value} s`));
    for (let value = Math.ceil(low * 10) / 10; value <= 1.0001; value += 0.1) svg.append(
      make("line", { x1: left, x2: wide - right, y1: y(value), y2: y(value), class: "grid" }),
      make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value)));
    svg.append(make("text", { x: (left + wide - right) / 2, y: high - 4, "text-anchor": "middle" }, "budget of a race, in seconds"));
    let below = -Infinity;
    const labels = lines.slice(0, data.colours.length).sort((a, b) => b.points.at(-1)[1] - a.points.at(-1)[1]);
    for (const each of [...lines].reverse()) {
      const colour = data.colours[each.place], d = each.points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
      const line = make("g", { class: colour ? "" : "rest", style: colour ? `--line: ${colour}` : "" }, make("path", { d, fill: "none" }),
        ...each.points.map(([a, b]) => make("circle", { cx: x(a), cy: y(b), r: colour ? 3 : 1.5 })),
        make("title", {}, `${each.name}: ${each.points.map(([a, b]) => `${percent(b, 1)} at ${a} s`).join(", ")}`));
      svg.append(line);
    }
    for (const each of labels) {
      below = Math.max(below + 14, y(each.points.at(-1)[1]) + 4);
      svg.append(make("g", { style: `--line: ${data.colours[each.place]}` }, make("circle", { cx: wide - right + 12, cy: below - 4, r: 4 }),
        make("text", { x: wide - right + 20, y: below }, each.name)));
    }
    const clipped = values.some((value) => value < low) ? " Lines at the lower edge lie below it." : "";
    return make("figure", {}, svg, make("figcaption", {},
      `Mean share of the best value that any method has at any of these budgets. In colour: the first methods of the table below; grey: all others.${clipped}`));
  }

  // Screen readers say the sentence when it changes, and not the table.
  const sentence = make("p", { class: "about", "aria-live": "polite" }), answer = make("div", { class: "answer" });
  function show() {
    const found = standings(), counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
    const about = `${counted(found.rows.length, "method")} on ${counted(found.datasets, "dataset")} of ${counted(found.sources, "source")}`;
    const named = (names) => (names.length > 12 ? [...names.slice(0, 11), `${names.length - 11} others`] : names).join(", ");
    const leftOut = found.leftOut.length ? ` Not measured on all of these datasets, and left out: ${named(found.leftOut)}.` : "";
    const apart = found.apart.length ? ` Not part of this ranking, because most methods were not measured there, or none of these has a result: ${named(found.apart)}.` : "";
    const processors = distinct(found.used.flatMap(([each]) => each.processors[state.budget] ?? []));
    const unequal = processors.length > 1 ? ` Seconds are those of different processors: ${processors.join("; ")}.` : "";
    const among = state.family === all ? "" : " Ranks and shares in the table are among these methods.";
    const spread = ["There are no such datasets.", "One source of data has no intervals."][found.sources] ?? "Brackets: 95 % intervals by resampling the sources.";
    sentence.textContent = `${about}. ${spread}${among}${leftOut}${apart}${unequal}`;
    answer.replaceChildren(drawCurves(found),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Standings" }, drawTable(found)));
    const kept = Object.entries(state).filter(([key, value]) => value !== (key === "budget" ? data.start : controls[key][1][0]));
    if (!kept.length && location.hash && !location.hash.includes("=")) return; // a link to a section of the page stays one
    history.replaceState(null, "", kept.length ? `#${new URLSearchParams(kept)}` : location.pathname + location.search);
  }
  const form = make("form", { class: "switches", "aria-label": "What is compared" });
  for (const [key, [label, options]] of Object.entries(controls)) {
    if (options.length - options.includes(all) < 2) continue;
    const select = make("select", { name: key }, ...options.map((each) => make("option", each === state[key] ? { value: each, selected: "" } : { value: each }, each)));
    select.addEventListener("change", () => { state[key] = select.value; show(); });
    form.append(make("label", {}, make("span", {}, label), select));
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  root.append(form, sentence, answer, make("p", {}, make("a", { href: "entries.csv" }, "All entries, as CSV")));
  show();
})();
