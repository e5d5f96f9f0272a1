"""Whether one machine can take a trial, and how a trial is made to fit: with fewer CPUs, or by tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankbench.cluster.machine import Machine, described
from rankbench.core.errors import ConfigError, StorageError
from rankbench.schema.experiment import Resources
from rankbench.sweeps.plan import Unit

FOR_TILES = 0.9  # of a machine's memory; the system's cache of the file lives in the rest
LEAST = 640_000_000  # bytes for Python, its libraries, small data and a tile; with less a trial would only start to fail


def placed(unit: Unit, machines: Sequence[Machine], resources: Resources) -> Unit:
    """Return the unit as one of the machines can take it. Where none has so many CPUs, a number that `auto` chose is lowered;
    where none has the memory, a closed form goes by tiles. A unit that still fits nowhere comes back as it was.
    """
    if any(machine.places(unit.needs) for machine in machines):
        return unit
    if resources.cpus == "auto":
        able = [machine.cpus for machine in machines if machine.places(replace(unit.needs, cpus=1))]
        if able:
            return replace(unit, cpus=min(unit.cpus, max(able)))
    large = [machine for machine in machines if machine.cpus >= (1 if resources.cpus == "auto" else unit.cpus)]
    largest = max(large, key=lambda machine: (machine.memory_bytes, machine.cpus), default=None)
    if largest is None or unit.memory_bytes <= largest.memory_bytes or unit.job.configs[0].share_key is None:
        return unit
    memory = int(FOR_TILES * largest.memory_bytes)
    if memory < LEAST:
        return unit
    return replace(unit, cpus=min(unit.cpus, largest.cpus), memory_bytes=memory, tiled=True, device="cpu")


def require_place(unit: Unit, machines: Sequence[Machine], resources: Resources, where: str) -> None:
    """Raise StorageError where no machine has the memory that the unit needs, ConfigError where none has the rest beside it.

    `where`: whose machines they are, as in 'the cluster'.
    """
    if any(machine.places(unit.needs) for machine in machines):
        return
    asked = f"{unit.title}: a fit asks for {unit.needs}, and {where} has {described(machines)}"
    if all(machine.memory_bytes < unit.memory_bytes for machine in machines):
        raise StorageError(f"{asked}; give it a machine with more memory")
    key = f"resources.device: {resources.device}: " if unit.gpus and not any(machine.gpus for machine in machines) else ""
    raise ConfigError(f"{key}{asked}; no machine has all of that: change `resources`")
