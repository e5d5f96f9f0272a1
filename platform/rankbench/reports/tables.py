"""The table of a sweep: one row per arm and dataset, as text in several formats, and for programs as a DataFrame."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from tabulate import tabulate

from rankbench.core.display import setting_text
from rankbench.core.spreadsheet import inert_table
from rankbench.evaluation.metrics import better_if_larger
from rankbench.judge.compare import LEVEL, Comparison
from rankbench.judge.printing import difference, interval, number, p_text, parts
from rankbench.reports import markdown
from rankbench.reports.budget import Spent
from rankbench.reports.conclusions import Conclusions
from rankbench.reports.figure import Style, styles
from rankbench.reports.page import Best, Column, Second, State, tabulated
from rankbench.reports.rows import Cell, ReportRow
from rankbench.reports.targets import Reached
from rankbench.schema.stored_sweep import NotAvailable
from rankbench.tracking.links import RunLinks

RENAMED = {"arm": "model", "cells": "metrics", "missing": "state"}  # fields of a row in JSON
MANY = 5  # minimum number of rows for which a shared parameter is printed once
TIED = (
    f"† not distinguishable from the best of its dataset in this metric at {LEVEL}: paired tests over users, corrected by "
    "Holm's method for all pairs of models"
)


@dataclass(frozen=True)
class Table:
    """Rows by dataset and, within it, in the order of the experiment; `metrics` are the columns, `notes` are printed below.

    `differences`: every model against the best of its dataset in each metric; `neighbours`: against the next better one, if
    only these pairs of many models were tested. `deviations`: sentences on how the sweep differs from the papers' protocol.
    `not_available`: dataset → why its data are not available. `conclusions`: what the tests show, in sentences. `command`:
    repeats the sweep. `links`: the pages of the runs in MLflow.
    """

    title: str
    metrics: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    notes: tuple[str, ...] = field(default=())
    differences: tuple[Comparison, ...] = ()
    deviations: tuple[str, ...] = ()
    budget: tuple[Spent, ...] = ()
    targets: tuple[Reached, ...] = ()
    not_available: dict[str, NotAvailable] = field(default_factory=dict)
    conclusions: Conclusions = field(default_factory=Conclusions)
    command: str = ""
    links: RunLinks = field(default_factory=RunLinks)
    neighbours: tuple[Comparison, ...] = ()

    @property
    def common(self) -> dict[str, Any]:
        """Parameters that many rows state, if all rows with them have the same value. They are printed once."""
        stating = Counter(name for row in self.rows for name in row.stated)
        values = {
            name: [row.params[name] for row in self.rows if name in row.params] for name, n in stating.items() if n >= MANY
        }
        return {name: each[0] for name, each in values.items() if each and all(value == each[0] for value in each)}

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
        quality = (pair for pair in self.differences if better_if_larger(pair.metric))
        return {(pair.dataset, pair.model, pair.metric) for pair in quality if not pair.distinguishable}

    def tied(self, row: ReportRow, metric: str) -> bool:
        """Whether a row is not significantly different from the best of its dataset in `metric`."""
        return (row.dataset, row.arm, metric) in self._tied

    @property
    def legend(self) -> tuple[str, ...]:
        """The explanation of the marks in the cells, if there are any."""
        return (TIED,) if any(self.tied(row, metric) for row in self.rows for metric in row.cells) else ()

    def rank(self, row: ReportRow, metric: str) -> int | None:
        """Return 1 for the best mean of the row's dataset in `metric`, 2 for the second best. Equal means share a rank."""
        best, second = self._leaders.get((row.dataset, metric), (None, None))
        mean = row.cells[metric].mean if metric in row.cells else None
        return None if mean is None else 1 if mean == best else 2 if mean == second else None


