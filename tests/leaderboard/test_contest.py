"""What a contest stores of entries that it cannot run, and how two contests share a store."""

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.experiment.outcome import failure
from rankbench.leaderboard.contest import Entry, Plan, run
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.entry import LATE, Rules
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.sweeps.search.budget import Budget
from rankbench.sweeps.search.stage import results_of
from rankbench.tracking.record import DatasetInfo, Measured, Searched, write_record

RULES = Rules("ndcg@20", MetricSet(("ndcg@20",)))


def entry(folder, name="popularity"):
    card = load_card("synthetic", Environment.from_env())
    return Entry(entrants("ndcg@20")[name], card, Size(10, 10, 50, 250.0, 10), Budget(1.0), 1.0, Leaderboard(folder), "data")


@pytest.mark.parametrize("threads", [1, 2])
def test_an_entry_without_a_result_has_the_threads_that_it_was_to_have(tmp_path, threads):
    """They decide whether it is done: what is late with one may be in time with two."""
    small = SimpleNamespace(machines=[Machine(2, 1000)])
    run(Plan((entry(tmp_path),), 0, {}), replace(RULES, n_threads=threads), Environment.from_env(), small)
    (stored,) = Leaderboard(tmp_path).all(Result)
    assert (stored.status, stored.threads) == ("failed", threads)


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({"error": LATE}, "over budget"),
        ({"error": "warm-up had not ended after 300 s"}, "failed"),
        ({"error": "no", "searched": Searched(refused=True)}, "not applicable"),
        ({"status": "finished", "searched": Searched(0.5, 3, (0,), (0.4,)), "seconds": {"all": 1.1}}, "finished"),
        ({"status": "finished", "searched": Searched(0.5, 3, (0,), (0.4,)), "seconds": {"all": 1.11}}, "over budget"),
    ],
)
def test_what_is_stored_of_an_entry_that_ended(tmp_path, record, status):
    each = entry(tmp_path)
    job = each.unit(RULES).job
    result = each.result(replace(failure(job, job.configs[0], ""), threads=1, **record), RULES)
    assert result.status == status and result.key[:-1] == each.without_result(RULES).key[:-1]
    assert result.reason == record.get("error", "" if status == "finished" else LATE)


def contest(home, names, monkeypatch, running=lambda name: None):
    """Run entries without a cluster. `running` is called while each runs. Returns what was run, and what others did."""
    environment, run_here, others = Environment.from_env(), [], []
    entries = [entry(home / "leaderboard", name) for name in names]

    def at_once(units, environment, store, cluster, resources, on_done, in_order, may_begin, **_):
        for unit in units:
            if found := results_of(unit, store.records):
                on_done(unit, found, True)
            elif may_begin(unit):
                running(unit.job.entrant.name)
                run_here.append(unit.job.entrant.name)
                record = failure(unit.job, unit.job.configs[0], LATE)
                write_record(store.records, record, None)
                on_done(unit, [record], False)

    monkeypatch.setattr("rankbench.sweeps.run_units.run_units", at_once)
    machine = SimpleNamespace(machines=[Machine(2, 1 << 40)])
    run(Plan(tuple(entries), 0, {}), RULES, environment, machine, on_other=lambda each: others.append(each.entrant.name))
    return run_here, others


def test_two_commands_at_once_run_each_entry_once(home, monkeypatch):
    names, second = ["popularity", "random", "ease"], []

    def running(name):
        if name == "popularity":
            second.extend(contest(home, names, monkeypatch))

    first, others = contest(home, names, monkeypatch, running)
    assert second == [["random", "ease"], ["popularity"]]  # another command was running this one
    assert (first, others) == (["popularity"], ["random", "ease"])  # and these were done meanwhile
    assert [each.entrant for each in Leaderboard(home / "leaderboard").all(Result)] == ["ease", "popularity", "random"]


def test_an_entry_of_a_command_that_was_killed_is_run_by_the_next_one(home, monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contest(home, ["popularity"], monkeypatch, interrupt)
    assert contest(home, ["popularity"], monkeypatch) == (["popularity"], [])


def test_a_record_that_a_killed_command_left_is_stored_by_the_next_one(home, monkeypatch):
    job = entry(home / "leaderboard").unit(RULES).job
    assert entry(home / "other").unit(RULES).run_id != job.run_id(job.configs[0])  # another store has its own run
    data = DatasetInfo("synthetic", "data", counts={"users": 2, "items": 3})
    about = {"status": "finished", "searched": Searched(0.5, 3, (0,), (0.4,)), "seconds": {"all": 1.0}, "dataset": data}
    record = replace(failure(job, job.configs[0], ""), **about, threads=1, metrics={"ndcg@20": Measured(0.4, 0.3, 0.5)})
    records = Environment.from_env().results / "entries" / "records"
    write_record(records, record, pa.table({"user": ["a", "b"], "ndcg@20": pa.array([0.3, 0.5], pa.float32())}))
    assert contest(home, ["popularity"], monkeypatch) == ([], [])
    store = Leaderboard(home / "leaderboard")
    (stored,) = store.all(Result)
    assert (stored.status, stored.valid, store.users_of(stored, "ndcg@20") is not None) == ("finished", 0.5, True)
    assert not [*records.iterdir()]
