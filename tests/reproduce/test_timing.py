"""Seconds that can be compared: fits that have the machine to themselves."""

from dataclasses import replace

import pytest

from rankbench.core.errors import ConfigError
from rankbench.experiment.run import run
from rankbench.judge.convergence import TrainingCurve
from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.evidence import Evidence, stored_fit
from rankbench.reproduce.required_fits import metrics_for, required_fits, rows_of
from rankbench.reproduce.results import table_columns
from rankbench.reproduce.timing import keep_seconds, require_idle, time_alone, untimed

from .stored import fitted


def test_a_busy_machine_is_refused(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 2.0, 2.0))
    require_idle(2)
    monkeypatch.setattr("os.getloadavg", lambda: (1.9, 0.0, 0.0))
    with pytest.raises(ConfigError, match=r"--alone: other processes use this machine \(load 1.9 on 2 processors\)"):
        require_idle(2)


def test_a_short_fit_keeps_the_digits_that_a_ratio_of_times_needs(home, evidence):
    tables = paper_tables(home)
    fit = next(iter(required_fits(rows_of(tables), evidence)))
    outcome, _ = fitted(fit, home, tables)
    record = replace(outcome.record, seconds={"fit": 0.0312}, peak_memory_bytes=123_400_000)
    line = stored_fit(record, fit.config, fit.card_key, idle=True)
    assert (line.own_seconds, line.peak_memory_gb) == (0.0312, 0.1234)


def test_one_measured_fit_per_method_is_timed_and_its_metrics_stay(home, evidence):
    """On processors, where it was measured, although the file asks for a GPU."""
    tables = [table.on("cuda") for table in paper_tables(home)]
    rows = list(rows_of(tables))
    metrics = metrics_for("synthetic", tables)
    assert not untimed(rows, evidence)  # nothing is measured yet
    for fit in required_fits(rows, evidence):
        evidence.add(fitted(fit, home, tables)[1])
    assert "fit, s" not in table_columns(rows, evidence)[0]
    asked = []

    def alone(unit, spec, done):
        asked.append((unit.cpus, spec.resources.concurrent, unit.device))
        done(unit, [outcome.record for outcome in run(unit.job, home)], False)

    # EASE has two measured settings, of which one is enough.
    waiting = untimed(rows, evidence)
    assert sorted(fit.config.method for fit in waiting) == ["ease", "popularity"]
    for fit in waiting:
        before = evidence.find("synthetic", fit.card_key, fit.config, fit.part, fit.dtype)[0]
        assert time_alone(fit, evidence, home, metrics, 2, alone) is not None
        after = evidence.find("synthetic", fit.card_key, fit.config, fit.part, fit.dtype)[0]
        assert after.idle and not before.idle and after.metrics == before.metrics
        assert after.stamp == before.stamp  # tests of claims know the fit by it
        # The stage `again` measures it again, beside other work.
        _, again = fitted(fit, home, tables)
        kept = keep_seconds(again, fit, evidence)
        assert kept.idle and kept.seconds == after.seconds and kept.stamp == again.stamp
        ends = after.seconds["fit"]
        slow, quick = (TrainingCurve("recall@20", "test", ((1, seconds, 0.1),)) for seconds in (2 * ends, ends / 2))
        assert keep_seconds(replace(again, curves=(quick,)), fit, evidence).curves == (quick,)
        assert keep_seconds(replace(again, curves=(slow,)), fit, evidence).curves == after.curves
        other_data = replace(again, fingerprint="other")
        assert keep_seconds(other_data, fit, evidence) == other_data
    assert asked == [(2, 1, "cpu"), (2, 1, "cpu")]
    assert not untimed(rows, Evidence(evidence.folder))
    header, body, _ = table_columns([row for row in rows if row.table.name == "toy/1"], evidence)
    assert header[-1] == "fit, s" and all(len(line) == len(header) for line in body)
    assert float(next(line for line in body if line[0] == "EASE")[-1]) >= 0
