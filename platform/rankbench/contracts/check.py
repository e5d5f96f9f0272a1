"""A check: a sentence that holds for everything of its kind, and what to do where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankbench.core.errors import first_line
from rankbench.core.plugins import guarded


class BrokenError(Exception):
    """What was checked does not hold. The message has the values that show it."""


class NotCheckedError(Exception):
    """The check does not apply to this one, or this machine cannot run it. The message has the reason."""


@dataclass(frozen=True)
class Check:
    """`run(subject)` returns if `name` holds for a registered loss, method and so on, and raises BrokenError if it does not."""

    name: str
    advice: str
    run: Callable[[Any], None]


@dataclass(frozen=True)
class Finding:
    """The result of one check of one subject. `problem` is what was seen, or why it was skipped."""

    kind: str
    subject: str
    check: str
    state: Literal["passed", "failed", "skipped"]
    problem: str = ""
    advice: str = ""


class Contract:
    """The checks of one kind, in the order in which they are decorated with `check`."""

    def __init__(self, kind: str):
        self.kind = kind
        self.checks: list[Check] = []

    def check(self, name: str, advice: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        """Add the decorated function, whose sentence is `name`; `advice` says what to do if it fails."""

        def add(function: Callable[[Any], None]) -> Callable[[Any], None]:
            self.checks.append(Check(name, advice, function))
            return function

        return add

    def findings(self, name: str, subject: Any) -> list[Finding]:
        """Run every check on `subject`, which is registered as `name`. Whatever a check raises is a finding."""
        return [self._finding(name, subject, check) for check in self.checks]

    def _finding(self, name: str, subject: Any, check: Check) -> Finding:
        try:
            with guarded(name):
                check.run(subject)
        except NotCheckedError as reason:
            return Finding(self.kind, name, check.name, "skipped", str(reason))
        except BrokenError as error:
            return Finding(self.kind, name, check.name, "failed", str(error), check.advice)
        except Exception as error:  # the subject is foreign code
            problem = f"{type(error).__name__}: {first_line(error)}"
            return Finding(self.kind, name, check.name, "failed", problem, check.advice)
        return Finding(self.kind, name, check.name, "passed")


def expect(holds: bool, problem: str) -> None:
    """Raise BrokenError(problem) unless `holds`."""
    if not holds:
        raise BrokenError(problem)


def expect_equal(found: Any, expected: Any, what: str, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise BrokenError, with the largest difference, unless two arrays are equal; NaN equals nothing."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    expect(found.shape == expected.shape, f"{what}: the shapes are {found.shape} and {expected.shape}")
    close = np.abs(found - expected) <= atol + rtol * np.abs(expected)  # never for NaN
    if not close.all():
        differences = np.where(close, 0.0, np.nan_to_num(np.abs(found - expected), nan=np.inf))
        at = np.unravel_index(np.argmax(differences), differences.shape)
        raise BrokenError(f"{what}: {found[at]:.6g} and {expected[at]:.6g} differ")


def expect_finite(values: Any, what: str) -> None:
    """Raise BrokenError, with the first value that is not finite, unless all are."""
    values = np.asarray(values)
    broken = values[~np.isfinite(values)]
    expect(not len(broken), f"{what}: {len(broken)} of {values.size} values are not finite, the first is {broken[:1]}")
