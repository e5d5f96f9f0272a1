"""Test the claims that a paper makes about its table: paired tests over users, the mean over seeds, with Holm's correction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.evaluation.compare import UserValues, compare, user_means
from rankbench.reproduce.adopt import PLACES
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence, StoredClaim, StoredFit, StoredPair
from rankbench.reproduce.wanted import Row
from rankbench.schema.experiment import Claim
from rankbench.tracking.record import read_per_user

RESAMPLES = 2000


def check_claims(tables: Iterable[PaperTable], datasets: Iterable[str], evidence: Evidence, environment: Environment) -> int:
    """Test each claim whose rows have their values per user on this machine, and add it to the evidence. Returns how many were
    tested; those that were tested on the same runs before are not tested again.
    """
    folders = {path.parent.name: path.parent for place in PLACES for path in environment.results.glob(f"{place}/*/record.json")}
    tested = 0
    for table, dataset, claim in _claims(tables, set(datasets)):
        fits = _fits(table, dataset, claim, evidence)
        if not fits or any(fit.run not in folders for runs in fits.values() for fit in runs):
            continue
        runs = tuple(sorted(fit.run for members in fits.values() for fit in members))
        known = evidence.claim_of(dataset, table.name, claim.text, claim.metric)
        if known is not None and known.runs == runs:
            continue
        try:
            evidence.add(_tested(table, dataset, claim, fits, runs, folders))
            tested += 1
        except DataError:
            continue  # values per user that cannot be read: the claim waits for its runs to be repeated
    return tested


def _claims(tables: Iterable[PaperTable], datasets: set[str]) -> Iterator[tuple[PaperTable, str, Claim]]:
    for table in tables:
        for dataset in (name for name in table.cards if name in datasets):
            yield from ((table, dataset, claim) for claim in table.spec.claims)


def _fits(table: PaperTable, dataset: str, claim: Claim, evidence: Evidence) -> dict[str, list[StoredFit]]:
    """Return the fits of each row of a claim with the seeds that all of them have; empty if a row was not measured."""
    found: dict[str, list[StoredFit]] = {}
    for label in dict.fromkeys((*claim.better, *claim.than)):
        arm = next(each for each in table.spec.arms if each.label == label)
        row = Row(table, arm, table.cards[dataset])
        found[label] = row.fits("printed", evidence) or row.fits("chosen", evidence)
    common = set.intersection(*({fit.seed for fit in fits} for fits in found.values()))
    unseeded = {label for label, fits in found.items() if len(fits) == 1}
    if not common and len(unseeded) < len(found):
        return {}
    return {label: [fit for fit in fits if fit.seed in common or label in unseeded] for label, fits in found.items() if fits} \
        if all(found.values()) else {}  # fmt: skip


def _tested(
    table: PaperTable,
    dataset: str,
    claim: Claim,
    fits: dict[str, list[StoredFit]],
    runs: tuple[str, ...],
    folders: dict[str, Path],
) -> StoredClaim:
    values: dict[str, list[UserValues]] = {}
    for label, members in fits.items():
        tables = [read_per_user(folders[fit.run]) for fit in members]
        if any(claim.metric not in each.column_names for each in tables):
            raise DataError(f"{label}: {claim.metric} was not measured per user")
        values[label] = [(each["user"].to_numpy(), each[claim.metric].to_numpy()) for each in tables]
    pooled = {label: user_means(each) for label, each in values.items()}
    pairs, users, tests = [], 0, 0
    for better in claim.better:
        compared = compare(pooled, dataset=dataset, metric=claim.metric, baseline=better, resamples=RESAMPLES)
        for than in claim.than:
            pair = next(each for each in compared.pairs if (each.model, each.against) in ((than, better), (better, than)))
            sign = 1 if pair.model == better else -1
            difference = sign * pair.difference
            low, high = sorted((sign * pair.low, sign * pair.high))
            verdict = "not distinguishable" if not pair.distinguishable else "better" if difference > 0 else "worse"
            agreeing = sum(a[1].mean() > b[1].mean() for a, b in zip(values[better], values[than], strict=False))
            pairs.append(
                StoredPair(
                    better, than, round(difference, 6), round(low, 6), round(high, 6),
                    round(pair.p_bootstrap_holm, 5), round(pair.p_wilcoxon_holm, 5), verdict, int(agreeing),
                )
            )  # fmt: skip
            users, tests = pair.users, pair.tests
    seeds = tuple(sorted({fit.seed for members in fits.values() for fit in members}))
    card = table.cards[dataset].content_key()[:12]
    return StoredClaim(dataset, card, table.name, claim.text, claim.metric, seeds, users, tests, tuple(pairs), runs)
