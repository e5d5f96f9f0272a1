"""What a budget of time is enough for: which tasks end, which fits go on in later calls, and what is not begun."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rankbench.reproduce.schedule import Task, in_time, next_batch, slots

NAMED = 3  # tasks of a kind that a line names


@dataclass(frozen=True)
class Forecast:
    """What becomes of tasks in `seconds` on `cpus` processors, by their estimates. `takes`: until the last of them ends, or the
    budget does. `goes_on`: with the seconds that each of them needs in later calls.
    """

    seconds: float
    cpus: int
    takes: float
    ends: list[Task] = field(default_factory=list)
    goes_on: list[tuple[Task, float]] = field(default_factory=list)
    not_begun: list[Task] = field(default_factory=list)

    def of(self, task: Task) -> Literal["ends", "goes on", "not begun"]:
        if any(task is each for each in self.ends):
            return "ends"
        return "goes on" if any(task is each for each, _ in self.goes_on) else "not begun"

    def lines(self) -> list[str]:
        """Say it in a few lines."""
        searches = sum(task.searched is not None for task in self.ends)
        then = f"; what {searches} of them choose is fitted after that" if searches else ""
        longest = sorted(self.ends, key=lambda task: -task.seconds)
        on = f"on {self.cpus} {'processor' if self.cpus == 1 else 'processors'}"
        about = f"to the end in about {rough(self.takes)} {on}: {_number(self.ends)}{_named(longest, 'the longest')}{then}"
        lines = [about] if self.ends else ["no task ends"]
        for task, left in self.goes_on:
            more = math.ceil(left / self.seconds)
            done = f" (begun: {task.begun.iterations:,} iterations are done)" if task.begun else ""
            lines.append(
                f"not to the end: {_name(task)}{done} needs about {rough(left)} more; the same command continues it, in "
                f"{more} more {'call' if more == 1 else 'calls'} of {rough(self.seconds)}"
            )
        if self.not_begun:
            shortest = sorted(self.not_begun, key=lambda task: task.seconds)
            lines.append(f"not begun: {_number(self.not_begun)}{_named(shortest, 'the shortest')}")
        return lines


def forecast(tasks: Sequence[Task], seconds: float | None, cpus: int, gpus: int = 1) -> Forecast:
    """Follow `run_within_budget` by the estimates of the tasks. What a search will choose is not known, and not in it."""
    budget = math.inf if seconds is None else seconds
    found = Forecast(budget, cpus, 0.0)
    queue, late, passed = [*tasks], list[Task](), 0.0
    while queue and passed < budget:
        left = budget - passed
        batch = next_batch(queue, left)
        queue = [task for task in queue if not any(task is other for other in batch)]
        running, too_long, took = in_time(batch, left, cpus, gpus)
        late += too_long
        for task in running:
            if task.begun and task.seconds > left:
                found.goes_on.append((task, task.seconds - left))
            else:
                found.ends.append(task)
        passed += took
    left = budget - passed
    shortest = sorted((task for task in late if task.unit is not None), key=lambda task: task.seconds)
    begin = shortest[: slots(shortest, cpus, gpus)] if left > 0 else []
    found.goes_on.extend((task, max(task.seconds - left, 0.0)) for task in begin)
    found.not_begun.extend(task for task in (*late, *queue) if not any(task is each for each in begin))
    return replace(found, takes=passed)


def rough(seconds: float) -> str:
    """A duration as precise as an estimate."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            digits = 1 if seconds < 10 * length else 0
            return f"{seconds / length:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def _number(tasks: Sequence[Task]) -> str:
    return f"{len(tasks):,} {'task' if len(tasks) == 1 else 'tasks'}"


def _name(task: Task) -> str:
    seed = f", seed {task.fits[0].seed}" if task.fits else ""
    return f"{'search of ' if task.searched else ''}{task.labels} on {task.dataset}{seed}"


def _named(tasks: Sequence[Task], which: str) -> str:
    shown = "; ".join(f"{_name(task)} ({rough(task.seconds)})" for task in tasks[:NAMED] if task.seconds)
    return f", {which if len(tasks) > 1 else 'that is'} {shown}" if shown else ""
