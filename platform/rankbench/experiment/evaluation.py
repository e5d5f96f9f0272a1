"""What a fitted model reaches on held-out data, as Python shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape

import pandas as pd

from rankbench.evaluation.summary import Interval


@dataclass(frozen=True, repr=False)
class Evaluation:
    """`metrics`: name → mean with its 95 % interval. `per_user`: one row per user with held-out items, by raw id; a metric that
    is a ratio of two sums has a second column with the weights of the users. `dataset` is the fingerprint of the data and
    `measured_on` the part, so that only results on the same data are compared. `left_out`: number of users with held-out items
    who have no history. `notes`: if equal scores decide much, and of foreign lists, what was done with users and items.
    `fit_on`: the part that the model was fitted on, as `Model.fit_on`.
    """

    metrics: dict[str, Interval]
    per_user: pd.DataFrame
    method: str = ""
    dataset: str = ""
    measured_on: str = "test"
    left_out: int = 0
    notes: tuple[str, ...] = ()
    fit_on: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """One row per metric: mean, and low and high of its 95 % interval, which are missing for metrics of whole lists."""
        rows = [asdict(interval) for interval in self.metrics.values()]
        return pd.DataFrame(rows, index=pd.Index(self.metrics, name="metric"))

    def __repr__(self) -> str:
        return "\n".join([self._title, self.table.round(4).to_string(na_rep=""), *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<strong>{escape(self._title)}</strong>{self.table.to_html(float_format='{:.4f}'.format, na_rep='')}{notes}"

    @property
    def _title(self) -> str:
        left_out = f" ({self.left_out:,} without history left out)" if self.left_out else ""
        return f"Evaluation of {self.method or 'a ranking'} on {self.measured_on}, {len(self.per_user):,} users{left_out}"
