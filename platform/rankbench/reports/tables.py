"""A sweep as a table: one row an arm and dataset, with interval, published number and difference."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from tabulate import tabulate

from rankbench.evaluation.compare import LEVEL, Comparison
from rankbench.reports import markdown
from rankbench.reports.budget import Spent
from rankbench.reports.page import Best, Second
from rankbench.reports.targets import Reached
from rankbench.schema.stored_sweep import NotAvailable, PooledMean
from rankbench.tracking.record import RunRecord

MANY = 5  # rows from which on a parameter that all of them share is told once
UNRANKED = ("popularity",)  # metrics of which more is not better


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
    experiment gives or searches; all others have their defaults. `published`: metric → the number beside it.
    `missing`: "not run", "failed" or "not available: ...", of a row that has no measured cell.
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
    published: dict[str, float] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True)
class Table:
    """Rows in the experiment's order, a dataset's after another's; `metrics` are the columns; `notes` stand under it;
    `differences`: every model against the best of its dataset, in each metric; `deviations`: sentences on what differs from
    the papers' protocol; `stand_ins`: datasets that stand for another, so that a published number is not of the same data;
    `not_available`: dataset → why its data could not be had, `brief` and as a sentence, `reason`.
    """

    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())
    differences: tuple[Comparison, ...] = ()
    deviations: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    budget: tuple[Spent, ...] = ()
    targets: tuple[Reached, ...] = ()
    not_available: dict[str, NotAvailable] = field(default_factory=dict)

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

    @cached_property
    def _leaders(self) -> dict[tuple[str, str], tuple[float, float | None]]:
        """Dataset and metric → the two highest means of different size, where there are two models to compare."""
        means: dict[tuple[str, str], list[float]] = {}
        for row in self.rows:
            for metric, cell in row.cells.items():
                if metric.partition("@")[0] not in UNRANKED:
                    means.setdefault((row.dataset, metric), []).append(cell.mean)
        ranked = {key: sorted(set(values), reverse=True) for key, values in means.items() if len(values) > 1}
        return {key: (values[0], values[1] if len(values) > 1 else None) for key, values in ranked.items()}

    def place(self, row: Row, metric: str) -> int | None:
        """1 for the best mean of the row's dataset in `metric`, 2 for the second best; equal means share a place."""
        best, second = self._leaders.get((row.dataset, metric), (None, None))
        mean = row.cells[metric].mean if metric in row.cells else None
        return None if mean is None else 1 if mean == best else 2 if mean == second else None


def row_of(
    records: Sequence[RunRecord],
    metrics: tuple[str, ...],
    published: dict[str, float],
    chosen_of: int,
    pooled: Mapping[str, PooledMean],
    tied: bool = False,
    stated: Iterable[str] = (),
) -> Row:
    """A table row from the records of an arm's final runs. `pooled`: metric → mean, low, high over all the runs."""
    first = records[0]
    cells = {}
    for name in (name for name in metrics if name in first.metrics):
        one, said = first.metrics[name], published.get(name)
        cells[name] = Cell(one.mean, one.low, one.high, said)
        if len(records) > 1:
            means = [record.metrics[name].mean for record in records]
            # A metric of whole lists has no values of users to pool.
            mean, low, high = (p.mean, p.low, p.high) if (p := pooled.get(name)) else (fmean(means), None, None)
            cells[name] = Cell(mean, low, high, said, stdev(means))
    return Row(
        first.dataset.name,
        first.arm or first.method,
        first.method,
        {name: value for name, value in first.params.items() if value is not None},
        cells,
        {phase: fmean(record.seconds.get(phase, 0.0) for record in records) for phase in first.seconds},
        first.fit_shared_by,
        max(record.peak_memory_bytes for record in records) / 1e9,
        chosen_of,
        tuple(dict.fromkeys(record.seed for record in records)),
        tuple(dict.fromkeys(record.dataset.split_seed for record in records)),
        tied,
        tuple(name for name in first.params if name in stated),
        published,
    )


