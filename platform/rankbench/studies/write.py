"""The files of a study: result.json with rows, parameters and environment; table.md and plot.png for readers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rankbench.core.files import write_json, write_text
from rankbench.reports.draw import draw
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Grid, Items, Page, Section
from rankbench.studies.spec import Findings, Study


def write(folder: Path, study: Study, params: Any, seed: int, findings: Findings, environment: dict[str, Any]) -> list[Path]:
    """Write the three files, each completely or not at all, and return their paths. result.json is written last, so if it
    exists, all do. Raises StorageError if `folder` is not writable.
    """
    table, plot, result = (folder / name for name in ("table.md", "plot.png", "result.json"))
    write_text(table, markdown(page(study, findings)))
    draw(findings.figure, plot, dpi=110)
    about = {"study": study.name, "source": study.source, "params": dataclasses.asdict(params), "seed": seed}
    found = {name: getattr(findings, name) for name in ("datasets", "columns", "rows", "notes")}
    write_json(result, about | found | {"environment": environment})
    return [result, table, plot]


def body(findings: Findings) -> list[list[str]]:
    """The rows as text, in the order of the columns."""
    return [[cell(row.get(key)) for key in findings.columns] for row in findings.rows]


def cell(value: Any) -> str:
    """A value as text: a float with four significant digits, None as an empty text."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def page(study: Study, findings: Findings) -> Page:
    used = ", ".join(f"{dataset['name']} ({dataset['fingerprint']})" for dataset in findings.datasets)
    blocks = Grid([*findings.columns.values()], body(findings)), Items(tuple(findings.notes))
    return Page(study.title, (f"{study.source}. Data: {used}.",), (Section("", blocks),))
