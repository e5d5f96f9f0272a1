"""Checks that one machine can run a trial, and adapts a trial that is too large: with fewer CPUs, or by tiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rankbench.cluster.machine import BLOCK_BYTES, Machine, Needs, capacity, described
from rankbench.cluster.node_memory import NodeMemory
from rankbench.core.errors import ConfigError, StorageError
from rankbench.core.memory import bytes_of
from rankbench.schema.experiment import Resources
from rankbench.sweeps.units import Unit

TILES_SHARE = 0.9  # of a machine's memory; the rest is for the system's cache of the file


def node_memory(text: str | None, address: str | None, source: str) -> NodeMemory | None:
    """The memory of the local node of a sweep, given as '8GB'; None if it is not given.

    Raises ConfigError, starting with `source`, if it cannot work, or if the sweep runs on the cluster at `address`.
    """
    if text is None:
        return None
    memory = NodeMemory.of(bytes_of(text, source), source)
    if address:
        raise ConfigError(
            f"{source}: the nodes of a cluster have the memory that they were started with; on each of them use "
            f"`ray start --memory={memory.tasks} --object-store-memory={memory.objects}`"
        )
    memory.require_here(source)
    return memory


def adapted(unit: Unit, machines: Sequence[Machine], resources: Resources) -> Unit:
    """Return the unit with needs that one of the machines can satisfy.

    If no machine has the CPUs, the number is reduced, provided that `auto` chose it. If no machine has the memory, a closed
    form is solved by tiles. A unit that still fits on no machine is returned unchanged.
    """
    if any(machine.capacity(unit.needs) for machine in machines):
        return unit
    if resources.cpus == "auto" and unit.workers == 1:
        cpus = [machine.cpus for machine in machines if machine.capacity(replace(unit.needs, cpus=1))]
        if cpus:
            fewer = min(unit.cpus, max(cpus))
            return replace(unit, cpus=fewer, cost=unit.cost * unit.cpus / fewer)
    with_cpus = [machine for machine in machines if machine.cpus >= (1 if resources.cpus == "auto" else unit.cpus)]
    largest = max(with_cpus, key=lambda machine: (machine.memory_bytes, machine.cpus), default=None)
    if largest is None or unit.memory_bytes <= largest.memory_bytes or unit.job.configs[0].share_key is None:
        return unit
    memory = int(TILES_SHARE * largest.memory_bytes)
    if memory < BLOCK_BYTES:  # a tile is no larger than a block
        return unit
    return replace(unit, cpus=min(unit.cpus, largest.cpus), memory_bytes=memory, tiled=True, device="cpu")


def can_run(unit: Unit, machines: Sequence[Machine], resources: Resources) -> bool:
    """Whether one of the machines can run the unit, adapted if it is too large."""
    return capacity(adapted(unit, machines, resources).needs, machines) > 0


def shared_needs(needs: Collection[Needs], machines: Sequence[Machine]) -> dict[Needs, Needs]:
    """Map each of `needs` to needs with as much memory as others have of which the machines can run the same number at once.

    Trials whose number is limited by processors then share their workers: a worker takes seconds to start, and a group of
    trials with needs of their own would have to wait for the last trial of the group before.
    """
    capacities = {each: capacity(each, machines) for each in needs}

    def equals(each: Needs) -> list[Needs]:
        same = [other for other in needs if replace(other, memory_bytes=each.memory_bytes) == each]
        return [other for other in same if capacities[other] == capacities[each] > 0] or [each]

    return {each: max(equals(each)) for each in needs}


def require_machine(unit: Unit, machines: Sequence[Machine], resources: Resources, owner: str) -> None:
    """Raise StorageError if no machine has the memory that the unit needs, ConfigError if none has its other needs, too.

    `owner` names the machines in the message, as in 'the cluster'.
    """
    if capacity(unit.needs, machines):
        return
    problem = f"{unit.title}: a fit needs {unit.needs}, and {owner} has {described(machines)}"
    if all(machine.memory_bytes < unit.memory_bytes for machine in machines):
        raise StorageError(f"{problem}; use a machine with more memory")
    key = f"resources.device: {resources.device}: " if unit.gpus and not any(machine.gpus for machine in machines) else ""
    raise ConfigError(f"{key}{problem}; no machine has all of that: change `resources`")
