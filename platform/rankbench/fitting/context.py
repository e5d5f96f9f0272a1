"""What the iterations of a fit are computed with."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankbench.fitting.executors import BlockMap, ThreadMap


@dataclass(frozen=True)
class Context:
    """`executor` works on blocks of rows; `device` is where gradient steps and inverses are computed, as PyTorch names it."""

    executor: BlockMap = field(default_factory=ThreadMap)
    device: str = "cpu"
