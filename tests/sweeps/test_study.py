"""Studies: draws lie in the space and find a peak, trials behind are ended, and neither depends on timing."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbench.schema.experiment import SearchSpec
from rankbench.sweeps.search.study import Study

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
        values, _ = study.draw()
        assert set(values) == {"tau", "learning_rate", "n_negatives", "sampler", "layers"}
        assert 0.05 <= values["tau"] <= 0.3 and 1e-4 <= values["learning_rate"] <= 1e-1
        assert values["n_negatives"] in range(1, 9) and isinstance(values["n_negatives"], int)
        assert values["sampler"] in ("uniform-all", "popularity") and values["layers"] in (1, 2, 3)
        study.end(number, values["tau"])


def _peak(values):
    return -((math.log10(values["learning_rate"]) + 2.5) ** 2) - 20 * abs(values["tau"] - 0.2)


def _search(by, trials=60, lag=1):
    study = Study("data/arm", SPACE, SearchSpec(by="tpe", trials=trials), epochs=0, lag=lag)
    peaks = []
    for number in range(trials):
        values, _ = study.draw()
        peaks.append(_peak(values))
        # A study that hears the same of every trial can learn nothing: it is the random search to compare with.
        study.end(number, peaks[-1] if by == "tpe" else 0.0)
    return peaks


@pytest.mark.parametrize("lag", [1, 3])
def test_tpe_learns_where_the_peak_is(lag):
    later = slice(30, None)
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    assert mean(_search("tpe", lag=lag)[later]) > mean(_search("deaf", lag=lag)[later]) + 0.5


SMALL = {"tau": {"uniform": [0.05, 0.3]}, "sampler": {"choice": ["uniform-all", "popularity"]}}
TINY = {"nu": {"grid": [0.5, 1.0]}, "lam": {"choice": [1, 2, 3]}}  # fewer settings than trials
EPOCHS = 6


def _play(search, space, lag, concurrent, pick, known=(), settled=(), lost=()):
    """A whole search; `pick` says which of the trials that can go on is next. Returns what was drawn, and of every trial its
    evaluations, its value and whether it was stopped.

    `known`: the draws of a part of it that came before, of which `settled` trials had ended so. `lost`: trials that fail.
    """
    study = Study("data/arm", space, search, EPOCHS, lag)
    draws, results, running = [], {}, {}
    while study.next < search.trials or running:
        moves = [number for number in running if study.should_stop(number) is False]
        if study.next < search.trials and len(running) < concurrent and not study.waits:
            moves.append(None)
        number = pick(moves)  # never empty: the earliest trial waits for nobody
        if number is None:
            number = study.next
            values, repeats = study.draw(known[number] if number < len(known) else None)
            draws.append(values)
            if number in settled:
                evaluations, value, stopped = results[number] = settled[number]
                for epoch, level in evaluations:
                    study.report(number, epoch, level)
                study.end(number, value, stopped)
            elif repeats is None:
                running[number] = []
            continue
        epoch = len(running[number]) + 1
        level = draws[number].get("tau", 0.1 * draws[number].get("lam", 0)) * epoch
        if number in lost or epoch > EPOCHS:
            value = None if number in lost else level
            study.end(number, value)
            results[number] = running.pop(number), value, False
        else:
            running[number].append((epoch, level))
            study.report(number, epoch, level)
        for each in [each for each in running if study.should_stop(each)]:
            study.end(each, None, stopped=True)
            results[each] = running.pop(each), None, True
    return draws, results


SEARCHES = st.builds(
    SearchSpec,
    by=st.just("tpe"),
    seed=st.integers(0, 5),
    trials=st.integers(1, 14),
    scheduler=st.sampled_from(["none", "asha", "hyperband"]),
    grace=st.integers(1, 2),
)


@settings(max_examples=25)
@given(SEARCHES, st.sampled_from([SMALL, TINY]), st.integers(1, 4), st.sets(st.integers(0, 13), max_size=2), st.data())
def test_the_order_in_which_trials_end_changes_nothing(search, space, concurrent, lost, data):
    lag = 2 * concurrent - 1
    expected = _play(search, space, lag, concurrent, min_or_new, lost=lost)
    assert _play(search, space, lag, concurrent, lambda moves: data.draw(st.sampled_from(moves)), lost=lost) == expected


@settings(max_examples=40)
@given(SEARCHES, st.sampled_from([SMALL, TINY]), st.integers(1, 4), st.integers(0, 14), st.data())
def test_a_search_that_goes_on_draws_what_it_had_drawn_and_would_have_drawn(search, space, concurrent, cut, data):
    lag = 2 * concurrent - 1
    draws, results = expected = _play(search, space, lag, concurrent, min_or_new)
    pick = lambda moves: data.draw(st.sampled_from(moves))  # noqa: E731
    ended = {n: result for n, result in results.items() if n < cut and (n <= cut - lag or data.draw(st.booleans()))}
    # As many trials at once as the machine has room for now: the lag is what the sweep began with.
    again = _play(search, space, lag, data.draw(st.integers(1, 6)), pick, draws[:cut], ended)
    assert again == expected


def min_or_new(moves):
    """The earliest trial goes on, and a new one starts where it can."""
    return None if None in moves else min(moves)


def test_a_draw_depends_on_no_result_that_is_newer_than_the_lag_and_waits_for_the_others():
    def draw_20(changed):
        study = Study("data/arm", SMALL, SearchSpec(by="tpe", trials=30), 0, lag=3)
        for number in range(20):
            values, _ = study.draw()
            study.end(number, 9.0 if number == changed else -abs(values["tau"] - 0.2))
        return study.draw()

    assert draw_20(19) == draw_20(18) == draw_20(None) != draw_20(17)
    study = Study("data/arm", SMALL, SearchSpec(by="tpe", trials=30), 0, lag=3)
    for _ in range(3):
        assert not study.waits
        study.draw()
    study.end(1, 0.0)
    assert study.waits  # for draw 0
    study.end(0, 0.0)
    assert not study.waits


def test_what_was_drawn_is_drawn_again_though_a_result_has_changed():
    search = SearchSpec(by="tpe", trials=14)
    drawn, _ = _play(search, SMALL, 1, 1, min_or_new, lost={3})
    changed, _ = _play(search, SMALL, 1, 1, min_or_new)
    assert changed != drawn
    assert _play(search, SMALL, 1, 1, min_or_new, known=drawn)[0] == drawn


def test_nothing_is_drawn_twice_while_there_is_something_new():
    study = Study("a", TINY, SearchSpec(by="tpe", trials=8), epochs=0)
    drawn, repeated = [], []
    for number in range(8):
        values, repeats = study.draw()
        drawn.append(tuple(values.items()))
        repeated.append(repeats)
        study.end(number, 1.0 if number == 2 else 0.0)
    assert len(set(drawn[:6])) == 6 and set(drawn[6:]) <= set(drawn[:6])
    assert repeated[:6] == [None] * 6
    assert [drawn[first] for first in repeated[6:]] == drawn[6:]
