"""Named arrays that are stored where the work is done, and functions that make and change them.

A flow decides who computes what, and when, by list scheduling. Each array has a home, the node that computes all its changes. A
change is handed to its node once the arrays that it reads exist, the earliest arrays first, and at most QUEUE tasks per slot at
a time, so that a node fetches the inputs of its next task while it computes. Changes of one array that have become ready
meanwhile go into one task, which copies the array once; their order is that of the calls, so results do not depend on the nodes
or on the order in which tasks finish.

A pool does the work: `cluster.ray_pool` on Ray, `simulated_pool` on paper, and the tests in this process.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import numpy as np

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import each, slices

COMBINED = 8  # most changes of an array in one task: more would delay those that wait for them
QUEUE = 2  # tasks per slot that a node has been handed, of which one runs
ASIDE = 8  # tasks that are passed over for a later one with more changes
SMALL = 1 << 20  # bytes of an array that one thread copies
WRITERS = 2  # tasks per node that only use an array, beside those that compute
THREADS = 4  # processors of a task, on nodes of at least twice as many: fewer tasks, and shorter waits for one array


class Lost(Exception):
    """Arrays of a flow, or workers of a fit, were lost with the process or host that held them."""


def threads_per_task(cpus: int) -> int:
    """Number of threads of a task on nodes with `cpus` processors."""
    return THREADS if cpus >= 2 * THREADS else 1


class Pool(Protocol):
    """Nodes that run tasks. `slots`: number of tasks that each node runs at a time; `threads`: of a task; `room`: bytes of all
    arrays together.

    Arrays are handles, whose contents are freed with their last reference.
    """

    slots: Sequence[int]
    threads: int
    room: int

    def put(self, value: Any) -> Any:
        """Send `value` to all nodes and return a handle, which stays valid after `clear`."""

    def start(
        self, node: int, n_arrays: int, computes: bool, function: Callable[..., Any], *arguments: Any
    ) -> tuple[Any, list[Any]]:
        """Start function(*arguments) on `node`. Returns a task and the handles of the `n_arrays` arrays that it returns.

        A task that does not compute, but reads or writes, needs no slot.
        """

    def finished(self, wait: bool) -> list[Any]:
        """The tasks that have finished since the last call; with `wait`, at least one. Raises their errors, and Lost."""

    def clear(self) -> None:
        """Forget all tasks, and find the nodes that are alive now."""


class Flow:
    """The arrays of one computation on a pool. `n_tasks` counts tasks.

    A call sees the arrays as earlier calls leave them. Work is done within `done` and `wait`, and the errors of functions are
    raised there. Both may raise Lost: then the state of all arrays is unknown, and the caller starts again with `clear` from
    what it has saved.
    """

    def __init__(self, pool: Pool):
        self.pool = pool
        self.n_tasks = 0
        self._reset()

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self._slots)

    @property
    def workers(self) -> int:
        """Number of tasks that all nodes run at a time."""
        return sum(self._slots)

    def make(self, names: Sequence[Hashable], function: Callable[..., Any], *arguments: Any, node: int = 0) -> None:
        """Store the list of arrays that function(*arguments) returns under `names`, on a node, which makes their changes."""
        arrays = [_Array(next(self._numbers), node, running=True) for _ in names]
        self._arrays.update(zip(names, arrays, strict=True))
        self._enqueue(_Task(arrays[0].number, node, arrays, function, arguments))

    def change(self, name: Hashable, function: Callable[..., Any], reads: Sequence[Hashable]) -> None:
        """Change the array called `name` in place by function(array, *others), where the others are the arrays of `reads`."""
        array = self._arrays[name]
        if array.read:
            array = self._arrays[name] = _Array(next(self._numbers), array.node, base=array)
        others = [self._arrays[other] for other in reads]
        for other in others:
            other.read = True
        array.changes.append((function, others))
        self._look_at(array)

    def use(self, name: Hashable, function: Callable[[Any], Any]) -> _Task:
        """Call function(array) for its side effect. Returns a ticket for `done` and `wait`."""
        array = self._arrays[name]
        array.read = True
        task = _Task(next(self._numbers), array.node, [], function, (), array)
        self._look_at(task)
        return task

    def done(self, tickets: Iterable[_Task]) -> bool:
        """Hand out work without waiting. Returns whether all tickets are done."""
        self._go_on(wait=False)
        return all(ticket.done for ticket in tickets)

    def wait(self, tickets: Iterable[_Task]) -> None:
        """Wait until all tickets are done."""
        self._go_on(wait=False)
        for ticket in tickets:
            while not ticket.done:
                self._go_on(wait=True)

    def forget(self, names: Iterable[Hashable]) -> None:
        """Free the arrays once all earlier calls are done."""
        for name in names:
            del self._arrays[name]

    def clear(self) -> None:
        """Forget all work and all arrays."""
        self.pool.clear()
        self._reset()

    def _reset(self) -> None:
        self._slots = list(self.pool.slots)
        self._arrays: dict[Hashable, _Array] = {}
        self._numbers: Iterator[int] = count()
        # Of each node: what waits for a slot, the earliest first, and how many tasks it was handed.
        self._waiting: list[list[tuple[int, _Array | _Task]]] = [[] for _ in self._slots]
        self._writing: list[list[tuple[int, _Task]]] = [[] for _ in self._slots]
        self._handed = [[0, 0] for _ in self._slots]
        self._stirred: set[int] = set()  # nodes that may be handed more
        self._running: dict[Any, tuple[_Array | _Task, list[Any]]] = {}

    def _look_at(self, item: _Array | _Task) -> None:
        """Enqueue what can be computed now; otherwise leave it with the first array that it waits for."""
        if isinstance(item, _Task):
            if item.array is not None and not item.array.ready:
                item.array.waiters.append(item)
            else:
                self._enqueue(item)
        elif item.changes and not item.running and not item.queued:
            missing = item.missing()
            if missing is None:
                item.queued = True
                self._enqueue(item)
            elif item.waits_for is not missing:
                item.waits_for = missing
                missing.waiters.append(item)

    def _enqueue(self, item: _Array | _Task) -> None:
        self._stirred.add(item.node)
        if isinstance(item, _Task) and item.array is not None:
            heapq.heappush(self._writing[item.node], (item.number, item))
        else:
            heapq.heappush(self._waiting[item.node], (item.number, item))

    def _go_on(self, wait: bool) -> None:
        """Hand out what can be computed; with `wait`, until a task has finished."""
        self._hand_out()
        finished = self.pool.finished(wait)
        for task in finished:
            self._finish(*self._running.pop(task))
        if finished:
            self._hand_out()

    def _hand_out(self) -> None:
        stirred, self._stirred = sorted(self._stirred), set()
        for node in stirred:
            n_slots, handed, waiting, writing = self._slots[node], self._handed[node], self._waiting[node], self._writing[node]
            aside: list[tuple[int, _Array | _Task]] = []
            while waiting and handed[0] < QUEUE * n_slots and len(aside) < ASIDE:
                entry = heapq.heappop(waiting)
                item = entry[1]
                # A task in advance copies an array for few changes, although it will have more by the time it begins.
                if handed[0] >= n_slots and isinstance(item, _Array) and not item.full():
                    aside.append(entry)
                    continue
                handed[0] += 1
                self._start(item)
            for entry in aside:
                heapq.heappush(waiting, entry)
            while writing and handed[1] < WRITERS:
                handed[1] += 1
                self._start(heapq.heappop(writing)[1])

    def _start(self, item: _Array | _Task) -> None:
        self.n_tasks += 1
        if isinstance(item, _Array):
            handle, item.queued, item.running = item.latest(), False, True
            changes = item.take()
            plan = [(function, len(reads)) for function, reads in changes]
            reads = [other.handle for _, others in changes for other in others]
            task, made = self.pool.start(item.node, 1, True, change, plan, handle, *reads)
        elif item.array is not None:
            task, made = self.pool.start(item.node, 0, False, use, item.function, item.array.handle)
        else:
            task, made = self.pool.start(item.node, len(item.made), True, item.function, *item.arguments)
        self._running[task] = item, made

    def _finish(self, item: _Array | _Task, made: list[Any]) -> None:
        writes = isinstance(item, _Task) and item.array is not None
        self._handed[item.node][writes] -= 1
        self._stirred.add(item.node)
        arrays = [item] if isinstance(item, _Array) else item.made
        for array, handle in zip(arrays, made, strict=True):
            array.handle, array.running, array.base = handle, False, None
            if array.changes:
                self._look_at(array)
            else:
                waiters, array.waiters = array.waiters, []
                for waiter in waiters:
                    if isinstance(waiter, _Array):
                        waiter.waits_for = None
                    self._look_at(waiter)
        if isinstance(item, _Task):
            item.done, item.array = True, None


@dataclass(eq=False, slots=True)
class _Array:
    """One state of a named array: `base`, or what made it, after `changes`. Once it is `read`, it gets no further changes."""

    number: int
    node: int
    base: _Array | None = None
    running: bool = False
    handle: Any = None
    changes: deque[tuple[Callable[..., Any], list[_Array]]] = field(default_factory=deque)
    waiters: list[_Array | _Task] = field(default_factory=list)
    waits_for: _Array | None = None
    read: bool = False
    queued: bool = False

    @property
    def ready(self) -> bool:
        return self.handle is not None and not self.changes and not self.running

    def latest(self) -> Any:
        return self.handle if self.base is None else self.base.handle

    def missing(self) -> _Array | None:
        """An array that the first change waits for."""
        if self.base is not None and not self.base.ready:
            return self.base
        return next((other for other in self.changes[0][1] if not other.ready), None)

    def full(self) -> bool:
        """Whether a task has all changes that it can have: COMBINED, or all that there are."""
        # Changes become ready in their order, apart from a few.
        _, others = self.changes[min(COMBINED, len(self.changes)) - 1]
        return all(other.ready for other in others)

    def take(self) -> list[tuple[Callable[..., Any], list[_Array]]]:
        """Remove the changes that can be computed now, at most COMBINED."""
        taken = [self.changes.popleft()]
        while self.changes and len(taken) < COMBINED and all(other.ready for other in self.changes[0][1]):
            taken.append(self.changes.popleft())
        return taken


@dataclass(eq=False, slots=True)
class _Task:
    """The function that makes arrays or uses one, `array`; the ticket of `use`."""

    number: int
    node: int
    made: list[_Array]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    array: _Array | None = None
    done: bool = False


def change(plan: Sequence[tuple[Callable[..., Any], int]], array: np.ndarray, *reads: Any) -> list[np.ndarray]:
    """A copy of `array` after the changes of `plan`: functions, and the number of `reads` that each takes."""
    array, others = _copied(array), iter(reads)
    for function, n in plan:
        function(array, *(next(others) for _ in range(n)))
    return [array]


def _copied(array: np.ndarray) -> np.ndarray:
    """A copy in the same order, by as many threads as numba has: large new arrays are mapped page by page."""
    copy = np.empty_like(array)
    # Blocks of whole columns or rows, whichever are contiguous.
    source, target = (array.T, copy.T) if array.flags.f_contiguous else (array, copy)
    step = -(-len(source) // numba.get_num_threads())
    parts = slices(0, len(source), step) if array.nbytes > SMALL else [slice(None)]
    each(lambda part: np.copyto(target[part], source[part]), parts)
    return copy


def use(function: Callable[[Any], Any], array: np.ndarray) -> list[np.ndarray]:
    """Call the function for its side effect."""
    function(array)
    return []
