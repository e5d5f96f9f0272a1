"""The executor of a fit: threads of this process, or a cluster.

Without an address everything runs in this process, with one thread per processor, whatever the size. A local cluster would
not help: starting it takes seconds, and every array is copied. With an address all blocks run on that cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankbench.core.code import package_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.storage import Storage
from rankbench.core.threads import own_threads, require_threads
from rankbench.fitting.crew import Crew
from rankbench.fitting.executors import BlockMap, ThreadMap


@contextmanager
def workplace(address: str | None, n_threads: int | None = None) -> Iterator[BlockMap]:
    """Yield the executor for `address`: HOST:PORT, None for RAY_ADDRESS if it is set, or empty for this process.

    Raises the errors of `session`.
    """
    address = os.environ.get("RAY_ADDRESS", "") if address is None else address
    if not address:
        yield ThreadMap(n_threads or own_threads())
        return
    from rankbench.cluster.session import session

    with session(address):
        # Imported here because it imports Ray, which reads the environment variables that the session sets.
        from rankbench.cluster.ray_map import RayMap

        yield RayMap()


@contextmanager
def crew_of(workers: int, address: str | None = None, gpus: bool = False) -> Iterator[Crew | None]:
    """Yield a crew of so many workers on the cluster at `address` (or RAY_ADDRESS), by default on this machine; None for one
    worker. With `gpus`, each has a GPU.

    Raises ConfigError if the processors or GPUs do not suffice, and the errors of `session`.
    """
    if workers == 1:
        yield None
        return
    local = not (address or os.environ.get("RAY_ADDRESS"))
    if local:
        require_threads(workers, f"--workers {workers}", "workers")
    from rankbench.cluster.session import session

    with session(address, workers if local else None, gpus=gpus) as cluster:
        for offered, what in ((cluster.cpus, "processors"), *(((cluster.gpus, "GPUs"),) if gpus else ())):
            problem = f"--workers {workers}: {'this machine' if local else 'the cluster'} has {offered} {what}"
            require(workers <= offered, f"{problem}; each worker needs one")
        from rankbench.cluster.train_crew import TrainCrew

        yield TrainCrew(workers, {"CPU": 1.0} | ({"GPU": 1.0} if gpus else {}))


def require_shared(environment: Environment) -> None:
    """Raise ConfigError if a node of the connected cluster has other code, or does not see the folders of data and results, or
    their stores.
    """
    _require(*shared_places(environment))


def shared_places(environment: Environment) -> tuple[list[Path], list[Storage]]:
    """The folders and the stores of data and results that all nodes of a cluster must share."""
    places = (environment.data, environment.data_store), (environment.results, environment.results_store)
    return [folder for folder, store in places if store is None], [store for _, store in places if store]


def require_shared_folder(folder: Path) -> None:
    """Raise ConfigError if a node of the connected cluster does not see files that this process writes to a folder."""
    _require([folder], [])


def _require(folders: list[Path], stores: list[Storage]) -> None:
    # Imported here because it imports Ray, which reads the environment variables that the session sets.
    from rankbench.cluster.probe import probe_nodes

    for node in probe_nodes(folders, stores):
        require(
            node.code == package_fingerprint(),
            f"node {node.name} has other source files of rankbench ({node.version}) than this host; install the same revision "
            "on every node, so that all results are of one (`rankbench doctor --address`)",
        )
        require(
            not node.unseen,
            f"node {node.name} does not see {', '.join(node.unseen)}: choose a folder on storage that all hosts share, or give "
            "the node the AWS variables of the store (`rankbench doctor --address`)",
        )
