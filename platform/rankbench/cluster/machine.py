"""Resources of the nodes of a cluster, and which tasks they can run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

BLOCK_BYTES = 450_000_000  # memory for Python, its libraries and a block


@dataclass(frozen=True, order=True)
class Needs:
    """Resources that a task requires, all on one node; with `nodes` above 1, on that many nodes.

    Then the task itself takes the memory on one of the nodes, and its blocks take `cpus` processors on each of them, with
    `BLOCK_BYTES` of memory for each processor.
    """

    cpus: int
    memory_bytes: int
    gpus: float = 0  # below 1: a share of one
    nodes: int = 1

    def __str__(self) -> str:
        return f"{self.nodes} nodes, each of {_resources(self)}" if self.nodes > 1 else _resources(self)

    @property
    def all_cpus(self) -> int:
        """Number of processors on all nodes."""
        return self.nodes * self.cpus

    @property
    def gpus_taken(self) -> float:
        """What of a GPU no other such task can have: all of it for a share of 0.6, because a share is of one GPU."""
        return 1 / int(1 / self.gpus + 1e-9) if 0 < self.gpus < 1 else self.gpus  # 1 / 0.1 is below 10 in some roundings

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The placement group of a trial with these needs, as Ray describes it: first what the trial itself takes."""
        memory = float(self.memory_bytes)
        if self.nodes == 1:
            return [{"CPU": float(self.cpus), "memory": memory} | ({"GPU": self.gpus} if self.gpus else {})]
        return [{"memory": memory}, *[{"CPU": float(self.cpus), "memory": float(self.cpus * BLOCK_BYTES)}] * self.nodes]


@dataclass(frozen=True)
class Machine:
    """Resources of a node. `memory_bytes` is the memory that Ray assigns to tasks, which is less than the host has."""

    cpus: int
    memory_bytes: int
    gpus: int = 0

    def capacity(self, needs: Needs) -> int:
        """Number of tasks with these needs that the node can run at once; 0 for those that need several nodes."""
        if needs.nodes > 1:
            return 0
        pairs = (self.cpus, needs.cpus), (self.memory_bytes, needs.memory_bytes)
        whole = [offered // needed for offered, needed in pairs if needed]
        if needs.gpus:
            whole.append(int(self.gpus / needs.gpus_taken + 1e-9))
        return min(whole)


def can_run_together(tasks: Iterable[Needs] | Mapping[Needs, int], machines: Sequence[Machine]) -> bool:
    """Whether the machines can run all tasks at once, as far as placing the largest bundles first shows.

    `tasks`: the needs of each, or how many have the same needs. The time grows with the number of different needs and machines.
    """
    bundles: Counter[tuple[float, ...]] = Counter()
    for needs, n in Counter(tasks).items():
        for bundle in needs.bundles:
            bundles[(needs.gpus_taken, *(bundle.get(name, 0.0) for name in ("CPU", "memory")))] += n
    free = [[float(each.gpus), float(each.cpus), float(each.memory_bytes)] for each in machines]
    for bundle, left in sorted(bundles.items(), reverse=True):
        for place in free:
            # The first node with room gets equal bundles until it is full, then the next one does.
            whole = [int((offered + 1e-9) // needed) for offered, needed in zip(place, bundle, strict=True) if needed]
            n = min([left, *whole])
            place[:] = (offered - n * needed for offered, needed in zip(place, bundle, strict=True))
            left -= n
        if left:
            return False
    return True


def capacity(needs: Needs, machines: Sequence[Machine]) -> int:
    """Number of tasks with these needs that the machines can run at once."""
    if needs.nodes == 1:
        return sum(machine.capacity(needs) for machine in machines)
    n = 0
    while can_run_together([needs] * (n + 1), machines):
        n += 1
    return n


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
