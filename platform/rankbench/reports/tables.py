"""The table of a sweep: one row per arm and dataset, with interval, published number and difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from rankbench.evaluation.compare import LEVEL, Comparison, p_text
from rankbench.evaluation.metrics import better_if_larger
from rankbench.reports.budget import Spent
from rankbench.reports.conclusions import Conclusions
from rankbench.reports.figure import Style, styles
from rankbench.reports.page import State
from rankbench.reports.targets import Reached
from rankbench.schema.stored_sweep import NotAvailable, PooledMean
from rankbench.tracking.links import RunLinks
from rankbench.tracking.record import RunRecord

MANY = 5  # minimum number of rows for which a shared parameter is printed once
TIED = (
    f"† not distinguishable from the best of its dataset in this metric at {LEVEL}: paired tests over users, corrected by "
    "Holm's method for all pairs of models"
)


@dataclass(frozen=True)
class Cell:
    """A measured mean with its 95 % interval over users, and the published number if there is one. `std`: standard deviation
    over several runs.
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
    """One arm on one dataset. Seconds are means over its runs, memory is the maximum.

    `stated`: parameters that the experiment gives or searches; all others have their defaults. `published`: metric → published
    number. `missing`: "not run", "failed" or "not available: ..." for a row without measured cells. `runs`: ids of its records.
    `command`: repeats its first run; empty if one command cannot. `seeded`: whether the seed changes the model; None if that
    is not known.
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
    stated: tuple[str, ...] = ()
    published: dict[str, float] = field(default_factory=dict)
    missing: str = ""
    runs: tuple[str, ...] = ()
    command: str = ""
    seeded: bool | None = None


@dataclass(frozen=True)
class Table:
    """Rows by dataset and, within it, in the order of the experiment; `metrics` are the columns, `notes` are printed below.

    `differences`: every model against the best of its dataset in each metric; `neighbours`: against the next better one, if
    only these pairs of many models were tested. `deviations`: sentences on how the sweep differs from the papers' protocol.
    `stand_ins`: datasets in place of others, whose published numbers belong to other data.
    `not_available`: dataset → why its data are not available. `conclusions`: what the tests show, in sentences. `command`:
    repeats the sweep. `links`: the pages of the runs in MLflow.
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
    conclusions: Conclusions = field(default_factory=Conclusions)
    command: str = ""
    links: RunLinks = field(default_factory=RunLinks)
    neighbours: tuple[Comparison, ...] = ()

    @property
    def common(self) -> dict[str, Any]:
        """Parameters that many rows state with the same value. They are printed once and not in each row."""
        stating: dict[str, list[Any]] = {}
        for row in self.rows:
            for name in row.stated:
                stating.setdefault(name, []).append(row.params.get(name))
        return {
            name: values[0] for name, values in stating.items() if len(values) >= MANY and all(v == values[0] for v in values)
        }

    @cached_property
    def styles(self) -> dict[str, Style]:
        """Colour, line and marker of each arm. The arms of an experiment come first, in its order, also without results."""
        return styles(row.arm for row in self.rows)

    @cached_property
    def _leaders(self) -> dict[tuple[str, str], tuple[float, float | None]]:
        """(dataset, metric) → the two highest distinct means, if there are at least two models."""
        means: dict[tuple[str, str], list[float]] = {}
        for row in self.rows:
            for metric, cell in row.cells.items():
                if better_if_larger(metric):
                    means.setdefault((row.dataset, metric), []).append(cell.mean)
        ranked = {key: sorted(set(values), reverse=True) for key, values in means.items() if len(values) > 1}
        return {key: (values[0], values[1] if len(values) > 1 else None) for key, values in ranked.items()}

    @cached_property
    def _tied(self) -> set[tuple[str, str, str]]:
        return {(pair.dataset, pair.model, pair.metric) for pair in self.differences if not pair.distinguishable}

    def tied(self, row: Row, metric: str) -> bool:
        """Whether a row cannot be told from the best of its dataset in `metric`."""
        return (row.dataset, row.arm, metric) in self._tied

    @property
    def legend(self) -> tuple[str, ...]:
        """The explanation of the marks in the cells, if there are any."""
        return (TIED,) if any(self.tied(row, metric) for row in self.rows for metric in row.cells) else ()

    def rank(self, row: Row, metric: str) -> int | None:
        """Return 1 for the best mean of the row's dataset in `metric`, 2 for the second best. Equal means share a rank."""
        best, second = self._leaders.get((row.dataset, metric), (None, None))
        mean = row.cells[metric].mean if metric in row.cells else None
        return None if mean is None else 1 if mean == best else 2 if mean == second else None


def row_of(
    records: Sequence[RunRecord],
    metrics: tuple[str, ...],
    published: dict[str, float],
    chosen_of: int,
    pooled: Mapping[str, PooledMean],
    stated: Iterable[str] = (),
    command: str = "",
    seeded: bool | None = None,
) -> Row:
    """Return the table row of an arm's final runs. `pooled`: metric → mean with interval, pooled over the runs."""
    first = records[0]
    cells = {}
    for name in (name for name in metrics if name in first.metrics):
        one = first.metrics[name]
        cells[name] = Cell(one.mean, one.low, one.high, published.get(name))
        if len(records) > 1:
            means = [record.metrics[name].mean for record in records]
            # Metrics of whole lists have no values per user to pool.
            mean, low, high = (p.mean, p.low, p.high) if (p := pooled.get(name)) else (fmean(means), None, None)
            cells[name] = Cell(mean, low, high, published.get(name), stdev(means))
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
        tuple(name for name in first.params if name in stated),
        published,
        runs=tuple(record.id for record in records),
        command=command,
        seeded=seeded,
    )


