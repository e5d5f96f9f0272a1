"""Every node asked whether it can read what the driver writes, and which version it runs."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankbench.core.errors import ClusterError
from rankbench.core.files import disk_errors_are_clear, make_folder

PATIENCE = 60  # seconds for all nodes


@dataclass(frozen=True)
class Node:
    """`unseen`: the folders in which a file of the driver's is not found."""

    name: str
    version: str
    unseen: tuple[str, ...]


def probe_nodes(folders: list[Path]) -> list[Node]:
    """Write a file into each folder and ask every living node for it. Raises ClusterError when a node does not answer."""
    probes = []
    try:
        for folder in folders:
            make_folder(folder)
            probes.append(folder / f".rankbench-probe-{secrets.token_hex(4)}")
            with disk_errors_are_clear(probes[-1]):
                probes[-1].write_bytes(b"probe")
        nodes = [node for node in ray.nodes() if node["Alive"]]
        task = ray.remote(num_cpus=0, max_retries=0)(_look)
        asked = {}
        for node in nodes:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"{node['NodeManagerHostname']} at {node['NodeManagerAddress']}"
            asked[task.options(scheduling_strategy=pinned).remote(probes)] = name
        answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
        if silent:
            raise ClusterError(f"node {asked[silent[0]]} gave no answer in {PATIENCE} s")
        return [_answer(asked[each], each) for each in answered]
    finally:
        for probe in probes:
            with suppress(OSError):
                probe.unlink()


def _answer(name: str, task: ray.ObjectRef) -> Node:
    try:
        return Node(name, *ray.get(task, timeout=PATIENCE))
    except ray.exceptions.RayError as error:
        # A node without this package cannot even load the task.
        cause = getattr(error, "cause", None) or error
        raise ClusterError(f"node {name}: {(str(cause).strip().splitlines() or [type(cause).__name__])[-1]}") from None


def _look(probes: list[Path]) -> tuple[str, tuple[str, ...]]:
    return version("rankbench"), tuple(str(probe.parent) for probe in probes if not _usable(probe))


def _usable(probe: Path) -> bool:
    """Whether this node reads the driver's file and can write one beside it."""
    own = probe.with_name(f"{probe.name}-{secrets.token_hex(4)}")
    try:
        own.write_bytes(b"probe")
        own.unlink()
    except OSError:
        return False
    return probe.is_file()
