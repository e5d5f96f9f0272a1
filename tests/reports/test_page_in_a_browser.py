"""The page in headless Chromium: what stays in sight, what a point tells, how to zoom, and phone, dark and paper.

The sweep has two datasets, a search, curves, published numbers, names that are too long, and a model behind by far.
"""

import re
from itertools import pairwise

import numpy as np
import pytest
from browser import CHROMIUM, Browser

from rankbench.judge.compare import compare
from rankbench.reports.report import write_report
from rankbench.tracking.links import RunLinks

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

LONG = "a method with quite a long name and_one_word_of_it_without_any_break, XSimGCL"
ARMS = ["SL", "InfoNCE", LONG, "popularity"]
DATASETS = ["x", "yet-another-dataset-with-a-name"]
MLFLOW = "http://127.0.0.1:5000/#/experiments/1/runs/abc"


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def report(make_run, make_sweep, tmp_path_factory):
    rng = np.random.default_rng(0)
    base, users = rng.uniform(0.2, 0.6, 300), np.arange(300)
    noise = rng.normal(0, 0.03, 300)
    values = {"SL": base, "InfoNCE": base + noise - noise.mean() - 1e-4, LONG: base - 0.02, "popularity": base - 0.19}
    runs, pairs = [], []
    for dataset in DATASETS:
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
    sweep = make_sweep(
        runs, {arm: {"x": {"ndcg@20": 0.41}} for arm in ARMS}, DATASETS, params={"tau": {"grid": [0.1, 0.2]}},
        about={"command": "rankbench sweep e.yaml"}, compared={"comparisons": pairs},
    )  # fmt: skip
    links = RunLinks({run.id: MLFLOW for run in runs if run.stage == "final"}, "rankbench ui")
    folder = tmp_path_factory.mktemp("report")
    write_report(folder, sweep, links)
    return folder / "report.html"


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
    browser.open(report)
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


def point(browser, expression):
    """Scroll to an element; returns its centre."""
    return browser.js(f"""(() => {{
      const mark = {expression};
      mark.scrollIntoView({{ block: "center" }});
      const box = mark.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2];
    }})()""")


def test_a_point_tells_its_model_and_values_under_the_mouse(browser, report):
    browser.size(1400)
    browser.open(report)
    assert browser.js("document.querySelector('.tip').hidden")
    x, y = point(browser, "document.querySelector('.panels [data-arm=SL] use')")
    browser.move(x - 60, y + 60)
    browser.move(x, y)
    text = browser.js("document.querySelector('.tip').innerText")
    assert text.splitlines() == ["SL", "ndcg@20: 0.4000", "95 %: 0.3900 – 0.4100", "published: 0.4100", "tau=0.1"]
    left, right = browser.js("(({left, right}) => [left, right])(document.querySelector('.tip').getBoundingClientRect())")
    assert 0 <= left < right <= 1400
    browser.move(5, 5)
    assert browser.js("document.querySelector('.tip').hidden")


def test_dragging_zooms_a_double_click_ends_it_and_the_legend_hides_a_model_in_every_figure(browser, report):
    browser.size(1400)
    browser.open(report)
    curves = "document.querySelectorAll('.panels svg')[6]"
    x, y = point(browser, curves)
    before = browser.js(f"{curves}.getAttribute('viewBox')")
    browser.drag((x, y), (x + 120, y + 40))
    zoomed, whole = ([*map(float, each.split())] for each in (browser.js(f"{curves}.getAttribute('viewBox')"), before))
    assert zoomed[2] < 0.5 * whole[2] and zoomed[2] / zoomed[3] == pytest.approx(whole[2] / whole[3])
    browser.js(f"{curves}.dispatchEvent(new MouseEvent('dblclick'))")
    assert browser.js(f"{curves}.getAttribute('viewBox')") == before
    shown = "[...document.querySelectorAll('.panels [data-arm=InfoNCE]')].map((part) => part.getBoundingClientRect().width > 0)"
    assert set(browser.js(shown)) == {True} and len(browser.js(shown)) > 14
    for pressed, visible in (("false", False), ("true", True)):
        browser.js("document.querySelectorAll('.legend button')[1].click()")
        assert set(browser.js(shown)) == {visible}
        assert browser.js("document.querySelectorAll('.legend button')[1].getAttribute('aria-pressed')") == pressed


def test_the_page_and_its_figures_follow_the_colours_of_the_reader(browser, report):
    browser.size(1400)
    browser.open(report)
    grounds, inks = {}, {}
    for scheme in ("light", "dark"):  # the page is open while the reader changes the scheme
        browser.media(scheme=scheme)
        grounds[scheme] = browser.js("getComputedStyle(document.querySelector('section')).backgroundColor")
        inks[scheme] = browser.js(
            "[...new Set([...document.querySelectorAll('.panels text')].map((e) => getComputedStyle(e).fill))]"
        )
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(26, 32, 40)"}
    assert inks == {"light": ["rgb(27, 36, 48)"], "dark": ["rgb(228, 233, 239)"]}
    browser.media()


def test_on_paper_and_without_scripts_the_figures_are_whole_and_no_table_is_cut(browser, report):
    browser.size(1030)  # A4 across, without margins, at 96 pixels per inch
    browser.media("print", "dark")
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(report)
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.js("document.documentElement.scrollWidth") <= 1030
    edges = browser.js("[...document.querySelectorAll('table, pre, .panels svg')].map((e) => e.getBoundingClientRect().right)")
    assert max(edges) <= 1030 and len(edges) > 20
    assert browser.js("[...document.querySelectorAll('.panels svg')].every((e) => e.getBoundingClientRect().width > 200)")
    assert browser.js("document.querySelector('nav').getBoundingClientRect().height") == 0
    assert browser.js("getComputedStyle(document.querySelector('td')).color") == "rgb(27, 36, 48)"  # dark is for screens
    browser.media()


def test_headings_tables_pictures_and_links_can_be_read_aloud(browser, report):
    browser.size(1400)
    browser.media()
    browser.open(report)
    levels = browser.js("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    assert browser.js("[...document.querySelectorAll('thead th')].every((e) => e.scope === 'col')")
    assert browser.js("[...document.querySelectorAll('tbody tr')].every((e) => e.cells[0].scope === 'row')")
    named = "[...document.querySelectorAll('.panels svg, .scroll, nav')].map((e) => e.getAttribute('aria-label'))"
    assert sum(not name for name in browser.js(named)) == 1  # a panel of names alone
    links = browser.js("[...document.querySelectorAll('td a')].map((e) => e.href)")
    assert len(links) == 8 and all(re.fullmatch(r"http://127\.0\.0\.1:5000/#/experiments/1/runs/\w+", link) for link in links)
    assert browser.js("document.querySelector('.conclusion').innerText").startswith("Over 2 datasets, SL")
