"""The table of a sweep for programs: a DataFrame or CSV text with one number per cell and no two columns of one name."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rankbench.core.spreadsheet import inert
from rankbench.reports.tables import Table, setting_text


def frame_of(table: Table) -> pd.DataFrame:
    """One row per dataset and model. For each metric it has the mean over users, `low` and `high` of the 95 % interval, `std`
    if models have several runs, `tied` (not distinguishable from the best of the dataset), and `published` if a paper reports a
    number; then the setting, seconds, memory, and `state`, which is "measured" or says why there is no number.
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
        line |= {"setting": setting, "fit_seconds": row.seconds.get("fit")}
        line |= {"rank_seconds": row.seconds.get("rank"), "peak_memory_gb": row.peak_memory_gb or None}
        rows.append(line | {"state": row.missing or "measured"})
    frame = pd.DataFrame(rows)
    sparse = [name for name in frame if name.endswith((" published", " std")) and frame[name].isna().all()]
    return frame.drop(columns=sparse)


def csv_text(table: Table) -> str:
    """The frame as CSV, with settings as words. Text that a spreadsheet would run as a formula is made inert."""
    frame = frame_of(table)
    frame["setting"] = frame["setting"].map(setting_text)
    words = frame.select_dtypes(include=["object", "string"]).columns
    return frame.assign(**{name: [inert(w) if isinstance(w, str) else w for w in frame[name]] for name in words}).to_csv(
        index=False
    )
