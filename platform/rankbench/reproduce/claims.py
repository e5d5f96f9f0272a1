"""Test the claims that a paper makes about its table, by paired tests over users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim, StoredFit
from rankbench.reproduce.paired import common_seeds, is_current, measured_fits, paired_tests, run_folders
from rankbench.schema.experiment import Claim


def check_claims(tables: Iterable[PaperTable], datasets: Iterable[str], evidence: Evidence, environment: Environment) -> int:
    """Test each claim with the rows that have their values per user on this machine, and add it to the evidence. Returns how
    many were tested. A claim is not tested again on the same runs, nor on fewer of them.
    """
    folders = run_folders(environment)
    tested = 0
    for table, dataset, claim in _claims(tables, set(datasets)):
        labels = dict.fromkeys((*claim.better, *claim.than))
        fits = {label: measured_fits(table, dataset, label, evidence) for label in labels}
        here = _comparable(claim, {label: [fit for fit in each if fit.stamp in folders] for label, each in fits.items()})
        if not here:
            continue
        runs = tuple(sorted(fit.stamp for members in here.values() for fit in members))
        card = table.card_key(dataset)
        known = evidence.claim_of(dataset, card, table.name, claim.text, claim.metric)
        if is_current(known.runs if known else None, runs, [fit.stamp for members in fits.values() for fit in members]):
            continue
        pairs = [(better, than) for better in claim.better for than in here if than not in claim.better]
        try:
            found, users, tests = paired_tests(here, pairs, dataset, claim.metric, folders)
        except DataError:
            continue  # values per user that cannot be read: the claim waits for its runs to be repeated
        missing = tuple(label for label in claim.than if label not in here)
        evidence.add(
            StoredClaim(
                dataset=dataset, card=card, table=table.name, text=claim.text, metric=claim.metric, users=users, tests=tests,
                pairs=found, runs=runs, missing=missing,
            )
        )  # fmt: skip
        tested += 1
    return tested


def _claims(tables: Iterable[PaperTable], datasets: set[str]) -> Iterator[tuple[PaperTable, str, Claim]]:
    for table in tables:
        for dataset in (name for name in table.cards if name in datasets):
            yield from ((table, dataset, claim) for claim in table.spec.claims)


def _comparable(claim: Claim, fits: dict[str, list[StoredFit]]) -> dict[str, list[StoredFit]]:
    """Return the rows that can be compared: all that the claim calls better, and those of the others that share a seed with
    each of them. Empty if one of the better rows lacks fits, or no other row has them.
    """
    if any(not fits[label] for label in claim.better):
        return {}
    kept = [label for label in claim.than if all(common_seeds(fits[label], fits[better]) for better in claim.better)]
    return {label: fits[label] for label in (*claim.better, *kept)} if kept else {}
