"""Measured beside published numbers, as the columns of a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankbench.judge.agreement import Agreement
from rankbench.judge.printing import number, percent, share
from rankbench.reproduce.agreement import Count, MeasuredRow, measurements
from rankbench.reproduce.costs import cost_cells
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.required_fits import Origin, PaperRow
from rankbench.reproduce.simulations import Simulation

MARKED = "● published number in the 95 % interval, ◐ within 1 % of it, ○ within 3 %"
MARKS = {"within the interval": " ●", "within 1 %": " ◐", "within 3 %": " ○", "off": ""}


def table_columns(rows: Sequence[PaperRow], evidence: Evidence) -> tuple[list[str], list[list[str]], set[Origin]]:
    """Return header and cells of the rows of one table and dataset, and the origins of their settings."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.published))
    header = ["row", "setting", "seeds"]
    for name in metrics:
        header += [name, "published", "difference"]
    timed = any(fit.idle for row in rows for each in measurements(row, evidence) for fit in each.fits)
    header += ["fit, s"] if timed else []
    body: list[list[str]] = []
    origins: set[Origin] = set()
    for row in (row for row in rows if row.published):
        found = measurements(row, evidence)
        origins |= {each.origin for each in found}
        for each in found:
            cells = {cell.metric: cell for cell in each.cells}
            body.append(
                [
                    row.arm.label,
                    each.origin,
                    str(len(each.fits)),
                    *(text for name in metrics for text in _texts(cells.get(name))),
                    *([_seconds(each)] if timed else []),
                ]
            )
        if not found:
            line = [row.arm.label, "not measured yet", ""]
            for name in metrics:
                line += ["", number(row.published.get(name)), ""]
            body.append(line + ([""] if timed else []))
    return header, body, origins


def _seconds(standing: MeasuredRow) -> str:
    """Training seconds of a fit that had the machine to itself."""
    return next((f"{fit.seconds.get('fit', 0.0):.1f}" for fit in standing.fits if fit.idle), "")


def cost_columns(rows: Sequence[PaperRow], evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of published times and memories, relative to one row; the body is empty if there are none."""
    body = []
    for row in rows:
        for cell in cost_cells(row, evidence):
            body.append([row.arm.label, cell.metric, f"{cell.mean:.2f}", f"{cell.published:.2f}", _near(cell, "+.0f")])
    return ["row", "cost", "measured", "published", "difference"], body


def study_columns(study: Simulation, dataset: str, evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table that a study measures."""
    measured = {(row, cell.metric): cell for row, cell in study.cells(dataset, evidence)}
    body = []
    for (row, metric), published in study.published(dataset).items():
        cell = measured.get((row, metric))
        line = ["1 by definition" if row == study.base else "not measured yet", f"{published:.4g}", ""]
        if cell is not None:
            line = [f"{cell.mean:.4g}", f"{published:.4g}", _near(cell)]
        body.append([row, metric, *line])
    return ["row", "metric", "measured", "published", "difference"], body


def as_json(rows: Sequence[PaperRow], studies: Sequence[tuple[Simulation, str]], evidence: Evidence) -> dict[str, Any]:
    """Return the measured rows and studies as JSON values."""
    measured = [_row_json(each) for row in rows for each in measurements(row, evidence)]
    missing = [
        {"table": row.table.name, "dataset": row.dataset, "row": row.arm.label, "published": row.published}
        for row in rows
        if not measurements(row, evidence)
    ]
    simulated = [
        {"table": study.table, "dataset": dataset, "row": row, **_cell_json(cell)}
        for study, dataset in studies
        for row, cell in study.cells(dataset, evidence)
    ]
    return {"rows": measured, "not_measured": missing, "studies": simulated}


def count_columns(first: str, counts: Mapping[str, Count]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of counts by name; `first` is the header of the names."""
    header = [first, "published", "data here", "measured", "in the interval", "within 1 %", "within 3 %", "found on test"]
    body = []
    for name, each in counts.items():
        near = [share(number, each.measured) for number in (each.in_interval, each.within_1, each.within_3)]
        totals = [str(each.published), str(each.data_here), str(each.measured)]
        body.append([name, *totals, *near, str(each.on_test) if each.on_test else ""])
    return header, body


def _row_json(each: MeasuredRow) -> dict[str, Any]:
    return {
        "table": each.row.table.name,
        "dataset": each.row.dataset,
        "stand_in": each.row.table.stand_in(each.row.dataset),
        "row": each.row.arm.label,
        "setting": each.origin,
        "params": each.fits[0].params,
        "seeds": [fit.seed for fit in each.fits],
        "cells": [_cell_json(cell) for cell in each.cells],
    }


def _cell_json(cell: Agreement) -> dict[str, Any]:
    return vars(cell) | {"relative": cell.relative, "state": cell.state}


def _texts(cell: Agreement | None) -> list[str]:
    if cell is None:
        return ["", "", ""]
    return [number(cell.mean), number(cell.published), _near(cell)]


def _near(cell: Agreement, form: str = "+.1f") -> str:
    return percent(cell.relative, form) + MARKS[cell.state]
