"""Time to target, against curves small enough to read."""

import pytest
from stored import typed

from rankbench.reports.report import write_report
from rankbench.reports.targets import SHARES, final_value, target_columns, time_to_target


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
    # Of 0.4: 0.38, 0.396 and 0.398.
    assert found["slow"].targets == pytest.approx((0.38, 0.396, 0.398))
    assert found["slow"].seconds == (30, 50, 50) and found["slow"].iterations == (3, 5, 5)
    assert found["fast"].seconds == (1, 2, None)
    assert found["poor"].seconds == (None, None, None)
    _, body = target_columns(list(found.values()))
    assert body[1] == ["fast", "0.3970", "1.00", "1", "2.00", "2", "not reached", ""]


def test_the_model_that_was_kept_is_the_final_one_and_its_peak_counts(make_run):
    kept = make_run("final", "A", 0.4, curve=curve(0.2, 0.4, 0.3), iterations=2)
    assert final_value(kept, "ndcg@20") == 0.4
    between = make_run("final", "A", 0.4, curve=curve(0.2, None, 0.3), iterations=2)
    assert final_value(between, "ndcg@20") == 0.3


def test_of_several_runs_the_median_counts_and_each_split_has_its_own_target(make_run):
    seeds = [
        make_run("final", "A", 0.4, seed=s, curve=curve(*values))
        for s, values in enumerate([(0.4,), (0.1, 0.4), (0.1, 0.1, 0.4)])
    ]
    (one,) = time_to_target(seeds, "ndcg@20")
    assert one.runs == 3 and one.seconds == (2, 2, 2)
    never = [
        *seeds[:1],
        make_run("final", "A", 0.1, seed=8, curve=curve(0.1)),
        make_run("final", "A", 0.1, seed=9, curve=curve(0.1)),
    ]
    assert time_to_target(never, "ndcg@20")[0].seconds == (None, None, None)
    other = make_run("final", "A", 0.1, curve=curve(0.05, 0.1), data={"split_seed": 1})
    (both,) = time_to_target([seeds[0], other], "ndcg@20")
    assert both.seconds == (1.5, 1.5, 1.5) and both.targets[0] == pytest.approx(0.95 * 0.25)


def test_the_report_has_a_table_of_it_where_there_are_curves(make_run, make_sweep, tmp_path):
    runs = [make_run("final", arm, 0.4, curve=curve(0.3, 0.4)) for arm in "AB"]
    text = write_report(tmp_path, *typed(*make_sweep(runs, {"A": {}, "B": {}})))[0].read_text()
    section = text.split("## Time to target")[1].split("\n## ")[0]
    assert "95 % (0.3800), s" in section and "| A " in section
    text = write_report(tmp_path, *typed(*make_sweep([make_run("final", "A", 0.4)], {"A": {}})))[0].read_text()
    assert "Time to target" not in text
