"""The nodes of the joined cluster that are up, asked for with a deadline."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import ray
from ray.exceptions import RayError

from rankbench.cluster.machine import Machine
from rankbench.core.errors import ClusterError

ANSWER = 20.0  # seconds for the cluster's head to say which nodes live


def alive_nodes() -> list[dict]:
    """Those that the cluster's head knows to be up. Raises ClusterError when it does not answer: Ray would wait on."""
    answer: list[list[dict]] = []

    def ask() -> None:
        with suppress(RayError):
            answer.append(ray.nodes())

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER)
    if not answer:
        raise ClusterError(f"the head of the Ray cluster gave no answer in {ANSWER:.0f} s; --resume continues")
    return [node for node in answer[0] if node["Alive"]]


def living_machines() -> list[Machine]:
    """What each of the alive nodes offers. Raises as `alive_nodes`."""
    offers = [node["Resources"] for node in alive_nodes()]
    return [Machine(int(each.get("CPU", 0)), int(each.get("memory", 0)), int(each.get("GPU", 0))) for each in offers]
