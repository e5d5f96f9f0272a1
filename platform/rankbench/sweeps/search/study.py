"""The search of an arm on a dataset: Optuna draws its parameters, and `Halving` stops trials that fall behind.

The same seed gives the same trials, whatever their timing. Draw n depends only on the results of draws up to n − lag: Optuna
gets them in the order of the draws, each just before the first draw that depends on it, and a draw waits until they are known.
Later draws count as running, whether they have ended or not. The random numbers of a draw depend only on the seed, the search
and the number of the draw.

Trials are compared only within their arm, since another loss may rise more slowly and end higher.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from rankbench.core.rng import stream
from rankbench.schema.experiment import SearchSpec
from rankbench.sweeps.search.halving import Halving

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Values = tuple[tuple[str, Any], ...]  # names and values of drawn parameters, sorted
REDRAWS = 10  # number of times that a setting is drawn again if it was drawn before
MAX_LISTED = 10_000  # size of the largest space whose settings are listed to find one that was not drawn yet


def distributions(params: dict[str, Any]) -> dict[str, Distribution]:
    """Optuna's distributions of an arm's checked params, without fixed values; a grid becomes a choice."""
    result: dict[str, Distribution] = {}
    for name, value in params.items():
        if not isinstance(value, dict):
            continue
        ((kind, arguments),) = value.items()
        if kind in ("choice", "grid"):
            result[name] = CategoricalDistribution(arguments)
        elif kind == "randint":
            result[name] = IntDistribution(arguments[0], arguments[1] - 1)
        else:
            low, high = map(float, arguments)
            result[name] = FloatDistribution(low, high, log=kind == "loguniform")
    return result


@dataclass
class _Trial:
    """A trial with its evaluations and result.

    `drawn` is Optuna's trial, None if the parameters were given. `repeats` is the number of an earlier trial with the same
    parameters; such a trial is not run again.
    """

    drawn: optuna.Trial | None = None
    repeats: int | None = None
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    ended: bool = False
    stopped: bool = False
    value: float | None = None


class Study:
    """The trials of one arm on one dataset, numbered from 0.

    `epochs` is the maximum number of epochs of a trial, 0 if it has none. The first draw that depends on the result of a trial
    comes `lag` draws later.
    """

    def __init__(self, name: str, params: dict[str, Any], search: SearchSpec, epochs: int, lag: int = 1):
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name, self.lag = name, lag
        self.space = distributions(params) if search.by != "random" else {}
        self._search = search
        self._halving = Halving(name, search, epochs) if search.prunes and epochs else None
        # As in Optuna's Hyperband, each bracket has a model of its own, since its trials are first compared at the same epoch.
        brackets = self._halving.brackets if self._halving else 1
        self._studies = [optuna.create_study(direction="maximize") for _ in range(brackets)]
        self._trials: list[_Trial] = []
        self._n_given = 0  # trials whose results Optuna has
        self._numbers: dict[Values, int] = {}  # parameters → the first trial that has them

    @property
    def next(self) -> int:
        """The number of the next trial."""
        return len(self._trials)

    @property
    def waits(self) -> bool:
        """Whether the next draw depends on a trial that has not ended."""
        return not all(self._ended(number) for number in range(self._n_given, self.next - self.lag + 1))

    def start(self) -> int:
        """Start a trial whose parameters are given; returns its number."""
        self._begin(_Trial())
        return self.next - 1

    def draw(self, stored: dict[str, Any] | None = None) -> tuple[dict[str, Any], int | None]:
        """Start a trial with drawn parameters, new ones if possible.

        Returns the values, and the number of the trial that had them first, or None if they are new. `stored` are the values
        that an interrupted sweep drew here.
        """
        while self._n_given <= self.next - self.lag:
            self._give(self._n_given)
        study = self._studies[self._halving.bracket(self.next) if self._halving else 0]
        study.sampler = self._sampler()
        trial, values = self._ask(study)
        for _ in range(REDRAWS):
            if values not in self._numbers:
                break
            trial, values = self._redraw(study, trial)
        else:
            if new := self._undrawn():
                trial, values = self._redraw(study, trial, new)
        if stored is not None and stored != trial.params:
            trial, values = self._redraw(study, trial, stored)
        first = self._numbers.setdefault(values, self.next)
        repeats = first if first < self.next else None
        self._begin(_Trial(trial, repeats))
        if self._halving and repeats is not None:
            self._halving.end(self.next - 1)
        return dict(trial.params), repeats

    def report(self, number: int, epoch: int, value: float) -> None:
        """Add the `value` on the validation set after `epoch` of a trial."""
        trial = self._trials[number]
        if self._halving and not trial.ended:
            trial.evaluations.append((epoch, value))
            self._halving.report(number, epoch, value)

    def should_stop(self, number: int, wait: bool = True) -> bool | None:
        """Whether a trial should end at its latest evaluation; see `Halving.should_stop`."""
        if not self._halving or self._trials[number].ended:
            return False
        return self._halving.should_stop(number, wait)

    def end(self, number: int, value: float | None, stopped: bool = False) -> None:
        """End a trial. `value` is the chosen metric on the validation set, None if the trial failed or was stopped."""
        trial = self._trials[number]
        if trial.ended:
            return
        trial.ended, trial.stopped, trial.value = True, stopped, value
        if self._halving:
            self._halving.end(number)

    def _begin(self, trial: _Trial) -> None:
        self._trials.append(trial)
        if self._halving:
            self._halving.start()

    def _ended(self, number: int) -> bool:
        trial = self._trials[number]
        return trial.ended if trial.repeats is None else self._trials[trial.repeats].ended

    def _give(self, number: int) -> None:
        """Give Optuna the result of a trial."""
        trial = self._trials[number]
        source = trial if trial.repeats is None else self._trials[trial.repeats]
        self._n_given += 1
        if trial.drawn is None:
            return
        if source.stopped:
            epoch, value = source.evaluations[-1]
            trial.drawn.report(value, epoch)
            trial.drawn.study.tell(trial.drawn, state=TrialState.PRUNED)
        elif source.value is None or not math.isfinite(source.value):
            # The sampler ignores failed trials.
            trial.drawn.study.tell(trial.drawn, state=TrialState.FAIL)
        else:
            trial.drawn.study.tell(trial.drawn, source.value)

    def _sampler(self) -> optuna.samplers.BaseSampler:
        seed = int(stream(self._search.seed, "study", self.name, self.next).integers(2**31))
        startup = min(10, self._search.trials // 2)
        with warnings.catch_warnings():
            # constant_liar keeps concurrent trials apart; Optuna calls it experimental.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=startup)

    def _ask(self, study: optuna.Study) -> tuple[optuna.Trial, Values]:
        trial = study.ask(dict(self.space))
        return trial, tuple(sorted(trial.params.items()))

    def _redraw(
        self, study: optuna.Study, trial: optuna.Trial, values: dict[str, Any] | None = None
    ) -> tuple[optuna.Trial, Values]:
        """Discard `trial` and draw again: `values` if they are given."""
        study.tell(trial, state=TrialState.FAIL)
        if values is not None:
            study.enqueue_trial(values)
        return self._ask(study)

    def _undrawn(self) -> dict[str, Any] | None:
        """A random setting that was not drawn yet; None if there is none, or if the space is too large to list."""
        values = [
            each.choices if isinstance(each, CategoricalDistribution) else range(each.low, each.high + 1)
            for each in self.space.values()
            if not isinstance(each, FloatDistribution)
        ]
        if len(values) < len(self.space) or math.prod(map(len, values)) > MAX_LISTED:
            return None
        settings = [dict(zip(self.space, setting, strict=True)) for setting in itertools.product(*values)]
        new = [setting for setting in settings if tuple(sorted(setting.items())) not in self._numbers]
        rng = stream(self._search.seed, "study", self.name, "undrawn", len(self._numbers))
        return new[rng.integers(len(new))] if new else None
