"""What a budget of time is enough for: which tasks end, which fits go on in later calls, and what is not begun."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rankbench.judge.printing import counted
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
    ends: list[Task]
    goes_on: list[tuple[Task, float]]
    not_begun: list[Task]

    def of(self, task: Task) -> Literal["ends", "goes on", "not begun"]:
        if any(task is each for each in self.ends):
            return "ends"
        return "goes on" if any(task is each for each, _ in self.goes_on) else "not begun"

    def lines(self) -> list[str]:
        """Say it in a few lines."""
        searches = sum(bool(task.searched) for task in self.ends)
        then = f"; what {searches} of them choose is fitted after that" if searches else ""
        longest = sorted(self.ends, key=lambda task: -task.seconds)
        about = f"to the end in about {rough(self.takes)} on {counted(self.cpus, 'processor')}: {_some(longest, 'the longest')}"
        lines = [about + then] if self.ends else ["no task ends"]
        for task, left in self.goes_on:
            calls = counted(math.ceil(left / self.seconds), "more call")
            done = f" (begun: {task.begun.iterations:,} iterations are done)" if task.begun else ""
            lines.append(
                f"not to the end: {_name(task)}{done} needs about {rough(left)} more; the same command continues it, in "
                f"{calls} of {rough(self.seconds)}"
            )
        if self.not_begun:
            shortest = sorted(self.not_begun, key=lambda task: task.seconds)
            lines.append(f"not begun: {_some(shortest, 'the shortest')}")
        return lines


def forecast(tasks: Sequence[Task], seconds: float | None, cpus: int, gpus: int = 1) -> Forecast:
    """Follow `run_within_budget` by the estimates of the tasks. What a search will choose is not known, and not in it."""
    budget = math.inf if seconds is None else seconds
    queue, late, passed, ends, goes_on = [*tasks], list[Task](), 0.0, list[Task](), list[tuple[Task, float]]()
    while queue and passed < budget:
        left = budget - passed
        batch = next_batch(queue, left)
        queue = [task for task in queue if not any(task is other for other in batch)]
        running, too_long, took = in_time(batch, left, cpus, gpus)
        late += too_long
        for task in running:
            if task.begun and task.seconds > left:
                goes_on.append((task, task.seconds - left))
            else:
                ends.append(task)
        passed += took
    left = budget - passed
    shortest = sorted((task for task in late if task.unit is not None), key=lambda task: task.seconds)
    begin = shortest[: slots(shortest, cpus, gpus)] if left > 0 else []
    goes_on += [(task, max(task.seconds - left, 0.0)) for task in begin]
    not_begun = [task for task in (*late, *queue) if not any(task is each for each in begin)]
    return Forecast(budget, cpus, passed, ends, goes_on, not_begun)


def rough(seconds: float) -> str:
    """A duration as precise as an estimate."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            digits = 1 if seconds < 10 * length else 0
            return f"{seconds / length:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def _name(task: Task) -> str:
    seed = f", seed {task.fits[0].seed}" if task.fits else ""
    return f"{'search of ' if task.searched else ''}{task.labels} on {task.dataset}{seed}"


def _some(tasks: Sequence[Task], which: str) -> str:
    """Say how many tasks there are, and name the first few."""
    shown = "; ".join(f"{_name(task)} ({rough(task.seconds)})" for task in tasks[:NAMED] if task.seconds)
    return counted(len(tasks), "task") + (f", {which if len(tasks) > 1 else 'that is'} {shown}" if shown else "")
