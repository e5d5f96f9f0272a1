"""Whether a fit was trained to its end, by the curve of a metric over its epochs.

If the value of the measured model is more than 1 % below the best one until its epoch, the fit is `past its best`. Otherwise
the last quarter of the epochs decides: if its best value is more than 0.5 % above the best one before, the curve is `rising`.
If not, it is `flat`, unless the measured model is more than 1 % below a later one. Both limits are small beside the 3 % that a
row may differ from its published number, and above the noise: between two points of a curve that has no trend, the mean over
2,000 users changes by 0.1 to 0.4 % (LightGCN on lastfm, every 20 of 1,000 epochs). A curve without a point in the last quarter,
or without one before, is `unknown`.

A learning rate that falls to zero, or much, makes any curve flat; whoever shows a state says so, because the curve cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

LAST, GAIN, DROP = 0.25, 0.005, 0.01
POINTS = 27  # of a stored curve, and four more that its state depends on

State = Literal["rising", "flat", "past its best", "unknown"]


@dataclass(frozen=True)
class TrainingCurve:
    """The mean of `metric` during a fit: `points` of epoch (or iteration), training seconds and value. `on` valid: over users
    of the validation set, whose interactions were not fitted; `on` test: over a sample of the test users, by which nothing was
    chosen.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    metric: str
    on: Literal["valid", "test"]
    points: tuple[tuple[int, float, float], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, float]], column: str, metric: str, on: Literal["valid", "test"]) -> TrainingCurve:
        """Return the curve that a column of the rows of a record is."""
        points = ((int(row["iteration"]), round(row["seconds"], 1), round(row[column], 5)) for row in rows if column in row)
        return cls(metric, on, tuple(points))

    def state(self, kept: int | None = None) -> State:
        """Say what the curve does at its end. `kept`: the epoch whose model was measured; by default the last one."""
        before, late = self._parts()
        if not before or not late:
            return "unknown"
        best_before, best_late = (max(value for _, _, value in part) for part in (before, late))
        measured, best = self._measured(kept)[2], max(best_before, best_late)
        best_until = max(self._until(kept), key=lambda point: point[2])[2]
        if best_until - measured > DROP * abs(best_until):
            return "past its best"
        if best_late - best_before > GAIN * abs(best_before):
            return "rising"
        return "past its best" if best - measured > DROP * abs(best) else "flat"

    def thinned(self, kept: int | None = None) -> TrainingCurve:
        """Return the curve with at most 31 points, and with the same state."""
        n = len(self.points)
        if n <= POINTS:
            return self
        chosen = {self.points[round(i * (n - 1) / (POINTS - 1))] for i in range(POINTS)}
        parts = (*self._parts(), self._until(kept))
        chosen |= {max(part, key=lambda point: point[2]) for part in parts if part} | {self._measured(kept)}
        return TrainingCurve(self.metric, self.on, tuple(sorted(chosen)))

    def _parts(self) -> tuple[list[tuple[int, float, float]], list[tuple[int, float, float]]]:
        """The points before the last quarter of the epochs, and those in it."""
        begins = (1 - LAST) * self.points[-1][0] if self.points else 0
        return [each for each in self.points if each[0] <= begins], [each for each in self.points if each[0] > begins]

    def _measured(self, kept: int | None) -> tuple[int, float, float]:
        """The last point until the epoch whose model was measured."""
        return self._until(kept)[-1]

    def _until(self, kept: int | None) -> list[tuple[int, float, float]]:
        """The points until that epoch; if there are none, the first one."""
        return [each for each in self.points if kept is None or each[0] <= kept] or [*self.points[:1]]
