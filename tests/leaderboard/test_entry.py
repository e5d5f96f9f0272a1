"""An entry until its milestones, on real fits of a small dataset, most with a clock that counts iterations."""

import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from rankbench.core.environment import Environment
from rankbench.core.errors import NumericalError, RankbenchError, StorageError
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.leaderboard import entry
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.entry import LATE, Attempt, EntryJob, Reached, Rules
from rankbench.leaderboard.saved import Kept
from rankbench.sweeps.search.candidate import Best
from rankbench.sweeps.search.race import Race

CARD = {"source.generator": {"users": 300, "items": 150, "interactions_per_user": 15}}
RULES = Rules("ndcg@10", metric_set(("ndcg", "recall"), (10,)))
STEP = 1 / 8  # seconds of an iteration


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def environment(data, tmp_path):
    return Environment(data, None, True, tmp_path / "results", None, None)


@pytest.fixture
def clock(monkeypatch):
    """Makes iterations last STEP seconds, and those of given numbers, counted in this process, another time."""

    def ticks(slow=None):
        times, number = count(), count(1)
        lengths = slow or {}
        now = [0.0]

        def read():
            if next(times) % 2:  # at the end of an iteration
                now[0] += lengths.get(next(number), STEP)
            return now[0]

        monkeypatch.setattr(entry, "processor_seconds", lambda n_threads: read())

    ticks()
    return ticks


def attempt(environment, entrant, milestone, most=10**9, changes=CARD):
    """The entry after its search, or after `most` iterations of it, as of a process that is killed."""
    each = Attempt(EntryJob.of(entrant, load_card("synthetic", environment, changes), milestone, RULES), environment)
    each.load()
    for number, _ in enumerate(each.search()):
        if number > most:
            break
    return each


def known(name):
    return entrants(RULES.metric)[name]


def saved(environment):
    return sorted(path.name for path in (environment.results / "races").glob("*"))


@pytest.mark.parametrize("name", ["ease", "ials", "sl", "popularity", "lightgcn", "rg2"])
def test_the_result_is_that_of_the_chosen_setting(environment, name, clock):
    each = attempt(environment, known(name), 1.0)
    outcome = each.test()
    record, per_user = outcome.record, outcome.per_user
    fit = Job(each.job.card, (configure(record.method, record.params),), "train", "test", RULES.metrics)
    (again,) = run(fit, environment)
    np.testing.assert_allclose(per_user["ndcg@10"].to_numpy(), again.per_user["ndcg@10"].to_numpy(), rtol=1e-6)
    assert record.metrics["ndcg@10"].mean == pytest.approx(again.record.metrics["ndcg@10"].mean, rel=1e-9)
    assert record.searched.valid == max(other.value for other in each.race.candidates) == record.curve[-1]["valid"]


@pytest.mark.parametrize("name", ["ials", "sl", "ease"])
def test_a_race_that_goes_on_from_its_milestones_is_the_one_that_never_stopped(environment, tmp_path, name, clock):
    """A process that is killed on its way changes nothing."""
    elsewhere = replace(environment, results=tmp_path / "elsewhere")
    whole = attempt(elsewhere, known(name), 2.0).test()
    for milestone in (0.75, 1.25):
        part = attempt(environment, known(name), milestone).test()
        attempt(environment, known(name), 2.0, most=5)
        assert part.record.seconds["all"] <= milestone and part.record.searched.ended == "still gaining"
    last = attempt(environment, known(name), 2.0).test()
    first, second = (
        replace(each.record, started_at="", peak_memory_bytes=0, joules=None, seconds=each.record.seconds | {"test": 0})
        for each in (whole, last)
    )
    assert first == second and whole.per_user.equals(last.per_user)
    assert saved(environment) == saved(elsewhere) and len(saved(environment)) == 1


def test_a_race_of_other_code_begins_anew(environment, clock, monkeypatch):
    each = attempt(environment, known("ials"), 1.0)
    each.test()
    assert each.saved.why_anew(2.0) == "" and each.saved.read(2.0) != Kept() and each.saved.clock() == 1.0
    assert each.saved.why_anew(0.5) == "the earlier one has run for 1 s already"
    monkeypatch.setattr("rankbench.leaderboard.saved.code_fingerprint", lambda: "changed")
    assert each.saved.why_anew(2.0) == "the earlier one was run by another version of the code"
    assert each.saved.read(2.0) == Kept() and each.saved.clock() == 0
    monkeypatch.undo()
    monkeypatch.setattr("rankbench.leaderboard.saved.processor", lambda: "another")
    assert each.saved.why_anew(2.0).startswith("the earlier one was run by another processor (")
    assert each.saved.read(2.0) == Kept() and each.saved.clock() == 0


def test_methods_are_compared_by_the_same_users_of_the_validation_set(environment, clock, monkeypatch):
    """A slow method is measured on fewer users while it is fitted."""
    monkeypatch.setattr(entry, "valid_users", lambda config: 50)
    each = attempt(environment, known("ials"), 1.0)
    record = each.test().record
    fit = Job(each.job.card, (configure(record.method, record.params),), "train", "valid", RULES.metrics)
    (again,) = run(fit, environment)
    assert record.searched.valid == pytest.approx(again.record.metrics["ndcg@10"].mean, rel=1e-9)
    assert abs(record.curve[-1]["valid"] - record.searched.valid) > 1e-4


