"""Counts of published cells by table and paper; and why measured ones are off, as far as it is known: more than 3 % from the
published number, which is not in the interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from rankbench.core.environment import Environment
from rankbench.data.cards import Card
from rankbench.data.describe import MISSING, raw_data
from rankbench.judge.agreement import Agreement
from rankbench.reproduce.agreement import Count, count, counted_cells, tally
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.costs import cost_cells
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.required_fits import rows_of
from rankbench.reproduce.simulations import study_tables
from rankbench.schema.experiment import Cause

MEANING: dict[Cause, str] = {
    "part": "the paper may have chosen the setting or the epoch on test; here validation chose it",
    "steps": "trained with fewer steps than in the paper",
    "text": "the available text lacks a part of the setting",
    "misprint": "the published numbers contradict each other or the text, or are probably in the wrong columns",
    "seconds": "seconds of another machine, although they are compared as ratios",
    "above": "the measured number is the higher one, and no other cause is known",
    "not found": "not found; what was tried, if anything, stands at the row",
}
assert set(MEANING) == set(get_args(Cause))
NOWHERE = ("download", *MISSING)  # of `raw_data`


def counts(
    tables: Sequence[PaperTable], names: Collection[str], evidence: Evidence, environment: Environment
) -> dict[str, Count]:
    """Return the counts of the tables `names`, with a line `PAPER, all` for each paper of several tables, and `all` at the end.

    Stand-ins are not counted.
    """
    found: defaultdict[str, Count] = defaultdict(Count)
    for table, _, each in counts_by_dataset(tables, names, evidence, environment):
        found[table] += each
    result: dict[str, Count] = {}
    for paper in dict.fromkeys(name.split("/")[0] for name in found):
        own_tables = {name: each for name, each in sorted(found.items()) if name.split("/")[0] == paper and each.published}
        result |= own_tables
        if len(own_tables) > 1:
            result[f"{paper}, all"] = sum(own_tables.values(), Count())
    if len(result) > 1:
        result["all"] = sum(found.values(), Count())
    return result


def counts_by_dataset(
    tables: Sequence[PaperTable], names: Collection[str], evidence: Evidence, environment: Environment
) -> Iterator[tuple[str, Card, Count]]:
    """Yield the name of each of the tables `names`, each dataset whose cells count, and the count of these."""
    for table in (each for each in tables if each.name in names):
        files = [each for each in tables if each.name == table.name]
        for card in _counted_cards(table):
            here, not_run = raw_data(card, environment) not in NOWHERE, table.spec.not_run
            total = tally(sum(len(each.get(card.name, {})) for row in not_run for each in (row.published, row.costs)), here)
            for row in rows_of([table], [card.name]):
                total += count(row, here, evidence, files) + tally(len(row.costs), here, cost_cells(row, evidence))
            yield table.name, card, total
    for study in study_tables(names, environment):
        here, cells = raw_data(study.card, environment) not in NOWHERE, [cell for _, cell in study.cells(evidence)]
        yield study.simulation.table, study.card, tally(len(study.published), here, cells)


@dataclass(frozen=True)
class OffCell:
    """A measured cell that is off. `row` is its label."""

    row: str
    cause: Cause
    cell: Agreement


def off_cells(
    tables: Sequence[PaperTable], names: Collection[str], evidence: Evidence, environment: Environment
) -> list[OffCell]:
    """Return the cells that are off in the tables `names`, those of simulations included, and stand-ins left out."""
    found = [each for table in tables if table.name in names for each in _cells_of_table(table, evidence)]
    for study in study_tables(names, environment):
        found += [OffCell(row, study.simulation.cause, cell) for row, cell in study.cells(evidence)]
    return [each for each in found if each.cell.state == "off"]


def by_cause(cells: Sequence[OffCell]) -> list[tuple[Cause, int, list[str]]]:
    """Return each cause with the number of its cells and the rows that have them, in the order of MEANING."""
    found = {cause: [each for each in cells if each.cause == cause] for cause in MEANING}
    return [(cause, len(own), list(dict.fromkeys(each.row for each in own))) for cause, own in found.items() if own]


def _cells_of_table(table: PaperTable, evidence: Evidence) -> Iterator[OffCell]:
    for card in _counted_cards(table):
        for row in (row for row in rows_of([table], [card.name]) if row.arm.variant_of is None):
            for _, cell in counted_cells(row, evidence):
                yield OffCell(row.arm.label, row.arm.cause or ("above" if cell.relative > 0 else "not found"), cell)
            for cell in cost_cells(row, evidence):
                yield OffCell(row.arm.label, "seconds", cell)


def _counted_cards(table: PaperTable) -> Iterator[Card]:
    """Yield the datasets of a table whose cells count: no stand-ins, and none beside those of another table."""
    assert table.spec.published is not None
    for name, card in table.cards.items():
        if not table.stand_in(name) and name not in table.spec.published.beside:
            yield card
