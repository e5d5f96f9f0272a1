"""A sweep as a table: one row an arm and dataset, with interval, published number and difference."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from tabulate import tabulate

from rankbench.evaluation.compare import LEVEL, Comparison
from rankbench.tracking.record import RunRecord

MANY = 5  # rows from which on a parameter that all of them share is told once


@dataclass(frozen=True)
class Cell:
    """A measured mean with its 95 % interval over users, and what the paper says, where it says anything. `std`: over
    runs of several seeds.
    """

    mean: float
    low: float | None
    high: float | None
    published: float | None = None
    std: float | None = None

    @property
    def delta(self) -> float | None:
        return None if self.published is None else self.mean - self.published


@dataclass(frozen=True)
class Row:
    """One arm on one dataset; seconds are means over its runs, memory the most of any.

    `tied`: not distinguishable from the best in the first metric that was compared. `stated`: the parameters that the
    experiment gives or searches; all others have their defaults.
    """

    dataset: str
    arm: str
    method: str
    params: dict[str, Any]
    cells: dict[str, Cell]
    seconds: dict[str, float]
    fit_shared_by: int
    peak_memory_gb: float
    chosen_of: int
    seeds: tuple[int, ...] = ()
    split_seeds: tuple[int, ...] = ()
    tied: bool = False
    stated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows in the experiment's order; `metrics` are the columns; `notes` stand under it; `differences`: every model
    against the best of its dataset, in each metric.
    """

    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())
    differences: tuple[Comparison, ...] = ()

    @property
    def common(self) -> dict[str, Any]:
        """Parameters that many rows state, all with one value: they are told once, and not in each row."""
        stating: dict[str, list[Any]] = {}
        for row in self.rows:
            for name in row.stated:
                stating.setdefault(name, []).append(row.params.get(name))
        return {
            name: values[0] for name, values in stating.items() if len(values) >= MANY and all(v == values[0] for v in values)
        }

    def best(self, dataset: str, metric: str) -> float:
        return max(row.cells[metric].mean for row in self.rows if row.dataset == dataset and metric in row.cells)


def row_of(
    records: Sequence[RunRecord],
    metrics: tuple[str, ...],
    published: dict[str, float],
    chosen_of: int,
    pooled: dict[str, dict[str, Any]],
    tied: bool = False,
    stated: Iterable[str] = (),
) -> Row:
    """A table row from the records of an arm's final runs. `pooled`: metric → mean, low, high over all the runs."""
    first = records[0]
    cells = {}
    for name in (name for name in metrics if name in first.metrics):
        value, std = first.metrics[name], None
        if len(records) > 1:
            means = [record.metrics[name]["mean"] for record in records]
            # A metric of whole lists has no values of users to pool.
            value, std = pooled.get(name, {"mean": fmean(means), "low": None, "high": None}), stdev(means)
        cells[name] = Cell(value["mean"], value["low"], value["high"], published.get(name), std)
    return Row(
        first.dataset["name"],
        first.arm or first.method,
        first.method,
        {name: value for name, value in first.params.items() if value is not None},
        cells,
        {phase: fmean(record.seconds.get(phase, 0.0) for record in records) for phase in first.seconds},
        first.fit_shared_by,
        max(record.peak_memory_bytes for record in records) / 1e9,
        chosen_of,
        tuple(dict.fromkeys(record.seed for record in records)),
        tuple(dict.fromkeys(record.dataset["split_seed"] for record in records)),
        tied,
        tuple(name for name in first.params if name in stated),
    )


