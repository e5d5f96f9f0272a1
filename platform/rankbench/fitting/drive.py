"""The loop that drives an iterative fit: it evaluates models, keeps the best one, stops early and saves checkpoints."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np

from rankbench.core.errors import NumericalError, StorageError
from rankbench.fitting.checkpoints import Checkpoints, State, part_of, prefixed
from rankbench.fitting.recommenders import Recommender
from rankbench.fitting.step import Step, Steps
from rankbench.fitting.stopping import Stopping

Row = dict[str, float]  # of a curve: iteration, seconds, loss, and valid and other metrics if they were measured
Ending = Literal["last iteration", "converged", "patience"]
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validation:
    """`measure(model, metric)` evaluates a model on the validation set; `stopping` says when, and when the fit ends.

    `spacing` is the number of iterations between evaluations if `stopping` leaves it open.
    """

    measure: Callable[[Recommender, str], float]
    stopping: Stopping
    spacing: int = 1


@dataclass(frozen=True)
class Fit:
    """The result of a fit. `iterations` is the number of the iteration whose model was kept. `paused` counts the seconds of the
    fit that were spent on evaluations, and by the caller between two iterations; `earlier` those of the iterations before the
    checkpoint from which it went on.
    """

    model: Recommender
    curve: list[Row]
    iterations: int
    ended: Ending
    paused: float
    earlier: float = 0.0


@dataclass
class Patience:
    """The best value on the validation set so far, its iteration, and the number of evaluations since."""

    best: float = -math.inf
    iteration: int = 0
    waited: int = 0

    def update(self, value: float, iteration: int) -> bool:
        """Add the value of an iteration. Returns whether it is better than all before it."""
        if value > self.best:
            self.best, self.iteration, self.waited = value, iteration, 0
            return True
        self.waited += 1
        return False

    def values(self) -> dict[str, float | None]:
        return vars(self) | {"best": self.best if math.isfinite(self.best) else None}  # JSON has no infinity

    @classmethod
    def of(cls, values: dict[str, Any]) -> Patience:
        return cls(-math.inf if values["best"] is None else values["best"], values["iteration"], values["waited"])


@dataclass
class _Course:
    """What the driver stores about a fit, and saves with the state of the method."""

    curve: list[Row] = field(default_factory=list)
    patience: Patience = field(default_factory=Patience)
    valid: float | None = None
    best: dict[str, np.ndarray] = field(default_factory=dict)  # the arrays of the best model

    def state(self, inner: State) -> State:
        arrays = prefixed({"fit": inner.arrays, "best": self.best})
        values = {"fit": inner.values, "curve": self.curve, "patience": self.patience.values(), "valid": self.valid}
        return State(inner.number, arrays, values)

    @classmethod
    def restored(cls, saved: State | None) -> tuple[_Course, State | None]:
        """Return the driver's part of a checkpoint and the method's part."""
        if saved is None:
            return cls(), None
        values = saved.values
        course = cls(values["curve"], Patience.of(values["patience"]), values["valid"], part_of(saved.arrays, "best/"))
        return course, State(saved.number, part_of(saved.arrays, "fit/"), values["fit"])


@dataclass(frozen=True)
class Begun:
    """A fit that was interrupted after so many `iterations`. `pace`: seconds of an iteration, evaluations left out, and without
    the first one, in which code is compiled; None if there was no other.
    """

    iterations: int
    pace: float | None

    @classmethod
    def read(cls, folder: Path) -> Begun | None:
        """Return how far the fit is whose checkpoints are in `folder`; None if nobody can know, or they are of other code."""
        try:
            curve = Checkpoints(folder).values()["curve"]
            (first, began), (last, ended) = ((int(row["iteration"]), float(row["seconds"])) for row in (curve[0], curve[-1]))
        except (LookupError, TypeError, ValueError):
            return None
        return cls(last, (ended - began) / (last - first) if last > first else None)


def drive(
    begin: Callable[[State | None], Steps],
    limit: int,
    validation: Validation | None = None,
    observe: Callable[[Step], Row] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Generator[list[Row], Checkpoints | None, Fit]:
    """Run the steps that `begin` starts, from the state of the last checkpoint if there is one. Yield the curve so far after
    each step; its last row is the new one. A caller that wants to go on later sends where the state is saved.

    The fit ends after iteration `limit`, when the method has converged, or when `validation` has not improved for as many
    evaluations as its patience. With `validation`, the best model is returned, otherwise the last one. `observe` adds columns
    to a row. Raises NumericalError if a metric on the validation set is not finite, and what the steps raise.
    """
    watched = validation if validation and validation.stopping.patience > 0 else None
    stopping = watched.stopping if watched else Stopping()
    course, start = _Course.restored(checkpoints.last() if checkpoints else None)
    patience, paused = course.patience, 0.0
    ended: Ending = "converged"
    steps = begin(start)
    try:
        step = next(steps)
        if start:
            start.arrays.clear()  # the fit has its own by now
        earlier = step.seconds if start else 0.0
        while True:
            if watched and stopping.ended(patience.waited, step.number - patience.iteration):
                ended = "patience"
                break
            if step.number >= limit:
                ended = "last iteration"
                break
            try:
                step = steps.send(course.valid)
            except StopIteration:
                break
            resumed_at = time.perf_counter()
            step = step._replace(model=cache(step.model))  # computed once for validation and curve
            row: Row = {"iteration": step.number, "seconds": round(step.seconds, 4)}
            row |= {"loss": step.loss} if math.isfinite(step.loss) else {}  # a method need not have one
            course.valid = None
            if watched and (stopping.looks(step.number, watched.spacing) or step.number == limit):
                row["valid"] = _evaluate(course, step, watched)
            row |= observe(step) if observe else {}
            course.curve.append(row)
            while (wanted := (yield course.curve)) is not None:
                wanted.save(course.state(step.state()))
            if checkpoints and checkpoints.due():
                try:
                    checkpoints.save(course.state(step.state()))
                except StorageError as error:  # as on a full disk, which is no fault of the fit
                    if not checkpoints.problem:
                        log.warning("%s; the fit goes on without a checkpoint", error)
                    checkpoints.problem[:] = [str(error)]
            paused += time.perf_counter() - resumed_at
        if watched and course.valid is None and course.curve:  # converged between two evaluations
            resumed_at = time.perf_counter()
            course.curve[-1]["valid"] = _evaluate(course, step, watched)
            paused += time.perf_counter() - resumed_at
        model = step.model()
        if course.best:
            return Fit(type(model)(**course.best), course.curve, patience.iteration, ended, paused, earlier)
        return Fit(model, course.curve, step.number, ended, paused, earlier)
    finally:
        steps.close()


def _evaluate(course: _Course, step: Step, validation: Validation) -> float:
    model, metric = step.model(), validation.stopping.stop_metric
    course.valid = validation.measure(model, metric)
    if not math.isfinite(course.valid):
        raise NumericalError(f"{metric} on the validation set is {course.valid} after iteration {step.number}")
    if course.patience.update(course.valid, step.number):
        # Copies, because the next iteration may change the arrays in place.
        course.best = {each.name: np.copy(getattr(model, each.name)) for each in dataclasses.fields(cast(Any, model))}
    return course.valid


def result_of(generator: Generator[Any, None, T], on_value: Callable[[Any], object] | None = None) -> T:
    """Run a generator to its end and return its result. `on_value` is called with each value that it yields."""
    while True:
        try:
            value = next(generator)
            if on_value is not None:
                on_value(value)
        except StopIteration as end:
            return end.value
