"""How long the measured model of a row was trained, and whether to its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    """The training of a measured model: so many `epochs` (or iterations, as `counted` says) and gradient `steps`, if it makes
    any. `state`: that of its curve; of several seeds, the worst. `wanted`: the epochs of the paper's protocol, if the setting
    has fewer. `fewer`: whether it has, or the experiment file says that the steps are fewer. `stopped`: validation ended the
    fit. `forced`: the learning rate falls to zero or to a tenth, so that any curve ends flat.
    """

    epochs: int
    counted: str
    steps: int | None
    state: State
    wanted: int | None
    fewer: bool
    stopped: bool
    forced: bool

    @property
    def cut_short(self) -> bool:
        """Whether it was not trained to its end: the curve still rises; or the training is shorter than the paper's, and
        neither the curve nor validation shows that it suffices.
        """
        shown = self.stopped or (self.state in ("flat", "past its best") and not self.forced)
        return self.state == "rising" or (self.fewer and not shown)

    def __str__(self) -> str:
        steps = f", {self.steps:,} steps" if self.steps else ""
        of = f" (paper: {self.wanted:,})" if self.wanted else ""
        end = ", ended by validation" if self.stopped else ""
        counted = self.counted.removesuffix("s") if self.epochs == 1 else self.counted
        return f"{self.epochs:,} {counted}{of}{steps}; {self.state}{end}{f'; {MARK}' if self.cut_short else ''}"


def training_of(row: PaperRow, fits: Sequence[StoredFit]) -> Training | None:
    """Return the training of the fits of a row, by seed; None if its method does not train step by step."""
    first = fits[0]
    states = [state_of(fit.curves, fit.iterations) for fit in fits]
    return _training(row, first.params, [fit.iterations for fit in fits], first.counts, first.fit_on, states)


def training_of_record(record: RunRecord, row: PaperRow) -> Training | None:
    """Return the training of a single run that serves a row."""
    states = [state_of(curves_of(record, [*row.published]), record.iterations)]
    return _training(row, record.params, [record.iterations], record.dataset.counts, record.fit_on, states)


def state_of(curves: Sequence[TrainingCurve], kept: int | None) -> State:
    """The state of a fit with these curves: by that on the validation set, which comes first, or else by that on test."""
    return curves[0].state(kept) if curves else "unknown"


def _training(
    row: PaperRow,
    params: Mapping[str, Any],
    kept: Sequence[int | None],
    counts: Mapping[str, int],
    fit_on: str,
    states: Sequence[State],
) -> Training | None:
    counted, epochs = next((name for name in ("epochs", "iterations") if name in params), None), kept[0]
    if epochs is None or counted is None:
        return None
    protocol = row.table.spec.protocol.params | row.arm.protocol
    state = next(each for each in WORST_FIRST if each in states)
    per_epoch = _steps_of_an_epoch(params, counts, fit_on)
    allowed, wanted = params[counted], protocol.get(counted)
    fewer = wanted is not None and allowed < wanted
    # Validation ends a fit so many epochs after the best one; a best one that is later was followed by the last one.
    waits = params.get("patience", 0) * (params.get("eval_every") or 1)
    return Training(
        epochs,
        counted,
        steps=per_epoch * epochs if per_epoch else None,
        state=state,
        wanted=wanted if fewer else None,
        fewer=fewer or row.arm.cause == "steps",
        stopped=waits > 0 and all(each is not None and each + waits <= allowed for each in kept),
        forced=params.get("schedule") in ("cosine", "drop"),
    )


def _steps_of_an_epoch(params: Mapping[str, Any], counts: Mapping[str, int], fit_on: str) -> int | None:
    """The gradient steps of an epoch; None if the method makes none, or the store does not say how many there are."""
    if "users_per_step" in params and params.get("objective") != "sampled":
        n, at_once = counts.get("users", 0) - counts.get("users_without_train_items", 0), params["users_per_step"]
    elif "batch_size" in params:
        n, at_once = counts.get("train", 0) + (counts.get("valid", 0) if fit_on == "train+valid" else 0), params["batch_size"]
    else:
        return None
    return math.ceil(n / at_once) or None
