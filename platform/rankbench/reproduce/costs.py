"""Published time and memory of fits: of other machines, so each is divided by that of one row of its table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rankbench.judge.agreement import Agreement
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.required_fits import PaperRow


def cost_cells(row: PaperRow, evidence: Evidence) -> list[Agreement]:
    """Return time and memory of a row, relative to the row `published.costs_of` of its table. Only fits on one device, kind of
    processor and number of threads are compared: the last such ones of both rows, idle ones if there are any. Without such fits
    the list is empty.
    """
    published = row.table.spec.published
    label = published.costs_of if published else None
    base = next((arm for arm in row.table.spec.arms if arm.label == label and row.dataset in arm.costs), None)
    if base is None or base.label == row.arm.label:
        return []
    theirs = PaperRow(row.table, base, row.card).fits("printed", evidence)
    own, theirs = _comparable(row.fits("printed", evidence), theirs)
    cells, of_base = [], base.costs[row.dataset]
    for name, cost in row.costs.items():
        if own and name in of_base and (divisor := _cost(name, theirs)):
            ratio = _cost(name, own) / divisor
            cells.append(Agreement(f"{name} relative to {base.label}", cost / of_base[name], ratio, None, None, seeds=0))
    return cells


def _comparable(own: Sequence[StoredFit], theirs: Sequence[StoredFit]) -> tuple[list[StoredFit], list[StoredFit]]:
    """Return the fits of both rows that were made in the same way, in the way of the last fit that has a counterpart."""
    ways = {_way(fit) for fit in own} & {_way(fit) for fit in theirs}
    last = max((fit for fit in (*own, *theirs) if _way(fit) in ways), key=lambda fit: (fit.idle, fit.started_at), default=None)
    if last is None:
        return [], []
    return [fit for fit in own if _way(fit) == _way(last)], [fit for fit in theirs if _way(fit) == _way(last)]


def _way(fit: StoredFit) -> tuple[str, str, int, bool]:
    return fit.device, fit.cpu, fit.threads, fit.idle


def _cost(name: str, fits: Sequence[StoredFit]) -> float:
    if name == "gigabytes":
        return max(fit.peak_memory_gb for fit in fits)
    return fmean(fit.own_seconds for fit in fits)
