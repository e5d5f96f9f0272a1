"""The milestones of a race, in seconds of its clock: 10, 30, 100, 300, and so on."""

from __future__ import annotations

from itertools import takewhile

from rankbench.core.durations import seconds_of
from rankbench.core.errors import require

LEAST = 1.0  # seconds: below, the clock of the first iterations decides
USUAL = tuple(float(10**power * digit) for power in range(1, 7) for digit in (1, 3))


def budget_of(text: str, source: str) -> float:
    """Return the seconds of a budget such as 30s or 2m. Raises ConfigError, starting with `source`."""
    seconds = seconds_of(text, source)
    require(seconds >= LEAST, f"{source}: {text} is too short; give at least {LEAST:g}s")
    return seconds


def milestones(budget: float) -> tuple[float, ...]:
    """Return the milestones of a race within a budget, which is the last of them."""
    return *takewhile(lambda seconds: seconds < budget, USUAL), budget


def before(milestone: float) -> float:
    """Return the milestone before this one, 0 if there is none."""
    return (0.0, *milestones(milestone))[-2]


def name_of(milestone: float) -> str:
    """Return how a milestone is called in the store."""
    return f"{milestone:.10g}s"
