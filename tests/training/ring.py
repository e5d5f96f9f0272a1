"""Workers as threads of this process, connected by gloo over loopback."""

from concurrent.futures import ThreadPoolExecutor
from threading import Condition

import numba

from rankbench.fitting.crew import Place
from rankbench.training.ring import Ring


class Notes:
    """A board in memory."""

    def __init__(self):
        self.notes, self.changed = {}, Condition()

    def set(self, key, value):
        with self.changed:
            self.notes[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.notes, 60), key
            return self.notes[key]

    def add(self, key, amount):
        with self.changed:
            total = int(self.notes.get(key, b"0")) + amount
            self.notes[key] = str(total).encode()
            self.changed.notify_all()
            return total


def together(size: int, work):
    """[work(exchange of worker 0), ...] of `size` workers."""
    board = Notes()

    def run(rank: int):
        numba.set_num_threads(1)
        return work(Ring(Place(rank, size, "127.0.0.1", board)))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