def columns(
    table: Table, mark: str = " †", best: Callable[[str], str] = str, second: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]]:
    """Return header and cells as text: measured mean and interval, and the published number and the difference if there is one.

    `mark` follows a mean that is tied with the best; `best` and `second` format the two highest means of a metric and dataset.
    A row without a measurement shows the reason in place of its numbers. If no row has one, columns that would be empty are
    left out.
    """
    published, several, common = _with(table, "published"), _with(table, "std"), table.common
    measured = any(not row.missing for row in table.rows)
    emphasis: dict[int | None, Callable[[str], str]] = {1: best, 2: second}

    def of_metric(name: str) -> list[tuple[bool, Column]]:
        def mean(row: ReportRow) -> str:
            cell = row.cells.get(name)
            shown = f"{number(cell.mean)}{mark * table.tied(row, name)}" if cell else row.missing
            return emphasis.get(table.rank(row, name), str)(shown)

        def of_cell(form: Callable[[Cell], str]) -> Callable[[ReportRow], str]:
            return lambda row: form(row.cells[name]) if name in row.cells else ""

        return [
            (True, (name, mean)),
            (measured and name in several, ("± std", of_cell(lambda cell: number(cell.std)))),
            (measured, ("95 % interval", of_cell(lambda cell: interval(cell.low, cell.high)))),
            (name in published, ("published", lambda row: number(row.published.get(name)))),
            (measured and name in published, ("difference", of_cell(lambda cell: difference(cell.difference)))),
        ]

    def setting(row: ReportRow) -> str:
        return setting_text({name: value for name, value in row.params.items() if name in row.stated and name not in common})

    def shared(row: ReportRow) -> str:
        return f" ÷{row.fit_shared_by}" if row.fit_shared_by > 1 else ""

    energy = any(row.joules is not None for row in table.rows)
    possible: list[tuple[bool, Column]] = [
        (len({row.dataset for row in table.rows}) > 1, ("dataset", lambda row: row.dataset)),
        (True, ("model", lambda row: row.arm)),
        *(column for name in table.metrics for column in of_metric(name)),
        (measured, ("setting", setting)),
        (measured, ("fit s", lambda row: f"{row.seconds['fit']:.1f}{shared(row)}" if "fit" in row.seconds else "")),
        (measured, ("rank s", lambda row: f"{row.seconds['rank']:.1f}" if "rank" in row.seconds else "")),
        (measured, ("peak GB", lambda row: f"{row.peak_memory_gb:.1f}" if row.peak_memory_gb else "")),
        (energy, ("fit kJ", lambda row: "" if row.joules is None else f"{row.joules / 1000:.2f}{shared(row)}")),
    ]
    return tabulated(table.rows, [column for needed, column in possible if needed])


