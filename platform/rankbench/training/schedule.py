"""Schedules of the learning rate, as a factor of the configured rate."""

from __future__ import annotations

import math
from typing import Literal

WAIT = 3  # evaluations without improvement that a plateau tolerates before it halves the rate
LOWEST = 1e-6  # the learning rate at which halving ends


class Schedule:
    """A factor that is `constant`, a `cosine` from 1 to 0 over the epochs, or halved on each `plateau` of the metric."""

    def __init__(self, kind: Literal["constant", "plateau", "cosine"], learning_rate: float, epochs: int):
        self.kind, self.learning_rate, self.epochs = kind, learning_rate, epochs
        self.halvings, self.best, self.waited = 0, -math.inf, 0

    def factor(self, epoch: int) -> float:
        """The factor for an epoch, counted from 1."""
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * (epoch - 1) / self.epochs)) / 2
        return max(0.5**self.halvings, min(1.0, LOWEST / self.learning_rate))

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

    def values(self) -> dict[str, float]:
        # JSON has no infinity, so None stands for it.
        return {"halvings": self.halvings, "best": self.best if math.isfinite(self.best) else None, "waited": self.waited}

    def restore(self, values: dict[str, float]) -> None:
        self.halvings, self.waited = values["halvings"], values["waited"]
        self.best = -math.inf if values["best"] is None else values["best"]
