"""What a sweep spent, against sums made by hand; and what it says of its deviations."""

import pytest
from stored import typed

from rankbench.reports.budget import budget_columns, duration, seconds_between, spent
from rankbench.reports.report import sweep_table, write_report


@pytest.fixture
def records(make_run):
    """A and B share a fit of 6 s, two settings of A and one of B; A has a fit of its own too; then final runs."""
    shared = {"fit_shared_by": 3, "seconds": {"fit": 6.0, "rank": 9.0}}
    return [
        make_run("search", "A", 0.1, params={"lam": 1}, **shared),
        make_run("search", "A", 0.2, params={"lam": 2}, **shared),
        make_run("search", "B", 0.2, params={"lam": 3}, **shared),
        make_run("search", "A", 0.2, params={"lam": 4}, seconds={"fit": 5.0}),
        make_run("final", "A", 0.2, seconds={"fit": 10.0}),
        make_run("final", "A", 0.2, seconds={"fit": 20.0}, seed=1),
        make_run("final", "B", 0.2, status="failed", error="?", metrics={}, seconds={}),
    ]


def test_shared_fits_count_once_in_the_sum(records):
    a, b = spent(records)
    assert (a.settings, a.search_fits, a.search_seconds) == (3, pytest.approx(5 / 3), pytest.approx(2 + 2 + 5))
    assert (a.final_runs, a.final_fits, a.final_seconds, a.seconds) == (2, 2, 30.0, pytest.approx(39))
    assert (b.settings, b.search_fits, b.final_seconds, b.failed) == (1, pytest.approx(1 / 3), 0.0, 1)
    header, body = budget_columns((a, b))
    total = dict(zip(header, body[-1], strict=True))
    assert total == {
        "model": "all", "searched settings": "4", "search fits": "2", "search fit s": "11.0", "final runs": "3",
        "final fits": "3", "final fit s": "30.0", "all fit s": "41.0", "failed runs": "1",
    }  # fmt: skip


def test_without_a_search_there_is_no_column_of_it(make_run):
    header, body = budget_columns(spent([make_run("final", "A", 0.2)]))
    assert header == ["model", "final runs", "final fits", "final fit s"] and body == [["A", "1", "1", "1.0"]]


def test_a_setting_that_was_stopped_counts_with_its_seconds_until_then(make_run):
    looks = [{"iteration": 5, "seconds": 2.5, "valid": 0.1}, {"iteration": 10, "seconds": 4.0, "valid": 0.1}]
    stopped = make_run("search", "A", 0.1, status="stopped", error="stopped by asha", metrics={}, seconds={}, curve=looks)
    whole = make_run("search", "A", 0.1, params={"lam": 1}, seconds={"fit": 10.0})
    (one,) = spent([stopped, whole])
    assert (one.settings, one.stopped, one.failed, one.search_seconds) == (2, 1, 0, 14.0)
    header, body = budget_columns((one,))
    assert dict(zip(header, body[0], strict=True))["stopped early"] == "1"


def test_times_are_told_in_the_unit_that_suits_them():
    assert [duration(s) for s in (0.4, 42, 99.4, 120, 5940, 6000)] == ["0 s", "42 s", "99 s", "2 min", "99 min", "1 h 40 min"]
    assert seconds_between("2026-11-21T10:00:00+00:00", "2026-11-21T11:30:00+00:00") == 5400
    assert seconds_between("now", "") is None


def test_the_report_has_the_budget_and_the_deviations(records, make_run, make_sweep, tmp_path):
    data = {"differences": ["prepared items: 9, published 10 (-1)"], "recall": "open", "stand_in": "x for y"}
    data["counts"] = records[0].dataset.counts | {"cold_test_items": 3}
    records = [*records, make_run("final", "C", 0.2, params={"lam": 5}, data=data)]
    about, chosen, by_id, compared = make_sweep(records, {"A": {}, "B": {}, "C": {}}, params={"lam": 1})
    by_id = {name: record for name, record in by_id.items() if record.arm == "C" or record.stage == "search"}
    table = sweep_table(*typed(about, chosen, by_id, compared))
    assert table.deviations == (
        "x: prepared items: 9, published 10 (-1)",
        "x is a stand-in: x for y",
        "x: its papers do not say which recall they mean, so the published value is shown beside both",
        "x: 3 test items do not occur in the fitted data; they are ranked with the others",
        "no setting was searched: the experiment file gives each",
        "seed 0, split of seed 0; one run per row, so there is no spread over seeds",
        "failed: A on x, B on x",
    )
    text = write_report(tmp_path, *typed(about, chosen, by_id, compared))[0].read_text()
    section = text.split("## Deviations from the papers' protocol")[1].split("\n## ")[0]
    assert all(f"- {line}" in section for line in table.deviations)
    notes = text.split("## Notes")[1].split("\n## ")[0]
    assert "stand-in" not in notes and "## Budget" in text
