"""An entry of a leaderboard is a job: what an entrant reaches on a dataset until a milestone of its race.

The clock of the race runs while fits are computed and measured on the validation set. Before that, the data are read and a fit
on a few made-up interactions compiles the loops; after that, the best model is measured on test, which decides nothing. The
race is saved at each milestone (`saved.py`), and goes on from there to the next one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from rankbench.core import threads
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, NumericalError, RankbenchError, StorageError
from rankbench.core.memory import memory_errors_are_clear
from rankbench.core.plugins import guarded
from rankbench.core.progress import Progress
from rankbench.core.rng import stream
from rankbench.data.cards import Card
from rankbench.data.prepare import prepare
from rankbench.data.splits import Holdout
from rankbench.evaluation.cold_users import counts_of_users
from rankbench.evaluation.metrics import MetricSet, measure
from rankbench.evaluation.summary import summarise
from rankbench.experiment.estimate import Size, evaluations_every
from rankbench.experiment.execution import Execution, Limit, ignore_progress
from rankbench.experiment.fit import fit_stepwise
from rankbench.experiment.job import Job, MethodConfig
from rankbench.experiment.outcome import Outcome, base_record, describe, failure, now
from rankbench.experiment.run import OnBegin, require_fold_in, run_stepwise
from rankbench.experiment.watch import VALID_USERS, ValidationSet, ranked, valid_users
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.drive import Row, Validation, result_of
from rankbench.leaderboard.entrants import Entrant
from rankbench.leaderboard.milestones import name_of
from rankbench.leaderboard.saved import SavedRace, Tested
from rankbench.leaderboard.traits import traits
from rankbench.sweeps.search.candidate import Best, Candidate, Fit, Measure
from rankbench.sweeps.search.race import LIVE, Race
from rankbench.tracking.energy import EnergyMeter
from rankbench.tracking.environment import peak_memory, reset_peak_memory
from rankbench.tracking.record import Measured, Searched, per_user_table

WARM_USERS, WARM_ITEMS = 60, 80  # of the made-up data
WARM_SETTINGS = 4  # settings that are fitted on them, because a parameter such as weight_decay selects other loops
OUTSIDE = 1800.0  # seconds for reading the data, and for the test, which the clock does not count
WARM_UP = 300.0  # seconds for a fit on made-up data, which compiles loops; a machine that is not busy needs some ten
BUSY = 3.0  # times the milestone, in seconds of a watch, after which an entry without a value is ended
LATE = "no model was complete within the budget"
DIVERGED = "every setting diverged"  # how the reason of an entry begins
HUNG = "an iteration of the search did not end"
LIVE_BYTES = 2 << 30  # of all fits that are kept; a fit needs about COPIES times the bytes of its model
COPIES = 5
# From how many units of time on a race has settled that gained less than a share since a part of its time. Before, hardly any
# setting has had more than one or two units.
SETTLED_FROM, SETTLED_PART, SETTLED_GAIN = 30, 3, 0.002
Ended = Literal["settled", "exhausted", "still gaining"]


@dataclass(frozen=True)
class Rules:
    """What all entrants of a leaderboard have in common: `metric` chooses on the validation set, `metrics` are measured on
    test, each fit has `n_threads` and numbers of `precision`, and `seed` is that of the fits and decides what races draw.
    """

    metric: str
    metrics: MetricSet
    n_threads: int = 1
    seed: int = 0
    precision: str = "float32"


@dataclass(frozen=True, kw_only=True)
class EntryJob(Job):
    """A race of the settings of an `entrant` until the seconds of `milestone`, by `rules`. Its only config is the entrant's
    default.

    `key`: what the race depends on, as in the ledger, and where it is kept: two stores may share a folder of results. `draws`:
    the seed of its settings.
    """

    entrant: Entrant
    milestone: float
    rules: Rules
    key: tuple[Any, ...]
    draws: int
    stage: str = "entry"

    @classmethod
    def of(
        cls, entrant: Entrant, card: Card, milestone: float, rules: Rules, key: tuple[Any, ...] = (), draws: int = 0
    ) -> EntryJob:
        parts = {"fit_on": "train", "metrics": rules.metrics, "seed": rules.seed, "dtype": rules.precision}
        race = {"milestone": milestone, "rules": rules, "key": key, "draws": draws}
        return cls(card, (entrant.config(),), **parts, entrant=entrant, **race)

    @property
    def title(self) -> str:
        return f"{self.card.name}: {self.entrant.name}"

    def run_id(self, config: MethodConfig) -> str:
        return f"{self.stage}-{self.race}-{name_of(self.milestone)}"

    @property
    def race(self) -> str:
        """The name of the race, which goes on from milestone to milestone."""
        digest = hashlib.sha256(json.dumps(self.key, default=str).encode()).hexdigest()[:10]
        return f"{self.card.name}-{self.entrant.name}-{digest}"


def processor_seconds(n_threads: int) -> float:
    """The clock of a race: processor time of this process per thread, which stands still while the machine does other work."""
    return time.process_time() / n_threads


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
    that of the race: the best value on the validation set so far by the seconds of the clock.
    """
    with memory_errors_are_clear(job.title), guarded(job.title), threads.pinned(execution.n_threads):
        attempt = Attempt(job, environment)
        try:
            yield Limit(OUTSIDE, f"load had not ended after {OUTSIDE:,.0f} s")
            attempt.load()
            on_begin(base_record(job, job.configs[0], describe(attempt.dataset), attempt.started_at))
            yield Limit(WARM_UP, f"warm-up had not ended after {WARM_UP:,.0f} s")
            attempt.warm_up()
            yield from attempt.search()
        except NotApplicableError as error:
            return [Outcome(replace(failure(job, job.configs[0], error), searched=Searched(refused=True)))]
        yield Limit(OUTSIDE, f"test had not ended after {OUTSIDE:,.0f} s")
        return [attempt.test()]


