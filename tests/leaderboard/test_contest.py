"""What a contest stores of entries that it cannot run, and how two contests share a store."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.experiment.outcome import failure
from rankbench.leaderboard.contest import CLAIMS, Entry, Plan, run
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.entry import DIVERGED, LATE, Rules
from rankbench.leaderboard.results import Leaderboard, Result, within
from rankbench.ledger.claims import Claims
from rankbench.sweeps.search.stage import results_of
from rankbench.tracking.environment import processor
from rankbench.tracking.record import DatasetInfo, Measured, Searched, write_record

RULES = Rules("ndcg@20", MetricSet(("ndcg@20",)))
ONE = SimpleNamespace(machines=[Machine(2, 1 << 40)])  # a cluster
PER_USER = pa.table({"user": ["a", "b"], "ndcg@20": pa.array([0.3, 0.5], pa.float32())})


def entry(folder, name="popularity", milestone=1.0, rules=RULES):
    card = load_card("synthetic", Environment.from_env())
    return Entry(entrants("ndcg@20")[name], card, Size(10, 10, 50, 250.0, 10), milestone, Leaderboard(folder), rules, "data")


@pytest.mark.parametrize("threads", [1, 2])
def test_an_entry_without_a_result_has_the_threads_that_it_was_to_have(tmp_path, threads):
    """They decide whether it is done: what is late with one may be in time with two."""
    small = SimpleNamespace(machines=[Machine(2, 1000)])
    run(Plan((entry(tmp_path, rules=replace(RULES, n_threads=threads)),), 0, {}), Environment.from_env(), small)
    (stored,) = Leaderboard(tmp_path).all(Result)
    assert (stored.status, stored.threads) == ("failed", threads)


def test_races_draw_by_their_dataset_or_as_the_stores_other_entries_on_it(tmp_path):
    anew = entry(tmp_path / "new", "ease")
    elsewhere = replace(anew, card=load_card("gowalla", Environment.from_env()))
    assert len({RULES.seed, anew.unit.job.draws, elsewhere.unit.job.draws}) == 3
    assert anew.unit.job.draws == entry(tmp_path / "new", "ials").unit.job.draws
    begun = entry(tmp_path / "old", "ease")
    begun.results.add(replace(begun.without_result("over budget"), search="asha"))
    later = entry(tmp_path / "old", "ials")
    assert later.without_result().search == "asha" and later.unit.job.draws == RULES.seed
    assert begun.done and not later.done


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({"error": LATE}, "over budget"),
        ({"error": f"{DIVERGED}: the loss is nan in epoch 1"}, "diverged"),
        ({"error": "warm-up had not ended after 300 s"}, "failed"),
        ({"error": "no", "searched": Searched(refused=True)}, "not applicable"),
        (
            {
                "status": "finished",
                "searched": Searched(0.5, 3, "settled", {"ndcg@20": 0.4, "gini@20": 0.9}),
                "seconds": {"all": 1.0},
            },
            "finished",
        ),
    ],
)
def test_what_is_stored_of_an_entry_that_ended(tmp_path, record, status):
    each = entry(tmp_path)
    job = each.unit.job
    result = each.result(replace(failure(job, job.configs[0], ""), threads=1, **record))
    assert result.status == status and result.key[:-1] == each.without_result().key[:-1]
    assert result.reason == record.get("error", "") and result.default == ({"ndcg@20": 0.4} if result.finished else {})
    assert (result.cpu, result.lost) == (processor(), status in ("over budget", "diverged"))


@pytest.mark.parametrize("n_machines", [1, 2])
def test_the_processor_of_a_lost_entry_is_stored_where_it_is_known(home, monkeypatch, n_machines):
    contest(home, ["popularity"], monkeypatch, n_machines=n_machines)
    (stored,) = Leaderboard(home / "leaderboard").all(Result)
    assert (stored.status, stored.cpu) == ("over budget", processor() if n_machines == 1 else "")


def at_once(monkeypatch, outcome):
    """Let entries end at once, without a cluster, with what `outcome(method, milestone)` says of the record. Returns a list of
    these pairs, which grows as entries begin.
    """
    order = []

    def run_units(units, environment, store, cluster, resources, on_done, in_order, may_begin, **_):
        for unit in units:
            if found := results_of(unit, store.records):
                on_done(unit, found, True)
            elif may_begin(unit):
                order.append((unit.job.entrant.name, unit.job.milestone))
                record = replace(failure(unit.job, unit.job.configs[0], ""), **outcome(*order[-1]))
                write_record(store.records, record, PER_USER)
                on_done(unit, [record], False)

    monkeypatch.setattr("rankbench.sweeps.run_units.run_units", run_units)
    return order


def contest(home, names, monkeypatch, running=lambda name: None, n_machines=1):
    """Run entries that are late. `running` is called while each runs. Returns what was run, and what others did."""
    others, cluster = [], SimpleNamespace(machines=ONE.machines * n_machines)

    def outcome(name, milestone):
        running(name)
        return {"error": LATE}

    order = at_once(monkeypatch, outcome)
    todo = Plan(tuple(entry(home / "leaderboard", name) for name in names), 0, {})
    run(todo, Environment.from_env(), cluster, on_other=lambda each: others.append(each.entrant.name))
    return [name for name, _ in order], others


def measured(milestone, value, ended="still gaining"):
    data = DatasetInfo("synthetic", "data", counts={"users": 2, "items": 3})
    about = {"status": "finished", "searched": Searched(value, 3, ended), "seconds": {"all": milestone}, "dataset": data}
    return about | {
        "threads": 1,
        "metrics": {"ndcg@20": Measured(1 - value, 0.0, 1.0)},  # the order on test is the other one, and decides nothing
        "curve": [{"seconds": 1.0, "valid": value}],
    }


def measured_line(value):
    return {"status": "finished", "ended": "still gaining", "valid": value, "metrics": {"ndcg@20": (1 - value, 0.0, 1.0)}}


@pytest.mark.parametrize(
    ("best", "ran"), [(None, ["popularity", "random", "ease", "ials", "popularity", "ials", "ials"]), (1, None)]
)
def test_all_races_reach_a_milestone_before_one_goes_on(home, monkeypatch, best, ran):
    """A race that is over, and one that failed, do not go on. What is shown of a later milestone is its last result."""
    folder, anew = home / "leaderboard", []
    outcomes = {
        ("popularity", 10.0): measured(10.0, 0.2), ("popularity", 30.0): measured(30.0, 0.2, "settled"),
        ("random", 10.0): measured(1.0, 0.1, "exhausted"), ("ease", 10.0): {"error": "no memory"},
        ("ials", 10.0): {"error": LATE}, ("ials", 30.0): measured(30.0, 0.3), ("ials", 100.0): measured(100.0, 0.4),
    }  # fmt: skip
    order = at_once(monkeypatch, lambda *each: outcomes[each])
    left = [
        entry(folder, name, seconds) for seconds in (10.0, 30.0, 100.0) for name in ("popularity", "random", "ease", "ials")
    ]
    left = [replace(each, results=left[0].results) for each in left]
    names = tuple(dict.fromkeys(each.entrant.name for each in left))
    todo = Plan(tuple(left), 0, {}, best, names, ("synthetic",), (left[0].results,))
    assert sum(each.seconds for each in todo.everything) == (400 if best is None else 40 + 20 + 70)
    run(todo, Environment.from_env(), ONE, on_anew=lambda each, why: anew.append((each.entrant.name, each.milestone)))
    if best:  # random is worse than popularity, and ials and ease have no result at 10 s
        assert order[4:] == [("popularity", 30.0)]
        return
    assert [name for name, _ in order] == ran
    assert anew == [("popularity", 30.0), ("ials", 100.0)]  # nothing was saved here
    store = Leaderboard(folder)
    shown = {each.entrant: (each.allowed, each.ended) for each in within(store.all(Result), "100s")}
    assert shown == {"ials": ("100s", "still gaining"), "popularity": ("30s", "settled"), "random": ("10s", "exhausted")}
    again = Plan(tuple(replace(each, results=store) for each in left), 0, {})
    assert {(each.entrant.name, each.milestone) for each in again.everything} == {
        ("ease", 10.0),
        ("ease", 30.0),
        ("ease", 100.0),
    }


def test_two_commands_at_once_run_each_entry_once(home, monkeypatch):
    names, second = ["popularity", "random", "ease"], []

    def running(name):
        if name == "popularity":
            second.extend(contest(home, names, monkeypatch))

    first, others = contest(home, names, monkeypatch, running)
    assert second == [["random", "ease"], ["popularity"]]  # another command was running this one
    assert (first, others) == (["popularity"], ["random", "ease"])  # and these were done meanwhile
    assert [each.entrant for each in Leaderboard(home / "leaderboard").all(Result)] == ["ease", "popularity", "random"]


@pytest.mark.parametrize("stored_meanwhile", [False, True])
def test_only_after_all_commands_are_done_with_a_milestone_is_it_known_who_goes_on(home, monkeypatch, stored_meanwhile):
    folder, order = home / "leaderboard", at_once(monkeypatch, lambda name, milestone: measured(milestone, 0.1))
    here, left = Leaderboard(folder), [(name, seconds) for seconds in (10.0, 30.0) for name in ("random", "popularity")]
    entries = tuple(replace(entry(folder, *each), results=here) for each in left)
    todo = Plan(entries, 0, {}, 1, ("random", "popularity"), ("synthetic",), (here,))
    theirs = entries[1].without_result()

    def on_other(each):
        assert each.entrant.name == "popularity"
        if stored_meanwhile and each.milestone == 10:
            Leaderboard(folder).add(replace(theirs, **measured_line(0.9)))

    with Claims(folder / CLAIMS) as other:
        assert other.take(str(theirs.race))
        call = partial(run, todo, Environment.from_env(), ONE, on_other=on_other)
        if not stored_meanwhile:
            with pytest.raises(ClusterError, match=r"still runs 1 entries until 10s \(popularity on synthetic\)"):
                call()
        else:
            call()
    # popularity is the best, and its race is held by the other command, which takes it further.
    assert order == [("random", 10.0)]


def test_a_method_that_failed_does_not_go_on_for_want_of_others(tmp_path):
    store = Leaderboard(tmp_path)
    names = "popularity", "random"
    entries = [replace(entry(tmp_path, name, seconds), results=store) for seconds in (10.0, 30.0) for name in names]
    todo = Plan(tuple(entries), 0, {}, 2, names, ("synthetic",), (store,))
    assert len(todo.until(30.0)) == 2  # nobody knows yet which these will be
    store.add(replace(entries[0].without_result(), **measured_line(0.2)))
    store.add(entries[1].without_result("failed"))
    assert [each.entrant.name for each in todo.until(30.0)] == ["popularity"]


def test_an_entry_of_a_command_that_was_killed_is_run_by_the_next_one(home, monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contest(home, ["popularity"], monkeypatch, interrupt)
    assert contest(home, ["popularity"], monkeypatch) == (["popularity"], [])


def test_a_record_that_a_killed_command_left_is_stored_by_the_next_one(home, monkeypatch):
    job = entry(home / "leaderboard").unit.job
    assert entry(home / "other").unit.run_id != job.run_id(job.configs[0])  # another store has its own run
    record = replace(failure(job, job.configs[0], ""), **measured(1.0, 0.5, "settled"))
    records = Environment.from_env().results / "entries" / "records"
    write_record(records, record, PER_USER)
    assert contest(home, ["popularity"], monkeypatch) == ([], [])
    store = Leaderboard(home / "leaderboard")
    (stored,) = store.all(Result)
    assert (stored.status, stored.valid, store.users_of(stored, "ndcg@20") is not None) == ("finished", 0.5, True)
    assert not [*records.iterdir()]