def test_an_iteration_across_a_milestone_counts_for_the_next_one(environment, clock):
    clock({4: 5.0})
    first = attempt(environment, known("ials"), 1.0, changes={}).test().record
    assert first.seconds["all"] == 3 * STEP and first.iterations <= 3
    clock()
    later = attempt(environment, known("ials"), 6.0, changes={}).test().record
    assert later.curve[: len(first.curve)] == first.curve
    assert later.curve[len(first.curve)]["seconds"] == 3 * STEP + 5.0 and later.seconds["all"] <= 6.0
    # What is saved is over this milestone, so it begins anew.
    assert attempt(environment, known("ials"), 1.0, changes={}).test().record.seconds["all"] == 1.0


def test_a_first_model_that_is_late_counts_for_the_next_milestone(environment, clock):
    clock({1: 1.05})
    assert attempt(environment, known("ials"), 1.0).test().record.error == LATE
    clock({1: 1000.0})
    assert attempt(environment, known("ials"), 2.0).test().record.searched.tried == 1


def test_a_race_ends_when_all_settings_were_tried(environment, clock):
    few = replace(known("ease"), space={"lam": {"choice": [10.0, 20.0, 30.0]}})  # which are drawn again and again
    record = attempt(environment, few, 1.0).test().record
    assert (record.searched.ended, record.searched.tried, record.seconds["all"]) == ("exhausted", 4, 4 * STEP)
    assert saved(environment) == []


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (NumericalError, NumericalError, "every setting diverged: not finite"),  # which another start would not change
        (StorageError, RankbenchError, "no fit had a result: not finite"),
    ],
)
def test_a_race_in_which_no_setting_has_a_result_says_why(environment, clock, monkeypatch, error, kind, said):
    def fails(attempt, config, measure, folder):
        raise error("not finite")
        yield

    monkeypatch.setattr(Attempt, "_fit", fails)
    few = replace(known("ease"), space={"lam": {"choice": [10.0, 20.0]}})
    with pytest.raises(RankbenchError) as raised:
        attempt(environment, few, 1.0)
    assert (type(raised.value), str(raised.value)) == (kind, said)


@pytest.mark.parametrize(
    ("milestone", "earlier", "ended"),
    [(30.0, 0.4995, "settled"), (30.0, 0.4985, "still gaining"), (29.0, 0.4995, "still gaining"), (100.0, 0.5, "settled")],
)
def test_a_race_has_settled_if_two_thirds_of_its_time_gained_little(environment, milestone, earlier, ended):
    each = Attempt(EntryJob.of(known("ials"), load_card("synthetic", environment), milestone, RULES), environment)
    rows = [(1.0, 0.1), (milestone / 3, earlier), (milestone / 3 + 0.1, 0.5)]
    each.curve = [{"iteration": 1, "seconds": seconds, "valid": valid} for seconds, valid in rows]
    each.race = Race(lambda: None)
    each.exhausted, each.reached = False, Reached(milestone, 2, Best(known("ials").config(), 0.5, 1, 1.0), None)
    assert each._ended() == ended
    each.race.candidates.append(SimpleNamespace(value=0.5, seconds_to_first=4.0))  # which is a unit
    assert each._ended() == "still gaining"
    each.race, each.curve = Race(lambda: None), each.curve[2:]
    assert each._ended() == "still gaining"  # there was nothing then


def test_the_defaults_are_measured_beside_the_best(environment, clock):
    each = attempt(environment, known("sl"), 3.0)
    searched = each.test().record.searched
    default, longest = each.race.candidates[0], max(other.seconds for other in each.race.candidates)
    assert searched.tried > 2 and default.seconds + 3 * STEP >= longest
    fit = default.best.config.without_valid(default.best.iterations)
    (again,) = run(Job(each.job.card, (fit,), "train", "test", RULES.metrics), environment)
    assert searched.default["ndcg@10"] == pytest.approx(again.record.metrics["ndcg@10"].mean, rel=1e-9)


def test_a_method_that_cannot_be_measured_says_so(environment):
    card = load_card("synthetic", environment, {"split.protocol": "held-out-users"})
    (outcome,) = run(EntryJob.of(known("bpr"), card, 1.0, RULES), environment)
    assert outcome.record.searched.refused and "scores only users it was trained on" in outcome.record.error


def test_a_setting_that_does_not_fit_the_data_costs_itself_alone(environment, clock):
    odd = replace(known("gat"), space={"n_heads": {"choice": [3, 5, 7]}})  # 64 is no multiple of any of them
    each = attempt(environment, odd, 4.0)
    default, *others = each.race.candidates
    assert each.reached.best.config == odd.config() and len(others) == 3
    assert all("must be a multiple of n_heads" in other.failure for other in others) and not default.failure


def test_an_entry_is_run_with_the_clock_of_the_machine(environment):
    record = None
    for milestone in (2.0, 4.0, 60.0):  # how far each comes depends on what else the machine does
        if record is None or record.error == LATE:
            (outcome,) = run(
                EntryJob.of(known("popularity"), load_card("synthetic", environment), milestone, RULES), environment
            )
            record = outcome.record
    assert record.searched.ended == "exhausted" and record.seconds["all"] <= milestone


def test_the_clock_stands_still_while_the_process_waits_and_runs_with_each_thread():
    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    begun = [entry.processor_seconds(n) for n in (1, 2)]
    time.sleep(2.0)
    burn(0.3)
    one, two = (entry.processor_seconds(n) - before for n, before in zip((1, 2), begun, strict=True))
    assert 0.3 <= one < 2.0 and two == pytest.approx(one / 2, abs=0.1)  # other threads of the process count, too
