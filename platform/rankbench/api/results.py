"""The results of a sweep as DataFrames, with its chart and its report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from rankbench.core.errors import ConfigError, require
from rankbench.core.files import make_folder
from rankbench.core.registry import nearest
from rankbench.reports.plots import final_plot
from rankbench.reports.report import sweep_table, write_report
from rankbench.reports.tables import Table, columns
from rankbench.schema.stored_sweep import StoredSweep
from rankbench.sweeps.sweep import comparisons


@dataclass(frozen=True, repr=False)
class Results:
    """What a sweep has measured so far, read from its folder.

    `folder` holds the records, the report and the tables on disk.
    """

    folder: Path
    stored: StoredSweep

    @cached_property
    def _table(self) -> Table:
        stored = self.stored
        return sweep_table(stored.about, stored.chosen, stored.records, comparisons(stored))

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per dataset and model. For each metric it has the mean over users, `low` and `high` of the 95 % interval,
        `tied` (not distinguishable from the best of the dataset), and `published` if a paper reports a number; then the
        setting, seconds, memory, and `state`, which is "measured" or says why there is no number.
        """
        pairs = self._table.differences
        tied = {(pair.dataset, pair.model, pair.metric) for pair in pairs if not pair.distinguishable}
        rows = []
        for row in self._table.rows:
            line: dict[str, Any] = {"dataset": row.dataset, "model": row.arm, "method": row.method}
            for metric in self._table.metrics:
                cell, published = row.cells.get(metric), row.published.get(metric)
                line[metric] = cell.mean if cell else None
                line |= {f"{metric} low": cell.low if cell else None, f"{metric} high": cell.high if cell else None}
                line[f"{metric} tied"] = (row.dataset, row.arm, metric) in tied
                line[f"{metric} published"] = published
            setting = {name: value for name, value in row.params.items() if name in row.stated}
            line |= {"setting": setting, "fit_seconds": row.seconds.get("fit")}
            line |= {"rank_seconds": row.seconds.get("rank"), "peak_memory_gb": row.peak_memory_gb or None}
            rows.append(line | {"state": row.missing or "measured"})
        frame = pd.DataFrame(rows)
        return frame.drop(columns=[name for name in frame if name.endswith(" published") and frame[name].isna().all()])

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """Paired tests of every model against the best of its dataset in each metric, as of `evaluation.compare.Comparison`."""
        pairs = self._table.differences
        return pd.DataFrame([asdict(pair) | {"verdict": pair.verdict} for pair in pairs]).drop(
            columns="by_split", errors="ignore"
        )

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per iteration of the final fits of iterative methods: dataset, model, seed, iteration, training seconds,
        loss, and the metrics that were measured then.
        """
        finals = [record for record in self.stored.records.values() if record.stage == "final"]
        return pd.DataFrame(
            {"dataset": record.dataset.name, "model": record.arm or record.method, "seed": record.seed} | row
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
            line |= {"dataset": record.dataset.name, "model": record.arm or record.method, "params": record.params}
            line |= {name: measured.mean for name, measured in record.metrics.items()}
            rows.append(line | {"seconds": sum(record.seconds.values())})
        return pd.DataFrame(rows)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of `table`."""
        return self._table.metrics

    def chart(self, path: str | Path | None = None, metric: str | None = None) -> Path:
        """Draw the metric of each model with its interval, as a PNG file, and return its path; by default `chart.png` in
        `folder`, and the last metric of the table.
        """
        metric = metric or self.metrics[-1]
        require(
            metric in self.metrics, f"chart: no metric {metric!r}{nearest(metric, self.metrics)}; {', '.join(self.metrics)}"
        )
        target = Path(path) if path is not None else self.folder / "chart.png"
        if target.suffix != ".png":
            raise ConfigError(f"chart: {target}: expected a name that ends in .png")
        make_folder(target.parent)
        return final_plot(self._table, metric, target)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the report into a folder: report.html, report.md, tables and plots. Returns their paths."""
        stored = self.stored
        return write_report(Path(folder), stored.about, stored.chosen, stored.records, comparisons(stored))

    def __repr__(self) -> str:
        header, body = columns(self._table)
        frame = pd.DataFrame(body, columns=header)
        return f"{self._table.title}\n{frame.to_string(index=False)}\n{self.folder}"

    def _repr_html_(self) -> str:
        header, body = columns(self._table)
        frame = pd.DataFrame(body, columns=header)
        return f"<strong>{escape(self._table.title)}</strong>{frame.to_html(index=False)}"