def difference_columns(pairs: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of comparisons: verdict, mean difference, both tests, effect sizes, and shares of users."""
    several = any(pair.by_split for pair in pairs)
    header = ["model", "verdict", "against", "difference", "95 % interval", "relative", "Wilcoxon p (Holm)"]
    header += ["bootstrap p (Holm)", "rank-biserial", "d_z", "better / equal / worse", *["by split seed"] * several]
    body = []
    for pair in pairs:
        line = [pair.model, State(pair.verdict), pair.against]
        line += [difference(pair.difference), interval(pair.low, pair.high, "+.4f")]
        line.append("" if pair.relative_percent is None else f"{pair.relative_percent:+.2f} %")
        line += [p_text(pair.p_wilcoxon_holm), p_text(pair.p_bootstrap_holm)]
        line += [difference(pair.rank_biserial, 2), difference(pair.cohen_dz, 2)]
        line.append(parts((pair.better, pair.equal, pair.worse)))
        if several:
            line.append(", ".join(f"{seed}: {difference(value)}" for seed, value in pair.by_split.items()))
        body.append(line)
    return header, body


def pairs_note(neighbours: Sequence[Comparison]) -> str:
    """Return which pairs of many models were tested, and what the correction makes of the others."""
    pairs = ", ".join(dict.fromkeys(f"{pair.tests:,}" for pair in neighbours))
    return (
        "tested: each model with the best one and with the next better one; p-values are corrected for all pairs of models "
        f"({pairs}), as if those of the others were 1 (final.pairs=all tests all)"
    )


def _row_json(row: ReportRow, table: Table) -> dict[str, Any]:
    about = {RENAMED.get(name, name): value for name, value in vars(row).items() if name not in ("stated", "seeded")}
    if row.joules is None:
        del about["joules"]
    about["metrics"] = {
        name: vars(cell) | {"difference": cell.difference, "tied": table.tied(row, name)} for name, cell in row.cells.items()
    }
    about |= {"peak_memory_gb": round(row.peak_memory_gb, 3), "state": row.missing or "measured"}
    command = about.pop("command")
    return about | {"mlflow": [table.links.runs[run] for run in row.runs if run in table.links.runs], "command": command}


def as_json(table: Table) -> dict[str, Any]:
    """Return the table as JSON values."""
    rows = [_row_json(row, table) for row in table.rows]
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
        "differences": [pair.facts() for pair in table.differences],
        "deviations": list(table.deviations),
        "budget": [asdict(each) for each in table.budget],
        "time_to_target": [asdict(each) for each in table.targets],
        "not_available": {name: vars(why) for name, why in table.not_available.items()},
    }


def render(table: Table, format: str) -> str:
    """Return the table as `md`, `latex`, `csv` or `json` text. Marks in cells are explained below the table."""
    if format == "json":
        return json.dumps(as_json(table), indent=2)
    if format == "csv":
        return csv_text(table)
    if format == "latex":
        # tabulate escapes special characters of LaTeX, so commands are inserted afterwards.
        header, body = columns(table, best="\x02{}\x04".format, second="\x03{}\x04".format)
        text = tabulate(body, header, tablefmt="latex_booktabs", disable_numparse=True)
        text += "".join(f"\n\n\\noindent {{\\footnotesize {line}}}" for line in table.legend)
        commands = {"\x02": r"\textbf{", "\x03": r"\underline{", "\x04": "}", "†": r"$^{\dagger}$", "±": r"$\pm$"}
        for sign, command in commands.items():
            text = text.replace(sign, command)
        return text
    return "\n\n".join([markdown.table(*columns(table, best=Best, second=Second)), *table.legend])


def frame_of(table: Table) -> pd.DataFrame:
    """One row per dataset and model. For each metric it has the mean over users, `low` and `high` of the 95 % interval, `std`
    if models have several runs, `tied` (not distinguishable from the best of the dataset), and `published` if a paper reports a
    number; then the setting, seconds, by how many settings they are shared, memory, and `state`, which is "measured" or says
    why there is no number.
    """
    rows = []
    for row in table.rows:
        line: dict[str, Any] = {"dataset": row.dataset, "model": row.arm, "method": row.method}
        for metric in table.metrics:
            cell = row.cells.get(metric)
            line[metric] = cell.mean if cell else None
            line |= {f"{metric} {name}": getattr(cell, name) if cell else None for name in ("low", "high", "std")}
            line[f"{metric} tied"] = table.tied(row, metric)
            line[f"{metric} published"] = row.published.get(metric)
        setting = {name: value for name, value in row.params.items() if name in row.stated}
        # Settings that share a fit share its seconds and joules: each row has all of them.
        line |= {"setting": setting, "fit_seconds": row.seconds.get("fit"), "fit_shared_by": row.fit_shared_by}
        line |= {"rank_seconds": row.seconds.get("rank"), "peak_memory_gb": row.peak_memory_gb or None}
        line |= {} if row.joules is None else {"joules": row.joules}
        rows.append(line | {"state": row.missing or "measured"})
    columns = None if rows else ["dataset", "model", "method", *table.metrics, "setting", "state"]
    frame = pd.DataFrame(rows, columns=columns)
    sparse = [name for name in frame if name.endswith((" published", " std")) and frame[name].isna().all()]
    return frame.drop(columns=sparse)


def csv_text(table: Table) -> str:
    """The frame as CSV, with settings as words. Text that a spreadsheet would run as a formula is made inert."""
    frame = frame_of(table)
    frame["setting"] = frame["setting"].map(setting_text)
    return inert_table(frame).to_csv(index=False)


def _with(table: Table, attribute: str) -> list[str]:
    """Return the metrics for which a cell has the attribute; for `published`, also those of rows without a measurement."""
    cells = [(name, cell) for row in table.rows for name, cell in row.cells.items()]
    missing = [name for row in table.rows if row.missing and attribute == "published" for name in row.published]
    return [*(name for name, cell in cells if getattr(cell, attribute) is not None), *missing]
