"""Check on every node whether it can read the driver's files, and which version of rankbench it runs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankbench.cluster.alive_nodes import alive_nodes
from rankbench.core.code import package_fingerprint
from rankbench.core.errors import ClusterError, RankbenchError
from rankbench.core.files import disk_errors_are_clear, make_folder
from rankbench.core.storage import Storage

PATIENCE = 60  # seconds for all nodes


@dataclass(frozen=True)
class Node:
    """A node's name, its version of rankbench, the fingerprint of its source files (`code`), and `unseen`, the folders and
    stores that it does not share with the driver.
    """

    name: str
    version: str
    code: str
    unseen: tuple[str, ...]


def probe_nodes(folders: list[Path], stores: Sequence[Storage] = ()) -> list[Node]:
    """Write a file into each folder and look for it on every alive node, which also writes to each store.

    Raises ClusterError if a node does not answer.
    """
    probes = []
    try:
        for folder in folders:
            make_folder(folder)
            probes.append(folder / f".rankbench-probe-{secrets.token_hex(4)}")
            with disk_errors_are_clear(probes[-1]):
                probes[-1].write_bytes(b"probe")
        check = ray.remote(num_cpus=0, max_retries=0)(_check)
        names = {}
        for node in alive_nodes():
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"{node['NodeManagerHostname']} at {node['NodeManagerAddress']}"
            names[check.options(scheduling_strategy=pinned).remote(probes, stores)] = name
        finished, silent = ray.wait(list(names), num_returns=len(names), timeout=PATIENCE)
        if silent:
            raise ClusterError(f"node {names[silent[0]]} did not answer within {PATIENCE} s")
        return [_node(names[task], task) for task in finished]
    finally:
        for probe in probes:
            with suppress(OSError):
                probe.unlink()


def _node(name: str, task: ray.ObjectRef) -> Node:
    try:
        return Node(name, *ray.get(task, timeout=PATIENCE))
    except ray.exceptions.RayError as error:
        # A node without this package cannot even load the task.
        cause = getattr(error, "cause", None) or error
        raise ClusterError(f"node {name}: {(str(cause).strip().splitlines() or [type(cause).__name__])[-1]}") from None


def _check(probes: list[Path], stores: Sequence[Storage]) -> tuple[str, str, tuple[str, ...]]:
    unseen = [str(probe.parent) for probe in probes if not _usable(probe)]
    for store in stores:
        try:
            store.require_writable()
        except RankbenchError as error:
            unseen.append(str(error))
    return version("rankbench"), package_fingerprint(), tuple(unseen)


def _usable(probe: Path) -> bool:
    """Whether this node can read the driver's file and write another one beside it."""
    own = probe.with_name(f"{probe.name}-{secrets.token_hex(4)}")
    try:
        own.write_bytes(b"probe")
        own.unlink()
    except OSError:
        return False
    return probe.is_file()
