"""Paired tests over users between rows of a table: the value of a user is the mean over the seeds of its row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.evaluation.user_tables import UserValues, values_of
from rankbench.experiment.methods import method
from rankbench.judge.compare import compare, user_means
from rankbench.reproduce.adopt import PLACES
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim, StoredFit, StoredNeighbours, StoredPair, Verdict, stamp
from rankbench.reproduce.required_fits import PaperRow
from rankbench.tracking.record import read_per_user, read_record


def run_folders(environment: Environment) -> dict[str, Path]:
    """Return the folders of the finished runs of this machine, by their stamps; records that cannot be read are left out."""
    folders = {}
    for folder in (path.parent for place in PLACES for path in environment.results.glob(f"{place}/[!.]*/record.json")):
        with suppress(DataError):
            folders[stamp(folder.name, read_record(folder).started_at)] = folder
    return folders


def measured_fits(table: PaperTable, dataset: str, label: str, evidence: Evidence) -> list[StoredFit]:
    """Return the fits of a row: at its printed optimum, or at the setting that a search on validation chose."""
    arm = next((each for each in table.spec.arms if each.label == label), None)
    if arm is None:  # a row that the file does not have any more
        return []
    row = PaperRow(table, arm, table.cards[dataset])
    return row.fits("printed", evidence) or row.fits("chosen", evidence)


def is_current(known: Collection[str] | None, here: Collection[str], measured: Collection[str]) -> bool:
    """Whether the tests of `known` runs still stand: none of them was replaced in the evidence or measured again, and this
    machine does not have the values of more of the `measured` runs. All are stamps of fits.
    """
    return known is not None and set(measured).issuperset(known) and len(known) >= len(here)


def standing_pairs(
    found: StoredClaim | StoredNeighbours, table: PaperTable, evidence: Evidence
) -> tuple[tuple[StoredPair, ...], tuple[str, ...]]:
    """Return the tested pairs that still are about the fits of their rows, and the rows without such a pair."""
    tested: dict[str, list[StoredFit]] = {}
    for label in dict.fromkeys(label for pair in found.pairs for label in (pair.better, pair.than)):
        tested[label] = [fit for fit in measured_fits(table, found.dataset, label, evidence) if fit.stamp in found.runs]

    def stands(pair: StoredPair) -> bool:
        """Whether both rows still have each seed that was tested."""
        fits = tested[pair.better], tested[pair.than]
        return all(fits) and len(common_seeds(*fits)) >= pair.seeds

    standing = tuple(pair for pair in found.pairs if stands(pair))
    compared = {label for pair in standing for label in (pair.better, pair.than)}
    return standing, tuple(label for label in tested if label not in compared)


def common_seeds(first: Sequence[StoredFit], second: Sequence[StoredFit]) -> list[tuple[StoredFit, StoredFit]]:
    """Return the pairs of fits with the same seed. A method that uses no seed has one fit, which goes with each other one."""
    if not _seeded(first) or not _seeded(second):
        return [(a, b) for a in first for b in second]
    return [(a, b) for a in first for b in second if a.seed == b.seed]


def paired_tests(
    fits: Mapping[str, Sequence[StoredFit]],
    pairs: Sequence[tuple[str, str]],
    dataset: str,
    metric: str,
    folders: Mapping[str, Path],
) -> tuple[tuple[StoredPair, ...], int, int]:
    """Return the tests of `pairs` of rows, the number of users, and the number of tests that Holm's correction covers: all
    pairs of the rows in `fits`. Raises DataError if the values per user of a run cannot be read or lack the metric.
    """
    values: dict[str, UserValues] = {}
    for label, members in fits.items():
        tables = [read_per_user(folders[fit.stamp]) for fit in members]
        if any(metric not in each.column_names for each in tables):
            raise DataError(f"{label}: {metric} was not measured per user")
        values[label] = user_means([values_of(each, metric) for each in tables])
    found = []
    users = tests = 0
    for pair in compare(values, dataset=dataset, metric=metric, pairs=pairs).pairs:
        verdict: Verdict = "not distinguishable" if not pair.distinguishable else "better" if pair.difference > 0 else "worse"
        seeds = common_seeds(fits[pair.model], fits[pair.against])
        agreeing = sum(a.metrics[metric][0] > b.metrics[metric][0] for a, b in seeds)
        found.append(
            StoredPair(
                pair.model, pair.against, round(pair.difference, 6), round(pair.low, 6), round(pair.high, 6),
                round(pair.p_bootstrap_holm, 5), round(pair.p_wilcoxon_holm, 5), verdict, len(seeds), agreeing,
            )
        )  # fmt: skip
        users, tests = pair.users, pair.tests
    return tuple(found), users, tests


def _seeded(fits: Sequence[StoredFit]) -> bool:
    """Whether the method of the fits uses its seed."""
    return any(method(fit.method).seeded for fit in fits)
