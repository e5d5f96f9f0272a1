"""The learning rate over epochs, as a factor of the one that was asked for."""

from __future__ import annotations

import math
from typing import Literal

WAIT = 3  # evaluations without a gain before a plateau halves the rate
LOWEST = 1e-6  # of the rate itself, where the halving ends


class Schedule:
    """`constant`; `cosine`, from 1 to 0 over the epochs; `plateau`, halved when what is watched has stopped to rise."""

    def __init__(self, kind: Literal["constant", "plateau", "cosine"], learning_rate: float, epochs: int):
        self.kind, self.learning_rate, self.epochs = kind, learning_rate, epochs
        self.halvings, self.best, self.waited = 0, -math.inf, 0

    def factor(self, epoch: int) -> float:
        """Of an epoch, counted from 1."""
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * (epoch - 1) / self.epochs)) / 2
        return max(0.5**self.halvings, min(1.0, LOWEST / self.learning_rate))

    def look(self, value: float) -> None:
        """At an evaluation: the metric on valid, or minus the loss where nobody looks there. Higher is better."""
        if self.kind != "plateau":
            return
        if value > self.best:
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited > WAIT:
            self.halvings, self.waited = self.halvings + 1, 0

    def values(self) -> dict[str, float]:
        # JSON has no infinity.
        return {"halvings": self.halvings, "best": self.best if math.isfinite(self.best) else None, "waited": self.waited}

    def restore(self, values: dict[str, float]) -> None:
        self.halvings, self.waited = values["halvings"], values["waited"]
        self.best = -math.inf if values["best"] is None else values["best"]
