"""`executors.BlockMap` on a Ray cluster, with deadlines for workers, nodes and networks that fail.

Ray itself restarts the task of a dead worker, but waits forever for a node that hangs. Here every wait has a bound: a late
block is submitted again and its first answer counts, and a cluster that returns nothing raises an error. `session` detects the
death of the driver's own Ray node and of the head node.

No task is cancelled: Ray (2.60) aborts the driver if a task ends while `ray.cancel` is called on it. What is in flight when a
call ends early, at most two blocks per processor, runs to its end.

Import this inside `cluster.session.session`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from statistics import median
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayError

from rankbench.cluster.alive_nodes import alive_nodes, object_store_bytes
from rankbench.cluster.failures import FULL, failure_of_ray
from rankbench.cluster.ray_pool import RayPool
from rankbench.cluster.share import Share, WholeCluster
from rankbench.core.errors import ClusterError, StorageError, first_line
from rankbench.core.plugins import Shipment
from rankbench.core.threads import pinned
from rankbench.fitting.flow import Flow

_TRIES = 3  # how often a late block is submitted again
_WARY = 60.0  # seconds after a late block during which the next one is submitted again sooner
_TICK = 1.0  # seconds between checks of the clock
_ALWAYS_FITS = 75 << 20  # bytes: Ray makes no object store smaller than this


class RayMap:
    """Maps blocks over a `share` of the cluster, by default all of it, with one processor for each block.

    The blocks in flight are late if none has finished for `patience` seconds or five times the median block, whichever is
    more. The limit is a quarter of `patience` after a late block, and three times `patience` before the first block of a
    function, which includes imports and compilation. If no block finishes for `give_up` seconds or ten times the median
    block, ClusterError is raised. `resubmitted` counts the blocks submitted again.
    """

    def __init__(self, patience: float = 8.0, give_up: float = 40.0, share: Share | None = None):
        self.patience, self.give_up = patience, give_up
        self.share: Share = share or WholeCluster()
        self.resubmitted = 0
        self._wary_until = 0.0
        self._task = ray.remote(num_cpus=1, max_retries=3, retry_exceptions=False)(_solve)
        self._typical: dict[Callable, float] = {}  # function → median seconds of its blocks in the last call

    @property
    def workers(self) -> int:
        """Number of processors of the share."""
        return self.share.cpus

    def put(self, value: Any) -> ray.ObjectRef:
        """Share `value` with all tasks.

        Raises StorageError if it is larger than all object stores together, or if their disk is full.
        """
        size = _size(value)
        if size > _ALWAYS_FITS and size > (room := object_store_bytes()):
            raise StorageError(
                f"{size >> 20} MiB of shared data do not fit into the object stores of the cluster, {room >> 20} MiB in total; "
                "start its nodes with a larger --object-store-memory"
            )
        try:
            return ray.put(value)
        except FULL as error:
            raise StorageError(
                f"{size >> 20} MiB of shared data do not fit into the object store: {first_line(error)}"
            ) from None

    def map(self, function: Callable, blocks: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield (index, answer) as `BlockMap.map` does; arrays in an answer are read-only.

        Raises ClusterError if the workers of a block die repeatedly or the cluster fails, and StorageError if the disk of
        an object store is full or Ray ends a block for want of memory.
        """
        flight = _Flight(self, function, blocks, [self.handle(value) for value in shared])
        bound = 2 * self.workers
        remaining, seconds = iter(range(len(blocks))), []
        progress = waiting_since = time.monotonic()
        try:
            while True:
                for index in islice(remaining, bound - len(flight.attempts)):
                    flight.submit(index)
                if not flight.attempts:
                    return
                for index, took, answer in flight.finished():
                    seconds.append(took)
                    yield index, answer
                    progress = waiting_since = time.monotonic()  # the caller's own time does not count
                now = time.monotonic()
                if now - waiting_since > self._late(median(seconds) if seconds else self._typical.get(function), now):
                    flight.submit_again(flight.attempts)
                    waiting_since, self._wary_until = now, now + _WARY
                if now - progress > max(self.give_up, 10 * median(seconds or [0])):
                    n_alive = len(alive_nodes())
                    # The first block of a call may take any time, while the cluster answers.
                    if seconds:
                        raise ClusterError(
                            f"no block finished for {now - progress:.0f} s: {len(flight.attempts)} of {len(blocks)} are in "
                            f"flight, the first is block {min(flight.attempts)}; {n_alive} nodes are alive; --resume continues"
                        )
        finally:
            if seconds:
                self._typical[function] = median(seconds)

    def handle(self, value: Any) -> ray.ObjectRef:
        """An object reference to `value`; `value` itself if it is one."""
        return value if isinstance(value, ray.ObjectRef) else self.put(value)

    def flow(self) -> Flow:
        return Flow(RayPool(self.share, self.put))

    def _late(self, typical: float | None, now: float) -> float:
        if typical is None:
            return 3 * self.patience
        # A node that hangs counts as alive for some more seconds, and is still assigned blocks.
        return max(self.patience / 4 if now < self._wary_until else self.patience, 5 * typical)


