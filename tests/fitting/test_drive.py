"""The driver of a fit, on a method whose n-th model is the number n: when it ends, what it returns, how it goes on."""

import itertools
import math
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbench.core.errors import NumericalError, StorageError
from rankbench.fitting.checkpoints import Checkpoints, State
from rankbench.fitting.drive import Validation, drive, result_of
from rankbench.fitting.step import Step
from rankbench.fitting.stopping import Stopping


@dataclass(frozen=True)
class Numbered:
    """A model that only knows the iteration that it comes from."""

    number: np.ndarray


def step_of(number, total=0):
    state = State(number, {"n": np.array([number])}, {"total": total})
    return Step(number, 1.0 / (number + 1), 0.5 * number, lambda: Numbered(np.array([number])), lambda: state)


def counting(ends_after=math.inf, heard=None):
    """Steps that converge after so many iterations; `heard` gets what the driver sends back, by iteration."""

    def begin(start):
        number = start.number if start else 0
        total = start.values["total"] if start else 0
        while True:
            value = yield step_of(number, total)
            if heard is not None and number:
                heard.append((number, value))
            if number >= ends_after:
                return
            number += 1
            total += number

    return begin


def in_place(start):
    """The same steps by a method that changes one array."""
    n = np.zeros(1, int)
    for number in itertools.count():
        n[0] = number
        yield Step(number, 0.0, 0.0, lambda: Numbered(n), lambda: State(int(n[0]), {"n": n}, {}))


def scripted(values, metrics=None):
    def measure(model, metric):
        if metrics is not None:
            metrics.append(metric)
        return values[int(model.number[0])]

    return measure


def expected_end(values, limit, patience, every):
    """(iterations that are run, best iteration), by the definition of patience."""
    best, waited, at = -math.inf, 0, 0
    for number in range(1, limit + 1):
        if number % every == 0 or number == limit:
            if values[number] > best:
                best, at, waited = values[number], number, 0
            else:
                waited += 1
            if waited == patience:
                return number, at
    return limit, at


VALUES = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3]), min_size=21, max_size=21)


@pytest.mark.parametrize("begin", [counting(), in_place], ids=["new arrays", "arrays changed in place"])
@given(values=VALUES, limit=st.integers(1, 20), patience=st.integers(1, 4), every=st.integers(1, 4))
def test_patience_ends_a_fit_and_the_best_model_is_returned(begin, values, limit, patience, every):
    fit = result_of(drive(begin, limit, Validation(scripted(values), Stopping(patience, every))))
    ran, best = expected_end(values, limit, patience, every)
    assert [row["iteration"] for row in fit.curve] == list(range(1, ran + 1))
    assert fit.iterations == best == int(fit.model.number[0])
    measured = {row["iteration"]: row["valid"] for row in fit.curve if "valid" in row}
    assert measured == {n: values[n] for n in range(1, ran + 1) if n % every == 0 or n == limit}


@settings(max_examples=30)
@given(values=VALUES, limit=st.integers(2, 12), patience=st.integers(1, 4), every=st.integers(1, 3), killed=st.integers(1, 11))
def test_a_fit_that_is_killed_and_resumed_ends_as_one_that_was_not(values, limit, patience, every, killed):
    validation = Validation(scripted(values), Stopping(patience, every))
    heard_whole, heard = [], []
    whole = result_of(drive(counting(heard=heard_whole), limit, validation))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "c", resume=True)
        rows = drive(counting(heard=heard), limit, validation, checkpoints=checkpoints)
        list(itertools.islice(rows, killed))  # the row of the last one has come, its checkpoint has not
        rows.close()
        resumed = result_of(drive(counting(heard=heard), limit, validation, checkpoints=checkpoints))
    assert resumed.curve == whole.curve and resumed.ended == whole.ended
    assert (resumed.iterations, resumed.model.number.tolist()) == (whole.iterations, whole.model.number.tolist())
    assert dict(heard) == dict(heard_whole)  # what was measured before the kill is sent again after it


def test_a_disk_that_is_full_for_a_while_ends_no_fit(tmp_path, monkeypatch, caplog):
    save, full = Checkpoints.save, [True, True, False, True]

    def saved(self, state):
        if full.pop(0):
            raise StorageError("no space left on device")
        save(self, state)

    monkeypatch.setattr(Checkpoints, "save", saved)
    checkpoints = Checkpoints(tmp_path / "c", every=0)
    fit = result_of(drive(counting(), 4, checkpoints=checkpoints))
    assert fit.iterations == 4 and caplog.text.count("the fit goes on without a checkpoint") == 2  # once each time
    assert checkpoints.problem == ["no space left on device"]
    assert Checkpoints(tmp_path / "c", resume=True).last() is not None