def columns(table: Table, mark: str = " †", best: Callable[[str], str] = str) -> tuple[list[str], list[list[str]]]:
    """Header and cells as text: measured [low, high], and where a paper reports the metric, its number and the difference.

    `mark` follows the name of a tied model; `best` is put around the highest mean of a column's dataset.
    """
    published = _with(table, "published")
    several = _with(table, "std")
    datasets = len({row.dataset for row in table.rows}) > 1
    header = (["dataset"] if datasets else []) + ["model"]
    for name in table.metrics:
        header += [name, *["± std"] * (name in several), "95 % interval"]
        header += ["published", "difference"] if name in published else []
    header += ["setting", "fit s", "rank s", "peak GB"]
    body, common = [], table.common
    for row in table.rows:
        line = ([row.dataset] if datasets else []) + [row.arm + mark * row.tied]
        for name in table.metrics:
            cell = row.cells.get(name)
            mean = f"{cell.mean:.4f}" if cell else ""
            line.append(best(mean) if cell and cell.mean == table.best(row.dataset, name) else mean)
            if name in several:
                line.append(f"{cell.std:.4f}" if cell and cell.std is not None else "")
            line.append(_interval(cell) if cell else "")
            if name in published:
                said = cell is not None and cell.published is not None
                line += [f"{cell.published:.4f}", f"{cell.delta:+.4f}"] if said else ["", ""]
        shared = f" ÷{row.fit_shared_by}" if row.fit_shared_by > 1 else ""
        line += [
            setting_text({name: value for name, value in row.params.items() if name in row.stated and name not in common}),
            f"{row.seconds.get('fit', 0):.1f}{shared}",
            f"{row.seconds.get('rank', 0):.1f}",
            f"{row.peak_memory_gb:.1f}",
        ]
        body.append(line)
    return header, body


def difference_columns(pairs: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of comparisons: mean difference, both tests, effect sizes, shares of users, and the verdict."""
    several = any(pair.by_split for pair in pairs)
    header = ["model", "against", "difference", "95 % interval", "relative", "Wilcoxon p (Holm)", "bootstrap p (Holm)"]
    header += ["rank-biserial", "d_z", "better / equal / worse", *["by split seed"] * several, "verdict"]
    body = []
    for pair in pairs:
        line = [pair.model, pair.against, f"{pair.difference:+.4f}", f"{pair.low:+.4f} – {pair.high:+.4f}"]
        line.append("" if pair.relative_percent is None else f"{pair.relative_percent:+.2f} %")
        line += [_p(pair.p_wilcoxon_holm), _p(pair.p_bootstrap_holm), _signed(pair.rank_biserial), _signed(pair.cohen_dz)]
        line.append(" / ".join(f"{100 * share:.0f}" for share in (pair.better, pair.equal, pair.worse)) + " %")
        if several:
            line.append(", ".join(f"{seed}: {value:+.4f}" for seed, value in pair.by_split.items()))
        body.append([*line, pair.verdict])
    return header, body


def tie_note(metric: str) -> str:
    """What the mark of a tied row means."""
    return f"† not distinguishable from the best in {metric} at {LEVEL}: paired tests over users, corrected by Holm"


def setting_text(params: dict[str, Any]) -> str:
    return " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items())


def render(table: Table, format: str) -> str:
    """The table as `md`, `latex`, `csv` or `json` text."""
    if format == "json":
        return json.dumps(as_json(table), indent=2)
    # A name in a CSV file is looked up, so nothing is added to it.
    header, body = columns(table, mark="") if format == "csv" else columns(table)
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([[_inert(cell) for cell in line] for line in body])
        return out.getvalue()
    if format == "latex":
        # tabulate escapes what LaTeX would read, so that commands of ours are put in after it.
        header, body = columns(table, best=lambda text: f"\x02{text}\x03")
        text = tabulate(body, header, tablefmt="latex_booktabs", disable_numparse=True)
        for sign, command in {"\x02": r"\textbf{", "\x03": "}", "†": r"$^{\dagger}$", "±": r"$\pm$"}.items():
            text = text.replace(sign, command)
        return text
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
                "seeds": list(row.seeds),
                "split_seeds": list(row.split_seeds),
                "tied": row.tied,
            }
        )
    return {
        "title": table.title,
        "metrics": list(table.metrics),
        "rows": rows,
        "notes": list(table.notes),
        "differences": [asdict(pair) | {"verdict": pair.verdict} for pair in table.differences],
    }


def _with(table: Table, attribute: str) -> list[str]:
    """The metrics of which some cell has the attribute."""
    cells = [(name, cell) for row in table.rows for name, cell in row.cells.items()]
    return [name for name, cell in cells if getattr(cell, attribute) is not None]


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def _interval(cell: Cell) -> str:
    return f"{cell.low:.4f} – {cell.high:.4f}" if cell.low is not None else ""


def _inert(cell: str) -> str:
    """A text cell that a spreadsheet would run as a formula is quoted; numbers are left alone."""
    try:
        float(cell)
        return cell
    except ValueError:
        return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