class _Flight:
    """The blocks of a call that are in flight. `attempts`: block → its tasks, of which a late block has several."""

    def __init__(self, owner: RayMap, function: Callable, blocks: Sequence[Any], shared: list[ray.ObjectRef]):
        self._owner, self._function, self._blocks, self._shared = owner, function, blocks, shared
        self._handles: dict[int, ray.ObjectRef] = {}
        self._again: Counter[int] = Counter()
        self.attempts: dict[int, list[ray.ObjectRef]] = {}

    def submit(self, index: int) -> None:
        if index not in self._handles:
            self._handles[index] = self._owner.handle(self._blocks[index])
        task = self._owner._task
        if self._again[index]:
            task = task.options(scheduling_strategy=self._owner.share.elsewhere(index, self._again[index]))
        self.attempts.setdefault(index, []).append(
            # The plugins that are loaded now come with each task, also to a worker that has run tasks before.
            task.remote(Shipment.of_this_process(), self._function, self._handles[index], *self._shared)
        )

    def submit_again(self, blocks: Iterable[int]) -> None:
        """Submit blocks again, those that have tries left."""
        self._owner.share.look()
        for index in blocks:
            if self._again[index] < _TRIES:
                self._again[index] += 1
                self._owner.resubmitted += 1
                self.submit(index)

    def finished(self) -> list[tuple[int, float, Any]]:
        """(block, its seconds, its answer) for each block that finishes within a tick."""
        block_of = {task: index for index, tasks in self.attempts.items() for task in tasks}
        tasks = list(block_of)
        # With fetch_local=False Ray does not touch the object store, whose death would end this process (see `session`).
        ray.wait(tasks, num_returns=1, timeout=_TICK, fetch_local=False)
        done, _ = ray.wait(tasks, num_returns=len(tasks), timeout=0, fetch_local=False)
        # A finished task may have its answer on a node that hangs; such an answer counts as late.
        ready, _ = ray.wait(done, num_returns=1, timeout=_TICK) if done else ([], [])
        answers = [(block_of[task], self._answer(block_of[task], task)) for task in ready]
        return [(index, *answer) for index, answer in answers if answer]

    def _answer(self, index: int, task: ray.ObjectRef) -> tuple[float, Any] | None:
        """Seconds and answer of a finished task; None if it was lost and another attempt is in flight."""
        try:
            answer = ray.get(task, timeout=self._owner.patience)
        except RayError as failure:
            error = failure_of_ray(failure, f"block {index} of {len(self._blocks)}")
            self.attempts[index].remove(task)
            if isinstance(error, GetTimeoutError):  # the answer was lost with its node, which is not the block's fault
                self.submit_again([index])
            if not self.attempts[index]:
                if isinstance(error, OutOfMemoryError):  # Ray has repeated it RAY_task_oom_retries times
                    raise StorageError(
                        f"block {index} of {len(self._blocks)} needs more memory than its node has ({first_line(error)}); "
                        "use nodes with more memory, and --resume continues"
                    ) from None
                raise ClusterError(
                    f"block {index} of {len(self._blocks)} was lost with its worker {_TRIES + 1} times "
                    f"({type(error).__name__}: {first_line(error)}); --resume continues"
                ) from None
            return None
        del self.attempts[index], self._handles[index]
        return answer


def _solve(plugins: Shipment, function: Callable, block: Any, *shared: Any) -> tuple[float, Any]:
    """Run on a worker: return (seconds, answer). Arguments are unpickled in their order, so the plugins are loaded first."""
    started = time.perf_counter()
    with pinned(1):
        answer = function(block, *shared)
    return time.perf_counter() - started, answer


def _size(value: Any) -> int:
    """Serialised size of `value` in bytes, computed without copying its arrays."""
    outside: list = []
    inside = cloudpickle.dumps(value, protocol=5, buffer_callback=outside.append)
    return len(inside) + sum(buffer.raw().nbytes for buffer in outside)
