"""What a sweep spent, against sums made by hand; and the time to target, against curves small enough to read."""

import pytest

from rankbench.judge.printing import duration
from rankbench.reports.budget import budget_columns, seconds_between, spent
from rankbench.reports.targets import SHARES, final_value, target_columns, time_to_target


def test_shared_fits_count_once_in_the_sum(make_run):
    shared = {"fit_shared_by": 3, "seconds": {"fit": 6.0, "rank": 9.0}}
    a, b = spent(
        [
            make_run("search", "A", 0.1, params={"lam": 1}, **shared),
            make_run("search", "A", 0.2, params={"lam": 2}, **shared),
            make_run("search", "B", 0.2, params={"lam": 3}, **shared),
            make_run("search", "A", 0.2, params={"lam": 4}, seconds={"fit": 5.0}),
            make_run("final", "A", 0.2, seconds={"fit": 10.0}),
            make_run("final", "A", 0.2, seconds={"fit": 20.0}, seed=1),
            make_run("final", "B", 0.2, status="failed", error="?", metrics={}, seconds={}),
        ]
    )
    assert (a.settings, a.search_fits, a.search_seconds) == (3, pytest.approx(5 / 3), pytest.approx(2 + 2 + 5))
    assert (a.final_runs, a.final_fits, a.final_seconds, a.seconds) == (2, 2, 30.0, pytest.approx(39))
    assert (b.settings, b.search_fits, b.final_seconds, b.failed) == (1, pytest.approx(1 / 3), 0.0, 1)
    header, body = budget_columns((a, b))
    assert dict(zip(header, body[-1], strict=True)) == {
        "model": "all", "searched settings": "4", "search fits": "2", "search fit s": "11.0", "final runs": "3",
        "final fits": "3", "final fit s": "30.0", "all fit s": "41.0", "failed runs": "1",
    }  # fmt: skip


def test_without_a_search_there_is_no_column_of_it(make_run):
    header, body = budget_columns(spent([make_run("final", "A", 0.2)]))
    assert header == ["model", "final runs", "final fits", "final fit s"] and body == [["A", "1", "1", "1.0"]]


def test_a_setting_that_was_stopped_counts_with_its_seconds_until_then(make_run):
    looks = [{"iteration": 5, "seconds": 2.5, "valid": 0.1}, {"iteration": 10, "seconds": 4.0, "valid": 0.1}]
    stopped = make_run("search", "A", 0.1, status="stopped", error="stopped by asha", metrics={}, seconds={}, curve=looks)
    (one,) = spent([stopped, make_run("search", "A", 0.1, params={"lam": 1}, seconds={"fit": 10.0})])
    assert (one.settings, one.stopped, one.failed, one.search_seconds) == (2, 1, 0, 14.0)
    header, body = budget_columns((one,))
    assert dict(zip(header, body[0], strict=True))["stopped early"] == "1"


def test_times_are_told_in_the_unit_that_suits_them():
    assert [duration(s) for s in (0.4, 42, 99.4, 120, 5940, 6000)] == ["0 s", "42 s", "99 s", "2 min", "99 min", "1 h 40 min"]
    assert seconds_between("2026-11-21T10:00:00+00:00", "2026-11-21T11:30:00+00:00") == 5400
    assert seconds_between("now", "") is None


def curve(*values, step=1.0):
    """Points at 1, 2, ... iterations of `step` seconds; None: measured at no metric."""
    return [
        {"iteration": i, "seconds": step * i, "loss": 1.0} | ({} if value is None else {"ndcg@20": value})
        for i, value in enumerate(values, start=1)
    ]


def test_seconds_and_iterations_until_each_share_of_the_best(make_run):
    assert SHARES == (0.95, 0.99, 0.995)
    runs = [
        make_run("final", "slow", 0.4, curve=curve(0.1, None, 0.381, None, 0.4, step=10)),
        make_run("final", "fast", 0.397, curve=curve(0.39, 0.397)),
        make_run("final", "poor", 0.2, curve=curve(0.1, 0.2)),
        make_run("final", "closed form", 0.5),
    ]
    found = {each.arm: each for each in time_to_target(runs, "ndcg@20", ["slow", "fast"])}
    assert list(found) == ["slow", "fast", "poor"]
    assert found["slow"].targets == pytest.approx((0.38, 0.396, 0.398))  # of 0.4
    assert found["slow"].seconds == (30, 50, 50) and found["slow"].iterations == (3, 5, 5)
    assert found["fast"].seconds == (1, 2, None)
    assert found["poor"].seconds == (None, None, None)
    _, body = target_columns(list(found.values()))
    assert body[1] == ["fast", "0.3970", "1.00", "1", "2.00", "2", "not reached", ""]


def test_the_model_that_was_kept_is_the_final_one_and_its_peak_counts(make_run):
    for values, expected in (((0.2, 0.4, 0.3), 0.4), ((0.2, None, 0.3), 0.3)):
        assert final_value(make_run("final", "A", 0.4, curve=curve(*values), iterations=2), "ndcg@20") == expected


def test_of_several_runs_the_median_counts_and_each_split_has_its_own_target(make_run):
    def runs(*curves, **more):
        return [make_run("final", "A", 0.4, seed=seed, curve=curve(*values), **more) for seed, values in enumerate(curves)]

    seeds = runs((0.4,), (0.1, 0.4), (0.1, 0.1, 0.4))
    (one,) = time_to_target(seeds, "ndcg@20")
    assert one.runs == 3 and one.seconds == (2, 2, 2)
    assert time_to_target(runs((0.4,), (0.1,), (0.1,)), "ndcg@20")[0].seconds == (None, None, None)
    (both,) = time_to_target([seeds[0], *runs((0.05, 0.1), data={"split_seed": 1})], "ndcg@20")
    assert both.seconds == (1.5, 1.5, 1.5) and both.targets[0] == pytest.approx(0.95 * 0.25)
