"""Where the blocks of a fit are worked on: in this process, or on a cluster that was named.

The rule: without an address everything runs in this process, a thread a processor, whatever the size. One machine has nothing
to gain from a cluster of itself: starting it costs seconds, and every array is copied. With an address all blocks go there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankbench.core.errors import require
from rankbench.core.threads import available_cpus
from rankbench.fitting.executors import BlockMap, ThreadMap


@contextmanager
def workplace(address: str | None, n_threads: int | None = None) -> Iterator[BlockMap]:
    """`address`: HOST:PORT; None takes RAY_ADDRESS, where it is set; an empty one is this process. Raises as `session`."""
    address = os.environ.get("RAY_ADDRESS", "") if address is None else address
    if not address:
        yield ThreadMap(n_threads or available_cpus())
        return
    from rankbench.cluster.session import session

    with session(address):
        # Not before: it imports Ray, which then reads the settings that the session made.
        from rankbench.cluster.ray_map import RayMap

        yield RayMap()


def require_shared(*folders: Path) -> None:
    """Raise ConfigError when a node of the joined cluster does not see what this process writes into a folder."""
    # Not at the top: it imports Ray, which reads the settings that the session made.
    from rankbench.cluster.probe import probe_nodes

    for node in probe_nodes(list(folders)):
        require(
            not node.unseen,
            f"node {node.name} does not see {', '.join(node.unseen)}: choose a folder on storage that all hosts share "
            "(rankbench doctor --address)",
        )
