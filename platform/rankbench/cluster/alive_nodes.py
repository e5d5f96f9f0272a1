"""The alive nodes of the connected cluster, queried with a deadline."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from threading import Thread

import ray
from ray.exceptions import RayError

from rankbench.cluster.machine import Machine
from rankbench.core.errors import ClusterError

TIMEOUT = 20.0  # seconds that the head node has to answer


def alive_nodes() -> list[dict]:
    """The nodes that the head node reports as alive. Raises ClusterError if it does not answer; Ray would wait forever."""
    answers: list[list[dict]] = []

    def query() -> None:
        with suppress(RayError):
            answers.append(ray.nodes())

    thread = Thread(target=query, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    if not answers:
        raise ClusterError(f"the head of the Ray cluster did not answer within {TIMEOUT:.0f} s; --resume continues")
    return [node for node in answers[0] if node["Alive"]]


def object_store_bytes(ids: Collection[str] | None = None) -> int:
    """Bytes of the object stores of these nodes, by default of all. Raises the errors of `alive_nodes`."""
    nodes = [node for node in alive_nodes() if ids is None or node["NodeID"] in ids]
    return int(sum(node["Resources"].get("object_store_memory", 0) for node in nodes))


def alive_machines() -> list[Machine]:
    """Processors, memory and GPUs of each alive node. Raises the errors of `alive_nodes`."""
    resources = [node["Resources"] for node in alive_nodes()]
    return [Machine(int(each.get("CPU", 0)), int(each.get("memory", 0)), int(each.get("GPU", 0))) for each in resources]
