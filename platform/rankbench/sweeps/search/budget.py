"""A budget of time: as many seconds for every dataset, or per million interactions of its train part."""

from __future__ import annotations

from dataclasses import dataclass

from rankbench.core.durations import seconds_of
from rankbench.core.errors import require

PER_MILLION = "/M"
LEAST = 1.0  # seconds: below, the clock of the first iterations decides


@dataclass(frozen=True)
class Budget:
    amount: float
    per_million: bool = False

    def __str__(self) -> str:
        return f"{self.amount:g}s{PER_MILLION if self.per_million else ''}"

    def seconds(self, interactions: int) -> float:
        """Seconds for a dataset with so many interactions to train on, to a tenth."""
        return max(LEAST, round(self.amount * (interactions / 1e6 if self.per_million else 1), 1))

    @classmethod
    def of(cls, text: str, source: str) -> Budget:
        """Read 30s, 2m, or 30s/M for 30 seconds per million interactions. Raises ConfigError, starting with `source`."""
        amount = seconds_of(text.removesuffix(PER_MILLION), source)
        require(amount >= LEAST, f"{source}: {text} is too short; give at least {LEAST:g}s")
        return cls(amount, text.endswith(PER_MILLION))
