"""How a run is computed. None of it changes what the run is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rankbench.core import threads
from rankbench.core.memory import Spill
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.context import Context
from rankbench.fitting.executors import BlockMap, ThreadMap


@dataclass(frozen=True)
class Execution:
    """`n_threads` of this process; `executor` works on blocks, by default in those threads; `device` is where gradient steps
    and inverses are computed. Iterations are saved to `checkpoints`. A closed form whose matrix does not fit into the memory
    that `spill` allows, or that `executor` distributes, is solved by tiles in its folder.
    """

    n_threads: int = field(default_factory=threads.available_cpus)
    executor: BlockMap | None = None
    device: str = "cpu"
    checkpoints: Checkpoints | None = None
    spill: Spill | None = None

    @property
    def context(self) -> Context:
        return Context(self.executor or ThreadMap(self.n_threads), self.device)


def progress_to_nobody(*_: Any) -> None:
    """Ignore progress."""