def missing_row(dataset: str, arm: str, method: str, published: dict[str, float], why: str) -> Row:
    """A row without a measurement: what the paper says, and why there is none, as Row's `missing`."""
    return Row(dataset, arm, method, {}, {}, {}, 1, 0.0, 0, published=published, missing=why)


def columns(
    table: Table, mark: str = " †", best: Callable[[str], str] = str, second: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]]:
    """Header and cells as text: measured [low, high], and where a paper reports the metric, its number and the difference.

    `mark` follows the name of a tied model; `best` and `second` are put around the two highest means of a metric and
    dataset. A row that was not run says so in place of its numbers; where no row was run, the columns that would be empty
    are left out.
    """
    published = _with(table, "published")
    several = _with(table, "std")
    datasets = len({row.dataset for row in table.rows}) > 1
    header = (["dataset"] if datasets else []) + ["model"]
    if all(row.missing for row in table.rows):
        for name in table.metrics:
            header += [name, *["published"] * (name in published)]
        return header, [_not_run(row, table.metrics, published, datasets) for row in table.rows]
    for name in table.metrics:
        header += [name, *["± std"] * (name in several), "95 % interval"]
        header += ["published", "difference"] if name in published else []
    header += ["setting", "fit s", "rank s", "peak GB"]
    body, common = [], table.common
    for row in table.rows:
        line = ([row.dataset] if datasets else []) + [row.arm + mark * row.tied]
        for name in table.metrics:
            cell = row.cells.get(name)
            around = {1: best, 2: second}.get(table.place(row, name), str)
            line.append(around(f"{cell.mean:.4f}") if cell else row.missing)
            if name in several:
                line.append(f"{cell.std:.4f}" if cell and cell.std is not None else "")
            line.append(_interval(cell) if cell else "")
            if name in published:
                said = cell.published if cell else row.published.get(name)
                line += ["" if said is None else f"{said:.4f}", "" if cell is None or said is None else f"{cell.delta:+.4f}"]
        if row.missing:
            body.append([*line, "", "", "", ""])
            continue
        shared = f" ÷{row.fit_shared_by}" if row.fit_shared_by > 1 else ""
        line += [
            setting_text({name: value for name, value in row.params.items() if name in row.stated and name not in common}),
            f"{row.seconds.get('fit', 0):.1f}{shared}",
            f"{row.seconds.get('rank', 0):.1f}",
            f"{row.peak_memory_gb:.1f}",
        ]
        body.append(line)
    return header, body


def _not_run(row: Row, metrics: Sequence[str], published: Sequence[str], datasets: bool) -> list[str]:
    """The cells of a row in a table without any measurement."""
    line = [row.dataset] * datasets + [row.arm]
    for name in metrics:
        said = row.published.get(name)
        line += [row.missing, *["" if said is None else f"{said:.4f}"] * (name in published)]
    return line


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
        header, body = columns(table, best="\x02{}\x04".format, second="\x03{}\x04".format)
        text = tabulate(body, header, tablefmt="latex_booktabs", disable_numparse=True)
        commands = {"\x02": r"\textbf{", "\x03": r"\underline{", "\x04": "}", "†": r"$^{\dagger}$", "±": r"$\pm$"}
        for sign, command in commands.items():
            text = text.replace(sign, command)
        return text
    return markdown.table(*columns(table, best=Best, second=Second))


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
                "published": row.published,
                "state": row.missing or "measured",
            }
        )
    return {
        "title": table.title,
        "metrics": list(table.metrics),
        "rows": rows,
        "notes": list(table.notes),
        "differences": [asdict(pair) | {"verdict": pair.verdict} for pair in table.differences],
        "deviations": list(table.deviations),
        "budget": [asdict(each) for each in table.budget],
        "time_to_target": [asdict(each) for each in table.targets],
        "not_available": {name: vars(why) for name, why in table.not_available.items()},
    }


def _with(table: Table, attribute: str) -> list[str]:
    """The metrics of which some cell has the attribute, or some row that was not run a published number."""
    cells = [(name, cell) for row in table.rows for name, cell in row.cells.items()]
    said = [name for row in table.rows if row.missing and attribute == "published" for name in row.published]
    return [*(name for name, cell in cells if getattr(cell, attribute) is not None), *said]


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
