"""An entry of a leaderboard is a job: what an entrant reaches on a dataset within a budget of seconds.

The clock runs while fits are computed and measured on the validation set. Before that, the data are read and a fit on a few
made-up interactions compiles the loops; after that, the models are measured on test, which decides nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from rankbench.core import threads
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, RankbenchError
from rankbench.core.memory import memory_errors_are_clear
from rankbench.core.plugins import guarded
from rankbench.core.rng import stream
from rankbench.data.cards import Card
from rankbench.data.prepare import prepare
from rankbench.data.splits import Holdout
from rankbench.evaluation.cold_users import counts_of_users
from rankbench.evaluation.metrics import MetricSet, PerUser, measure
from rankbench.evaluation.summary import summarise
from rankbench.experiment.estimate import Size, evaluations_every
from rankbench.experiment.execution import Execution, Limit, ignore_progress
from rankbench.experiment.fit import Progress, fit_stepwise
from rankbench.experiment.job import Job, MethodConfig
from rankbench.experiment.outcome import Outcome, base_record, describe, failure, now
from rankbench.experiment.run import OnBegin, require_fold_in, run_stepwise
from rankbench.experiment.watch import ValidationSet, ranked, valid_users
from rankbench.fitting.drive import Row, Validation, result_of
from rankbench.fitting.method import Iterative
from rankbench.fitting.recommenders import Recommender
from rankbench.leaderboard.entrants import Entrant
from rankbench.leaderboard.traits import traits
from rankbench.sweeps.search.budget import Budget
from rankbench.sweeps.search.candidate import Candidate, Fit, Measure
from rankbench.sweeps.search.race import race
from rankbench.tracking.energy import EnergyMeter
from rankbench.tracking.environment import peak_memory, reset_peak_memory
from rankbench.tracking.record import Measured, Searched, per_user_table

T = TypeVar("T")
DTYPE = "float32"
WARM_USERS, WARM_ITEMS = 60, 80  # of the made-up data
WARM_SETTINGS = 4  # settings that are fitted on them, because a parameter such as weight_decay selects other loops
OVER = 0.02  # share of the budget by which the last repeat may be late
OUTSIDE = 1800.0  # seconds for reading the data, and for the test, which the budget does not count
WARM_UP = 300.0  # seconds for a fit on made-up data, which compiles loops; a machine that is not busy needs some ten
ROW_EVERY = 1.0  # seconds between two rows of the curve of a search that finds nothing better
GRACE = 0.1  # share of the budget by which an entry may be late before its process is ended
LATE = f"the search had not ended after {1 + GRACE:.1f} times the budget"


@dataclass(frozen=True)
class Rules:
    """What all entrants of a leaderboard have in common: `metric` chooses on the validation set, `metrics` are measured on test
    as means over `seeds`, each fit has `n_threads`, and `seed` draws the settings that the searches try.
    """

    metric: str
    metrics: MetricSet
    seeds: tuple[int, ...] = (0, 1, 2)
    n_threads: int = 1
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class EntryJob(Job):
    """A race of the settings of an `entrant` within the budget `allowed`, by `rules`. Its only config is the entrant's default.

    `key`: what the result depends on, as in the ledger, and where it is kept: two stores may share a folder of results.
    """

    entrant: Entrant
    allowed: Budget
    rules: Rules
    key: tuple[Any, ...]
    stage: str = "entry"

    @classmethod
    def of(cls, entrant: Entrant, card: Card, allowed: Budget, rules: Rules, key: tuple[Any, ...] = ()) -> EntryJob:
        parts = {"fit_on": "train", "metrics": rules.metrics, "seed": rules.seed}
        return cls(card, (entrant.config(),), **parts, entrant=entrant, allowed=allowed, rules=rules, key=key)

    @property
    def title(self) -> str:
        return f"{self.card.name}: {self.entrant.name}"

    def run_id(self, config: MethodConfig) -> str:
        digest = hashlib.sha256(json.dumps(self.key, default=str).encode()).hexdigest()[:10]
        return f"{self.stage}-{self.card.name}-{self.entrant.name}-{digest}"


class NotApplicableError(ConfigError):
    """The method says of itself that it cannot be measured on these data."""


@run_stepwise.register
def run_entry(
    job: EntryJob,
    environment: Environment,
    execution: Execution,
    progress: Progress = ignore_progress,
    on_begin: OnBegin = ignore_progress,
) -> Generator[list[Row] | Limit, None, list[Outcome]]:
    """Run an entry. All errors are those of the fits, but that the method cannot be measured here is an outcome. Its curve is
    that of the search: the best value on the validation set so far by the seconds of the budget.
    """
    with memory_errors_are_clear(job.title), guarded(job.title), threads.pinned(execution.n_threads):
        attempt = Attempt(job, environment)
        try:
            yield Limit(OUTSIDE, f"load had not ended after {OUTSIDE:,.0f} s")
            attempt.load()
            on_begin(base_record(job, job.configs[0], describe(attempt.dataset), attempt.started_at))
            yield Limit(WARM_UP, f"warm-up had not ended after {WARM_UP:,.0f} s")
            attempt.warm_up()
            yield Limit((1 + GRACE) * attempt.budget, LATE)
            yield from attempt.search()
        except NotApplicableError as error:
            return [Outcome(replace(failure(job, job.configs[0], error), searched=Searched(refused=True)))]
        yield Limit(OUTSIDE, f"test had not ended after {OUTSIDE:,.0f} s")
        return [attempt.test()]


class Attempt:
    """One entry, in four calls: `load`, `warm_up`, `search` and `test`. All errors are those of the fits."""

    def __init__(self, job: EntryJob, environment: Environment):
        self.job, self.entrant, self.rules, self.environment = job, job.entrant, job.rules, environment
        self.execution = Execution(self.rules.n_threads)
        self.tried: list[Candidate] = []
        self.models: dict[int, Recommender] = {}
        self.curve: list[Row] = []
        self.started_at = now()

    def load(self) -> None:
        """Read the data. Raises NotApplicableError if the method cannot be measured on these data."""
        reset_peak_memory()
        self.dataset = prepare(self.job.card, self.environment)
        split = self.dataset.split
        self.X = split.fit_matrix("train")
        self.budget = self.job.allowed.seconds(self.X.nnz)
        try:
            require_fold_in(self.job.configs, split.holdout("test", "train"), self.X, self.dataset.name)
        except ConfigError as error:
            raise NotApplicableError(str(error)) from None
        self.valid = split.holdout("valid", "train")
        self.size = Size.of(self.dataset)
        self.settings = self.entrant.settings(self.rules.seed)

    def warm_up(self) -> None:
        """Fit made-up data for an iteration and rank them, so that the clock does not measure imports and compilation."""
        for config in self.settings[:WARM_SETTINGS]:
            self._fit_made_up(config)

    def search(self) -> Generator[list[Row], None, None]:
        """Search the setting and fit it with the further seeds, within the budget. Yields the curve so far.

        Raises NotApplicableError if the method refuses every setting, RankbenchError if no fit has a result.
        """
        energy, self.begun = EnergyMeter(self.execution.device), time.perf_counter()
        rules = self.rules
        seeds = rules.seeds if self.entrant.spec.seeded else rules.seeds[:1]
        settings = iter(self.settings)
        winner = yield from self._watched(race(partial(self._next_candidate, settings, seeds[0]), self._left, len(seeds) - 1))
        self.search_seconds = time.perf_counter() - self.begun
        if winner is None or winner.model is None:
            reasons = {each.failure for each in self.tried if each.failure}
            refused = bool(self.tried) and all(each.refused for each in self.tried)
            kind = NotApplicableError if refused else RankbenchError
            raise kind(f"no fit had a result: {'; '.join(sorted(reasons)) or 'no time'}")
        self.winner = winner
        self.chosen = self._final(winner)
        self.models[seeds[0]] = winner.model
        expected = winner.seconds_to_best
        for seed in seeds[1:]:
            if self._left() < (1 - OVER) * expected:
                break
            start = time.perf_counter()
            model = self._repeat(seed)
            if model is None:
                break
            self.models[seed] = model
            expected = time.perf_counter() - start
        self.seconds, self.joules = time.perf_counter() - self.begun, energy.stop()

    def test(self) -> Outcome:
        """Measure the models on test. Returns a record of the chosen setting, and each metric of each user, both as means over
        the seeds.
        """
        begun = time.perf_counter()
        holdout = self.dataset.split.holdout("test", "train")
        counts = np.bincount(self.X.indices, minlength=self.X.shape[1])
        metrics, measured = self.rules.metrics, list[PerUser]()
        for model in self.models.values():
            ranking = ranked([model], holdout, metrics.k, metrics.auc)[0]
            measured.append(measure(ranking, holdout.target, counts, metrics, self.X, holdout.history))
        mean = PerUser(
            measured[0].users,
            {name: np.mean([each.values[name] for each in measured], axis=0) for name in measured[0].values},
            {name: float(np.mean([each.overall[name] for each in measured])) for name in measured[0].overall},
            measured[0].weights,  # they depend on the data alone
        )
        searched = Searched(
            valid=self.winner.value,
            tried=len(self.tried),
            seeds=tuple(self.models),
            by_seed=tuple(float(each.values[self.rules.metric].mean()) for each in measured),
            traits=traits(self.X),
        )
        record = replace(
            base_record(self.job, self.chosen, describe(self.dataset), self.started_at),
            params=self.entrant.given(self.chosen),
            metrics={name: Measured(each.mean, each.low, each.high) for name, each in summarise(mean, 0).items()},
            users=counts_of_users(holdout),
            curve=self.curve,
            iterations=self.winner.iterations,
            seconds={
                "search": self.search_seconds,
                "all": self.seconds,
                "fit": self.winner.seconds_to_best,
                "test": time.perf_counter() - begun,
            },
            threads=self.rules.n_threads,
            peak_memory_bytes=peak_memory(),
            joules=self.joules,
            searched=searched,
        )
        return Outcome(record, per_user_table(self.dataset.users.take(pa.array(mean.users)), mean.columns))

    def _watched(self, racing: Generator[None, None, T]) -> Generator[list[Row], None, T]:
        """Yield the curve of the search after each new row. The clock stands still meanwhile."""
        for number in itertools.count(1):
            try:
                next(racing)
            except StopIteration as end:
                result: T = end.value
                return result
            now = time.perf_counter()
            best, seconds = max(each.value for each in self.tried), now - self.begun
            last = self.curve[-1] if self.curve else {"valid": -math.inf, "seconds": 0.0}
            if best > last["valid"] or (self.curve and seconds >= last["seconds"] + ROW_EVERY):
                self.curve.append({"iteration": number, "seconds": round(seconds, 4), "valid": best})
                yield self.curve
                self.begun += time.perf_counter() - now
        raise AssertionError("a search ends")

    def _left(self) -> float:
        return self.budget - (time.perf_counter() - self.begun)

    def _next_candidate(self, settings: Iterator[MethodConfig], seed: int) -> Candidate | None:
        config = next(settings, None)
        if config is None:
            return None
        measure_valid = ValidationSet(self.valid, self.rules.seed, limit=valid_users(config))
        begin: Callable[[Measure], Fit] = partial(self._fit, config, seed)
        self.tried.append(Candidate(config, begin, measure_valid, self.rules.metric))
        return self.tried[-1]

    def _fit(self, config: MethodConfig, seed: int, measure_valid: Measure | None = None) -> Fit:
        validation = None
        if measure_valid and config.stopping:
            job = Job(self.job.card, (config,), "train", "valid", seed=seed)
            validation = Validation(measure_valid, config.stopping, evaluations_every(job, self.size))
        # The Gram is shared by the fits of this entry only: which others ran before in this process must not matter.
        data = (self.dataset.fingerprint, "train", id(self))
        return fit_stepwise((config,), self.X, DTYPE, seed, self.execution, validation=validation, data=data)

    def _final(self, winner: Candidate) -> MethodConfig:
        """The setting of the winner, with the number of iterations that were best."""
        spec = winner.config.spec
        if not isinstance(spec, Iterative):
            return winner.config
        return self.entrant.config(self.entrant.given(winner.config) | {spec.length: winner.iterations, "patience": 0})

    def _repeat(self, seed: int) -> Recommender | None:
        """Fit the chosen setting with another seed; None if the time is over before its end."""
        fit = self._fit(self.chosen, seed)
        try:
            while True:
                next(fit)
                if self._left() < -OVER * self.budget:
                    fit.close()
                    return None
        except StopIteration as end:
            model: Recommender = end.value.models[0]
            return model

    def _fit_made_up(self, config: MethodConfig) -> None:
        rng = stream(0, "warm up")
        X, targets = (sp.csr_array((rng.random((WARM_USERS, WARM_ITEMS)) < 0.2).astype(np.float32)) for _ in range(2))
        if isinstance(config.spec, Iterative):
            config = self.entrant.config(self.entrant.given(config) | {config.spec.length: 1, "patience": 0})
        try:
            fitted = result_of(fit_stepwise((config,), X, DTYPE, 0, self.execution))
        except RankbenchError:
            return  # the method needs more data than these; what it has compiled until then is compiled
        holdout = Holdout(np.arange(WARM_USERS, dtype=np.int32), X, targets)
        ranking = ranked(fitted.models, holdout, MetricSet((self.rules.metric,)).k)[0]
        measure(ranking, targets, np.zeros(WARM_ITEMS), self.rules.metrics, X, X)
