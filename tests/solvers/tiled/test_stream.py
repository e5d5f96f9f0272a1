"""Reading ahead: every task finds the tiles it needs, unharmed by those that are being read for later ones."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from rankbench.solvers.tiled.graph import panels
from rankbench.solvers.tiled.grid import STREAM
from rankbench.solvers.tiled.inverse import with_tiles


class Reads:
    """Stands for the store: a tile's one number tells which it is."""

    def __init__(self):
        self.done = []

    def read(self, tile, buffer):
        self.done.append(tile)
        buffer[:] = number(tile)
        return buffer


class AtOnce:
    """The fastest reader there can be: a buffer is overwritten in the moment in which it is given up."""

    def submit(self, read, tile, buffer):
        future = Future()
        future.set_result(read(tile, buffer))
        return future


def number(tile):
    return 100 * tile[0] + tile[1]


@pytest.mark.parametrize("n_buffers", [STREAM, STREAM + 2])
@pytest.mark.parametrize("n_blocks", [1, 2, 3, 7])
def test_every_task_finds_its_tiles(n_blocks, n_buffers):
    for panel in panels(n_blocks):
        store = Reads()
        for task, tiles in with_tiles(panel, store, np.empty((n_buffers, 1)), AtOnce()):
            for tile in set(task.reads) - set(panel.tiles):
                assert tiles[tile] == number(tile)
        assert len(store.done) == len(set(store.done))


def test_no_read_goes_on_when_the_work_breaks_off():
    panel, buffers, moment = panels(5)[3], np.empty((STREAM, 1)), threading.Event()

    class Slow(Reads):
        def read(self, tile, buffer):
            if self.done:
                moment.wait(10)
            return super().read(tile, buffer)

    with ThreadPoolExecutor(1) as reader:
        tasks = with_tiles(panel, Slow(), buffers, reader)
        next(tasks)
        threading.Timer(1.0, moment.set).start()
        tasks.close()
        buffers[:] = -1
    assert (buffers == -1).all()
