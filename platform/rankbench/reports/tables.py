"""A sweep as a table: one row an arm and dataset, with interval, published number and difference."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from rankbench.tracking.record import RunRecord


@dataclass(frozen=True)
class Cell:
    """A measured mean with its 95 % interval, and what the paper says, where it says anything."""

    mean: float
    low: float | None
    high: float | None
    published: float | None = None

    @property
    def delta(self) -> float | None:
        return None if self.published is None else self.mean - self.published


@dataclass(frozen=True)
class Row:
    dataset: str
    arm: str
    method: str
    params: dict[str, Any]
    cells: dict[str, Cell]
    seconds: dict[str, float]
    fit_shared_by: int
    peak_memory_gb: float
    chosen_of: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows in the experiment's order; `metrics` are the columns; `notes` stand under it."""

    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def best(self, dataset: str, metric: str) -> float:
        return max(row.cells[metric].mean for row in self.rows if row.dataset == dataset and metric in row.cells)


def row_of(record: RunRecord, metrics: tuple[str, ...], published: dict[str, float], chosen_of: int, notes=()) -> Row:
    """A table row from the record of a final run."""
    cells = {}
    for name in metrics:
        if name in record.metrics:
            value = record.metrics[name]
            cells[name] = Cell(value["mean"], value["low"], value["high"], published.get(name))
    return Row(
        record.dataset["name"],
        record.arm or record.method,
        record.method,
        {name: value for name, value in record.params.items() if value is not None},
        cells,
        record.seconds,
        record.fit_shared_by,
        record.peak_memory_bytes / 1e9,
        chosen_of,
        tuple(notes),
    )


def columns(table: Table) -> tuple[list[str], list[list[str]]]:
    """Header and cells as text: measured [low, high], and where a paper reports the metric, its number and the difference."""
    published = [
        name for name in table.metrics if any(_cell(row, name).published is not None for row in table.rows if name in row.cells)
    ]
    datasets = len({row.dataset for row in table.rows}) > 1
    header = (["dataset"] if datasets else []) + ["model"]
    for name in table.metrics:
        header += [name, "95 % interval"] + (["published", "difference"] if name in published else [])
    header += ["setting", "fit s", "rank s", "peak GB"]
    body = []
    for row in table.rows:
        line = ([row.dataset] if datasets else []) + [row.arm]
        for name in table.metrics:
            cell = row.cells.get(name)
            line += [f"{cell.mean:.4f}", _interval(cell)] if cell else ["", ""]
            if name in published:
                said = cell is not None and cell.published is not None
                line += [f"{cell.published:.4f}", f"{cell.delta:+.4f}"] if said else ["", ""]
        shared = f" ÷{row.fit_shared_by}" if row.fit_shared_by > 1 else ""
        line += [
            setting_text(row.params),
            f"{row.seconds.get('fit', 0):.1f}{shared}",
            f"{row.seconds.get('rank', 0):.1f}",
            f"{row.peak_memory_gb:.1f}",
        ]
        body.append(line)
    return header, body


def setting_text(params: dict[str, Any]) -> str:
    return " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items())


def render(table: Table, format: str) -> str:
    """The table as `md`, `latex`, `csv` or `json` text."""
    header, body = columns(table)
    if format == "json":
        return json.dumps(as_json(table), indent=2)
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([[_inert(cell) for cell in line] for line in body])
        return out.getvalue()
    if format == "latex":
        return tabulate(body, header, tablefmt="latex_booktabs", disable_numparse=True)
    return tabulate(body, header, tablefmt="github", disable_numparse=True)


def as_json(table: Table) -> dict[str, Any]:
    """The table as JSON values."""
    rows = []
    for row in table.rows:
        cells = {name: vars(cell) | {"difference": cell.delta} for name, cell in row.cells.items()}
        rows.append(
            {
                "dataset": row.dataset,
                "model": row.arm,
                "method": row.method,
                "params": row.params,
                "metrics": cells,
                "seconds": row.seconds,
                "fit_shared_by": row.fit_shared_by,
                "peak_memory_gb": round(row.peak_memory_gb, 3),
                "chosen_of": row.chosen_of,
                "notes": list(row.notes),
            }
        )
    return {"title": table.title, "metrics": list(table.metrics), "rows": rows, "notes": list(table.notes)}


def _cell(row: Row, name: str) -> Cell:
    return row.cells[name]


def _interval(cell: Cell) -> str:
    return f"{cell.low:.4f} – {cell.high:.4f}" if cell.low is not None else ""


def _inert(cell: str) -> str:
    """A text cell that a spreadsheet would run as a formula is quoted; numbers are left alone."""
    try:
        float(cell)
        return cell
    except ValueError:
        return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
