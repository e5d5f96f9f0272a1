"""The memory that a local Ray node may use: a share for shared objects, and the rest for what tasks reserve.

Ray counts the two apart. Left alone, it lends most of the host's free memory to tasks, and objects come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankbench.cluster.machine import BLOCK_BYTES
from rankbench.core.errors import ConfigError
from rankbench.core.memory import memory_of_machine

OBJECTS = 256 << 20  # bytes of the object store of a local node
LEAST_OBJECTS = 80 << 20  # Ray refuses a smaller one than 75 MiB
SHARE = 0.1  # of a small node's memory


@dataclass(frozen=True)
class NodeMemory:
    """Bytes of a node in all, and those of them for objects."""

    total: int
    objects: int

    @property
    def tasks(self) -> int:
        """Bytes that tasks may reserve."""
        return self.total - self.objects

    @classmethod
    def of(cls, total: int, source: str) -> NodeMemory:
        """Divide `total` bytes. Raises ConfigError, starting with `source`, if tasks get less than a block takes."""
        memory = cls(total, max(LEAST_OBJECTS, min(OBJECTS, int(SHARE * total))))
        if memory.tasks < BLOCK_BYTES:
            least = BLOCK_BYTES + LEAST_OBJECTS
            raise ConfigError(
                f"{source}: {total / 1e6:.0f} MB are too little: shared objects take {memory.objects / 1e6:.0f} MB, and a fit "
                f"takes at least {BLOCK_BYTES / 1e6:.0f} MB; give at least {least / 1e6:.0f}MB"
            )
        return memory

    def require_here(self, source: str) -> None:
        """Raise ConfigError, starting with `source`, if this machine, or the container of this process, has less."""
        if self.total > (here := memory_of_machine()):
            raise ConfigError(f"{source}: {self.total / 1e9:.1f} GB are more than the {here / 1e9:.1f} GB of this machine")

    def __str__(self) -> str:
        return (
            f"{self.total / 1e9:.2f} GB of memory: {self.objects / 1e9:.2f} GB for shared objects, "
            f"{self.tasks / 1e9:.2f} GB that fits may reserve"
        )
