"""How a run is computed: none of these settings changes what the run is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rankbench.core import threads
from rankbench.core.errors import require
from rankbench.core.memory import Spill
from rankbench.core.plain import whole_number
from rankbench.core.public import check_fields
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.context import Context
from rankbench.fitting.crew import Crew
from rankbench.fitting.executors import BlockMap, ThreadMap


@dataclass(frozen=True)
class Execution:
    """`n_threads`: threads of this process. `executor` works on blocks, by default in these threads. `device` computes gradient
    steps and inverses. A `crew` makes gradient steps in several processes. Iterations are saved to `checkpoints`. A closed form
    that `executor` distributes, or whose matrix does not fit into the memory of `spill`, is solved by tiles in the folder of
    `spill`.
    """

    n_threads: int = field(default_factory=threads.own_threads)
    executor: BlockMap | None = None
    device: str = "cpu"
    checkpoints: Checkpoints | None = None
    spill: Spill | None = None
    crew: Crew | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        whole_number("Execution.n_threads", self.n_threads, 1)
        known = re.fullmatch(r"(cpu|cuda)(:\d+)?", self.device)
        require(known is not None, f"Execution.device: expected cpu, cuda or cuda:N, got {self.device!r}")

    @property
    def workers(self) -> int:
        """Number of processes that make the gradient steps of a fit."""
        return self.crew.workers if self.crew else 1

    @property
    def context(self) -> Context:
        return Context(self.executor or ThreadMap(self.n_threads), self.device, self.crew)


@dataclass(frozen=True)
class Limit:
    """What a run yields before work that compiled code could make endless: unless it goes on within so many `seconds`, its
    process is ended, and `late` is the reason of its failure.
    """

    seconds: float
    late: str


def ignore_progress(*_: Any) -> None:
    """Ignore progress."""


def require_device(device: str) -> None:
    """Raise ConfigError if PyTorch cannot compute on a device; cpu is always there."""
    if device != "cpu":
        from rankbench.training.device import require_device as require_there  # imports PyTorch, which takes seconds

        require_there(device)


def gpus_of_host(device: str) -> int:
    """The number of GPUs that PyTorch finds here, for fits on `device`; 0 for those on the CPU, which import no PyTorch."""
    if device == "cpu":
        return 0
    from rankbench.training.device import n_gpus

    return n_gpus()
