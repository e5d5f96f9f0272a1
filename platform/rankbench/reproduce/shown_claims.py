"""What pages say of a paper's claims, and of each row of a table against the next one: verdicts of paired tests over users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from rankbench.experiment.methods import method
from rankbench.judge.printing import difference, interval, listed, p_text
from rankbench.reports.page import Block, Grid, Items, Text
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim, StoredNeighbours, StoredPair
from rankbench.reproduce.paired import measured_fits, standing_pairs
from rankbench.schema.experiment import Claim

TESTS = """\
Paired tests over users, on the mean over the seeds of a row. A difference counts if the p-values of the bootstrap and of
Wilcoxon's test are both below 0.05 after Holm's correction for all pairs of the claim's rows, and both tests have the same
direction. The rows of a pair were fitted on one machine, and those of another pair may have been fitted on another one, with
other seeds; earlier tests are corrected for the rows that their machine had. `seeds`: those that both rows of a pair have, and
how many of them have a difference of the claimed sign. *Holds so far*: not all rows of the claim are compared yet. *(users)*:
some pair of rows was compared with one seed, so that the tests do not contain what another seed changes. *(range changed after
test)*: the setting of one of the rows was chosen in a range that was changed after numbers on test were known. *Cannot be
told*: what was measured cannot decide the claim, because the row with the highest published number of the others is not
compared, or for a reason below the table. *Not tested*: rows are measured, but the values of their users, which tests need,
were not kept."""

NEXT = """\
Rows with their values per user on one machine, in the order of the means of the tested runs, each against the next one of
these: rows that other machines tested can lie between two of them. The table above may have further seeds, and so another
order, and a claim about two of the rows may be tested on other seeds. The
tests are those of the claims. `corrected for`: the number of pairs that Holm's correction covers, all those of the rows that
were tested in one call. A pair from another call keeps the correction of that call; `not kept` means that an older line does
not say which it was. `seeds`: those that both rows of a pair have, and in how many the upper row has the higher mean."""
TESTED = ["difference", "95 % interval", "p (bootstrap, Wilcoxon)", "seeds"]


class ShownClaim(NamedTuple):
    """A claim that the file of `table` states, and its tests of fits that are still those of its rows, or without pairs."""

    stated: Claim
    tests: StoredClaim
    table: PaperTable

    @property
    def stand_in(self) -> str | None:
        """Why the data are not the paper's, so that nothing is said about its claim."""
        return self.table.stand_in(self.tests.dataset)

    @property
    def verdict(self) -> str:
        if self.stated.undecided:
            return "cannot be told"
        if not self.tests.pairs:
            return "not tested"
        verdict = self.tests.verdict
        if verdict == "holds so far" and self._runner_up in self.tests.missing:
            verdict = "cannot be told"
        if self.stand_in:
            verdict = "not on this stand-in" if verdict == "contradicted" else f"{verdict} on this stand-in"
        one_seed = any(pair.seeds == 1 and self._has_seeds(pair) for pair in self.tests.pairs)
        if verdict.startswith(("holds", "contradicted", "not on this")) and one_seed:
            verdict += " (users)"
        rows = {label for pair in self.tests.pairs for label in pair.rows}
        if any(arm.after_test for arm in self.table.spec.arms if arm.label in rows):
            verdict += " (range changed after test)"
        return verdict

    @property
    def _runner_up(self) -> str:
        """Which of the other rows has the highest published number."""
        published = {arm.label: arm.published.get(self.tests.dataset, {}) for arm in self.table.spec.arms}
        return max(self.stated.than, key=lambda label: published[label].get(self.stated.metric, 0))

    def _has_seeds(self, pair: StoredPair) -> bool:
        """Whether another seed would change anything in a row of the pair."""
        return any(method(arm.method).seeded for arm in self.table.spec.arms if arm.label in pair.rows)


