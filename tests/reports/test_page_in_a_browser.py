"""The page in headless Chromium: what stays in sight, what can be hovered and zoomed, and phone, dark and paper.

The sweep has two datasets, a search, curves, published numbers, names that are too long, and a model behind by far.
"""

import re
from itertools import pairwise

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from stored import typed

from rankbench.evaluation.compare import compare
from rankbench.reports.index import Entry, write_index
from rankbench.reports.palette import styles
from rankbench.reports.report import write_report
from rankbench.tracking.links import RunLinks

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

LONG = "a method with quite a long name and_one_word_of_it_without_any_break, XSimGCL"
ARMS = ["SL", "InfoNCE", LONG, "popularity"]


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def report(make_run, make_sweep, tmp_path):
    rng = np.random.default_rng(0)
    base, users = rng.uniform(0.2, 0.6, 300), np.arange(300)
    noise = rng.normal(0, 0.03, 300)
    values = {"SL": base, "InfoNCE": base + noise - noise.mean() - 1e-4, LONG: base - 0.02, "popularity": base - 0.19}
    runs, pairs = [], []
    for dataset in ("x", "yet-another-dataset-with-a-name"):
        for metric in ("recall@20", "ndcg@20"):
            columns = {arm: (users, value) for arm, value in values.items()}
            pairs += [vars(pair) for pair in compare(columns, dataset=dataset, metric=metric).pairs]
        for position, arm in enumerate(ARMS):
            curve = [
                {"iteration": i, "seconds": 0.5 * i, "loss": 1.0, "ndcg@20": 0.4 - 0.01 * position - 0.2 / i}
                for i in range(1, 9)
            ]
            more = {"params": {"tau": 0.1 * (position + 1)}, "seconds": {"fit": 2.0 + position}}
            runs.append(make_run("final", arm, 0.4 - 0.02 * position, dataset, curve=curve, **more))
            runs += [make_run("search", arm, 0.3 - 0.01 * i, dataset, params={"tau": 0.1 * (i + 1)}) for i in range(3)]
    published = {arm: {"x": {"ndcg@20": 0.41}} for arm in ARMS}
    about, chosen, records, compared = make_sweep(
        runs, published, datasets=["x", "yet-another-dataset-with-a-name"], params={"tau": {"grid": [0.1, 0.2]}}
    )
    compared |= {"comparisons": pairs, "metrics": ["ndcg@20"]}
    links = RunLinks(
        {run.id: "http://127.0.0.1:5000/#/experiments/1/runs/abc" for run in runs if run.stage == "final"}, "rankbench ui"
    )
    write_report(tmp_path, *typed(about | {"command": "rankbench sweep e.yaml"}, chosen, records, compared), links)
    return tmp_path / "report.html"


VERDICTS = """[...document.querySelectorAll("table")].filter((t) => t.tHead.rows[0].cells[1].textContent === "verdict")"""
IN_SIGHT = f"""{VERDICTS}.flatMap((table) => {{
  const frame = table.parentNode.getBoundingClientRect();
  return [...table.tBodies[0].rows].map((row) => {{
    const [name, verdict] = [...row.cells].slice(0, 2).map((cell) => cell.getBoundingClientRect());
    const text = row.cells[1].firstElementChild.getBoundingClientRect();
    const right = Math.min(innerWidth, frame.right);
    return [name.left >= Math.max(0, frame.left) - 1, verdict.left >= name.right - 1, text.right <= right,
            verdict.right <= right + 1, text.right <= verdict.right + 1];
  }});
}})"""


@pytest.mark.parametrize(("width", "touch"), [(1400, False), (390, True)])
def test_the_verdict_stays_in_sight_beside_the_name_however_far_the_table_is_scrolled(browser, report, width, touch):
    browser.size(width, touch=touch)
    browser.media()
    browser.open(report, charts=False)
    assert browser.js(f"{VERDICTS}.length") == 4
    wide = browser.js(f"{VERDICTS}.map((table) => table.parentNode.scrollWidth - table.parentNode.clientWidth)")
    assert width == 1400 or min(wide) > 100  # on a phone there is something to scroll
    for position in (0, 150, 10_000):
        browser.js(f"{VERDICTS}.forEach((table) => table.parentNode.scrollTo({position}, 0))")
        rows = browser.js(IN_SIGHT)
        assert len(rows) == 12 and all(all(row) for row in rows), (position, rows)
    # Nothing but tables and code is wider than the screen.
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.js(
        "[...document.querySelectorAll('section > p, h1, .conclusion')].every((e) => e.scrollWidth <= e.clientWidth)"
    )


