"""The datasets of published tables whose files this machine does not have, and the files that a user must bring."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rankbench.core.environment import Environment
from rankbench.data.cards import Card, RemoteFile, without_query
from rankbench.data.describe import sizes
from rankbench.reports.page import Grid
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.counts import counts_by_dataset
from rankbench.reproduce.evidence import Evidence


@dataclass(frozen=True)
class MissingData:
    """A dataset without data here, and the number of published `cells` that wait for it, in `tables`."""

    card: Card
    tables: tuple[str, ...]
    cells: int


def missing_data(
    tables: Sequence[PaperTable], names: Collection[str], evidence: Evidence, environment: Environment
) -> list[MissingData]:
    """Return the datasets without data here that cells of the tables `names` wait for, those with most cells first."""
    found: dict[str, MissingData] = {}
    for table, card, count in counts_by_dataset(tables, names, evidence, environment):
        if count.published > count.data_here:
            before = found.get(card.name, MissingData(card, (), 0))
            found[card.name] = MissingData(card, (*before.tables, table), before.cells + count.published)
    return sorted(found.values(), key=lambda each: (-each.cells, each.card.name))


def files_to_bring(missing: Sequence[MissingData], environment: Environment) -> Grid:
    """Return a table of the files, with the checksums and the counts of prepared data that the cards know."""
    body = []
    for each in missing:
        remotes = [*each.card.source.parts().values(), *each.card.source.companions.values()]
        size = sizes(each.card, environment)
        counts = [f"{size[name]:,}" if size[name] else "" for name in ("users", "items", "interactions")]
        files = "; ".join(f"[{remote.filename}]({without_query(remote.url)})" for remote in remotes if remote.url)
        sums = "; ".join(filter(None, map(_checksum, remotes)))
        body.append([each.card.name, str(each.cells), ", ".join(each.tables), files, sums or "not known", *counts])
    header = ["dataset", "cells", "tables", "files", "checksum", "users", "items", "interactions"]
    return Grid(header, body)


def _checksum(remote: RemoteFile) -> str:
    return f"sha256 {remote.sha256}" if remote.sha256 else f"md5 {remote.md5}" if remote.md5 else ""
