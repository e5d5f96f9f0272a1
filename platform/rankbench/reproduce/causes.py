"""Why measured cells are off, as far as it is known: more than 3 % from the published number, which is not in the interval."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.costs import cost_cells
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.simulations import SIMULATIONS
from rankbench.reproduce.standing import CellStanding, count_of, counted_cells
from rankbench.reproduce.wanted import Row
from rankbench.schema.experiment import Cause

MEANING: dict[Cause, str] = {
    "part": "the paper chose the setting or the epoch on test; here validation chose it",
    "steps": "trained with fewer steps than in the paper",
    "text": "the available text lacks a part of the setting",
    "misprint": "the published numbers contradict each other or the text",
    "seconds": "seconds of another machine, although they are compared as ratios",
    "above": "the measured number is the higher one, and no other cause is known",
    "not found": "not found; what was tried stands at the row",
}
assert set(MEANING) == set(get_args(Cause))


@dataclass(frozen=True)
class OffCell:
    """A measured cell that is off. `row` is its label."""

    table: str
    row: str
    cause: Cause
    cell: CellStanding


def off_cells(tables: Sequence[PaperTable], names: Collection[str], evidence: Evidence) -> list[OffCell]:
    """Return the cells that are off in the tables `names`, those of simulations included, and stand-ins left out."""
    found = [each for table in tables if table.name in names for each in _of_table(table, evidence)]
    for simulation in (each for each in SIMULATIONS if each.table in names):
        for dataset in simulation.datasets:
            for row, cell in simulation.cells(dataset, evidence):
                found.append(OffCell(simulation.table, row, simulation.cause, cell))
    return [each for each in found if not count_of(each.cell).within_3]


def by_cause(cells: Sequence[OffCell]) -> list[tuple[Cause, int, list[str]]]:
    """Return each cause with the number of its cells and the rows that have them, in the order of MEANING."""
    found = {cause: [each for each in cells if each.cause == cause] for cause in MEANING}
    return [(cause, len(own), list(dict.fromkeys(each.row for each in own))) for cause, own in found.items() if own]


def _of_table(table: PaperTable, evidence: Evidence) -> Iterator[OffCell]:
    assert table.spec.published is not None
    for name, card in table.cards.items():
        if table.stand_in(name) or name in table.spec.published.beside:
            continue
        for row in (Row(table, arm, card) for arm in table.spec.arms if arm.variant_of is None):
            for cell in counted_cells(row, evidence):
                yield OffCell(table.name, row.arm.label, row.arm.cause or ("above" if cell.relative > 0 else "not found"), cell)
            for cell in cost_cells(row, evidence):
                yield OffCell(table.name, row.arm.label, "seconds", cell)