def missing_row(dataset: str, arm: str, method: str, published: dict[str, float], why: str) -> Row:
    """Return a row without a measurement: its published numbers, and in `missing` why it was not measured."""
    return Row(dataset, arm, method, {}, {}, {}, 1, 0.0, 0, published=published, missing=why)


def columns(
    table: Table, mark: str = " †", best: Callable[[str], str] = str, second: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]]:
    """Return header and cells as text: measured mean and interval, and the published number and the difference if there is one.

    `mark` follows a mean that is tied with the best; `best` and `second` format the two highest means of a metric and dataset.
    A row without a measurement shows the reason in place of its numbers. If no row has one, columns that would be empty are
    left out.
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
    emphasis: dict[int | None, Callable[[str], str]] = {1: best, 2: second}
    for row in table.rows:
        line = ([row.dataset] if datasets else []) + [row.arm]
        for name in table.metrics:
            cell = row.cells.get(name)
            shown = f"{cell.mean:.4f}{mark * table.tied(row, name)}" if cell else row.missing
            line.append(emphasis.get(table.rank(row, name), str)(shown))
            if name in several:
                line.append(f"{cell.std:.4f}" if cell and cell.std is not None else "")
            line.append(_interval(cell) if cell else "")
            if name in published:
                number = cell.published if cell else row.published.get(name)
                line.append("" if number is None else f"{number:.4f}")
                line.append("" if cell is None or cell.delta is None else f"{cell.delta:+.4f}")
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
    """Return the cells of a row in a table without any measurement."""
    line = [row.dataset] * datasets + [row.arm]
    for name in metrics:
        number = row.published.get(name)
        line += [row.missing, *["" if number is None else f"{number:.4f}"] * (name in published)]
    return line


def difference_columns(pairs: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of comparisons: verdict, mean difference, both tests, effect sizes, and shares of users."""
    several = any(pair.by_split for pair in pairs)
    header = ["model", "verdict", "against", "difference", "95 % interval", "relative", "Wilcoxon p (Holm)"]
    header += ["bootstrap p (Holm)", "rank-biserial", "d_z", "better / equal / worse", *["by split seed"] * several]
    body = []
    for pair in pairs:
        line = [pair.model, State(pair.verdict), pair.against, f"{pair.difference:+.4f}", f"{pair.low:+.4f} – {pair.high:+.4f}"]
        line.append("" if pair.relative_percent is None else f"{pair.relative_percent:+.2f} %")
        line += [
            p_text(pair.p_wilcoxon_holm),
            p_text(pair.p_bootstrap_holm),
            _signed(pair.rank_biserial),
            _signed(pair.cohen_dz),
        ]
        line.append(" / ".join(f"{100 * share:.0f}" for share in (pair.better, pair.equal, pair.worse)) + " %")
        if several:
            line.append(", ".join(f"{seed}: {value:+.4f}" for seed, value in pair.by_split.items()))
        body.append(line)
    return header, body


def pairs_note(neighbours: Sequence[Comparison]) -> str:
    """Return which pairs of many models were tested, and what the correction makes of the others."""
    pairs = ", ".join(dict.fromkeys(f"{pair.tests:,}" for pair in neighbours))
    return (
        "tested: each model with the best one and with the next better one; p-values are corrected for all pairs of models "
        f"({pairs}), as if those of the others were 1 (final.pairs=all tests all)"
    )


def setting_text(params: dict[str, Any]) -> str:
    """Return parameters as `name=value` words."""
    return " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items())


def as_json(table: Table) -> dict[str, Any]:
    """Return the table as JSON values."""
    rows = []
    for row in table.rows:
        cells = {
            name: vars(cell) | {"difference": cell.delta, "tied": table.tied(row, name)} for name, cell in row.cells.items()
        }
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
                "published": row.published,
                "state": row.missing or "measured",
                "runs": list(row.runs),
                "mlflow": [table.links.runs[run] for run in row.runs if run in table.links.runs],
                "command": row.command,
            }
        )
    return {
        "title": table.title,
        "conclusions": {
            "text": list(table.conclusions.sentences),
            "datasets": [asdict(each) for each in table.conclusions.datasets],
        },
        "command": table.command,
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
    """Return the metrics for which a cell has the attribute; for `published`, also those of rows without a measurement."""
    cells = [(name, cell) for row in table.rows for name, cell in row.cells.items()]
    missing = [name for row in table.rows if row.missing and attribute == "published" for name in row.published]
    return [*(name for name, cell in cells if getattr(cell, attribute) is not None), *missing]


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def _interval(cell: Cell) -> str:
    return f"{cell.low:.4f} – {cell.high:.4f}" if cell.low is not None else ""
