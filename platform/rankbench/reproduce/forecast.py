"""What a budget of time is enough for: which tasks end, which fits go on in later calls, and what is not begun."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rankbench.judge.printing import counted, duration
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
        return "ends" if task in self.ends else "not begun" if task in self.not_begun else "goes on"

    def lines(self) -> list[str]:
        """Say it in a few lines."""
        searches = sum(bool(task.searched) for task in self.ends)
        then = f"; what {searches} of them choose is fitted after that" if searches else ""
        longest = _some(sorted(self.ends, key=lambda task: -task.seconds), "the longest")
        about = f"to the end in about {duration(self.takes)} on {counted(self.cpus, 'processor')}: {longest}{then}"
        lines = [about] if self.ends else ["no task ends"]
        for task, left in self.goes_on:
            calls = counted(math.ceil(left / self.seconds), "more call")
            done = f" (begun: {task.begun.iterations:,} iterations are done)" if task.begun else ""
            lines.append(
                f"not to the end: {_name(task)}{done} needs about {duration(left)} more; the same command continues it, in "
                f"{calls} of {duration(self.seconds)}"
            )
        # A study has no checkpoint from which a later call would go on.
        never = [task for task in self.not_begun if task.study and task.seconds > self.seconds]
        if later := sorted((task for task in self.not_begun if task not in never), key=lambda task: task.seconds):
            lines.append(f"not begun: {_some(later, 'the shortest')}")
        if never:
            why = f"never begun in {duration(self.seconds)}, because a study runs in one call; give a larger --budget"
            lines.append(f"{why}: {_some(sorted(never, key=lambda task: -task.seconds), 'the longest')}")
        return lines


def forecast(tasks: Sequence[Task], seconds: float | None, cpus: int, gpus: int = 1) -> Forecast:
    """Follow `run_within_budget` by the estimates of the tasks. What a search will choose is not known, and not in it."""
    budget = math.inf if seconds is None else seconds
    queue, late, passed, ends, goes_on = [*tasks], list[Task](), 0.0, list[Task](), list[tuple[Task, float]]()
    while queue and passed < budget:
        left = budget - passed
        batch = next_batch(queue, left)
        queue = [task for task in queue if task not in batch]
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
    not_begun = [task for task in (*late, *queue) if task not in begin]
    return Forecast(budget, cpus, passed, ends, goes_on, not_begun)


def _name(task: Task) -> str:
    seed = f", seed {task.fits[0].seed}" if task.fits else ""
    return f"{'search of ' if task.searched else ''}{task.name} on {task.dataset}{seed}"


def _some(tasks: Sequence[Task], which: str) -> str:
    """Say how many tasks there are, and name the first few."""
    shown = "; ".join(f"{_name(task)} ({duration(task.seconds)})" for task in tasks[:NAMED] if task.seconds)
    return counted(len(tasks), "task") + (f", {which if len(tasks) > 1 else 'that is'} {shown}" if shown else "")
