"""Measured beside published numbers, as the columns of a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankbench.judge.agreement import Agreement
from rankbench.judge.printing import number, percent, share
from rankbench.reports.page import Column, tabulated
from rankbench.reproduce.agreement import Count, MeasuredRow, measurements
from rankbench.reproduce.costs import cost_cells
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.required_fits import PaperRow
from rankbench.reproduce.simulations import StudyTable
from rankbench.reproduce.training import MARK

OTHER_DATA = "published, other data"  # header of the numbers that a paper has for the data that a stand-in replaces
MARKED = "● published number in the 95 % interval, ◐ within 1 % of it, ○ within 3 %"
MARKS = {"within the interval": " ●", "within 1 %": " ◐", "within 3 %": " ○", "off": ""}


def table_columns(rows: Sequence[PaperRow], evidence: Evidence) -> tuple[list[str], list[list[str]], set[str]]:
    """Return header and cells of the rows of one table and dataset, and the words for their settings. Beside a stand-in, the
    published numbers are those of other data, and differences from them say nothing.
    """
    rows = [row for row in rows if row.published]
    metrics = list(dict.fromkeys(name for row in rows for name in row.published))
    stand_in = any(row.stand_in for row in rows)
    published = (OTHER_DATA,) if stand_in else ("published", "difference")
    header = ["row", "setting", "seeds", *(text for name in metrics for text in (name, *published))]
    header += ["training", "fit, s"]
    body: list[list[str]] = []
    settings: set[str] = set()
    for row in rows:
        found = measurements(row, evidence)
        for each in found:
            settings.add(each.setting)
            cells = {cell.metric: cell for cell in each.cells}
            texts = [text for name in metrics for text in _texts(cells.get(name))[: 1 + len(published)]]
            # The training seconds of a fit that had the machine to itself.
            seconds = next((f"{fit.seconds.get('fit', 0.0):.1f}" for fit in each.fits if fit.idle), "")
            body.append([row.arm.label, each.setting, str(len(each.fits)), *texts, str(each.training or ""), seconds])
        if not found:
            texts = [text for name in metrics for text in ("", number(row.published.get(name)), "")[: 1 + len(published)]]
            body.append([row.arm.label, "not measured yet", "", *texts, "", ""])
    kept = [i for i, name in enumerate(header) if name not in ("training", "fit, s") or any(line[i] for line in body)]
    return [header[i] for i in kept], [[line[i] for i in kept] for line in body], settings


def cost_columns(rows: Sequence[PaperRow], evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of published times and memories, relative to one row; the body is empty if there are none. Beside
    a stand-in, they are those of other data, as in `table_columns`.
    """
    stand_in = any(row.stand_in for row in rows)
    columns: list[Column] = [
        ("row", lambda each: each[0].arm.label),
        ("cost", lambda each: each[1].metric),
        ("measured", lambda each: f"{each[1].mean:.2f}"),
        (OTHER_DATA if stand_in else "published", lambda each: f"{each[1].published:.2f}"),
        *([] if stand_in else [("difference", lambda each: _near(each[1], "+.0f"))]),
    ]
    return tabulated([(row, cell) for row in rows for cell in cost_cells(row, evidence)], columns)


def study_columns(study: StudyTable, evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table that a study measures."""
    measured = {(row, cell.metric): cell for row, cell in study.cells(evidence)}
    body = []
    for (row, metric), published in study.published.items():
        cell = measured.get((row, metric))
        missing = "1 by definition" if row == study.simulation.base else "not measured yet"
        value, near = (f"{cell.mean:.4g}", _near(cell)) if cell else (missing, "")
        body.append([row, metric, value, f"{published:.4g}", near])
    return ["row", "metric", "measured", "published", "difference"], body


def count_columns(first: str, counts: Mapping[str, Count]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of counts by name; `first` is the header of the names."""
    columns: list[Column] = [
        (first, lambda each: each[0]),
        ("published", lambda each: str(each[1].published)),
        ("data here", lambda each: str(each[1].data_here)),
        ("measured", lambda each: str(each[1].measured)),
        ("within 1 %", lambda each: share(each[1].within_1, each[1].measured)),
        ("within 3 %", lambda each: share(each[1].within_3, each[1].measured)),
        ("agree", lambda each: share(each[1].agree, each[1].measured)),
        ("half-width", lambda each: _ratio(each[1].half_widths, each[1].with_interval)),
        ("by chance", lambda each: _by_chance(each[1])),
        ("found on test", lambda each: str(each[1].on_test or "")),
        (MARK, lambda each: str(each[1].cut_short or "")),
    ]
    return tabulated(counts.items(), columns)


def seed_columns(count: Count) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of the measured cells with one seed, with several, and of costs and simulations."""
    one = (count.one_seed, count.one_within_1, count.one_within_3)
    several = (count.several_seeds, count.several_within_1, count.several_within_3)
    every = (count.measured, count.within_1, count.within_3)
    others = tuple(a - b - c for a, b, c in zip(every, one, several, strict=True))
    kinds = {"one": one, "several": several, "costs and simulations": others}
    body = [[name, str(n), share(in_1, n), share(in_3, n)] for name, (n, in_1, in_3) in kinds.items() if n]
    return ["seeds", "measured", "within 1 %", "within 3 %"], body


def as_json(rows: Sequence[PaperRow], studies: Sequence[StudyTable], evidence: Evidence) -> dict[str, Any]:
    """Return the measured rows and studies as JSON values."""
    simulated = [
        {"table": study.simulation.table, "dataset": study.dataset, "row": row, **_cell_json(cell)}
        for study in studies
        for row, cell in study.cells(evidence)
    ]
    return {
        "rows": [_row_json(each) for row in rows for each in measurements(row, evidence)],
        "not_measured": [_about(row) | {"published": row.published} for row in rows if not measurements(row, evidence)],
        "studies": simulated,
    }


def _about(row: PaperRow) -> dict[str, Any]:
    return {"table": row.table.name, "dataset": row.dataset, "row": row.arm.label}


def _row_json(each: MeasuredRow) -> dict[str, Any]:
    training = each.training
    return {
        **_about(each.row),
        "stand_in": each.row.stand_in,
        "setting": each.origin,
        "lacking": each.row.lacking if each.origin == "printed" else [],
        "params": each.fits[0].params,
        "seeds": [fit.seed for fit in each.fits],
        "training": training and vars(training) | {"steps": training.steps, "cut_short": training.cut_short},
        "cells": [vars(cell) if each.row.stand_in else _cell_json(cell) for cell in each.cells],
    }


def _cell_json(cell: Agreement) -> dict[str, Any]:
    relative = cell.relative if cell.published else None  # JSON has no infinite number
    return vars(cell) | {"relative": relative, "state": cell.state}


def _ratio(total: float, n: int, form: str = ".1f") -> str:
    return percent(total / n, form) if n else ""


def _by_chance(count: Count) -> str:
    """Return the share that would agree by chance; if not of all that are measured, also of how many cells, and how many do."""
    agree = share(count.others_agree, count.with_others)
    of = f" of {count.with_others}; {agree} do" if 0 < count.with_others < count.measured else ""
    return f"{_ratio(count.by_chance, count.with_others, '.0f')}{of}"


def _texts(cell: Agreement | None) -> list[str]:
    return [number(cell.mean), number(cell.published), _near(cell)] if cell else ["", "", ""]


def _near(cell: Agreement, form: str = "+.1f") -> str:
    return (percent(cell.relative, form) if cell.published else "") + MARKS[cell.state]