@pytest.mark.parametrize(
    "spacing, looks", [(1, [*range(1, 13)]), (5, [1, 2, 4, 5, 10, 12]), (8, [1, 2, 4, 8, 12]), (30, [1, 2, 4, 8, 12])]
)
def test_evaluations_without_a_given_distance_come_often_at_first(spacing, looks):
    values = [number / 100 for number in range(13)]
    fit = result_of(drive(counting(), 12, Validation(scripted(values), Stopping(9, eval_every=0), spacing)))
    assert [row["iteration"] for row in fit.curve if "valid" in row] == looks


@pytest.mark.parametrize("patience, ran", [(1, 6), (3, 9), (4, 9), (6, 9), (7, 10), (12, 15)])
def test_patience_then_counts_iterations_and_waits_for_a_second_evaluation(patience, ran):
    values = [0.0, 0.1, 0.2, 0.9, 0.5] + [0.4] * 20  # evaluations after 1, 2, 3, 6, 9, 12, ...; the best is the third
    fit = result_of(drive(counting(), 20, Validation(scripted(values), Stopping(patience, eval_every=0), 3)))
    assert (fit.iterations, len(fit.curve), fit.ended) == (3, ran, "patience")


def test_without_patience_the_last_model_is_returned_and_nothing_is_measured():
    def never(model, metric):
        raise AssertionError

    fit = result_of(drive(counting(), 4, Validation(never, Stopping(patience=0))))
    assert (fit.iterations, fit.ended, fit.model.number.tolist()) == (4, "last iteration", [4])


def test_a_method_that_converges_is_evaluated_once_more_and_may_do_so_before_its_first_iteration():
    values = [0.0, 0.1, 0.2, 0.1, 0.2, 0.9, 0.0]
    fit = result_of(drive(counting(ends_after=5), 20, Validation(scripted(values), Stopping(3, eval_every=2))))
    assert (fit.ended, fit.iterations) == ("converged", 5) and fit.curve[-1]["valid"] == 0.9
    fit = result_of(drive(counting(ends_after=0), 20))
    assert (fit.iterations, fit.ended, fit.curve) == (0, "converged", [])


def test_the_metric_of_the_parameters_is_measured_and_must_be_finite():
    metrics = []
    validation = Validation(scripted([0.0, 0.1, math.nan], metrics), Stopping(3, stop_metric="recall@5"))
    with pytest.raises(NumericalError, match="recall@5 on the validation set is nan after iteration 2"):
        result_of(drive(counting(), 5, validation))
    assert set(metrics) == {"recall@5"}


def test_columns_of_an_observer_stand_in_the_curve_and_one_model_serves_all():
    made = []

    def model_of(step):
        made.append(step.number)
        return step.model()

    def begin(start):
        for step in map(step_of, itertools.count()):
            yield step._replace(model=partial(model_of, step))

    def observe(step):
        return {"ndcg@10": float(step.model().number[0])}

    fit = result_of(drive(begin, 3, Validation(scripted([0.0, 0.1, 0.2, 0.3]), Stopping(2)), observe))
    assert [row["ndcg@10"] for row in fit.curve] == [1.0, 2.0, 3.0]
    assert made.count(1) == made.count(2) == 1


def test_steps_are_closed_when_the_caller_gives_up():
    closed = []

    def begin(start):
        try:
            yield from counting()(start)
        finally:
            closed.append(True)

    rows = drive(begin, 9)
    next(rows)
    rows.close()
    assert closed == [True]


def test_time_spent_by_the_caller_and_on_evaluation_is_no_time_of_the_fit(monkeypatch):
    clock = itertools.count(0.0, 1.0)  # every look at the clock takes a second
    monkeypatch.setattr("rankbench.fitting.drive.time.perf_counter", lambda: next(clock))
    assert result_of(drive(counting(), 5)).paused == 5.0
    last = Validation(scripted([0.0] * 4), Stopping(5, eval_every=2))
    assert result_of(drive(counting(ends_after=3), 9, last)).paused == 4.0  # once more at the end