def test_on_a_phone_a_name_leaves_room_for_numbers(browser, report):
    browser.size(390, touch=True)
    browser.open(report, charts=False)
    shares = browser.js("""[...document.querySelectorAll("table")].map((table) => {
      const frame = table.parentNode.getBoundingClientRect(), two = table.classList.contains("two") ? 1 : 0;
      return (table.rows[1].cells[two].getBoundingClientRect().right - frame.left) / frame.width; })""")
    assert shares and max(shares) < 0.7


def test_everything_is_in_the_file_and_nothing_is_asked_of_a_network_or_refused(browser, report):
    browser.size(1400)
    browser.requests.clear(), browser.errors.clear()
    browser.open(report)
    assert {address.partition(":")[0] for address in browser.requests} <= {"file", "data"}
    assert [address for address in browser.requests if address.startswith("file")] == [report.resolve().as_uri()]
    assert browser.errors == []
    drawn = browser.js("[document.querySelectorAll('.chart').length, document.querySelectorAll('.chart[data-drawn]').length]")
    # Per dataset: intervals, two metrics of differences, two curves, the front, and one searched parameter.
    assert drawn == [14, 14]
    # 1.3 MB of it are Bokeh.
    assert 1_300_000 < report.stat().st_size < 1_800_000


def chart(browser, title):
    """Scroll to a chart; returns the number of its document, and the position of its canvas."""
    return browser.js(f"""(() => {{
      const panel = [...document.querySelectorAll(".panel")].find((p) => p.querySelector("h3").textContent === {title!r});
      const place = panel.querySelector(".chart");
      place.scrollIntoView({{ block: "center" }});
      const number = [...document.querySelectorAll(".chart")].indexOf(place);
      const box = place.getBoundingClientRect();
      return [Number(place.id.split("-")[1]), box.left, box.top, box.width, box.height];
    }})()""")


def of_chart(browser, place, expression):
    """Evaluate an expression of `plot` and `view`, the plot in a place of the page."""
    return browser.js(f"""(() => {{
      const all = Object.values(Bokeh.index.roots ?? Bokeh.index);
      const view = all.find((each) => each.el.parentNode?.id === "chart-{place}" || each.el.closest?.("#chart-{place}"));
      const plot = view.model;
      return {expression};
    }})()""")


def test_a_point_tells_its_model_and_values_under_the_mouse(browser, report):
    browser.size(1400)
    browser.open(report)
    place, *_ = chart(browser, "x")
    point = of_chart(browser, place, """(() => {
      const renderer = view.model.renderers.find((r) => r.name === "arm-0" && r.glyph.type === "Scatter");
      const frame = view.frame ?? view.center_panel, source = renderer.data_source;
      const box = view.canvas_view ? view.canvas_view.el.getBoundingClientRect() : view.el.getBoundingClientRect();
      return [box.left + frame.x_scale.compute(source.get("x")[0]), box.top + frame.y_scale.compute(source.get("y")[0])];
    })()""")  # fmt: skip
    browser.move(point[0] - 30, point[1])
    browser.move(*point)
    text = browser.js("""new Promise((done) => setTimeout(() => {
      const texts = (root) => [...root.querySelectorAll("*")].filter((e) => e.shadowRoot)
        .flatMap((e) => [e.shadowRoot.textContent, ...texts(e.shadowRoot)]);
      done(texts(document).join(" "));
    }, 400))""")
    assert "SL" in text and "0.4000" in text and "0.4100" in text and "tau=0.1" in text


def test_dragging_zooms_and_the_legend_hides_a_model_in_every_chart(browser, report):
    browser.size(1400)
    browser.open(report)
    place, left, top, width, height = chart(browser, "x, by iteration")
    before = of_chart(browser, place, "[plot.x_range.start, plot.x_range.end]")
    browser.drag((left + width / 2, top + height / 3), (left + width / 2 + 120, top + height / 2))
    after = of_chart(browser, place, "[plot.x_range.start, plot.x_range.end]")
    assert after[1] - after[0] < 0.6 * (before[1] - before[0])
    shown = "Bokeh.documents.flatMap((d) => [...d.all_models]).filter((m) => m.name === 'arm-1').map((m) => m.visible)"
    assert set(browser.js(shown)) == {True} and len(browser.js(shown)) >= 14
    browser.js("document.querySelectorAll('.legend button')[1].click()")
    assert set(browser.js(shown)) == {False}
    assert browser.js("document.querySelectorAll('.legend button')[1].getAttribute('aria-pressed')") == "false"
    browser.js("document.querySelectorAll('.legend button')[1].click()")
    assert set(browser.js(shown)) == {True}


