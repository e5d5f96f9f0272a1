"""The tiles that a panel's tasks need from other panels, read ahead by a thread in the order of the tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rankbench.solvers.tiled.graph import Panel, Task, Tile, steps
from rankbench.solvers.tiled.store import TileFile


def with_tiles(
    panel: Panel, store: TileFile, buffers: np.ndarray, reader: ThreadPoolExecutor
) -> Iterator[tuple[Task, dict[Tile, np.ndarray]]]:
    """Yield every task with the held tiles, which include those that it reads from other panels.

    `buffers` (more than HELD, tile²) hold one tile each. A tile stays in its buffer until HELD other tiles have been used after
    it, while the remaining buffers are being filled.
    """
    wanted = (tile for _, fetched, _ in steps(panel) for tile in fetched)
    buffer_of: dict[Tile, np.ndarray] = {}
    held: dict[Tile, np.ndarray] = {}
    pending = deque()

    def fetch(buffer: np.ndarray) -> None:
        tile = next(wanted, None)
        if tile is not None:
            pending.append((tile, buffer, reader.submit(store.read, tile, buffer)))

    for buffer in buffers:
        fetch(buffer)
    try:
        for task, fetched, dropped in steps(panel):
            for tile in fetched:
                tile, buffer_of[tile], read = pending.popleft()
                held[tile] = read.result()
            for tile in dropped:
                del held[tile]
                fetch(buffer_of.pop(tile))
            yield task, held
    finally:
        # Wait for pending reads, because the caller may reuse the buffers.
        for _, _, read in pending:
            read.cancel()
        for _, _, read in pending:
            if not read.cancelled():
                read.exception()
