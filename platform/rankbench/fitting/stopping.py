"""Parameters of early stopping, shared by iterative methods."""

from __future__ import annotations

from dataclasses import dataclass

from rankbench.core.config import Params, param
from rankbench.core.errors import require


@dataclass(frozen=True)
class Stopping(Params):
    """When a fit that is evaluated on the validation set ends before its last iteration."""

    patience: int = param(0, "evaluations without improvement after which the fit ends; 0: never ends early", "0 to 20", ge=0)
    eval_every: int = param(1, "iterations or epochs between evaluations", "1 to 20", gt=0)
    stop_metric: str = param("ndcg@20", "metric on the validation set that must improve", "ndcg@20")

    def __post_init__(self) -> None:
        super().__post_init__()
        require("@" in self.stop_metric, f"stop_metric: write it with a cutoff, as in ndcg@20, got {self.stop_metric}")
