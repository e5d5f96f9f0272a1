"""`executors.Flow` on a Ray cluster: arrays that stay on the hosts, changed by tasks that depend on each other.

Ray could reconstruct a lost array from its lineage, but for a factorisation that means repeating all earlier tasks. Therefore
no task is retried here, and the caller restarts from what it has saved. Nor are tasks cancelled (see `ray_map`).

Import this inside `cluster.session.session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError

from rankbench.cluster.alive_nodes import alive_nodes
from rankbench.core.errors import StorageError, first_line
from rankbench.core.plugins import Shipment
from rankbench.core.threads import pinned
from rankbench.fitting.executors import Lost

if TYPE_CHECKING:
    from rankbench.cluster.ray_map import RayMap

FUSED = 4  # maximum number of changes of an array in one task, which copies it once
_TICK = 1.0  # seconds between checks of the clock
_SILENCE = 60.0  # seconds without an answer (or three times the longest task); Ray detects a dead host sooner


class RayFlow:
    """The arrays of one computation, with at most two tasks per processor in flight.

    `n_tasks` counts the tasks so far, and `n_read` the arrays that they read besides those that they change.
    """

    def __init__(self, owner: RayMap):
        self.owner = owner
        self.workers = owner.workers
        self._task = ray.remote(num_cpus=1, max_retries=0)(_work)
        self._arrays: dict[Hashable, ray.ObjectRef] = {}
        self._waiting: dict[Hashable, list[tuple[Callable, list[ray.ObjectRef]]]] = {}
        self._running: dict[ray.ObjectRef, None] = {}
        self._seconds: list[float] = []
        self.n_tasks = 0
        self.n_read = 0

    @property
    def busy(self) -> float:
        """Seconds that finished tasks took on their workers."""
        return sum(self._seconds)

    @property
    def room(self) -> int:
        return int(ray.cluster_resources().get("object_store_memory", 0))

    def put(self, value: Any) -> ray.ObjectRef:
        return self.owner.put(value)

    def make(self, names: Sequence[Hashable], function: Callable, *arguments: Any) -> None:
        made = self._submit(len(names), function, *arguments)
        self._arrays |= dict(zip(names, made, strict=True))

    def change(self, name: Hashable, function: Callable, reads: Sequence[Hashable]) -> None:
        for other in reads:
            self._submit_changes(other)
        waiting = self._waiting.setdefault(name, [])
        waiting.append((function, [self._arrays[other] for other in reads]))
        if len(waiting) == FUSED:
            self._submit_changes(name)

    def use(self, name: Hashable, function: Callable, *arguments: Any) -> ray.ObjectRef:
        self._submit_changes(name)
        self._submit(0, _use, function, self._arrays[name], *arguments)
        return next(reversed(self._running))

    def wait(self, tickets: Iterable[ray.ObjectRef]) -> None:
        while any(ticket in self._running for ticket in tickets):
            self._wait_for_any()

    def forget(self, names: Iterable[Hashable]) -> None:
        for name in names:
            del self._arrays[name]

    def clear(self) -> None:
        self._running, self._arrays, self._waiting = {}, {}, {}

    def _submit_changes(self, name: Hashable) -> None:
        """Submit the postponed changes of `name`."""
        if steps := self._waiting.pop(name, None):
            plan = [(function, len(reads)) for function, reads in steps]
            reads = [array for _, arrays in steps for array in arrays]
            self.n_read += len(reads)
            (self._arrays[name],) = self._submit(1, _change, plan, self._arrays[name], *reads)

    def _submit(self, n_arrays: int, function: Callable, *arguments: Any) -> list[ray.ObjectRef]:
        while len(self._running) >= 2 * self.workers:
            self._wait_for_any()
        # The last result of a task is small, so that waiting for it moves no array.
        *arrays, done = _listed(self._task.options(num_returns=n_arrays + 1).remote(self.owner.plugins, function, *arguments))
        self._running[done] = None
        self.n_tasks += 1
        return arrays

    def _wait_for_any(self) -> None:
        """Wait until a task has finished. Raises its exception, or Lost if Ray reports a failure or nothing at all."""
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
        done, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0, fetch_local=False)
        for task in done:
            del self._running[task]
            try:
                self._seconds.append(ray.get(task, timeout=_SILENCE))
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise StorageError(f"the object stores of the cluster and their disks are full: {first_line(error)}") from None
            except RayTaskError as error:
                # A task whose input is lost fails as if it had raised the error itself.
                if isinstance(error.cause, RayError):
                    raise Lost(first_line(error.cause)) from None
                raise error.cause from error
            except RayError as error:
                raise Lost(first_line(error)) from None


def _listed(returned: Any) -> list[ray.ObjectRef]:
    return returned if isinstance(returned, list) else [returned]


def _work(plugins: Shipment, function: Callable, *arguments: Any) -> Any:
    """Run on a worker, after loading the plugins: return the arrays and the seconds that they took."""
    started = time.perf_counter()
    with pinned(1):
        arrays = function(*arguments)
    seconds = time.perf_counter() - started
    return (*arrays, seconds) if arrays else seconds


def _change(plan: list[tuple[Callable, int]], array: Any, *reads: Any) -> list:
    array, others = array.copy(order="K"), iter(reads)
    for function, n in plan:
        function(array, *(next(others) for _ in range(n)))
    return [array]


def _use(function: Callable, array: Any, *arguments: Any) -> list:
    function(array, *arguments)
    return []
