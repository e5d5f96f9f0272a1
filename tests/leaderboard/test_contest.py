"""What a contest stores of entries that it cannot run, and how two contests share a store."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.cluster.timed_actors import Ending, _Slot
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.leaderboard.attempt import Rules
from rankbench.leaderboard.budget import Budget
from rankbench.leaderboard.contest import Entry, Plan, run
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.results import Leaderboard, Result


@pytest.mark.parametrize("threads", [1, 2])
def test_an_entry_without_a_result_has_the_threads_that_it_was_to_have(tmp_path, threads):
    """They decide whether it is done: what is late with one may be in time with two."""
    environment = Environment.from_env()
    results, rules = Leaderboard(tmp_path), Rules("ndcg@20", MetricSet(("ndcg@20",)), n_threads=threads)
    card, size = load_card("synthetic", environment), Size(10, 10, 50, 250.0, 10)
    entry = Entry(entrants("ndcg@20")["popularity"], card, size, Budget(1.0), 1.0, results)
    small = SimpleNamespace(machines=[Machine(2, 1000)])
    run(Plan((entry,), 0, {}), rules, environment, small)
    (stored,) = results.all(Result)
    assert (stored.status, stored.threads) == ("failed", threads)


def contest(folder, names, monkeypatch, running=lambda name: None, end=None):
    """Run entries without a cluster. `running` is called while each runs. Returns what was run, and what others did. `end`
    gives the ending of a work; by default, it answers with a result.
    """
    environment, rules = Environment.from_env(), Rules("ndcg@20", MetricSet(("ndcg@20",)))
    card, known = load_card("synthetic", environment), entrants("ndcg@20")
    size, results = Size(10, 10, 50, 250.0, 10), Leaderboard(folder)
    entries = [Entry(known[name], card, size, Budget(1.0), 1.0, results, "data") for name in names]
    by_name, run_here, others = {each.entrant.name: each for each in entries}, [], []

    def at_once(works, cpus, n_slots):
        for number, work in enumerate(works):
            name = work.arguments[0].name
            running(name)
            run_here.append(name)
            result = replace(by_name[name].without_result(rules), status="finished", seconds={"all": 0.5})
            yield number, end(work) if end else Ending("answer", (result, None))

    monkeypatch.setattr("rankbench.cluster.timed_actors.run_timed", at_once)
    machine = SimpleNamespace(machines=[Machine(2, 1 << 40)])
    plan = Plan(tuple(entries), 0, {})
    run(plan, rules, environment, machine, on_other=lambda entry: others.append(entry.entrant.name))
    return run_here, others


def test_two_commands_at_once_run_each_entry_once(tmp_path, monkeypatch):
    names, second = ["popularity", "random", "ease"], []

    def running(name):
        if name == "popularity":
            second.extend(contest(tmp_path, names, monkeypatch))

    first, others = contest(tmp_path, names, monkeypatch, running)
    assert second == [["random", "ease"], ["popularity"]]  # another command was running this one
    assert (first, others) == (["popularity"], ["random", "ease"])  # and these were done meanwhile
    assert [each.entrant for each in Leaderboard(tmp_path).all(Result)] == ["ease", "popularity", "random"]


def test_an_entry_of_a_command_that_was_killed_is_run_by_the_next_one(tmp_path, monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contest(tmp_path, ["popularity"], monkeypatch, interrupt)
    assert contest(tmp_path, ["popularity"], monkeypatch) == (["popularity"], [])


def test_a_plugin_that_never_returns_from_its_first_fit_has_failed_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("rankbench.cluster.timed_actors.ray.wait", lambda replies, timeout: ([], replies))

    def never(work):
        """How the work ends if its data are read and its first fit, on made-up data, goes on for ever."""
        (name, limit), slot = work.calls[1], _Slot(1)
        slot.calls, slot.reply, slot.begun = [(name, limit)], "a reply", time.monotonic() - limit + 60
        assert slot.ending() is None
        slot.begun -= 61
        return slot.ending()

    contest(tmp_path, ["popularity"], monkeypatch, end=never)
    (stored,) = Leaderboard(tmp_path).all(Result)
    assert (stored.status, stored.reason) == ("failed", "warm-up had not ended after 300 s")
