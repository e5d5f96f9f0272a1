"""One setting of a search: a fit that goes on for as long as it is given, and its best model on the validation set so far."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Generator

from rankbench.core.errors import ConfigError, RankbenchError
from rankbench.experiment.fit import Fitted
from rankbench.experiment.job import MethodConfig
from rankbench.fitting.drive import Row
from rankbench.fitting.method import Iterative
from rankbench.fitting.recommenders import Recommender

Measure = Callable[[Recommender, str], float]  # a metric of a model on the validation set
Fit = Generator[list[Row], None, Fitted]


class Candidate:
    """The fit of `config` that `begin` starts. It measures its models with the function that `begin` is given.

    `value` is the best one on the validation set; its `model` comes from iteration `iterations` (None for a fit in one step),
    which was complete after `seconds_to_best` of `seconds`, the first one after `seconds_to_first`. Evaluations are part of the
    time of a fit. `failure`: why it has no further value; `refused`: whether the method itself says that it cannot be fitted.
    """

    def __init__(
        self,
        config: MethodConfig,
        begin: Callable[[Measure], Fit],
        measure: Measure,
        metric: str,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.config, self.metric = config, metric
        self.value = -math.inf
        self.model: Recommender | None = None
        self.iterations: int | None = None
        self.seconds = self.seconds_to_first = self.seconds_to_best = 0.0
        self.ended, self.failure, self.refused = False, "", False
        self._measure, self._clock, self._improved, self._n_done = measure, clock, False, 0
        self._fit = begin(self._watch)

    def advance(self, seconds: float, most: float = math.inf) -> Generator[None, None, None]:
        """Go on for `seconds`, to the nearest whole iteration, or until the fit ends, and yield after each iteration. The first
        one is always made. No other one begins that would end after `most` seconds if it took as long as the mean.
        """
        end, limit = self.seconds + seconds, self.seconds + most
        while not self.ended and (not self._n_done or self._nearest(end, limit)):
            start = self._clock()
            iteration = self._next()
            self.seconds += self._clock() - start
            self._n_done += 1
            self.seconds_to_first = self.seconds_to_first or self.seconds
            if self._improved:
                self.iterations, self.seconds_to_best, self._improved = iteration, self.seconds, False
            yield

    def _nearest(self, end: float, limit: float) -> bool:
        mean = self.seconds / self._n_done
        return self.seconds + mean / 2 <= end and self.seconds + mean <= limit

    def close(self) -> None:
        """End the fit and forget its model."""
        self._fit.close()
        self.ended, self.model = True, None

    def _next(self) -> int | None:
        """Complete an iteration, and return its number, or None at the end of a fit."""
        try:
            return int(next(self._fit)[-1]["iteration"])
        except StopIteration as end:
            self.ended = True
            if self.model is None:
                self._watch(end.value.models[0], self.metric)
            # A fit that converges between two evaluations is evaluated once more at its end.
            last: int | None = end.value.iterations
            return self.iterations if last is None else last
        except RankbenchError as error:  # it diverged, or its values do not fit these data
            self.ended, self.failure, self.refused = True, str(error), isinstance(error, ConfigError)
            return None

    def _watch(self, model: Recommender, metric: str) -> float:
        value = self._measure(model, metric)
        if value > self.value:
            self.value, self._improved = value, True
            # The next iteration may change the arrays in place.
            self.model = copy.deepcopy(model) if isinstance(self.config.spec, Iterative) else model
        return value
