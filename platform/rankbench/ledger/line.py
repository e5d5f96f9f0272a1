"""What the lines of a ledger have in common, and what the lines of measured fits share, whoever asked for the fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import ConfigDict

from rankbench.tracking.record import Measured, RunRecord

PACKAGES = ("torch", "numpy", "scipy", "numba")  # whose versions can change a result


class Line(ABC):
    """A line of a file, which is about one dataset."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    dataset: str

    @property
    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """What the line is about. No two lines of a file have the same key, and they are in its order."""

    def replaces(self, other: Self) -> bool:
        """Whether this line comes in place of another one."""
        return self.key == other.key

    def yields_to(self, other: Self) -> bool:
        """Whether this line is dropped because of another one that it would replace."""
        return False

    def content(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What is written of the line, whose `fields` are given as JSON values."""
        return fields


@dataclass(frozen=True, kw_only=True)
class MeasuredFit(Line):
    """A setting of a method that was fitted, with one seed or several, and measured on test.

    `card`: key of the content of the dataset's card. `fingerprint`: that of the prepared data. `metrics`: means over users with
    95 % intervals. `users`: number of users, by kind. `iterations`: those of the fit, if it has any. `seconds`: by phase.
    """

    dataset: str
    card: str
    fingerprint: str = ""
    method: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    iterations: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_gb: float = 0.0
    threads: int = 0
    cpu: str = ""
    revision: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    started_at: str = ""

    def measured(self, metric: str) -> Measured:
        return Measured(*self.metrics[metric])


def measured_in(record: RunRecord) -> dict[str, Any]:
    """Return the fields of a MeasuredFit that the record of a finished run has, but for method and parameters."""
    return {
        "fingerprint": record.dataset.fingerprint,
        "metrics": {name: (each.mean, each.low, each.high) for name, each in record.metrics.items()},
        "users": record.users,
        "iterations": record.iterations,
        "seconds": record.seconds,
        "peak_memory_gb": record.peak_memory_bytes / 1e9,
        "threads": record.threads,
        "started_at": record.started_at,
        **origin(record.environment),
    }


def origin(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a MeasuredFit that say where it was measured, from what `describe_environment` returns."""
    packages = environment.get("packages", {})
    return {
        "cpu": str(environment.get("machine", {}).get("cpu", "")),
        "revision": environment.get("revision"),
        "versions": {name: packages[name] for name in PACKAGES if packages.get(name)},
    }
