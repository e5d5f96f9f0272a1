"""The searches of a sweep: an Optuna study for each dataset and arm, which draws parameters and ends trials that fall behind.

Optuna's successive halving is asynchronous (ASHA, Li et al. 2020). Trials are compared within their arm alone: another loss may
rise more slowly and end higher.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from rankbench.rng import stream
from rankbench.sweeps.spec import SearchSpec
from rankbench.tracking.record import RunRecord

REDRAWS = 10  # of a setting that was drawn before
COUNTED = 10_000  # settings of a space, at most, among which one that was not drawn is looked for
REDUCTION = 3  # of trials, from one rung to the next


def distributions(params: dict[str, Any]) -> dict[str, BaseDistribution]:
    """Of an arm's checked params: what Optuna draws from; fixed values are left out, a grid is a choice."""
    found: dict[str, BaseDistribution] = {}
    for name, value in params.items():
        if not isinstance(value, dict):
            continue
        ((kind, arguments),) = value.items()
        if kind in ("choice", "grid"):
            found[name] = CategoricalDistribution(arguments)
        elif kind == "randint":
            found[name] = IntDistribution(arguments[0], arguments[1] - 1)
        else:
            found[name] = FloatDistribution(*map(float, arguments), log=kind == "loguniform")
    return found


class Study:
    """The trials of one arm on one dataset. `epochs`: the most that a trial may take, 0 where it has none."""

    def __init__(self, name: str, params: dict[str, Any], search: SearchSpec, epochs: int):
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = distributions(params) if search.by != "random" else {}
        self._name, self._search = name, search
        self._study = optuna.create_study(
            study_name=name, direction="maximize", sampler=self._sampler(0), pruner=_pruner(search, epochs)
        )
        self._open: dict[str, optuna.Trial] = {}
        self._drawn: set[tuple] = set()

    def replay(self, records: Iterable[RunRecord], metric: str) -> None:
        """Tell of an earlier part of the same sweep, in the order in which its trials started."""
        for record in sorted(records, key=lambda record: (record.started_at, record.id)):
            if record.failed:
                continue
            self._study.enqueue_trial({name: record.params[name] for name in self.space})
            self.draw(record.id)
            for row in record.curve:
                if "valid" in row:
                    self.look(record.id, row["iteration"], row["valid"])
            self.end(record.id, record.metrics[metric]["mean"] if record.finished else None, stopped=not record.finished)
        # Or it would draw again what it drew at the start.
        self._study.sampler = self._sampler(len(self._study.trials))

    def _sampler(self, known: int) -> optuna.samplers.BaseSampler:
        seed = int(stream(self._search.seed, "study", self._name, known).integers(2**31))
        startup = min(10, self._search.trials // 2)
        with warnings.catch_warnings():
            # constant_liar keeps workers that draw at once apart; Optuna calls it experimental.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=startup)

    def draw(self, trial_id: str) -> dict[str, Any]:
        """Values of the searched parameters, for the trial of that name; ones that were not drawn before, if any come up."""
        trial, values = self._ask()
        for _ in range(REDRAWS):
            if values not in self._drawn:
                break
            # Of a trial that failed the sampler makes nothing.
            self._study.tell(trial, state=TrialState.FAIL)
            trial, values = self._ask()
        else:
            if new := self._undrawn():
                self._study.tell(trial, state=TrialState.FAIL)
                self._study.enqueue_trial(new)
                trial, values = self._ask()
        self._drawn.add(values)
        self._open[trial_id] = trial
        return dict(trial.params)

    def _ask(self) -> tuple[optuna.Trial, tuple]:
        trial = self._study.ask(self.space)
        return trial, tuple(sorted(trial.params.items()))

    def _undrawn(self) -> dict[str, Any] | None:
        """One of the settings that were not drawn yet, at random, where they can be counted and there is one."""
        if any(isinstance(each, FloatDistribution) for each in self.space.values()):
            return None
        values = [
            each.choices if isinstance(each, CategoricalDistribution) else range(each.low, each.high + 1)
            for each in self.space.values()
        ]
        if math.prod(map(len, values)) > COUNTED:
            return None
        cells = [dict(zip(self.space, cell, strict=True)) for cell in itertools.product(*values)]
        new = [cell for cell in cells if tuple(sorted(cell.items())) not in self._drawn]
        rng = stream(self._search.seed, "study", self._name, "undrawn", len(self._drawn))
        return new[rng.integers(len(new))] if new else None

    def look(self, trial_id: str, epoch: int, value: float) -> bool:
        """What valid says of a trial; returns whether the trial should end here."""
        if trial_id not in self._open:  # its parameters were drawn without the study
            self._open[trial_id] = self._study.ask()
        trial = self._open[trial_id]
        trial.report(value, epoch)
        return trial.should_prune()

    def end(self, trial_id: str, value: float | None, stopped: bool = False) -> None:
        """A trial is over: `value` is the chosen metric on valid; None for one that failed."""
        trial = self._open.pop(trial_id, None)
        if trial is None:
            return
        if stopped:
            self._study.tell(trial, state=TrialState.PRUNED)
        elif value is None or not math.isfinite(value):
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, value)


def _pruner(search: SearchSpec, epochs: int) -> optuna.pruners.BasePruner:
    if search.scheduler == "none" or not epochs:
        return optuna.pruners.NopPruner()
    if search.scheduler == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=search.grace, reduction_factor=REDUCTION)
    return optuna.pruners.HyperbandPruner(
        min_resource=search.grace, max_resource=max(epochs, search.grace), reduction_factor=REDUCTION
    )
