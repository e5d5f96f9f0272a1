"""Schedules of the learning rate, as a factor of the configured rate."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from rankbench.core.errors import NumericalError

WAIT = 3  # evaluations without improvement that a plateau tolerates before it halves the rate
LOWEST = 1e-6  # the learning rate at which halving ends, and with it the fit

DROP_AT, DROP = 0.75, 0.1  # share of the epochs after which the rate drops, and its factor from then on

Kind = Literal["constant", "plateau", "cosine", "drop"]


def require_finite(loss: float, epoch: int, learning_rate: float, dtype: type) -> None:
    """Raise NumericalError, with advice on the learning rate, if the mean loss of an epoch is not finite."""
    if not math.isfinite(loss):
        advice = f"learning_rate={learning_rate:g} is probably too high; try learning_rate={learning_rate / 10:g}"
        raise NumericalError(f"the loss is {loss} in epoch {epoch}: {advice} ({np.dtype(dtype).name})")


class Schedule:
    """A factor that is `constant`, a `cosine` from 1 to 0 over the epochs, halved on each `plateau` of the metric, or a tenth
    in the last quarter of the epochs (`drop`).

    In the first `warmup` epochs it is multiplied by a factor that rises in each step.
    """

    def __init__(self, kind: Kind, learning_rate: float, epochs: int, warmup: float = 0.0):
        self.kind, self.learning_rate, self.epochs, self.warmup = kind, learning_rate, epochs, warmup
        self.halvings, self.best, self.waited = 0, -math.inf, 0

    def factor(self, epoch: int, step: int = 0, steps: int = 1) -> float:
        """The factor for a step, counted from 0, of the `steps` of an epoch, counted from 1."""
        done = epoch - 1 + step / steps
        rise = min(1.0, (done + 1 / steps) / self.warmup) if self.warmup else 1.0
        if self.kind == "cosine":
            return rise * (1 + math.cos(math.pi * done / self.epochs)) / 2
        if self.kind == "drop":
            return rise * (DROP if epoch > DROP_AT * self.epochs else 1.0)
        return rise * max(0.5**self.halvings, min(1.0, LOWEST / self.learning_rate))

    @property
    def ended(self) -> bool:
        """Whether a plateau has halved the rate down to LOWEST."""
        return self.halvings > 0 and self.learning_rate * 0.5**self.halvings <= LOWEST

    def observe(self, value: float) -> None:
        """Take in an evaluation: the metric on the validation set, or minus the loss if there is none. Higher is better."""
        if self.kind != "plateau":
            return
        if value > self.best:
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited > WAIT:
            self.halvings, self.waited = self.halvings + 1, 0

    def values(self) -> dict[str, Any]:
        # JSON has no infinity, so None stands for it.
        return {"halvings": self.halvings, "best": self.best if math.isfinite(self.best) else None, "waited": self.waited}

    def restore(self, values: dict[str, Any]) -> None:
        self.halvings, self.waited = values["halvings"], values["waited"]
        self.best = -math.inf if values["best"] is None else values["best"]
