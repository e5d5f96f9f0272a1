"""The resources that compute the iterations of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankbench.fitting.crew import Crew
from rankbench.fitting.executors import BlockMap, ThreadMap


@dataclass(frozen=True)
class Context:
    """`executor` works on blocks of rows; `device` computes gradient steps and inverses and is named as in PyTorch. A `crew`
    makes gradient steps in several processes.
    """

    executor: BlockMap = field(default_factory=ThreadMap)
    device: str = "cpu"
    crew: Crew | None = None
