"""Paired tests over users between rows of a table: those of the paper's claims, and of each row against the next one in the
order of the measured means. The value of a user is the mean over the seeds of its row.

Only runs whose values per user are on this machine are tested. Tests of other runs, from elsewhere, stay in the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.evaluation.user_tables import values_of
from rankbench.experiment.methods import method
from rankbench.judge.compare import Comparison, compare, user_means
from rankbench.reproduce.adopt import stored_runs
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim, StoredFit, StoredNeighbours, StoredPair, stamp
from rankbench.reproduce.required_fits import PaperRow
from rankbench.schema.experiment import Claim
from rankbench.tracking.record import read_per_user

Fits = dict[str, list[StoredFit]]  # by the label of their row


def check_claims(tables: Iterable[PaperTable], datasets: Iterable[str], evidence: Evidence, environment: Environment) -> int:
    """Test the pairs of each claim whose rows have their values per user on this machine, and add them to the evidence. A pair
    keeps the test that it has, from here or elsewhere, unless more seeds of both rows are here. Returns how many claims were
    tested.
    """
    folders, tested = run_folders(environment), 0
    for table, dataset in _on_datasets(tables, set(datasets)):
        for claim in (each for each in table.spec.claims if each.of(dataset)):
            fits = {label: measured_fits(table, dataset, label, evidence) for label in (*claim.better, *claim.than)}
            if not (here := _comparable(claim, _with_users(fits, folders))):
                continue
            card = table.card_key(dataset)
            known = evidence.claim_of(dataset, card, table.name, claim.text, claim.metric)
            every = {pair.rows: pair for pair in standing_pairs(known, table, evidence)[0]} if known else {}
            pairs = [
                pair for pair in _pairs_of(claim, here) if _n_seeds(pair, here) > (every[pair].seeds if pair in every else 0)
            ]
            compared = {label: each for label, each in here.items() if any(label in pair for pair in pairs)}
            # Pairs are tested where their rows were fitted, some today and some later: the correction is for all rows at once.
            of = math.comb(len({*claim.better, *claim.than}), 2)
            if pairs and (found := _tested(compared, pairs, dataset, claim.metric, folders, of)):
                every |= {pair.rows: pair for pair in found["pairs"]}
                shown = [every[pair] for pair in _pairs_of(claim, claim.than) if pair in every]
                found |= {
                    "pairs": tuple(shown),
                    "runs": tuple(sorted({*found["runs"], *(known.runs if known else ())} & _stamps(fits))),
                    "missing": tuple(label for label in claim.than if label not in _rows(shown)),
                }
                about = {"dataset": dataset, "card": card, "table": table.name, "metric": claim.metric}
                evidence.add(StoredClaim(text=claim.text, **about, **found))
                tested += 1
    return tested


def check_neighbours(
    tables: Iterable[PaperTable], datasets: Iterable[str], evidence: Evidence, environment: Environment
) -> int:
    """Test each measured row of a table against the one below it, in the first metric that the table publishes, and add the
    tests to the evidence. Rows whose values per user are not on this machine keep the tests that they have from elsewhere, and
    are named if they have none. Returns how many tables were tested. A table is tested again if runs or pairs here are new.
    """
    folders, tested = run_folders(environment), 0
    for table, dataset in _on_datasets(tables, set(datasets)):
        published = [(arm.label, metric) for arm in table.spec.arms for metric in arm.published.get(dataset, {})]
        if not published:
            continue
        metric, card = published[0][1], table.card_key(dataset)
        labels = [label for label, each in published if each == metric]
        fits = {label: found for label in labels if (found := measured_fits(table, dataset, label, evidence))}
        here = _with_users(fits, folders)
        order = _by_mean(here, metric)
        if len(order) < 2:
            continue
        known = evidence.neighbours_of(dataset, card, table.name, metric)
        old, replaced = standing_pairs(known, table, evidence) if known else ((), ())
        known_pairs = {pair.rows for pair in old}
        new = {pair for pair in pairwise(order) if pair not in known_pairs and not _has_row_between(pair, known_pairs)}
        if known and not replaced and _stamps(here) <= {*known.runs} and not new:
            continue
        found = _tested(here, list(pairwise(order)), dataset, metric, folders)
        if not found:
            continue
        rows_before = _rows(old)
        adjacent = {
            *pairwise(_by_mean({label: fits[label] for label in fits if label in here or label in rows_before}, metric))
        }
        # Rows that are both here were tested now, and a row that was tested now can lie between two others.
        kept = [
            replace(pair, tests=known.corrected_for(pair))
            for pair in old
            if known and not {*pair.rows} <= here.keys() and pair.rows in adjacent
        ]
        every = {pair.rows: pair for pair in (*found["pairs"], *kept)}
        shown = {each: pair for each, pair in every.items() if not _has_row_between(each, every.keys())}
        compared = {label for labels in shown for label in labels}
        place = _by_mean(fits, metric).index
        others = {stamp for stamp in _stamps({label: fits[label] for label in compared}) if known and stamp in known.runs}
        found |= {
            "pairs": tuple(sorted(shown.values(), key=lambda pair: place(pair.better))),
            "runs": tuple(sorted({*found["runs"], *others})),
            "missing": tuple(label for label in labels if label not in compared),
        }
        evidence.add(StoredNeighbours(dataset=dataset, card=card, table=table.name, metric=metric, **found))
        tested += 1
    return tested


def run_folders(environment: Environment) -> dict[str, Path]:
    """Return the folders of the runs of this machine that have their values per user, by their stamps; records that cannot be
    read are left out.
    """
    runs = (each for each in stored_runs(environment) if (each[0] / "per_user.parquet").is_file())
    return {stamp(folder.name, record.started_at): folder for folder, record in runs}


def measured_fits(table: PaperTable, dataset: str, label: str, evidence: Evidence) -> list[StoredFit]:
    """Return the fits of a row: at its printed optimum, or at the setting that a search on validation chose."""
    arm = next((each for each in table.spec.arms if each.label == label), None)
    if arm is None:  # a row that the file does not have any more
        return []
    row = PaperRow(table, arm, table.cards[dataset])
    return row.fits("printed", evidence) or row.fits("chosen", evidence)


def standing_pairs(
    found: StoredClaim | StoredNeighbours, table: PaperTable, evidence: Evidence
) -> tuple[tuple[StoredPair, ...], tuple[str, ...]]:
    """Return the tested pairs that still are about the fits of their rows, and the rows without such a pair."""
    tested = {
        label: [fit for fit in measured_fits(table, found.dataset, label, evidence) if fit.stamp in found.runs]
        for label in _rows(found.pairs)
    }

    def stands(pair: StoredPair) -> bool:
        """Whether both rows still have each seed that was tested."""
        fits = tested[pair.better], tested[pair.than]
        return all(fits) and len(common_seeds(*fits)) >= pair.seeds

    standing = tuple(pair for pair in found.pairs if stands(pair))
    return standing, tuple(label for label in tested if label not in _rows(standing))


def common_seeds(first: Sequence[StoredFit], second: Sequence[StoredFit]) -> list[tuple[StoredFit, StoredFit]]:
    """Return the pairs of fits with the same seed. A method that uses no seed has one fit, which goes with each other one."""
    seeded = all(any(method(fit.method).seeded for fit in fits) for fits in (first, second))
    return [(a, b) for a in first for b in second if not seeded or a.seed == b.seed]


def _tested(
    fits: Fits, pairs: Sequence[tuple[str, str]], dataset: str, metric: str, folders: Mapping[str, Path], of: int = 0
) -> dict[str, Any] | None:
    """Return the tests of `pairs` of rows as fields of StoredTests. Holm's correction covers all pairs of the rows in `fits`,
    and `of` pairs if that is more. None if the values per user of a run cannot be read or lack the metric: the tests wait for
    the run to be repeated.
    """
    try:
        tables = {label: [read_per_user(folders[fit.stamp]) for fit in members] for label, members in fits.items()}
        if any(metric not in each.column_names for own in tables.values() for each in own):
            return None
        values = {label: user_means([values_of(each, metric) for each in own]) for label, own in tables.items()}
        tests = compare(values, dataset=dataset, metric=metric, pairs=pairs, of=of).pairs
    except DataError:
        return None
    found = tuple(_stored_pair(each, common_seeds(fits[each.model], fits[each.against])) for each in tests)
    return {"users": tests[0].users, "tests": tests[0].tests, "pairs": found, "runs": tuple(sorted(_stamps(fits)))}


def _stored_pair(pair: Comparison, seeds: Sequence[tuple[StoredFit, StoredFit]]) -> StoredPair:
    return StoredPair(
        better=pair.model,
        than=pair.against,
        difference=round(pair.difference, 6),
        low=round(pair.low, 6),
        high=round(pair.high, 6),
        p_bootstrap_holm=round(pair.p_bootstrap_holm, 5),
        p_wilcoxon_holm=round(pair.p_wilcoxon_holm, 5),
        verdict="not distinguishable" if not pair.distinguishable else "better" if pair.difference > 0 else "worse",
        seeds=len(seeds),
        agreeing=sum(a.metrics[pair.metric][0] > b.metrics[pair.metric][0] for a, b in seeds),
        tests=pair.tests,
    )


def _on_datasets(tables: Iterable[PaperTable], datasets: Collection[str]) -> Iterator[tuple[PaperTable, str]]:
    return ((table, name) for table in tables for name in table.cards if name in datasets)


def _with_users(fits: Fits, folders: Mapping[str, Path]) -> Fits:
    """Return the rows with the fits whose values per user are on this machine, without rows that have none."""
    here = {label: [fit for fit in each if fit.stamp in folders] for label, each in fits.items()}
    return {label: each for label, each in here.items() if each}


def _pairs_of(claim: Claim, others: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of each row that the claim calls better with each of the others."""
    return [pair for pair in product(claim.better, others) if pair[1] not in claim.better]