class Reached(NamedTuple):
    """What a race has at a time of its clock: the number of settings that were tried, the best model, and the best one with the
    method's defaults.
    """

    clock: float
    tried: int
    best: Best | None
    default: Best | None


class Attempt:
    """One entry, in four calls: `load`, `warm_up`, `search` and `test`. All errors are those of the fits."""

    def __init__(self, job: EntryJob, environment: Environment):
        self.job, self.entrant, self.rules, self.environment = job, job.entrant, job.rules, environment
        self.execution = Execution(self.rules.n_threads)
        self.own = object()
        self.started_at = now()

    def load(self) -> None:
        """Read the data, and the race until its last milestone. Raises NotApplicableError if the method cannot be measured on
        these data.
        """
        reset_peak_memory()
        self.dataset = prepare(self.job.card, self.environment)
        split = self.dataset.split
        self.X, self.holdout = split.fit_matrix("train"), split.holdout("test", "train")
        try:
            require_fold_in(self.job.configs, self.holdout, self.X, self.dataset.name)
        except ConfigError as error:
            raise NotApplicableError(str(error)) from None
        self.valid = split.holdout("valid", "train")
        self.size = Size.of(self.dataset)
        self.settings = self.entrant.settings(self.job.draws)
        self.saved = SavedRace.of(self.environment, self.job.race)
        kept = self.saved.read(self.job.milestone)
        self.curve, self.joules = kept.curve, kept.joules
        pairs = zip(self.settings, kept.candidates, strict=False)
        candidates = [self._candidate(*each, number) for number, each in enumerate(pairs)]
        self.race = Race(self._next_candidate, candidates, kept.live)
        self.tested = dict(zip(self._models(), kept.tested, strict=True))

    def warm_up(self) -> None:
        """Fit made-up data for an iteration and rank them, so that the clock does not measure imports and compilation."""
        for config in self.settings[:WARM_SETTINGS]:
            self._fit_made_up(config)

    def search(self) -> Generator[list[Row] | Limit, None, None]:
        """Go on with the race until the milestone. Yields the curve so far, and limits of time.

        Raises NotApplicableError if the method refuses every setting, NumericalError if every other one diverges, and
        RankbenchError if no fit has a result for another reason.
        """
        race, milestone, energy = self.race, self.job.milestone, EnergyMeter(self.execution.device)
        yield self._limit()
        self.exhausted = False
        while True:
            each = race.choose()
            self.reached = self._reached()
            self.exhausted = each is None
            # An iteration that would not end in time does not begin; if it takes longer than expected, it does not count.
            if each is None or race.clock + race.expected(each) > milestone:
                break
            leader = race.leader
            race.step(each)
            if race.leader and race.leader.best is not self.reached.best:
                n_done = sum(other.n_done for other in race.candidates)
                self.curve.append({"iteration": n_done, "seconds": race.clock, "valid": race.leader.value})
            if race.clock > milestone:
                break
            self._forget()
            if each is race.default and each.ended and each.best:
                yield Limit(OUTSIDE, f"test had not ended after {OUTSIDE:,.0f} s")
                self._test(each.best)  # now, so that the matrix of a closed form is not kept for long
                yield self._limit()
            elif leader is None and race.leader:
                self._bound_memory()
                yield self._limit()
            if self.curve:
                yield self.curve
        joules = energy.stop()
        self.joules = None if joules is None or self.joules is None else self.joules + joules
        if self.exhausted and self.reached.best is None:
            reasons = "; ".join(sorted({each.failure for each in race.candidates if each.failure}))
            if all(each.refused for each in race.candidates):
                raise NotApplicableError(f"no fit had a result: {reasons}")
            if all(each.refused or each.diverged for each in race.candidates):
                raise NumericalError(f"{DIVERGED}: {reasons}")
            raise RankbenchError(f"no fit had a result: {reasons}")

    def test(self) -> Outcome:
        """Measure the best model and that of the defaults on test, and save the race, or remove what was saved if it is over,
        unless what was saved is further.
        Returns a record of the chosen setting, and each metric of each user.
        """
        best, ended = self.reached.best, self._ended()
        for each in self._models():
            self._test(each)
        outcome = self._outcome(best, ended) if best else Outcome(failure(self.job, self.job.configs[0], LATE))
        if self.saved.clock() <= self.job.milestone:  # one that has run for longer is kept
            if ended == "still gaining":
                with suppress(StorageError):  # the result stands; a larger budget goes on from what was saved before
                    self.saved.write(self.race, self.curve, self.joules, [self.tested[each] for each in self._models()])
            else:
                self.saved.remove()
        return outcome

    def _outcome(self, best: Best, ended: Ended) -> Outcome:
        reached, tested, default = self.reached, self._test(best), self.reached.default
        of_default = {name: each.mean for name, each in self._test(default).metrics.items()} if default else {}
        chosen = best.config.without_valid(best.iterations)
        record = replace(
            base_record(self.job, chosen, describe(self.dataset), self.started_at),
            params=self.entrant.given(chosen),
            metrics=tested.metrics,
            users=counts_of_users(self.holdout),
            curve=[row for row in self.curve if row["seconds"] <= reached.clock],
            iterations=best.iterations,
            seconds={"all": reached.clock, "fit": best.seconds, "test": tested.seconds},
            threads=self.rules.n_threads,
            peak_memory_bytes=peak_memory(),
            joules=self.joules,
            searched=Searched(tested.valid, reached.tried, ended, of_default, traits(self.X)),
        )
        return Outcome(record, tested.per_user)

    def _ended(self) -> Ended:
        if self.exhausted:
            return "exhausted"
        milestone, now = self.job.milestone, self.reached.best.value if self.reached.best else -math.inf
        earlier = [row["valid"] for row in self.curve if row["seconds"] <= milestone / SETTLED_PART]
        long_enough = milestone >= SETTLED_FROM * self.race.unit
        settled = long_enough and bool(earlier) and now - earlier[-1] < SETTLED_GAIN * abs(earlier[-1])
        return "settled" if settled else "still gaining"

    def _reached(self) -> Reached:
        race = self.race
        tried = sum(each.n_done > 0 for each in race.candidates)
        leader, default = race.leader, race.default
        return Reached(race.clock, tried, leader.best if leader else None, default.best if default else None)

    def _models(self) -> list[Best]:
        """The best model of the race and that of its defaults, as far as there are any."""
        reached = self._reached()
        return [each for each in dict.fromkeys((reached.best, reached.default)) if each]

    def _limit(self) -> Limit:
        """How long the process may go on. Once there is a value, iterations only begin if they are likely to end in time."""
        left = self.job.milestone - self.race.clock
        if self.race.leader:
            return Limit(BUSY * left + max(WARM_UP, self.job.milestone), HUNG)
        return Limit(BUSY * left, LATE)

    def _forget(self) -> None:
        """Forget the models that are not measured: a fit that goes on finds a better one."""
        needed = self._models()
        for each in self.race.candidates:
            if each.best and each.best not in needed:
                each.best.model = None

    def _bound_memory(self) -> None:
        """Keep no more fits than fit into memory and, at a milestone, on the disk."""
        model: Any = self._models()[0].model
        n_bytes = sum(np.asarray(getattr(model, each.name)).nbytes for each in dataclasses.fields(model))
        self.race.live = max(3, min(LIVE, LIVE_BYTES // (COPIES * n_bytes + 1)))

    def _test(self, best: Best) -> Tested:
        """Measure a model once, on test and on the users of the validation set with which `--best` compares entries. A slow
        model is chosen with fewer users. The model itself is released afterwards.
        """
        if best not in self.tested:
            assert best.model is not None, "it is kept until it is measured"
            valid = best.value
            if len(self.valid.rows) > valid_users(best.config) < VALID_USERS:  # of a method that stops by fewer users
                valid = ValidationSet(self.valid, self.rules.seed)(best.model, self.rules.metric)
            begun, metrics = time.perf_counter(), self.rules.metrics
            ranking = ranked([best.model], self.holdout, metrics.k, metrics.auc)[0]
            found = measure(ranking, self.holdout, metrics, self.X)
            means = {name: Measured(each.mean, each.low, each.high) for name, each in summarise(found, 0).items()}
            per_user = per_user_table(self.dataset.users.take(pa.array(found.users)), found.columns)
            self.tested[best] = Tested(means, time.perf_counter() - begun, valid, per_user)
            best.model = None
        return self.tested[best]

    def _next_candidate(self) -> Candidate | None:
        number = len(self.race.candidates)
        return self._candidate(self.settings[number]) if number < len(self.settings) else None

    def _candidate(self, config: MethodConfig, saved: dict[str, Any] | None = None, number: int = 0) -> Candidate:
        measure_valid = ValidationSet(self.valid, self.rules.seed, limit=valid_users(config))
        begin: Callable[[Measure, Path | None], Fit] = partial(self._fit, config)
        folder = self.saved.checkpoints(number) if saved and saved["n_done"] else None
        clock = partial(processor_seconds, self.rules.n_threads)
        return Candidate(config, begin, measure_valid, self.rules.metric, clock, saved, folder)

    def _fit(self, config: MethodConfig, measure_valid: Measure, folder: Path | None) -> Fit:
        validation, execution = None, self.execution
        if config.stopping:
            job = Job(self.job.card, (config,), "train", "valid", seed=self.rules.seed)
            validation = Validation(measure_valid, config.stopping, evaluations_every(job, self.size))
        if folder:
            execution = replace(execution, checkpoints=Checkpoints(folder, resume=True, every=math.inf))
        # The Gram is shared by the fits of this entry only: which others ran before in this process must not matter. The cache
        # keeps its keys, so that no later entry can have an equal one, as it could have the address of an earlier one.
        data = (self.dataset.fingerprint, "train", self.own)
        settings = (config,), self.X, self.rules.precision, self.rules.seed, execution
        return fit_stepwise(*settings, validation=validation, data=data)

    def _fit_made_up(self, config: MethodConfig) -> None:
        rng = stream(0, "warm up")
        X, targets = (sp.csr_array((rng.random((WARM_USERS, WARM_ITEMS)) < 0.2).astype(np.float32)) for _ in range(2))
        short = config.without_valid(1)
        try:
            fitted = result_of(fit_stepwise((short,), X, self.rules.precision, 0, self.execution))
        except RankbenchError:
            return  # the method needs more data than these; what it has compiled until then is compiled
        holdout = Holdout(np.arange(WARM_USERS, dtype=np.int32), X, targets)
        ranking = ranked(fitted.models, holdout, MetricSet((self.rules.metric,)).k)[0]
        measure(ranking, holdout, self.rules.metrics, X)