def test_a_model_has_one_colour_in_all_charts_and_in_the_legend(browser, report):
    browser.size(1400)
    browser.open(report)
    found = browser.js("""Object.fromEntries([0, 1, 2, 3].map((n) => [n, [...new Set(
      Bokeh.documents.flatMap((d) => [...d.all_models]).filter((m) => m.name === `arm-${n}` && m.glyph.line_color)
        .map((m) => m.glyph.line_color.value).filter((c) => c))]]))""")
    expected = styles(ARMS)
    assert {int(n): colours for n, colours in found.items()} == {n: [expected[arm].colour] for n, arm in enumerate(ARMS)}
    lines = browser.js("[...document.querySelectorAll('.legend line')].map((line) => line.getAttribute('stroke'))")
    assert lines == [expected[arm].colour for arm in ARMS]


def test_the_page_and_its_figures_follow_the_colours_of_the_reader(browser, report):
    browser.size(1400)
    grounds, inks = {}, {}
    for scheme in ("light", "dark"):
        browser.media(scheme=scheme)
        browser.open(report)
        grounds[scheme] = browser.js("getComputedStyle(document.querySelector('section')).backgroundColor")
        inks[scheme] = browser.js(
            "[...new Set(Bokeh.documents.flatMap((d) => [...d.all_models]).map((m) => m.axis_label_text_color)"
            ".filter((colour) => colour).map((colour) => colour.value ?? colour))]"
        )
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(26, 32, 40)"}
    assert inks == {"light": ["#1b2430"], "dark": ["#e4e9ef"]}
    # The page is open while the reader changes the scheme.
    browser.media(scheme="light")
    browser.js("new Promise((done) => setTimeout(done, 200))")
    assert browser.js("Bokeh.documents[0].all_models.values().find((m) => m.type === 'LinearAxis').axis_label_text_color") in (
        "#1b2430", {"value": "#1b2430"},
    )  # fmt: skip


def test_on_paper_figures_are_pictures_and_no_table_is_cut(browser, report):
    browser.size(1030)  # A4 across, without margins, at 96 pixels per inch
    browser.media("print")
    browser.open(report, charts=False)
    assert browser.js("document.documentElement.scrollWidth") <= 1030
    edges = browser.js("[...document.querySelectorAll('table, pre, img')].map((e) => e.getBoundingClientRect().right)")
    assert max(edges) <= 1030
    assert browser.js(
        "[...document.querySelectorAll('.chart, nav, .legend')].every((e) => e.getBoundingClientRect().height === 0)"
    )
    pictures = browser.js("[...document.querySelectorAll('.picture img')].map((e) => [e.naturalWidth, e.offsetWidth])")
    assert len(pictures) == 5 and all(natural > 200 and shown > 200 for natural, shown in pictures)
    # Dark is for screens.
    browser.media("print", "dark")
    assert browser.js("getComputedStyle(document.querySelector('td')).color") == "rgb(27, 36, 48)"
    browser.media()


def test_headings_tables_pictures_and_links_can_be_read_aloud(browser, report):
    browser.size(1400)
    browser.media()
    browser.open(report)
    levels = browser.js("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    assert browser.js("[...document.querySelectorAll('thead th')].every((e) => e.scope === 'col')")
    assert browser.js("[...document.querySelectorAll('tbody tr')].every((e) => e.cells[0].scope === 'row')")
    assert browser.js("[...document.querySelectorAll('img')].every((e) => e.alt.length > 20)")
    assert browser.js(
        "[...document.querySelectorAll('.chart, .scroll, nav')].every((e) => e.getAttribute('aria-label').length > 0)"
    )
    links = browser.js("[...document.querySelectorAll('td a')].map((e) => e.href)")
    assert len(links) == 8 and all(re.fullmatch(r"http://127\.0\.0\.1:5000/#/experiments/1/runs/\w+", link) for link in links)
    assert browser.js("document.querySelector('.conclusion').innerText").startswith("Over 2 datasets, SL")


def test_without_scripts_the_pictures_are_shown(browser, report):
    browser.size(1400)
    browser.media()
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(report, charts=False)
        assert browser.js("[...document.querySelectorAll('img')].every((e) => e.getBoundingClientRect().width > 200)")
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_the_state_of_an_experiment_stays_in_sight_in_the_index(browser, tmp_path):
    entries = [Entry(f"experiment-{i}-{LONG}", "e.yaml", "Why? " * 30, "Paper, table 2", "differs") for i in range(3)]
    index, *_ = write_index(tmp_path, entries)
    browser.size(390, touch=True)
    browser.media()
    browser.open(index, charts=False)
    browser.js("document.querySelector('.scroll').scrollTo(10000, 0)")
    boxes = browser.js(
        "[...document.querySelectorAll('.state')].map((e) => e.getBoundingClientRect()).map((box) => [box.left, box.right])"
    )
    assert len(boxes) == 3 and all(0 < left < right < 390 for left, right in boxes)
    assert browser.js("document.documentElement.scrollWidth") <= 390
    assert index.stat().st_size < 60_000  # no chart, no Bokeh
