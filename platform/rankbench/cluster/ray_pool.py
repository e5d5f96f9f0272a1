"""The pool of a `flow.Flow` on a Ray cluster: tasks on the nodes that their arrays live on.

Ray fetches an array to a node once for all tasks there, from any node that has it by then, and ahead for tasks that wait for a
slot. It could reconstruct a lost array from its lineage, but for a factorisation that means repeating all
earlier tasks. Therefore no task is retried here, and the caller restarts from what it has saved. Nor are tasks cancelled (see
`ray_map`).

Import this inside `cluster.session.session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import ray
from ray.exceptions import RayError

from rankbench.cluster.alive_nodes import alive_nodes, object_store_bytes
from rankbench.cluster.failures import failure_of_ray
from rankbench.cluster.share import Share
from rankbench.core.errors import ClusterError, first_line
from rankbench.core.plugins import Shipment
from rankbench.core.threads import pinned
from rankbench.fitting.flow import Lost, threads_per_task

_TICK = 1.0  # seconds between checks of the clock
_SILENCE = 60.0  # seconds without an answer (or three times the longest task); Ray detects a dead host sooner


class RayPool:
    """Tasks on the places of a share of the cluster. `put` sends a value to all nodes. `busy`: seconds that finished tasks took
    on their workers.
    """

    def __init__(self, share: Share, put: Callable[[Any], ray.ObjectRef]):
        self.share, self.put, self.busy = share, put, 0.0
        self.clear()

    def clear(self) -> None:
        self._places = self.share.places()
        if not self._places:
            raise ClusterError("no node of the Ray cluster has a processor; --resume continues")
        # Tiles are spread evenly, so a small node, as a head often is, would hold up all others.
        most = max(place.cpus for place in self._places)
        self._places = [place for place in self._places if 2 * place.cpus >= most]
        self.threads = threads_per_task(min(place.cpus for place in self._places))
        self.slots: Sequence[int] = [place.cpus // self.threads for place in self._places]
        self.room = object_store_bytes({place.node for place in self._places})
        self._remote = cache(self._remote_on)
        self._running: dict[ray.ObjectRef, None] = {}
        self._seconds: list[float] = []

    def start(
        self, node: int, n_arrays: int, computes: bool, function: Callable, *arguments: Any
    ) -> tuple[ray.ObjectRef, list[ray.ObjectRef]]:
        task = self._remote(node, n_arrays, computes).remote(Shipment.of_this_process(), self.threads, function, *arguments)
        # The last result of a task is small, so that waiting for it moves no array.
        *arrays, done = task if isinstance(task, list) else [task]
        self._running[done] = None
        return done, arrays

    def _remote_on(self, node: int, n_arrays: int, computes: bool) -> Any:
        strategy = self._places[node].strategy
        # Ray keeps as many idle workers as a node has processors. On small nodes, a worker for tasks without a processor would
        # be ended and started again all the time, which takes seconds.
        cpus = self.threads if computes or self.threads == 1 else 0
        return ray.remote(num_cpus=cpus, max_retries=0, num_returns=n_arrays + 1, scheduling_strategy=strategy)(_work)

    def finished(self, wait: bool) -> list[ray.ObjectRef]:
        """Raises the exception of a task, or Lost if Ray reports a failure or nothing at all."""
        if not self._running:
            return []
        if wait:
            self._wait_for_any()
        done, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0, fetch_local=False)
        for task in done:
            del self._running[task]
            self._seconds.append(_seconds_of(task))
            self.busy += self._seconds[-1]
        return done

    def _wait_for_any(self) -> None:
        began, patience = time.monotonic(), max(_SILENCE, 3 * max(self._seconds, default=0))
        done: list[ray.ObjectRef] = []
        while not done:
            # With fetch_local=False Ray does not touch the object store, whose death would end this process (see `session`).
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=_TICK, fetch_local=False)
            if not done and time.monotonic() > began + patience:
                n_alive = len(alive_nodes())
                # Before the first answer, other jobs may occupy the processors for any time, while the cluster answers.
                if self._seconds:
                    raise Lost(f"no task finished for {patience:.0f} s; {n_alive} nodes are alive")
                began = time.monotonic()


def _seconds_of(task: ray.ObjectRef) -> float:
    """Seconds that a finished task took. Raises its exception, or Lost."""
    try:
        return ray.get(task, timeout=_SILENCE)
    except RayError as failure:
        # A task whose input is lost fails as if it had raised the error itself.
        error = failure_of_ray(failure, "the object stores of the cluster and their disks are full")
        raise Lost(first_line(error)) from None


def _work(plugins: Shipment, threads: int, function: Callable, *arguments: Any) -> Any:
    """Run on a worker, after loading the plugins: return the arrays and the seconds that they took."""
    started = time.perf_counter()
    with pinned(threads):
        arrays = function(*arguments)
    seconds = time.perf_counter() - started
    return (*arrays, seconds) if arrays else seconds