def _n_seeds(pair: tuple[str, str], fits: Fits) -> int:
    """Return how many seeds both rows of a pair have."""
    return len(common_seeds(*(fits[label] for label in pair)))


def _comparable(claim: Claim, fits: Fits) -> Fits:
    """Return the rows that can be compared: all that the claim calls better, and those of the others that share a seed with
    each of them. Empty if one of the better rows lacks fits, or no other row has them.
    """
    if any(label not in fits for label in claim.better):
        return {}
    others = [label for label in claim.than if label in fits]
    kept = [label for label in others if all(common_seeds(fits[label], fits[better]) for better in claim.better)]
    return {label: fits[label] for label in (*claim.better, *kept)} if kept else {}


def _by_mean(fits: Fits, metric: str) -> list[str]:
    """Return the rows, the highest mean first."""
    means = {label: float(np.mean([fit.metrics[metric][0] for fit in each])) for label, each in fits.items()}
    return sorted(means, key=lambda label: means[label], reverse=True)


def _has_row_between(pair: tuple[str, str], pairs: Collection[tuple[str, str]]) -> bool:
    """Whether a row is compared with both rows of a pair, below the one and above the other."""
    upper, lower = pair
    return any((upper, row) in pairs and (row, lower) in pairs for _, row in pairs)


def _rows(pairs: Iterable[StoredPair]) -> list[str]:
    """Return the labels in the pairs, each once."""
    return list(dict.fromkeys(label for pair in pairs for label in pair.rows))


def _stamps(fits: Fits) -> set[str]:
    return {fit.stamp for members in fits.values() for fit in members}
