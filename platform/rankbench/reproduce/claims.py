"""Test the claims that a paper makes about its table: paired tests over users, the mean over seeds, with Holm's correction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.evaluation.compare import UserValues, compare, user_means
from rankbench.experiment.methods import method
from rankbench.reproduce.adopt import PLACES
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence, StoredClaim, StoredFit, StoredPair
from rankbench.reproduce.wanted import Row
from rankbench.schema.experiment import Claim
from rankbench.tracking.record import read_per_user

RESAMPLES = 2000


def check_claims(tables: Iterable[PaperTable], datasets: Iterable[str], evidence: Evidence, environment: Environment) -> int:
    """Test each claim with the rows that have their values per user on this machine, and add it to the evidence. Returns how
    many were tested. A claim is not tested again on the same runs, nor on fewer of them.
    """
    folders = {path.parent.name: path.parent for place in PLACES for path in environment.results.glob(f"{place}/*/record.json")}
    tested = 0
    for table, dataset, claim in _claims(tables, set(datasets)):
        fits = _measured(table, dataset, claim, evidence)
        here = _comparable(claim, {label: [fit for fit in each if fit.run in folders] for label, each in fits.items()})
        if not here:
            continue
        runs = tuple(sorted(fit.run for members in here.values() for fit in members))
        known = evidence.claim_of(dataset, table.name, claim.text, claim.metric)
        current = {fit.run for members in fits.values() for fit in members}
        if known is not None and current.issuperset(known.runs) and len(known.runs) >= len(runs):
            continue
        try:
            evidence.add(_tested(table, dataset, claim, here, runs, folders))
            tested += 1
        except DataError:
            continue  # values per user that cannot be read: the claim waits for its runs to be repeated
    return tested


def _claims(tables: Iterable[PaperTable], datasets: set[str]) -> Iterator[tuple[PaperTable, str, Claim]]:
    for table in tables:
        for dataset in (name for name in table.cards if name in datasets):
            yield from ((table, dataset, claim) for claim in table.spec.claims)


def _measured(table: PaperTable, dataset: str, claim: Claim, evidence: Evidence) -> dict[str, list[StoredFit]]:
    """Return the fits of each row of a claim: at its printed optimum, or at the setting that a search chose."""
    found: dict[str, list[StoredFit]] = {}
    for label in dict.fromkeys((*claim.better, *claim.than)):
        arm = next(each for each in table.spec.arms if each.label == label)
        row = Row(table, arm, table.cards[dataset])
        found[label] = row.fits("printed", evidence) or row.fits("chosen", evidence)
    return found


def _comparable(claim: Claim, fits: dict[str, list[StoredFit]]) -> dict[str, list[StoredFit]]:
    """Return the rows that can be compared: all that the claim calls better, and those of the others that share a seed with
    each of them. Empty if one of the better rows lacks fits, or no other row has them.
    """
    if any(not fits[label] for label in claim.better):
        return {}
    kept = [label for label in claim.than if all(_common_seeds(fits[label], fits[better]) for better in claim.better)]
    return {label: fits[label] for label in (*claim.better, *kept)} if kept else {}


def _common_seeds(first: Sequence[StoredFit], second: Sequence[StoredFit]) -> list[tuple[StoredFit, StoredFit]]:
    """Return the pairs of fits with the same seed. A method that uses no seed has one fit, which goes with each other one."""
    if not _seeded(first) or not _seeded(second):
        return [(a, b) for a in first for b in second]
    return [(a, b) for a in first for b in second if a.seed == b.seed]


def _seeded(fits: Sequence[StoredFit]) -> bool:
    """Whether the method of the fits uses its seed."""
    return any(method(fit.method).seeded for fit in fits)


def _tested(
    table: PaperTable,
    dataset: str,
    claim: Claim,
    fits: dict[str, list[StoredFit]],
    runs: tuple[str, ...],
    folders: dict[str, Path],
) -> StoredClaim:
    values: dict[str, UserValues] = {}
    for label, members in fits.items():
        tables = [read_per_user(folders[fit.run]) for fit in members]
        if any(claim.metric not in each.column_names for each in tables):
            raise DataError(f"{label}: {claim.metric} was not measured per user")
        values[label] = user_means([(each["user"].to_numpy(), each[claim.metric].to_numpy()) for each in tables])
    others = [label for label in fits if label not in claim.better]
    pairs, users, tests = [], 0, 0
    for better in claim.better:
        compared = compare(values, dataset=dataset, metric=claim.metric, baseline=better, resamples=RESAMPLES)
        for than in others:
            pair = next(each for each in compared.pairs if (each.model, each.against) in ((than, better), (better, than)))
            sign = 1 if pair.model == better else -1
            difference = sign * pair.difference
            low, high = sorted((sign * pair.low, sign * pair.high))
            verdict = "not distinguishable" if not pair.distinguishable else "better" if difference > 0 else "worse"
            seeds = _common_seeds(fits[better], fits[than])
            agreeing = sum(a.metrics[claim.metric][0] > b.metrics[claim.metric][0] for a, b in seeds)
            pairs.append(
                StoredPair(
                    better, than, round(difference, 6), round(low, 6), round(high, 6),
                    round(pair.p_bootstrap_holm, 5), round(pair.p_wilcoxon_holm, 5), verdict, len(seeds), agreeing,
                )
            )  # fmt: skip
            users, tests = pair.users, pair.tests
    missing = tuple(label for label in claim.than if label not in fits)
    card = table.cards[dataset].content_key()[:12]
    return StoredClaim(dataset, card, table.name, claim.text, claim.metric, users, tests, tuple(pairs), runs, missing)
