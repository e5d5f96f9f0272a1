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
    ratios = {name: _cost(name, own) / _cost(name, theirs) for name in row.arm.costs.get(row.dataset, {}) if own}
    return [
        Agreement(
            f"{name} relative to {base.label}",
            row.arm.costs[row.dataset][name] / base.costs[row.dataset][name],
            ratio,
            None,
            None,
        )
        for name, ratio in ratios.items()
    ]


def n_cost_cells(row: PaperRow) -> int:
    """Return the number of published costs of a row."""
    return len(row.arm.costs.get(row.dataset, {}))


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
