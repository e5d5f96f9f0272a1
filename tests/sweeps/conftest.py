"""Sweeps without Ray."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rankbench.experiment.run import run


@pytest.fixture
def at_once(monkeypatch):
    """The units of a sweep are fitted in this process, one after another."""

    def run_units(units, environment, store, session, resources, on_done, *rest):
        records = []
        for unit in units:
            writer, outcomes = store.trial(unit.run_id, unit.ids), run(unit.job, environment)
            for outcome in outcomes:
                writer.write(outcome.record, outcome.per_user)
            found = [outcome.record for outcome in outcomes]
            on_done(unit, found, False)
            records += found
        return records

    monkeypatch.setattr("rankbench.sweeps.run_units.run_units", run_units)
    monkeypatch.setattr("rankbench.cluster.session.session", lambda *_, **__: nullcontext(SimpleNamespace(cpus=2)))
