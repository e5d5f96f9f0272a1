"""The pool of a `flow.Flow` on paper: it starts no task, but says when each would have finished on given hardware.

The rules, each with the constant of `Hardware` that it takes:

* The driver hands out one task after another, every `dispatch` seconds. A task reaches its node, and its end the driver, after
  `latency` seconds.
* An array that a task needs and its node lacks is sent over the wire once, from the node whose line is free first. A line
  carries `gigabits` in each direction. Sending and receiving take `wire` processor-seconds per byte, which the tasks of
  the node lack, and are no faster than Ray's threads can do it.
* A node runs as many tasks at a time as it has slots, in the order in which their arrays have arrived. A task takes
  `overhead` processor-seconds, and `copied` per byte of an array that it changes or makes; then its cost: `rate` operations per
  second and processor, in parts, so that five parts on four processors take as long as eight; `pairs` counted per second.
* Ray itself takes `background` of one processor of each node.
* Reading and writing files takes the node's line if `disk_on_wire`. Storage that is slower than the lines is not on the paper.
* A node keeps arrays in `store` of its `memory`. Copies from other nodes make room for new arrays, the oldest first.

Memory bandwidth that cores share, garbage collection, page faults and other jobs are not on the paper.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from rankbench.core.errors import StorageError
from rankbench.fitting.flow import change, threads_per_task, use


@dataclass(frozen=True)
class Cost:
    """What a function costs: its method `cost` tells it, called with the arguments of the function apart from arrays.

    Floating-point operations, which take as long as `work` of them in a matrix product, in `parts` equal parts that may run
    in parallel; pairs of items counted; bytes that are read or written on the disk that all nodes share; and bytes of each
    array that is made.
    """

    flops: float = 0.0
    work: float = 0.0
    parts: int = 1
    pairs: float = 0.0
    disk: float = 0.0
    array: float = 0.0


@dataclass(frozen=True)
class Hardware:
    """`nodes` equal nodes. Seconds are those of one processor at full speed; `speed` is the share of it that each has.

    The constants that Ray and Python decide are means of what `benchmarks/inverse_scale.py` measured on 1 and 4 hosts of 0.2 of
    an idle processor, with virtual lines that the processor itself has to carry.
    """

    nodes: int
    cores: int
    memory: float
    gigabits: float
    rate: float
    speed: float = 1.0
    background: float = 0.032
    dispatch: float = 0.31e-3
    latency: float = 1e-3
    overhead: float = 3.6e-3
    copied: float = 1.05e-9
    wire: float = 1.8e-9
    pairs: float = 5e8
    disk_on_wire: bool = True
    store: float = 0.3  # of the memory, as Ray's default for its object store

    @property
    def threads(self) -> int:
        """Threads of a task."""
        return threads_per_task(self.cores)

    @property
    def left(self) -> float:
        """Share of a processor that is left for tasks."""
        return self.speed - self.background / self.cores

    @property
    def bytes_per_second(self) -> float:
        """What a line carries, if Ray's threads, of which a node has a quarter of its processors, can send and receive it."""
        threads = min(self.cores, max(2, self.cores // 4), 8)
        return min(self.gigabits * 1e9 / 8, threads * self.left / self.wire)


@dataclass
class Node:
    """State of a node: when its lines are free, its tasks, and the arrays that it has."""

    free: int
    out: float = 0.0
    into: float = 0.0
    lost: float = 0.0  # processor-seconds that its tasks lack so far
    received: float = 0.0
    used: float = 0.0
    peak: float = 0.0


class SimulatedPool:
    """`now` is the time in seconds, `flops` and `sent` what has been computed and sent over the wire."""

    def __init__(self, hardware: Hardware):
        self.hardware = hardware
        self.slots: Sequence[int] = [hardware.cores // hardware.threads] * hardware.nodes
        self.threads = hardware.threads
        self.nodes = [Node(slots) for slots in self.slots]
        self.room = int(hardware.nodes * hardware.memory * hardware.store)
        self.now = self.flops = 0.0
        self._now_event = self._put = 0.0
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._known: list[int] = []
        self._queues: list[deque[Callable[[], None]]] = [deque() for _ in self.slots]
        self._copies: list[dict[int, _Held]] = [{} for _ in self.slots]

    @property
    def sent(self) -> float:
        return sum(node.received for node in self.nodes)

    def put(self, value: Any) -> Any:
        """`value`, which each node gets from the one before while it still arrives there."""
        self._put = self.now + value.n_bytes / self.hardware.bytes_per_second
        return value

    def clear(self) -> None:
        self._events, self._known = [], []

    def start(
        self, node: int, n_arrays: int, computes: bool, function: Callable[..., Any], *arguments: Any
    ) -> tuple[int, list[_Held]]:
        number = next(self._numbers)
        self.now += self.hardware.dispatch
        reads = [each for each in arguments if isinstance(each, _Held)]
        cost, n_bytes = _cost_of(function, arguments)
        in_slot = computes or self.hardware.threads == 1  # see `ray_pool`
        made = [_Held(self, node, n_bytes) for _ in range(n_arrays)]
        arrives = max([self._bring(read, node) for read in reads], default=self._put)

        def ready() -> None:
            if not in_slot:
                run()
            elif self.nodes[node].free:
                self.nodes[node].free -= 1
                run()
            else:
                self._queues[node].append(run)

        def run() -> None:
            self._at(self._now_event + self._seconds(node, cost, n_bytes * n_arrays), end)

        def end() -> None:
            for each in made:
                each.at[node] = self._now_event
            if in_slot and self._queues[node]:
                self._queues[node].popleft()()
            elif in_slot:
                self.nodes[node].free += 1
            self._at(self._now_event + self.hardware.latency, lambda: self._known.append(number))
            reads.clear()

        self._at(max(self.now + self.hardware.latency, arrives), ready)
        return number, made

    def finished(self, wait: bool) -> list[int]:
        while self._events and (self._events[0][0] <= self.now or (wait and not self._known)):
            self._now_event, _, happens = heapq.heappop(self._events)
            self.now = max(self.now, self._now_event)
            happens()
        known, self._known = self._known, []
        return known

    def _at(self, when: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happens))

    def _bring(self, array: _Held, to: int) -> float:
        """When `array` is on the node."""
        if to in array.at:
            return array.at[to]
        rate, nodes = self.hardware.bytes_per_second, self.nodes
        source = min(array.at, key=lambda node: max(array.at[node], nodes[node].out))
        seconds = array.n_bytes / rate
        begins = max(self.now + self.hardware.latency, array.at[source])
        nodes[source].out = max(nodes[source].out, begins) + seconds
        nodes[to].into = max(nodes[to].into, begins) + seconds
        nodes[to].received += array.n_bytes
        for node in (source, to):
            busy = 1 - nodes[node].free / self.slots[node]
            nodes[node].lost += busy * self.hardware.wire * array.n_bytes
        array.at[to] = max(nodes[source].out, nodes[to].into)
        self._hold(array, to)
        self._copies[to][id(array)] = array
        return array.at[to]

    def _seconds(self, node: int, cost: Cost, made: float) -> float:
        """Seconds of a task that begins now."""
        h, state = self.hardware, self.nodes[node]
        self.flops += cost.flops
        seconds = h.overhead + h.copied * made / h.threads
        if cost.work or cost.pairs:
            in_turn = -(-cost.parts // h.threads) / cost.parts
            seconds += in_turn * (cost.work / h.rate + cost.pairs / h.pairs)
            lost, state.lost = state.lost / h.threads, 0.0
            seconds += lost
        seconds /= h.left
        if cost.disk and h.disk_on_wire:
            state.out = max(state.out, self._now_event) + cost.disk / h.bytes_per_second
            seconds += state.out - self._now_event
        return seconds

    def _hold(self, array: _Held, node: int) -> None:
        state, room = self.nodes[node], self.hardware.memory * self.hardware.store
        state.used += array.n_bytes
        while state.used > room and self._copies[node]:
            _, oldest = next(iter(self._copies[node].items()))
            self._drop(oldest, node)
            del oldest.at[node]
        if state.used > room:
            raise StorageError(
                f"a node needs more than {room / 1e9:.1f} GB for tiles, {100 * self.hardware.store:.0f} % of its memory; "
                "take more nodes, or nodes with more memory"
            )
        state.peak = max(state.peak, state.used)

    def _drop(self, array: _Held, node: int) -> None:
        self.nodes[node].used -= array.n_bytes
        self._copies[node].pop(id(array), None)


class _Held:
    """An array on paper: from when on each node has it. It is freed when nothing refers to it."""

    __slots__ = ("at", "n_bytes", "pool")

    def __init__(self, pool: SimulatedPool, node: int, n_bytes: float):
        self.pool, self.n_bytes = pool, n_bytes
        self.at: dict[int, float] = {node: float("inf")}
        pool._hold(self, node)

    def __del__(self) -> None:
        for node in self.at:
            self.pool._drop(self, node)


def _cost_of(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Cost, float]:
    """The cost of a task, and the bytes of each array that it makes."""
    if function is change:
        plan, array = arguments[:2]
        costs = [each.cost() for each, _ in plan]
        flops, work = sum(cost.flops for cost in costs), sum(cost.work for cost in costs)
        return Cost(flops, work, min(cost.parts for cost in costs)), array.n_bytes
    if function is use:
        return arguments[0].cost(), 0.0
    cost = cast(Any, function).cost(*arguments)
    return cost, cost.array
