"""Arrays that stay on the hosts of a Ray cluster, changed by tasks that depend on each other: `mapping.Flow`.

Ray could make a lost array again from its lineage, but of a factorisation that is everything that came before: so no task is
tried again here, and the caller begins again from what it saved.

Import this inside `cluster.session.session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError

from rankbench.cluster.alive_nodes import alive_nodes
from rankbench.core.errors import StorageError
from rankbench.fitting.executors import Lost

FUSED = 4  # changes of an array in one task, which copies it once
_TICK = 1.0  # seconds between looks at the clock
_SILENCE = 60.0  # seconds, or three times the longest task, without an answer: more than Ray takes to find a host dead


class Owner(Protocol):
    """What a flow takes from its RayMap."""

    @property
    def workers(self) -> int: ...

    def put(self, value: Any) -> ray.ObjectRef: ...


class RayFlow:
    """The arrays of one computation. Two tasks a processor are under way at most. `n_tasks` so far, and `n_read`, how many
    arrays they read besides those that they change.
    """

    def __init__(self, owner: Owner):
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
        made = self._submit(len(names), _make, function, *arguments)
        self._arrays |= dict(zip(names, made, strict=True))

    def change(self, name: Hashable, function: Callable, reads: Sequence[Hashable]) -> None:
        for other in reads:
            self._settle(other)
        waiting = self._waiting.setdefault(name, [])
        waiting.append((function, [self._arrays[other] for other in reads]))
        if len(waiting) == FUSED:
            self._settle(name)

    def use(self, name: Hashable, function: Callable, *arguments: Any) -> ray.ObjectRef:
        self._settle(name)
        self._submit(0, _use, function, self._arrays[name], *arguments)
        return next(reversed(self._running))

    def wait(self, tickets: Iterable[ray.ObjectRef]) -> None:
        while any(ticket in self._running for ticket in tickets):
            self._land()

    def forget(self, names: Iterable[Hashable]) -> None:
        for name in names:
            del self._arrays[name]

    def clear(self) -> None:
        for task in self._running:
            if ray.is_initialized():
                with suppress(RayError, ValueError):
                    ray.cancel(task)
        self._running, self._arrays, self._waiting = {}, {}, {}

    def _settle(self, name: Hashable) -> None:
        """Hand out the changes of `name` that were held back."""
        if steps := self._waiting.pop(name, None):
            plan = [(function, len(reads)) for function, reads in steps]
            reads = [each for _, mine in steps for each in mine]
            self.n_read += len(reads)
            (self._arrays[name],) = self._submit(1, _change, plan, self._arrays[name], *reads)

    def _submit(self, n_arrays: int, function: Callable, *arguments: Any) -> list[ray.ObjectRef]:
        while len(self._running) >= 2 * self.workers:
            self._land()
        # What a task gives beside its arrays is small, so that asking after it moves none of them.
        *arrays, done = _listed(self._task.options(num_returns=n_arrays + 1).remote(function, *arguments))
        self._running[done] = None
        self.n_tasks += 1
        return arrays

    def _land(self) -> None:
        """Until a task is done. Raises what it raised, and Lost for what Ray says or does not say."""
        began, patience = time.monotonic(), max(_SILENCE, 3 * max(self._seconds, default=0))
        done: list[ray.ObjectRef] = []
        while not done:
            # Without fetch_local Ray does not touch the object store: see `session`, which would not survive its death.
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=_TICK, fetch_local=False)
            if not done and time.monotonic() > began + patience:
                living = len(alive_nodes())
                # Until the first answer others may have the processors, as long as they like, while the cluster answers.
                if self._seconds:
                    raise Lost(f"nothing came back for {patience:.0f} s, {living} nodes are up")
                began = time.monotonic()
        done, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0, fetch_local=False)
        for task in done:
            del self._running[task]
            try:
                self._seconds.append(ray.get(task, timeout=_SILENCE))
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise StorageError(f"the object stores of the cluster and their disks are full: {_one_line(error)}") from None
            except RayTaskError as error:
                # A task whose input is gone fails as if it had raised that itself.
                if isinstance(error.cause, RayError):
                    raise Lost(_one_line(error.cause)) from None
                raise error.cause from error
            except RayError as error:
                raise Lost(_one_line(error)) from None


def _listed(returned: Any) -> list[ray.ObjectRef]:
    return returned if isinstance(returned, list) else [returned]


def _work(function: Callable, *arguments: Any) -> Any:
    """What a worker does: the arrays, and the seconds they took."""
    started = time.perf_counter()
    with one_thread():
        arrays = function(*arguments)
    seconds = time.perf_counter() - started
    return (*arrays, seconds) if arrays else seconds


def _make(function: Callable, *arguments: Any) -> list:
    return function(*arguments)


def _change(plan: list[tuple[Callable, int]], array: Any, *reads: Any) -> list:
    array, others = array.copy(order="K"), iter(reads)
    for function, n in plan:
        function(array, *(next(others) for _ in range(n)))
    return [array]


def _use(function: Callable, array: Any, *arguments: Any) -> list:
    function(array, *arguments)
    return []


@contextmanager
def one_thread() -> Iterator[None]:
    """A task has one processor. As `threads.pinned(1)`, without the seconds that importing torch costs a new worker."""
    import numba
    from threadpoolctl import threadpool_limits

    before = numba.get_num_threads()
    with threadpool_limits(1):
        numba.set_num_threads(1)
        try:
            yield
        finally:
            numba.set_num_threads(before)


def _one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
