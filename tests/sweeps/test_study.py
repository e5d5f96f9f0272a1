"""Studies: what is drawn lies in the space, a search finds a peak, a trial behind is ended, a replay knows what was."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.sweeps.spec import SearchSpec
from rankbench.sweeps.study import Study
from rankbench.tracking.record import RunRecord

SPACE = {
    "tau": {"uniform": [0.05, 0.3]},
    "learning_rate": {"loguniform": [1e-4, 1e-1]},
    "n_negatives": {"randint": [1, 9]},
    "sampler": {"choice": ["uniform-all", "popularity"]},
    "layers": {"grid": [1, 2, 3]},
    "epochs": 40,
}


@given(st.integers(0, 2**31 - 1), st.integers(1, 15))
def test_every_draw_lies_in_the_space(seed, trials):
    study = Study("data/arm", SPACE, SearchSpec(by="tpe", trials=15, seed=seed), epochs=0)
    for number in range(trials):
        values = study.draw(str(number))
        assert set(values) == {"tau", "learning_rate", "n_negatives", "sampler", "layers"}
        assert 0.05 <= values["tau"] <= 0.3 and 1e-4 <= values["learning_rate"] <= 1e-1
        assert values["n_negatives"] in range(1, 9) and isinstance(values["n_negatives"], int)
        assert values["sampler"] in ("uniform-all", "popularity") and values["layers"] in (1, 2, 3)
        study.end(str(number), values["tau"])


def _peak(values):
    return -((math.log10(values["learning_rate"]) + 2.5) ** 2) - 20 * abs(values["tau"] - 0.2)


def _search(by, trials=60):
    study = Study("data/arm", SPACE, SearchSpec(by="tpe", trials=trials), epochs=0)
    found = []
    for number in range(trials):
        values = study.draw(str(number))
        found.append(_peak(values))
        # A study that hears the same of every trial can learn nothing: it is the random search to compare with.
        study.end(str(number), found[-1] if by == "tpe" else 0.0)
    return found


def test_tpe_learns_where_the_peak_is():
    later = slice(30, None)
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    assert mean(_search("tpe")[later]) > mean(_search("deaf")[later]) + 0.5


def test_the_same_seed_draws_the_same():
    draws = [Study("a", SPACE, SearchSpec(by="tpe", seed=4), 0).draw("0") for _ in range(2)]
    assert draws[0] == draws[1]
    assert Study("b", SPACE, SearchSpec(by="tpe", seed=4), 0).draw("0") != draws[0]


@pytest.mark.parametrize("scheduler", ["asha", "hyperband"])
def test_a_trial_far_behind_is_ended_and_a_leading_one_is_not(scheduler):
    study = Study("a", {}, SearchSpec(scheduler=scheduler, grace=2), epochs=18)
    ended = {}
    for trial in range(12):
        level = 1.0 if trial == 11 else 0.5 if trial < 6 else 0.1
        for epoch in range(1, 19):
            if study.look(str(trial), epoch, level + epoch / 1000):
                ended[trial] = epoch
                break
        study.end(str(trial), level, stopped=trial in ended)
    assert 11 not in ended
    assert {6, 7, 8, 9, 10} & set(ended), ended
    assert all(epoch >= 2 for epoch in ended.values())


def test_without_a_scheduler_nobody_is_ended():
    study = Study("a", {}, SearchSpec(), epochs=10)
    assert not any(study.look(str(trial), epoch, -trial) for trial in range(9) for epoch in range(1, 10))


def _record(name, started, values, looks, status="finished", value=0.1):
    metrics = {"ndcg@20": {"mean": value, "low": None, "high": None}} if status == "finished" else {}
    curve = [{"iteration": epoch, "seconds": 1.0, "loss": 1.0, "valid": valid} for epoch, valid in looks]
    first = RunRecord(name, "sl", values | {"epochs": 18}, {"name": "data"}, "train", "valid", 0, "float32")
    return replace(first, status=status, metrics=metrics, curve=curve, started_at=started, stage="search", arm="SL")


def test_a_replayed_study_goes_on_as_if_it_had_never_ended():
    space, search = {"tau": {"uniform": [0.05, 0.3]}}, SearchSpec(by="tpe", scheduler="asha", grace=2, trials=20)
    whole = Study("data/SL", space, search, 18)
    records = []
    for trial in range(14):
        values, looks, stopped = whole.draw(str(trial)), [], False
        for epoch in (2, 6, 18):
            looks.append((epoch, values["tau"] * epoch / 18))
            stopped = whole.look(str(trial), *looks[-1])
            if stopped:
                break
        whole.end(str(trial), looks[-1][1], stopped)
        records.append(
            _record(
                f"run-{trial:02}",
                f"2026-01-01T00:00:{trial:02}",
                values,
                looks,
                "stopped" if stopped else "finished",
                looks[-1][1],
            )
        )
    assert {record.status for record in records} == {"stopped", "finished"}
    again = Study("data/SL", space, search, 18)
    again.replay(reversed(records), "ndcg@20")
    # The same rungs: a value between the best and the worst is judged alike by both.
    for value in (0.001, 0.01, 0.02, 0.03):
        verdicts = [study.look(f"new-{value}", 2, value) for study in (whole, again)]
        assert verdicts[0] == verdicts[1]


def test_a_failed_record_is_no_news_to_a_study():
    told, fresh = (Study("data/SL", {"tau": {"uniform": [0.05, 0.3]}}, SearchSpec(by="tpe"), 18) for _ in range(2))
    told.replay([_record("run", "2026", {"tau": 0.1}, [], "failed")], "ndcg@20")
    assert told.draw("0") == fresh.draw("0")


def test_nothing_is_drawn_twice_while_there_is_something_new():
    space = {"lam": {"choice": [1, 2, 3]}, "nu": {"grid": [0.5, 1.0]}}
    study = Study("a", space, SearchSpec(by="tpe", trials=8), epochs=0)
    drawn = []
    for number in range(8):
        drawn.append(tuple(study.draw(str(number)).items()))
        study.end(str(number), 1.0 if number == 2 else 0.0)
    assert len(set(drawn[:6])) == 6 and set(drawn[6:]) <= set(drawn[:6])
