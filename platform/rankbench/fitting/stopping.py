"""Parameters of early stopping, shared by iterative methods."""

from __future__ import annotations

from dataclasses import dataclass

from rankbench.core.errors import require
from rankbench.core.params import Fixed, Params, Range, param

STOP_METRIC = "ndcg@20"


@dataclass(frozen=True)
class Stopping(Params):
    """When a fit that is evaluated on the validation set ends before its last iteration."""

    patience: int = param(
        0,
        "evaluations without improvement after which the fit ends (with eval_every = 0: iterations); 0: never ends early",
        Range(0, 20),
        ge=0,
    )
    eval_every: int = param(
        1,
        "iterations or epochs between evaluations; 0: often at first, then as often as costs about 5 % of the fit",
        Range(0, 20),
        used=lambda p: p.patience > 0,
        ge=0,
    )
    stop_metric: str = param(
        STOP_METRIC, "metric on the validation set that must improve", Fixed(STOP_METRIC), used=lambda p: p.patience > 0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require("@" in self.stop_metric, f"stop_metric: write it with a cutoff, as in ndcg@20, got {self.stop_metric}")

    @property
    def every_iteration(self) -> bool:
        """Whether the fit needs an evaluation after each iteration where eval_every is 0."""
        return False

    def looks(self, number: int, spacing: int) -> bool:
        """Whether an evaluation follows iteration `number`. `spacing`: the iterations between two, if eval_every is 0."""
        if self.eval_every:
            return number % self.eval_every == 0
        is_power_of_two = number & (number - 1) == 0
        return self.every_iteration or number % spacing == 0 or (number < spacing and is_power_of_two)

    def ended(self, waited: int, since: int) -> bool:
        """Whether the fit ends, `waited` evaluations and `since` iterations after the best one."""
        if self.eval_every:
            return waited >= self.patience
        return since >= self.patience and waited >= min(2, self.patience)  # a single value may be low by chance
