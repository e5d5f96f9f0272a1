"""Test which rows of a table differ from the next ones: paired tests over users, in the order of the measured means."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit, StoredNeighbours
from rankbench.reproduce.paired import measured_fits, paired_tests, run_folders, standing_pairs


def check_neighbours(
    tables: Iterable[PaperTable], datasets: Iterable[str], evidence: Evidence, environment: Environment
) -> int:
    """Test each measured row of a table against the one below it, in the first metric that the table publishes, and add the
    tests to the evidence. Rows whose values per user are not on this machine keep the tests that they have from elsewhere, and
    are named if they have none. Returns how many tables were tested. A table is tested again if runs or pairs here are new.
    """
    folders = run_folders(environment)
    tested = 0
    for table, dataset, metric in _published(tables, set(datasets)):
        labels = [arm.label for arm in table.spec.arms if metric in arm.published.get(dataset, {})]
        fits = {label: found for label in labels if (found := measured_fits(table, dataset, label, evidence))}
        here = {label: [fit for fit in each if fit.stamp in folders] for label, each in fits.items()}
        order = sorted((label for label in here if here[label]), key=lambda label: _mean(here[label], metric), reverse=True)
        if len(order) < 2:
            continue
        rows = {label: here[label] for label in order}
        runs = tuple(sorted(fit.stamp for members in rows.values() for fit in members))
        card = table.card_key(dataset)
        known = evidence.neighbours_of(dataset, card, table.name, metric)
        old, replaced = standing_pairs(known, table, evidence) if known else ((), ())
        known_pairs = {(pair.better, pair.than) for pair in old}
        new = {pair for pair in pairwise(order) if pair not in known_pairs and not _has_row_between(pair, known_pairs)}
        if known and not replaced and set(runs) <= set(known.runs) and not new:
            continue
        try:
            pairs, users, tests = paired_tests(rows, list(pairwise(order)), dataset, metric, folders)
        except DataError:
            continue  # as for claims
        means = {label: _mean(each, metric) for label, each in fits.items()}
        known_rows = {*rows, *(label for pair in old for label in (pair.better, pair.than))}
        adjacent = {*pairwise(sorted(known_rows, key=lambda label: means[label], reverse=True))}
        # Rows that are both here were tested now, and a row that was tested now can lie between two others.
        kept = [pair for pair in old if not {pair.better, pair.than} <= rows.keys() and (pair.better, pair.than) in adjacent]
        every = {(pair.better, pair.than): pair for pair in (*pairs, *kept)}
        shown = [pair for names, pair in every.items() if not _has_row_between(names, every.keys())]
        pairs = tuple(sorted(shown, key=lambda pair: means[pair.better], reverse=True))
        compared = {label for pair in pairs for label in (pair.better, pair.than)}
        runs = tuple(
            sorted({*runs, *(fit.stamp for label in compared for fit in fits[label] if known and fit.stamp in known.runs)})
        )
        missing = tuple(label for label in labels if label not in compared)
        evidence.add(
            StoredNeighbours(
                dataset=dataset, card=card, table=table.name, metric=metric, users=users, tests=tests, pairs=pairs, runs=runs,
                missing=missing,
            )
        )  # fmt: skip
        tested += 1
    return tested


def _has_row_between(pair: tuple[str, str], pairs: Collection[tuple[str, str]]) -> bool:
    """Whether a row is compared with both rows of a pair, below the one and above the other."""
    upper, lower = pair
    return any((upper, row) in pairs and (row, lower) in pairs for _, row in pairs)


def _published(tables: Iterable[PaperTable], datasets: set[str]) -> Iterator[tuple[PaperTable, str, str]]:
    """Yield each table with each of the datasets, and the first metric that it publishes there."""
    for table in tables:
        for dataset in (name for name in table.cards if name in datasets):
            metrics = [metric for arm in table.spec.arms for metric in arm.published.get(dataset, {})]
            if metrics:
                yield table, dataset, metrics[0]


def _mean(fits: list[StoredFit], metric: str) -> float:
    return float(np.mean([fit.metrics[metric][0] for fit in fits]))
