"""The tiles that a panel's tasks need from outside, read ahead by a thread in the order of the tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rankbench.solvers.tiled.graph import HELD, Panel, Task, Tile, steps
from rankbench.solvers.tiled.store import TileFile


def with_tiles(
    panel: Panel, store: TileFile, buffers: np.ndarray, reader: ThreadPoolExecutor
) -> Iterator[tuple[Task, dict[Tile, np.ndarray]]]:
    """Every task, and tiles among which are those that it reads from outside the panel.

    buffers (more than HELD, tile²): one tile each. A tile stays where it is until HELD others were used after it, and what is
    left of the buffers is being filled meanwhile.
    """
    wanted = (tile for _, fetched in steps(panel) for tile in fetched)
    own = set(panel.tiles)
    place: dict[Tile, np.ndarray] = {}
    held: dict[Tile, np.ndarray] = {}  # the one used last comes last
    coming = deque()

    def fetch(buffer: np.ndarray) -> None:
        tile = next(wanted, None)
        if tile is not None:
            coming.append((tile, buffer, reader.submit(store.read, tile, buffer)))

    for buffer in buffers:
        fetch(buffer)
    try:
        for task, fetched in steps(panel):
            for tile in fetched:
                tile, place[tile], read = coming.popleft()
                held[tile] = read.result()
            for tile in task.reads:
                if tile not in own:
                    held[tile] = held.pop(tile)
            while len(held) > HELD:
                oldest = next(iter(held))
                del held[oldest]
                fetch(place.pop(oldest))
            yield task, held
    finally:
        # The buffers may serve for something else from here on.
        for _, _, read in coming:
            read.cancel()
        for _, _, read in coming:
            if not read.cancelled():
                read.exception()
