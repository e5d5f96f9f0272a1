"""Objects on a cluster whose methods are called one after another, each within a limit of seconds.

An object that is late is ended with its process, because compiled code cannot be interrupted. A process stays for the next
object if that needs about as much memory, so that imports are paid once.

Import this inside `cluster.session.session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import RayError, RayTaskError

from rankbench.core.errors import ClusterError, first_line
from rankbench.core.plugins import Shipment, guarded

_TICK = 0.1  # seconds between checks of the clock


@dataclass(frozen=True)
class Work:
    """`make(*arguments)` creates the object. `calls`: names of its methods, in order, with the seconds that each may take.
    `memory`: bytes that are reserved for it.
    """

    make: Callable[..., Any]
    arguments: tuple[Any, ...]
    calls: tuple[tuple[str, float], ...]
    memory: int


@dataclass(frozen=True)
class Ending:
    """How a work ended: with the `answer` of its last method, `late` in the method `at`, with an `error` of its own, or because
    its process was `lost`; the last three say why.
    """

    kind: Literal["answer", "late", "error", "lost"]
    answer: Any = None
    at: str = ""
    error: BaseException | None = None


class _Host:
    """The process of a slot."""

    def __init__(self, plugins: Shipment):
        self.made: Any = None

    def begin(self, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        with guarded("begin"):
            self.made = make(*arguments)

    def call(self, method: str, last: bool) -> Any:
        with guarded(method):
            answer = getattr(self.made, method)()
        if last:
            self.made = None
        return answer


class _Slot:
    """A process for one work at a time, with the processors and the memory that it reserves."""

    def __init__(self, cpus: int):
        self.cpus, self.memory, self.actor = cpus, 0, None
        self.number: int | None = None  # of the work
        self.calls: list[tuple[str, float]] = []

    @property
    def busy(self) -> bool:
        return self.number is not None

    def begin(self, number: int, work: Work) -> None:
        """Start a work. Its process may have to wait until others release their memory, which is not limited."""
        if self.actor is None or not self.memory / 2 <= work.memory <= self.memory:
            self.end()
            host = ray.remote(num_cpus=self.cpus, memory=work.memory, max_restarts=0, max_task_retries=0)(_Host)
            self.actor, self.memory = host.remote(Shipment.of_this_process()), work.memory
        self.number, self.calls = number, [("begin", float("inf")), *work.calls]
        self.reply = self.actor.begin.remote(work.make, work.arguments)
        self.begun = time.monotonic()

    def ending(self) -> Ending | None:
        """Return how the work ended, None as long as it has not. Makes its next call if one has returned."""
        method, limit = self.calls[0]
        if not ray.wait([self.reply], timeout=0)[0]:
            if time.monotonic() - self.begun <= limit:
                return None
            self.end()
            late = f"{method.replace('_', '-')} had not ended after {limit:,.0f} s"
            return Ending("late", at=method, error=TimeoutError(late))
        try:
            answer = ray.get(self.reply)
        except RayTaskError as error:
            return Ending("error", at=method, error=error.cause)
        except RayError as error:
            self.end()
            return Ending("lost", at=method, error=error)
        self.calls = self.calls[1:]
        if not self.calls:
            return Ending("answer", answer)
        self.reply = self.actor.call.remote(self.calls[0][0], len(self.calls) == 1)
        self.begun = time.monotonic()
        return None

    def end(self) -> None:
        if self.actor is not None:
            ray.kill(self.actor)
            self.actor, self.memory = None, 0


def run_timed(works: Iterable[Work], cpus: int, n_slots: int) -> Iterator[tuple[int, Ending]]:
    """Run `works`, `n_slots` of them at once with `cpus` processors each, and yield the number and ending of each as it ends.
    The next one is asked for when a slot is free.

    Raises ClusterError if the cluster itself fails.
    """
    slots = [_Slot(cpus) for _ in range(n_slots)]
    waiting = enumerate(works)
    try:
        while True:
            for slot in slots:
                if not slot.busy and (following := next(waiting, None)):
                    slot.begin(*following)
            busy = [slot for slot in slots if slot.busy]
            if not busy:
                return
            ray.wait([slot.reply for slot in busy], num_returns=1, timeout=_TICK)
            for slot in busy:
                if (ending := slot.ending()) is not None:
                    number, slot.number = slot.number, None
                    assert number is not None
                    yield number, ending
    except RayError as error:
        raise ClusterError(f"the cluster failed: {first_line(error)}") from None
    finally:
        for slot in slots:
            slot.end()
