"""How long the measured model of a row was trained, and whether to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankbench.judge.convergence import State, TrainingCurve
from rankbench.reproduce.evidence import curves_of
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.required_fits import PaperRow
from rankbench.tracking.record import RunRecord

MARK = "not trained to its end"
WORST_FIRST: tuple[State, ...] = ("rising", "unknown", "past its best", "flat")


@dataclass(frozen=True)
class Training:
    """The training of measured models, one for each seed: their numbers of `epochs` (or iterations, as `counted` says), and the
    gradient steps of an epoch, if it makes any. `state`: that of its curve; of several seeds, the worst. `wanted`: the epochs
    of the paper's protocol, if the setting has fewer. `fewer`: whether it has, or the experiment file says that the steps are
    fewer. `stopped`: validation ended the fit. `forced`: the learning rate falls to zero or to a tenth, so that any curve ends
    flat. `too_few`: the experiment file says so of a row that is off.
    """

    epochs: tuple[int, ...]
    counted: str
    steps_per_epoch: int | None
    state: State
    wanted: int | None
    fewer: bool
    stopped: bool
    forced: bool
    too_few: bool = False

    @property
    def steps(self) -> tuple[int, ...]:
        """The gradient steps for each seed; none if the method makes none, or the store does not say how many."""
        return tuple(each * self.steps_per_epoch for each in self.epochs) if self.steps_per_epoch else ()

    @property
    def cut_short(self) -> bool:
        """Whether it was not trained to its end: the curve still rises; or too few steps are why the row is off; or the
        training is shorter than the paper's, and neither the curve nor validation shows that it suffices.
        """
        shown = self.stopped or (self.state in ("flat", "past its best") and not self.forced)
        return self.state == "rising" or self.too_few or (self.fewer and not shown)

    def __str__(self) -> str:
        steps = f", {_range(self.steps)} steps" if self.steps else ""
        of = f" (paper: {self.wanted:,})" if self.wanted else ""
        end = ", ended by validation" if self.stopped else ""
        counted = self.counted.removesuffix("s") if {*self.epochs} == {1} else self.counted
        return f"{_range(self.epochs)} {counted}{of}{steps}; {self.state}{end}{f'; {MARK}' if self.cut_short else ''}"


def _range(numbers: Iterable[int]) -> str:
    found = {*numbers}
    return " to ".join(f"{each:,}" for each in sorted({min(found), max(found)}))


def training_of(row: PaperRow, fits: Sequence[StoredFit]) -> Training | None:
    """Return the training of the fits of a row, by seed; None if its method does not train step by step."""
    first = fits[0]
    return _training(row, first.params, [(fit.iterations, fit.curves) for fit in fits], first.counts, first.fit_on)


def training_of_record(record: RunRecord, row: PaperRow) -> Training | None:
    """Return the training of a single run that serves a row."""
    fits = [(record.iterations, curves_of(record, [*row.published]))]
    return _training(row, record.params, fits, record.dataset.counts, record.fit_on)


def _training(
    row: PaperRow,
    params: Mapping[str, Any],
    fits: Sequence[tuple[int | None, Sequence[TrainingCurve]]],
    counts: Mapping[str, int],
    fit_on: str,
) -> Training | None:
    """`fits`: the epoch whose model was kept and the curves, by seed."""
    counted = next((name for name in ("epochs", "iterations") if name in params), None)
    epochs = tuple(kept for kept, _ in fits if kept is not None)
    if not epochs or counted is None:
        return None
    # The curve on the validation set comes first, if there is one.
    states = {curves[0].state(kept) if curves else "unknown" for kept, curves in fits}
    state = next(each for each in WORST_FIRST if each in states)
    per_epoch = _steps_of_an_epoch(params, counts, fit_on)
    allowed, wanted = params[counted], row.protocol.get(counted)
    fewer = wanted is not None and allowed < wanted
    return Training(
        epochs,
        counted,
        steps_per_epoch=per_epoch,
        state=state,
        wanted=wanted if fewer else None,
        fewer=fewer or row.arm.cause == "steps",
        stopped=all(kept is not None and _ended_by_validation(params, allowed, kept, curves) for kept, curves in fits),
        forced=params.get("schedule") in ("cosine", "drop"),
    )


def _ended_by_validation(params: Mapping[str, Any], allowed: int, kept: int, curves: Sequence[TrainingCurve]) -> bool:
    """Whether validation ended a fit of `allowed` epochs whose best one was `kept`."""
    patience, every = params.get("patience", 0), params.get("eval_every", 1)
    if not patience or kept + patience * (every or 1) > allowed:  # a best one that is later was followed by the last one
        return False
    # With eval_every = 0, patience counts epochs, and a second evaluation must be no better. The first one comes after twice
    # the epochs of the best one at the latest, and one follows the last epoch. A curve ends where the fit did.
    last = max((epoch for curve in curves if curve.on == "valid" for epoch, _, _ in curve.points), default=allowed)
    return every > 0 or patience == 1 or 2 * kept < allowed or last < allowed


def _steps_of_an_epoch(params: Mapping[str, Any], counts: Mapping[str, int], fit_on: str) -> int | None:
    """The gradient steps of an epoch; None if the method makes none, or the store does not say how many there are."""
    if "users_per_step" in params and params.get("objective") != "sampled":
        n, at_once = counts.get("users", 0) - counts.get("users_without_train_items", 0), params["users_per_step"]
    elif "batch_size" in params:
        n, at_once = counts.get("train", 0) + (counts.get("valid", 0) if fit_on == "train+valid" else 0), params["batch_size"]
    else:
        return None
    return math.ceil(n / at_once) or None
