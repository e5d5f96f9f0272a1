"""The board that a reader works with, in headless Chromium: its numbers beside those of numpy, switches and address."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata

from rankbench.judge.over_datasets import spread
from rankbench.judge.ranking import MethodRanking
from rankbench.leaderboard.collection import Collection
from rankbench.leaderboard.explorer import explorer
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Page, Section

from ..reports.browser import CHROMIUM, Browser
from .entries import entry

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

SPLITS = {
    "a": ("random", "one"),
    "b": ("random", "one"),
    "c": ("graph", "two"),
    "d": ("random", "three"),
    "e": ("graph", "four"),
}
METHODS = ["ease", "ials", "bpr", "sl"]
TUNED = np.array(
    [[0.3, 0.2, 0.1, 0.25], [0.1, 0.2, 0.3, 0.3], [0.5, 0.4, 0.3, 0.2], [0.2, 0.3, 0.1, 0.25], [0.1, 0.4, 0.2, 0.3]]
)


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page():
    collection = Collection.model_validate(
        {"datasets": {name: {"domain": "x", "split": split, "source": source} for name, (split, source) in SPLITS.items()}}
    )
    boards = {
        f"{seconds}s": [
            entry(
                dataset, method, value * (0.9 if seconds == 10 else 1.0), allowed=f"{seconds}s", budget=float(seconds),
                default={"ndcg@20": value / 2}, seconds={"all": seconds - 1.0},
                ended="settled" if method == "ease" else "still gaining", traits={"interactions": 3e5, "density": 0.02},
                cpu={"b": "Arm", "e": "AMD"}.get(dataset, "Intel"),
            )
            for dataset, row in zip(SPLITS, TUNED, strict=True)
            for method, value in zip(METHODS, row, strict=True)
            if (dataset, method) != ("e", "sl")
        ]
        for seconds in (10, 30)
    }  # fmt: skip
    boards["30s"].append(entry("e", "sl", allowed="30s", budget=30.0, status="over budget"))
    boards["10s"].append(entry("e", "sl", status="failed"))
    families = {"ease": ["linear"], "ials": ["als"], "bpr": ["gradient"], "sl": ["gradient </script>"]}
    block = explorer(boards, "30s", families, collection.datasets, "ndcg@20")
    return Page("Leaderboard", (), (Section("Standings", (block,)),))


def rows(browser):
    return json.loads(
        browser.js("JSON.stringify([...document.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent)))")
    )


def test_the_numbers_are_those_of_numpy_and_each_source_counts_once(browser, page, tmp_path):
    (tmp_path / "board.html").write_text(html(page))
    browser.open(tmp_path / "board.html")
    values = TUNED.copy()
    values[4, 3] = -1
    ranks = rankdata(-values, axis=1)
    shares = np.maximum(values, 0) / values.max(axis=1, keepdims=True)
    weights = np.array([0.5, 0.5, 1, 1, 1]) / 4
    sources = tuple(source for _, source in SPLITS.values())
    said = spread(MethodRanking(tuple(SPLITS), tuple(METHODS), np.where(values < 0, np.nan, values), sources))
    found = {row[0]: row[1:] for row in rows(browser)}
    assert list(found) == [METHODS[i] for i in np.argsort(weights @ ranks, kind="stable")]
    for i, method in enumerate(METHODS):
        _, rank, share, best, gain, settled, seconds, none, _ = found[method]
        assert abs(float(rank.split(" [")[0]) - weights @ ranks[:, i]) < 0.0501
        assert abs(float(share.split(" %")[0]) - 100 * weights @ shares[:, i]) < 0.501
        assert best == str((shares[:, i] == 1).sum()) and none == ("1" if method == "sl" else "0")
        assert gain == "+100.0 %" and settled == ("100 %" if method == "ease" else "0 %") and seconds == "29"
        # Both pages draw the same sources. Halves are rounded up there, and to even numbers here.
        for cell, of, scale, half in ((rank, said[method].mean_rank, 1, 0.0501), (share, said[method].share, 100, 0.501)):
            low, high = map(float, cell.split("[")[1].rstrip("]").split(", "))
            assert abs(low - scale * of.low) < half and abs(high - scale * of.high) < half
    assert not browser.errors and all(address.startswith("file:") for address in browser.requests)


def test_switches_select_and_the_address_keeps_them(browser, page, tmp_path):
    (tmp_path / "board.html").write_text(html(page))
    browser.open(tmp_path / "board.html")
    change = "(s => {{ s.value = '{}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('select[name={}]'))"
    browser.js(change.format("graph", "split"))
    browser.js(change.format("default", "variant"))
    assert browser.js("location.hash") == "#variant=default&split=graph"
    assert "on 2 datasets of 2 sources" in browser.js("document.querySelector('.about').textContent")
    order = [row[0] for row in rows(browser)]
    # The defaults have half of the tuned values, and the method without a result is the last one.
    assert order == ["ials", "ease", "bpr", "sl"]
    (tmp_path / "again.html").write_text(html(page))
    browser.open(tmp_path / "again.html", "#variant=default&split=graph")
    assert [row[0] for row in rows(browser)] == order
    browser.js("document.querySelector('thead th').click()")
    assert [row[0] for row in rows(browser)] == sorted(order)


def test_a_reader_sees_and_chooses_the_processor(browser, page, tmp_path):
    (tmp_path / "board.html").write_text(html(page))
    browser.open(tmp_path / "board.html")
    about = "document.querySelector('.about').textContent"
    assert "Seconds are those of different processors: AMD; Arm; Intel." in browser.js(about)
    browser.js(
        "(s => { s.value = 'Arm'; s.dispatchEvent(new Event('change')); })(document.querySelector('select[name=processor]'))"
    )
    assert "on 1 dataset of 1 source. One source of data has no intervals." in browser.js(about)
    assert "processors" not in browser.js(about)
    # Equal values share a place.
    assert [row[:3] for row in rows(browser)] == [
        ["bpr", "1", "1.5"], ["sl", "1", "1.5"], ["ials", "3", "3.0"], ["ease", "4", "4.0"]
    ]  # fmt: skip


def test_a_method_that_failed_is_left_out(browser, page, tmp_path):
    (tmp_path / "board.html").write_text(html(page))
    browser.open(tmp_path / "board.html")
    browser.js(
        "(s => { s.value = '10s'; s.dispatchEvent(new Event('change')); })(document.querySelector('select[name=budget]'))"
    )
    assert {row[0] for row in rows(browser)} == {"ease", "ials", "bpr"}
    assert "left out: sl." in browser.js("document.querySelector('.about').textContent")


def test_a_budget_that_few_have_reached_says_on_which_data_and_moves_no_curve(browser, page, tmp_path):
    data = page.sections[0].blocks[0]
    about = json.loads(data.data)
    for part in ("tuned", "default"):  # at 100 s one race of one dataset is over, and its value is not the best one
        about[part]["100s"] = {name: [[None] * 4 for _ in SPLITS] for name in about["metrics"]}
        about[part]["100s"]["ndcg@20"][0] = [None, None, 0.1, None]
        about[part]["100s"]["ndcg@20"][1] = [0.1, 0.2, 0.3, 0.3]
    for part in ("seconds", "settled"):
        about[part]["100s"] = [[None] * 4 for _ in SPLITS]
    about["budgets"].append("100s")
    text = json.dumps(about).replace("<", "\\u003c")
    shown = replace(page, sections=(Section("Standings", (replace(data, data=text),)),))
    (tmp_path / "board.html").write_text(html(shown))
    browser.open(tmp_path / "board.html", "#budget=60s")
    assert browser.js("document.querySelector('select[name=budget]').value") == "30s"  # an address of before
    places = "JSON.stringify([...document.querySelectorAll('svg circle')].map(c => +c.getAttribute('cy')))"
    assert min(json.loads(browser.js(places))) > 0
    (tmp_path / "again.html").write_text(html(shown))
    browser.open(tmp_path / "again.html", "#budget=100s")
    said = browser.js("document.querySelector('.about').textContent")
    assert "on 1 dataset of 1 source" in said and "or none of these has a result: a, c, d, e." in said


def test_a_page_in_a_repository_leaves_it_out(page):
    assert "explorer" not in markdown(page)
