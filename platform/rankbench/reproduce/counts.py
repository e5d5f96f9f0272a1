"""Counts of published cells by table and paper."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rankbench.core.environment import Environment
from rankbench.data.availability import raw_data
from rankbench.data.cards import load_card
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.costs import cost_cells, n_cost_cells
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.simulations import SIMULATIONS
from rankbench.reproduce.standing import Count, count, count_of
from rankbench.reproduce.wanted import Row

NOWHERE = ("download", "no such file", "no such folder", "offline", "mirror only")  # of `raw_data`


def counts(
    tables: Sequence[PaperTable], names: Collection[str], evidence: Evidence, environment: Environment
) -> dict[str, Count]:
    """Return the counts of the tables `names`, with a line `PAPER, all` for each paper of several tables, and `all` at the end.

    Stand-ins are not counted.
    """
    found: dict[str, Count] = {}
    for table in tables:
        if table.name in names:
            found[table.name] = found.get(table.name, Count()) + _of_table(table, evidence, environment)
    for simulation in SIMULATIONS:
        if simulation.table in names:
            for dataset in simulation.datasets:
                n_cells = len(simulation.published(dataset))
                here = raw_data(load_card(dataset, environment), environment) not in NOWHERE
                own = Count(published=n_cells, data_here=n_cells * here)
                own = sum((count_of(cell) for _, cell in simulation.cells(dataset, evidence)), own)
                found[simulation.table] = found.get(simulation.table, Count()) + own
    result: dict[str, Count] = {}
    for paper in dict.fromkeys(name.split("/")[0] for name in found):
        own_tables = {name: each for name, each in sorted(found.items()) if name.split("/")[0] == paper and each.published}
        result |= own_tables
        if len(own_tables) > 1:
            result[f"{paper}, all"] = sum(own_tables.values(), Count())
    if len(result) > 1:
        result["all"] = sum(found.values(), Count())
    return result


def _of_table(table: PaperTable, evidence: Evidence, environment: Environment) -> Count:
    total = Count()
    assert table.spec.published is not None
    for name, card in table.cards.items():
        if table.stand_in(name) or name in table.spec.published.beside:
            continue
        here = raw_data(card, environment) not in NOWHERE
        rows = [Row(table, arm, card) for arm in table.spec.arms]
        total = sum((count(row, here, evidence) for row in rows), total)
        for row in rows:
            n_costs = n_cost_cells(row)
            total += Count(published=n_costs, data_here=n_costs * here)
            total = sum((count_of(cell) for cell in cost_cells(row, evidence)), total)
        missing = sum(len(row.published.get(name, {})) + len(row.costs.get(name, {})) for row in table.spec.not_run)
        total += Count(published=missing, data_here=missing * here)
    return total
