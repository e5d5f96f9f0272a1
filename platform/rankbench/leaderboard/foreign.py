"""Foreign lists in the store of a leaderboard: shown beside the ranks, because nobody knows what time and search they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankbench.core.errors import require
from rankbench.ledger.line import Line
from rankbench.tracking.record import RunRecord

Value = tuple[float, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Foreign(Line):
    """Lists called `name` of a program that was fitted on `fit_on`, on the data of a fingerprint, with the means of metrics on
    test and their intervals. `sha256`: of the file. `seconds`: of the fit, as the user said. `said`: what was done with users
    and items.
    """

    dataset: str
    name: str
    fingerprint: str
    fit_on: str
    sha256: str
    metrics: dict[str, Value]
    seconds: float | None = None
    said: tuple[str, ...] = ()
    started_at: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        return self.name, self.fingerprint

    @classmethod
    def of(cls, record: RunRecord) -> Foreign:
        """The line of a record. Raises ConfigError if it is not of test."""
        assert record.lists is not None
        require(record.measured_on == "test", "--leaderboard: shows what is measured on test; leave out --on")
        metrics = {name: (each.mean, each.low, each.high) for name, each in record.metrics.items()}
        return cls(
            dataset=record.dataset.name, name=record.arm or "", fingerprint=record.dataset.fingerprint, fit_on=record.fit_on,
            sha256=record.lists.sha256, metrics=metrics, seconds=record.seconds.get("fit"),
            said=tuple(record.lists.sentences), started_at=record.started_at,
        )  # fmt: skip