def shown_claims(tables: Sequence[PaperTable], evidence: Evidence) -> list[ShownClaim]:
    """Return the claims that the files of the tables state now, by dataset: those that were tested, and then those that were
    not, although rows of both sides are measured. A row that a claim has got since its tests is missing in them.
    """
    found = []
    for tests in (each for dataset in sorted(evidence.datasets(StoredClaim)) for each in evidence.lines(StoredClaim, dataset)):
        for table in (each for each in tables if each.name == tests.table and tests.dataset in each.cards):
            of_dataset = (each for each in table.spec.claims if each.of(tests.dataset))
            for stated in (each for each in of_dataset if (each.text, each.metric) == (tests.text, tests.metric)):
                standing, _ = standing_pairs(tests, table, evidence)
                pairs = tuple(pair for pair in standing if pair.better in stated.better and pair.than in stated.than)
                tested = {pair.rows for pair in pairs}
                others = [label for label in stated.than if label not in stated.better]
                open_pairs = [pair for pair in product(stated.better, others) if pair not in tested]
                compared = {label for pair in pairs for label in pair.rows}
                # A row stands for its pairs: one that lacks a test with any of the better rows is not compared.
                left = dict.fromkeys([label for pair in open_pairs for label in pair if label not in compared])
                left |= dict.fromkeys(than for _, than in open_pairs)
                if pairs:
                    found.append(ShownClaim(stated, replace(tests, pairs=pairs, missing=tuple(left)), table))
    return [*found, *_untested(tables, found, evidence)]


def _untested(tables: Sequence[PaperTable], tested: Sequence[ShownClaim], evidence: Evidence) -> Iterator[ShownClaim]:
    """Yield the other claims of the tables on datasets where rows of both sides are measured."""
    known = {(each.stated, each.tests.dataset, each.table.spec.name) for each in tested}
    for table in tables:
        for stated, dataset in product(table.spec.claims, table.cards):
            sides = stated.better, stated.than
            measured = (any(measured_fits(table, dataset, label, evidence) for label in side) for side in sides)
            if stated.of(dataset) and (stated, dataset, table.spec.name) not in known and all(measured):
                about = {"dataset": dataset, "card": table.card_key(dataset), "table": table.name, "metric": stated.metric}
                none = {"users": 0, "tests": 0, "pairs": (), "runs": (), "missing": (*stated.better, *stated.than)}
                yield ShownClaim(stated, StoredClaim(text=stated.text, **about, **none), table)


def rows_compared(claim: StoredClaim) -> str:
    if not claim.pairs:
        return "none"
    than, missing = {pair.than for pair in claim.pairs}, {*claim.missing} - {pair.better for pair in claim.pairs}
    return f"{len(than - missing)} of {len(than | missing)}"


def seeds_compared(claim: StoredClaim) -> str:
    if not claim.pairs:
        return ""
    few, many = min(pair.seeds for pair in claim.pairs), max(pair.seeds for pair in claim.pairs)
    return str(few) if few == many else f"{few} to {many}"


def claim_blocks(claims: Sequence[ShownClaim]) -> Iterator[Block]:
    body = [
        [tests.text, claim.verdict, tests.dataset, tests.metric, f"{pair.better} − {pair.than}", *_tested(pair)]
        for claim in claims
        for tests in [claim.tests]
        for pair in tests.pairs
    ]
    yield Grid(["claim", "verdict", "dataset", "metric", "pair", *TESTED], body)
    about = [(f"{tests.text} ({tests.dataset}, {tests.table}): ", stated, tests) for stated, tests, _ in claims]
    incomplete = (f"{of}not compared with {listed(tests.missing)}." for of, _, tests in about if tests.missing)
    undecided = (f"{of}{stated.undecided}" for of, stated, _ in about if stated.undecided)
    if lines := (*incomplete, *undecided):
        yield Items(lines)
    yield Text(TESTS)


def _tested(pair: StoredPair) -> list[str]:
    p = f"{p_text(pair.p_bootstrap_holm)}, {p_text(pair.p_wilcoxon_holm)}"
    return [
        difference(pair.difference),
        interval(pair.low, pair.high, "+.4f"),
        p,
        f"{pair.agreeing} of {pair.seeds}" if pair.seeds else "none in common",
    ]


def neighbour_blocks(table: PaperTable, dataset: str, evidence: Evidence) -> Iterator[Block]:
    for each in (each for each in evidence.lines(StoredNeighbours, dataset) if each.table == table.name):
        pairs, replaced = standing_pairs(each, table, evidence)
        missing = (*each.missing, *replaced)
        if pairs:
            header = [f"row, by {each.metric}", "the next one there", "upper row", *TESTED, "corrected for"]
            sizes = [each.corrected_for(pair) for pair in pairs]
            body = [
                [pair.better, pair.than, pair.verdict, *_tested(pair), "not kept" if size is None else f"{size:,}"]
                for pair, size in zip(pairs, sizes, strict=True)
            ]
            yield Grid(header, body)
            yield Text(NEXT + (f" Without a test here: {listed(missing)}." if missing else ""))
