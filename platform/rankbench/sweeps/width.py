"""How many nodes a trial gets whose method divides its work into blocks or tiles.

`resources.nodes` gives the number, or `auto` decides by the estimates: a trial gets several nodes if its fit on one would still
run long after the other processors have nothing left to do, or if its matrix fits on no node. Many narrow trials use the
processors better than a few wide ones, because nothing is sent over the network, so everything else stays on one node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rankbench.cluster.machine import BLOCK_BYTES, Machine, can_run_together
from rankbench.fitting.method import ClosedForm
from rankbench.schema.experiment import Resources
from rankbench.sweeps.units import Unit

EFFICIENCY = 0.7  # of a processor of a wide trial, relative to one of a narrow trial: blocks and factors travel
WORTH = 20.0  # seconds of a fit from which on several nodes repay the start of their workers


def widths(
    members: Sequence[tuple[Unit, int]], machines: Sequence[Machine], resources: Resources, shared_folder: bool = True
) -> list[tuple[Unit, str | None]]:
    """Return each unit with its number of nodes, and a sentence that says why it has several, or should have and has not.

    `members` are the units of a stage, adapted to the machines, and how often each is run. Without a `shared_folder` of the
    nodes, closed forms stay on one node, because all nodes of a wide one write its tiles.
    """
    if len(machines) == 1 or resources.nodes == 1:
        return [(unit, None) for unit, _ in members]
    processors = sum(machine.cpus for machine in machines)
    balanced = sum(unit.cost * unit.cpus * times for unit, times in members) / processors
    return [
        _with_nodes(unit, machines, resources, balanced)
        if shared_folder or not isinstance(unit.job.configs[0].spec, ClosedForm)
        else (unit, None)
        for unit, _ in members
    ]


def _with_nodes(unit: Unit, machines: Sequence[Machine], resources: Resources, balanced: float) -> tuple[Unit, str | None]:
    if not unit.job.configs[0].spec.distributed or unit.device != "cpu":
        return unit, None
    if resources.nodes != "auto":
        return _widened(unit, machines, resources, resources.nodes, f"resources.nodes: {resources.nodes}")
    if unit.tiled:
        return _widened(unit, machines, resources, len(machines), "its matrix fits on no node")
    if isinstance(unit.job.configs[0].spec, ClosedForm) or unit.cost <= max(WORTH, balanced):
        return unit, None
    cpus = _cpus_of(unit, machines, resources, len(machines))
    nodes = math.ceil(unit.cost * unit.cpus / (max(WORTH, balanced) * cpus * EFFICIENCY))
    why = f"one node takes {unit.cost:.0f} s, while all processors together need {balanced:.0f} s for the stage"
    return _widened(unit, machines, resources, max(2, nodes), why)


def _widened(unit: Unit, machines: Sequence[Machine], resources: Resources, wanted: int, why: str) -> tuple[Unit, str | None]:
    """The unit on `wanted` nodes, or on as many as the machines can give it."""
    closed_form = isinstance(unit.job.configs[0].spec, ClosedForm)
    for nodes in range(min(wanted, len(machines)), 1, -1):
        cpus = _cpus_of(unit, machines, resources, nodes)
        memory = unit.memory_bytes
        if closed_form:  # the tiles are in the object stores and in a file
            memory = min(memory, max(BLOCK_BYTES, max(each.memory_bytes for each in machines) - cpus * BLOCK_BYTES))
        speed = nodes * cpus * EFFICIENCY / unit.cpus
        wide = replace(
            unit, nodes=nodes, cpus=cpus, memory_bytes=memory, cost=unit.cost / max(1.0, speed), tiled=unit.tiled or closed_form
        )
        if can_run_together([wide.needs], machines):
            few = "" if nodes == wanted else f", of which the cluster can give {nodes}"
            return wide, f"{unit.title}: {nodes} nodes of {cpus} CPU{'s' * (cpus > 1)}: {why}{few}"
    return unit, f"{unit.title}: a single node, although {why}: no two nodes have what it needs"


def _cpus_of(unit: Unit, machines: Sequence[Machine], resources: Resources, nodes: int) -> int:
    """Processors on each node: the given number, or all that each of the `nodes` largest machines has."""
    if resources.cpus != "auto":
        return unit.cpus
    return max(1, sorted((machine.cpus for machine in machines), reverse=True)[nodes - 1])
