"""One setting of a race: a fit that goes on iteration by iteration, and its best model on the validation set so far."""

from __future__ import annotations

import copy
import math
import os
import shutil
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.core.errors import ConfigError, NumericalError, RankbenchError
from rankbench.experiment.fit import Fitted
from rankbench.experiment.job import MethodConfig
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.drive import Row
from rankbench.fitting.method import Iterative
from rankbench.fitting.recommenders import Recommender

Measure = Callable[[Recommender, str], float]  # a metric of a model on the validation set
Fit = Generator[list[Row], Checkpoints | None, Fitted]
# Fields of a saved candidate.
KEPT = ("seconds", "seconds_to_first", "n_done", "ended", "failure", "refused", "diverged", "level", "marks")


@dataclass(eq=False)
class Best:
    """The best model of a candidate at some time, with its value on the validation set: that of iteration `iterations` (None
    for a fit in one step), which was complete after `seconds` of the candidate. The model is None once nobody needs it.
    """

    config: MethodConfig
    value: float
    iterations: int | None
    seconds: float
    model: Recommender | None = None


class Candidate:
    """The fit of `config` that `begin` starts, from the checkpoints in a folder if one is given. It measures its models with
    the function that `begin` is given. Evaluations are part of the time of a fit.

    `saved`: what `values` said of the candidate, with `folder` of its checkpoints, if it goes on. `failure`: why it has no
    further value; `refused`: whether the method itself says that it cannot be fitted; `diverged`: whether a number was not
    finite, or a matrix not positive definite. `seconds_to_first`: until its first value or its end, and `pace`: mean of an
    iteration; both 0 before. For its `Race`, `level` is the one that it is on its way to, or was last, and `marks` are its
    values as it reached levels.
    """

    def __init__(
        self,
        config: MethodConfig,
        begin: Callable[[Measure, Path | None], Fit],
        measure: Measure,
        metric: str,
        clock: Callable[[], float] = time.process_time,
        saved: dict[str, Any] | None = None,
        folder: Path | None = None,
    ):
        self.config, self.metric = config, metric
        self.best: Best | None = None
        self.seconds = self.seconds_to_first = 0.0
        self.n_done = self.level = 0
        self.marks: list[float] = []
        self.ended, self.failure, self.refused, self.diverged = False, "", False, False
        if saved:
            vars(self).update({name: saved[name] for name in KEPT})
            self.best = Best(config, *saved["best"]) if saved["best"] else None
        self._measure, self._clock, self._folder = measure, clock, folder
        self._found: tuple[float, Recommender] | None = None  # in this iteration
        self._running = False  # in this process
        self._fit = begin(self._watch, folder)

    @property
    def value(self) -> float:
        """The best value so far, -inf before the first."""
        return self.best.value if self.best else -math.inf

    @property
    def pace(self) -> float:
        return self.seconds / self.n_done if self.n_done else 0.0

    def step(self) -> None:
        """Complete an iteration."""
        start = self._clock()
        iteration = self._next()
        seconds = self._clock() - start
        # A fit that goes on from checkpoints begins by building what it needs, which an uninterrupted one has.
        self.seconds += min(seconds, self.pace) if self.n_done and not self._running else seconds
        self.n_done, self._running = self.n_done + 1, True
        if self._found:
            value, model = self._found
            self.best, self._found = Best(self.config, value, iteration, self.seconds, model), None
        if not self.seconds_to_first and (self.best or self.ended):
            self.seconds_to_first = self.seconds

    def close(self) -> None:
        """End the fit."""
        self._fit.close()
        self.ended = True

    def values(self) -> dict[str, Any]:
        """What `saved` is given to go on."""
        best = self.best and [self.best.value, self.best.iterations, self.best.seconds]
        return {name: getattr(self, name) for name in KEPT} | {"best": best}

    def save(self, folder: Path) -> None:
        """Save the checkpoint with which the fit goes on, if it has begun and not ended, in a folder beside the last one."""
        if self._running and not self.ended:
            self._fit.send(Checkpoints(folder))
        elif self.n_done and not self.ended and self._folder:
            shutil.copytree(self._folder, folder, copy_function=os.link)

    def _next(self) -> int | None:
        """Complete an iteration, and return its number, or None at the end of a fit."""
        try:
            return int(next(self._fit)[-1]["iteration"])
        except StopIteration as end:
            self.ended = True
            if self.best is None and self._found is None:
                self._watch(end.value.models[0], self.metric)
            # A fit that converges between two evaluations is evaluated once more at its end.
            last: int | None = end.value.iterations
            return self.best.iterations if last is None and self.best else last
        except RankbenchError as error:  # it diverged, or its values do not fit these data
            self.ended, self.failure = True, str(error)
            self.refused, self.diverged = isinstance(error, ConfigError), isinstance(error, NumericalError)
            return None

    def _watch(self, model: Recommender, metric: str) -> float:
        value = self._measure(model, metric)
        if value > (self._found[0] if self._found else self.value):
            # The next iteration may change the arrays in place.
            self._found = value, copy.deepcopy(model) if isinstance(self.config.spec, Iterative) else model
        return value
