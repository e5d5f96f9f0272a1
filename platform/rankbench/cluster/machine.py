"""Resources of one node of a cluster, and how many tasks with equal needs it can run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Needs:
    """Resources that a task requires, all on one node."""

    cpus: int
    memory_bytes: int
    gpus: float = 0  # below 1: a share of one

    def __str__(self) -> str:
        return _resources(self)


@dataclass(frozen=True)
class Machine:
    """Resources of a node. `memory_bytes` is the memory that Ray assigns to tasks, which is less than the host has."""

    cpus: int
    memory_bytes: int
    gpus: int = 0

    def capacity(self, needs: Needs) -> int:
        """Number of tasks with these needs that the node can run at once."""
        pairs = (self.cpus, needs.cpus), (self.memory_bytes, needs.memory_bytes)
        whole = [offered // needed for offered, needed in pairs if needed]
        if needs.gpus:
            whole.append(int(self.gpus / needs.gpus + 1e-9))  # 1 / 0.1 is below 10 in some roundings
        return min(whole)


def described(machines: Iterable[Machine]) -> str:
    """Describe the machines, with equal ones counted: '2 nodes of 1 CPU and 0.6 GB, 1 node of 8 CPUs, 1 GPU and 20.0 GB'."""
    counts = Counter(machines)
    if not counts:
        return "no nodes"
    return ", ".join(f"{_plural(n, 'node')} of {_resources(each)}" for each, n in counts.items())


def _resources(each: Machine | Needs) -> str:
    gpus = f", {_plural(each.gpus, 'GPU')}" if each.gpus else ""
    return f"{_plural(each.cpus, 'CPU')}{gpus} and {each.memory_bytes / 1e9:.1f} GB"


def _plural(n: float, noun: str) -> str:
    return f"{n:g} {noun}{'s' if n != 1 else ''}"
