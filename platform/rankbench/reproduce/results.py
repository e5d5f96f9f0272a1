"""Measured beside published numbers, as the columns of a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankbench.reproduce.costs import cost_cells
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.simulations import Simulation
from rankbench.reproduce.standing import CellStanding, RowStanding, standings
from rankbench.reproduce.wanted import Origin, Row

MARKED = "● published number in the 95 % interval, ◐ within 1 % of it, ○ within 3 %"
MARKS = {"within the interval": " ●", "within 1 %": " ◐", "within 3 %": " ○", "off": ""}


def table_columns(rows: Sequence[Row], evidence: Evidence) -> tuple[list[str], list[list[str]], set[Origin]]:
    """Return header and cells of the rows of one table and dataset, and the origins of their settings."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.published))
    header = ["row", "setting", "seeds"]
    for name in metrics:
        header += [name, "published", "difference"]
    timed = any(fit.idle for row in rows for each in standings(row, evidence) for fit in each.fits)
    header += ["fit, s"] if timed else []
    body: list[list[str]] = []
    origins: set[Origin] = set()
    for row in (row for row in rows if row.published):
        found = standings(row, evidence)
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
                line += ["", f"{row.published[name]:.4f}" if name in row.published else "", ""]
            body.append(line + ([""] if timed else []))
    return header, body, origins


def _seconds(standing: RowStanding) -> str:
    """Training seconds of a fit that had the machine to itself."""
    return next((f"{fit.seconds.get('fit', 0.0):.1f}" for fit in standing.fits if fit.idle), "")


def cost_columns(rows: Sequence[Row], evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of published times and memories, relative to one row; the body is empty if there are none."""
    body = []
    for row in rows:
        for cell in cost_cells(row, evidence):
            measured = [f"{cell.mean:.2f}", f"{cell.published:.2f}", f"{100 * cell.relative:+.0f} %{MARKS[cell.state]}"]
            body.append([row.arm.label, cell.metric, *measured])
    return ["row", "cost", "measured", "published", "difference"], body


def study_columns(study: Simulation, dataset: str, evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table that a study measures."""
    measured = {(row, cell.metric): cell for row, cell in study.cells(dataset, evidence)}
    body = []
    for (row, metric), number in study.published(dataset).items():
        cell = measured.get((row, metric))
        line = ["1 by definition" if row == study.base else "not measured yet", f"{number:.4g}", ""]
        if cell is not None:
            line = [f"{cell.mean:.4g}", f"{number:.4g}", f"{100 * cell.relative:+.1f} %{MARKS[cell.state]}"]
        body.append([row, metric, *line])
    return ["row", "metric", "measured", "published", "difference"], body


def as_json(rows: Sequence[Row], studies: Sequence[tuple[Simulation, str]], evidence: Evidence) -> dict[str, Any]:
    """Return the measured rows and studies as JSON values."""
    measured = [_row_json(each) for row in rows for each in standings(row, evidence)]
    missing = [
        {"table": row.table.name, "dataset": row.dataset, "row": row.arm.label, "published": row.published}
        for row in rows
        if not standings(row, evidence)
    ]
    simulated = [
        {"table": study.table, "dataset": dataset, "row": row, **_cell_json(cell)}
        for study, dataset in studies
        for row, cell in study.cells(dataset, evidence)
    ]
    return {"rows": measured, "not_measured": missing, "studies": simulated}


def share(part: int, whole: int) -> str:
    """Return a number with its share of the whole; empty if there is no whole."""
    return f"{part} ({100 * part / whole:.0f} %)" if whole else ""


def _row_json(each: RowStanding) -> dict[str, Any]:
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


def _cell_json(cell: CellStanding) -> dict[str, Any]:
    return vars(cell) | {"relative": cell.relative, "state": cell.state}


def _texts(cell: CellStanding | None) -> list[str]:
    if cell is None:
        return ["", "", ""]
    return [f"{cell.mean:.4f}", f"{cell.published:.4f}", f"{100 * cell.relative:+.1f} %{MARKS[cell.state]}"]
