"""The results of a sweep as DataFrames, with its chart and its report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.files import make_folder
from rankbench.core.public import public
from rankbench.core.registry import nearest
from rankbench.judge.compare import pairs_frame
from rankbench.reports.draw import draw
from rankbench.reports.figures import final_figure
from rankbench.reports.report import sweep_table, write_report
from rankbench.reports.tables import Table, columns, frame_of
from rankbench.schema.find import find
from rankbench.schema.stored_sweep import StoredSweep
from rankbench.sweeps.comparisons import comparisons


@dataclass(frozen=True, repr=False)
class Results:
    """What a sweep has measured so far, read from its folder.

    `folder` holds the records, the report and the tables on disk.
    """

    folder: Path
    stored: StoredSweep

    @cached_property
    def _compared(self) -> StoredSweep:
        return replace(self.stored, compared=comparisons(self.stored))

    @cached_property
    def _table(self) -> Table:
        return sweep_table(self._compared)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per dataset and model, as of `reports.tables.frame_of`: for each metric the mean over users, `low` and `high`
        of the 95 % interval, `tied`, and `published` if a paper reports a number; then the setting, seconds and memory.
        """
        return frame_of(self._table)

    @property
    def conclusions(self) -> tuple[str, ...]:
        """What the tests show, and what limits it, in sentences."""
        return self._table.conclusions.sentences

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """Paired tests of every model against the best of its dataset in each metric, as of `judge.compare.Comparison`."""
        return pairs_frame(self._table.differences)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per iteration of the final fits of iterative methods: dataset, model, seed, split seed, iteration, training
        seconds, loss, and the metrics that were measured then.
        """
        finals = self.stored.finals
        splits = {record.id: record.dataset.split_seed for record in finals}
        return pd.DataFrame(
            {"dataset": record.dataset.name, "model": record.label, "seed": record.seed, "split_seed": splits[record.id]} | row
            for record in finals
            for row in record.curve
        )

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run of the search and of the final stage: its setting, state, metrics and seconds."""
        rows = []
        for record in self.stored.records.values():
            line: dict[str, Any] = {
                name: getattr(record, name) for name in ("id", "stage", "method", "seed", "status", "error")
            }
            line |= {"dataset": record.dataset.name, "split_seed": record.dataset.split_seed}
            line |= {"model": record.label, "params": record.params}
            line |= {name: measured.mean for name, measured in record.metrics.items()}
            rows.append(line | {"seconds": sum(record.seconds.values())})
        return pd.DataFrame(rows)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of `table`."""
        return self._table.metrics

    @public
    def chart(self, path: str | Path | None = None, metric: str | None = None) -> Path:
        """Draw the metric of each model with its interval, as a PNG file, and return its path; by default `chart.png` in
        `folder`, and the last metric of the table.
        """
        metric = metric or self.metrics[-1]
        require(
            metric in self.metrics, f"chart: no metric {metric!r}{nearest(metric, self.metrics)}; {', '.join(self.metrics)}"
        )
        target = Path(path) if path is not None else self.folder / "chart.png"
        require(target.suffix == ".png", f"chart: {target}: expected a name that ends in .png")
        make_folder(target.parent)
        if (figure := final_figure(self._table, metric)) is None:
            raise ConfigError(f"chart: nothing was measured by {metric}")
        return draw(figure, target)

    @public
    def write(self, folder: str | Path) -> list[Path]:
        """Write the report into a folder: report.html, report.md, tables and plots. Returns their paths."""
        return write_report(Path(folder), self._compared)

    @property
    def _shown(self) -> pd.DataFrame:
        """The table as text."""
        header, body = columns(self._table)
        return pd.DataFrame(body, columns=header)

    def __repr__(self) -> str:
        return "\n".join([self._table.title, self._shown.to_string(index=False), *self._table.legend, str(self.folder)])

    def _repr_html_(self) -> str:
        legend = "".join(f"<p>{escape(line)}</p>" for line in self._table.legend)
        return f"<strong>{escape(self._table.title)}</strong>{self._shown.to_html(index=False)}{legend}"


@public
def report(what: str | Path | None = None, *, environment: Environment | None = None) -> Results:
    """Return the results of a sweep: by its id, the start of its id or its folder, or the newest sweep of an experiment, by
    the name or path of its file. By default the newest sweep of all.

    An experiment that was never run has a table of its published numbers. Raises ConfigError if there is nothing of that name,
    and DataError if a file of the sweep is damaged.
    """
    stored = find(None if what is None else str(what), environment or Environment.from_env())
    return Results(stored.folder, stored)
