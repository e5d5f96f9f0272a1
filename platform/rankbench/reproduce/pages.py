"""The pages of the results: one per paper, with what holds, what does not and what is not significant, and an index of all."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rankbench.core.environment import Environment
from rankbench.experiment.methods import method
from rankbench.judge.printing import difference, interval, listed, number, p_text, percent
from rankbench.reports.deviations import differing_params
from rankbench.reports.page import Block, Grid, Items, Page, Section, Text
from rankbench.reports.site import Site, page_kind
from rankbench.reproduce.agenda import all_names
from rankbench.reproduce.agreement import Count, agreements, measurements
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.counts import MEANING as CAUSES
from rankbench.reproduce.counts import OffCell, by_cause, counts, off_cells
from rankbench.reproduce.devices import fits_on_gpu, gpu_shift
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.figure import curves_figure, differences_figure
from rankbench.reproduce.ledger_records import StoredClaim, StoredNeighbours, StoredPair
from rankbench.reproduce.missing_data import files_to_bring, missing_data
from rankbench.reproduce.paired import measured_fits, standing_pairs
from rankbench.reproduce.required_fits import MEANING, PaperRow, rows_of
from rankbench.reproduce.results import MARKED, cost_columns, count_columns, seed_columns, study_columns, table_columns
from rankbench.reproduce.seeds import Spread, spreads
from rankbench.reproduce.simulations import StudyTable, study_tables
from rankbench.schema.experiment import Claim

TITLES = {
    "rg2": "RG² (Pu et al., ICML 2024)",
    "rgx": "RG× (the journal article on RG² and RG×)",
    "deql": "DEQL (decoupled expected quadratic loss)",
    "talos": "Talos (Zhang et al., WWW 2026)",
    "dcl": "Debiased contrastive losses (Jin and Li)",
}
ORDER = """\
Kendall's tau between the published and the measured numbers of the rows. `repeated`: where tau would be in 95 % of repeated
measurements, whose means are drawn around the measured ones, as wide as their intervals. Their noise comes on top of that of
the means and changes the order of rows that are close to each other, so tau itself can lie above this range."""
TESTS = """\
Paired tests over users, on the mean over the seeds of a row. A difference counts if the p-values of the bootstrap and of
Wilcoxon's test are both below 0.05 after Holm's correction for all pairs of the claim's rows, and both tests have the same
direction. `seeds`: those that both rows of a pair have, and how many of them have a difference of the claimed sign. *Holds so
far*: not all rows of the claim are compared yet. *Holds (users)*: some pair of rows was compared with one seed, so that the
tests do not contain what another seed changes. *Cannot be told*: what was measured cannot decide the claim, for a reason below
the table. *Not tested*: rows are measured, but the values of their users, which tests need, were not kept."""

STAND_IN = """\
The claims on data that take the place of the paper's, which were not available. They say whether the order of the rows is the
paper's there; a claim is neither shown nor refuted by them."""

NEXT = """\
Rows with their values per user on one machine, in the order of the means of the tested runs, each against the next one. The
table above may have further seeds, and so another order. The tests are those of the claims. `corrected for`: the number of
pairs that Holm's correction covers, all those of the rows that were tested in one call. A pair from another call keeps the
correction of that call; `not kept` means that an older line does not say which it was. `seeds`: those that both rows of a pair
have, and in how many of them the upper row has the higher mean."""
TESTED = ["difference", "95 % interval", "p (bootstrap, Wilcoxon)", "seeds"]

COUNTED = """\
`measured`: cells whose setting the paper prints or a search on validation chose. `within 1 %`, `within 3 %`: the measured mean
differs from the published number by no more. `agree`: within 3 %, or the published number lies in the 95 % interval of the mean
over users. A wide interval agrees with much: `half-width` is half the interval in percent of the mean, on average, and `by
chance` is the share of cells that would agree if each had the published number of another row of its table. Costs, the results
of studies and what one row alone publishes have no such number; the share then says `of` how many cells it is. `found on
test`: cells measured at a setting that was found on the test set, which are counted separately. `not trained to its end`:
measured cells of fits whose curve still rises, or that are shorter than the paper's without a curve that shows that they
suffice. Cells beside stand-ins belong to other data and are not counted."""

SPREAD = """\
Settings with at least three seeds, in the first metric that their rows publish. `between seeds`: standard deviation, in % of
the mean. `over users`: half the 95 % interval of one seed, in % of the mean; it does not contain what another seed changes. Two
rows with one seed each differ by chance alone, by up to 2.8 of their deviations between seeds in 95 % of cases. The second
table has the settings with the largest deviations."""
WIDEST = 8  # settings in that table

BRING = """\
Cells wait for datasets whose files are not on the machine that made these pages. A file is either downloaded from its address,
or brought: `RANKBENCH_MIRROR` names a folder, and the file lies in the folder of its dataset there, under its published name
([a mirror](../datasets.md#a-mirror)). `rankbench data fetch DATASET` compares checksums and the counts above, and `rankbench
reproduce TABLE --datasets DATASET` measures the cells."""

TRAINED = """\
`training`: the epochs (or iterations) and gradient steps of the measured model, and what its curve does in the last quarter of
them: [how this is decided](../reproduce.md#trained-to-its-end)."""

OFF = """\
Measured cells that are more than 3 % from the published number, which is not in the interval either. Below the table of a row
stands what experiments have shown about it."""


@dataclass(frozen=True)
class Paper:
    """What the evidence has about a paper."""

    name: str
    tables: tuple[PaperTable, ...]
    studies: tuple[StudyTable, ...]
    counts: dict[str, Count]
    off: list[OffCell]

    @property
    def total(self) -> Count:
        return self.counts.get(f"{self.name}, all") or next(iter(self.counts.values()), Count())


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
        if not self.tests.pairs:
            return "not tested"
        verdict = "cannot be told" if self.stated.undecided else self.tests.verdict
        if verdict == "holds" and any(pair.seeds == 1 and self._has_seeds(pair) for pair in self.tests.pairs):
            verdict = "holds (users)"
        if not self.stand_in:
            return verdict
        return "not on this stand-in" if verdict == "contradicted" else f"{verdict} on this stand-in"

    def _has_seeds(self, pair: StoredPair) -> bool:
        """Whether another seed would change anything in a row of the pair."""
        return any(method(arm.method).seeded for arm in self.table.spec.arms if arm.label in pair.rows)


def write_pages(folder: Path, tables: Sequence[PaperTable], evidence: Evidence, environment: Environment) -> list[Path]:
    """Write a page and a figure per paper that has evidence, and README.md, the index. Returns the paths."""
    names = all_names(tables)
    site, papers = Site(folder, ("md",)), []
    for name in dict.fromkeys(table.paper for table in tables):
        own = tuple(table for table in tables if table.paper == name)
        mine = {each for each in names if each.split("/")[0] == name}
        studies, off = tuple(study_tables(mine, environment)), off_cells(own, mine, evidence, environment)
        papers.append(Paper(name, own, studies, counts(tables, mine, evidence, environment), off))
        site.add("paper", name, papers[-1], evidence)
    site.add("papers", "README", papers, evidence, environment)
    return site.files


@page_kind("papers")
def _index(papers: Sequence[Paper], evidence: Evidence, environment: Environment) -> Page:
    by_paper = {f"[{TITLES.get(paper.name, paper.name)}]({paper.name}.md)": paper.total for paper in papers}
    tables = [table for paper in papers for table in paper.tables]
    header = ["claim", "dataset", "table", "verdict", "rows compared", "seeds"]
    bodies: dict[bool, list[list[str]]] = {False: [], True: []}  # whether the data are a stand-in
    for each in _claims(tables, evidence):
        tests = each.tests
        line = [tests.text, tests.dataset, tests.table, each.verdict, _rows_compared(tests), _seeds(tests)]
        bodies[bool(each.stand_in)].append(line)
    lead = (
        "The published numbers for which data were available, as `rankbench reproduce` measures them. The pages are made by "
        "`rankbench reproduce pages --out docs/results` from the evidence in `experiments/evidence/`, one line per fit. "
        "[Leaderboard](leaderboard.md) compares all methods in equal time, [scale](scale.md) covers large data and large "
        "matrices, and [findings](findings.md) experiments of our own.",
    )
    total = sum(by_paper.values(), Count())
    missing = files_to_bring(missing_data(tables, all_names(tables), evidence, environment), environment)
    cells = Grid(*count_columns("paper", by_paper | {"all": total}))
    sections = (
        Section("Published cells", (cells, Text(COUNTED), Grid(*seed_columns(total)), *_on_devices(tables, evidence))),
        *_off_cells([cell for paper in papers for cell in paper.off]),
        *_section("Claims of the papers", header, bodies[False], TESTS),
        *_section("Claims on stand-ins", header, bodies[True], STAND_IN),
        *_section("Cells without data", missing.header, missing.body, BRING),
    )
    return Page("Results", lead, sections)


@page_kind("paper")
def _paper_page(paper: Paper, evidence: Evidence) -> Page:
    """Return the page of a paper: counts, claims, order, tables, and why cells are off."""
    rows = list(rows_of(paper.tables))
    files_of = {table.name: [each for each in paper.tables if each.name == table.name] for table in paper.tables}
    orders = [
        [name, dataset, each.metric, str(each.rows), difference(each.tau, 2), interval(each.low, each.high, "+.2f")]
        for name, tables in files_of.items()
        for dataset in dict.fromkeys(each for table in tables for each in table.cards)
        for each in agreements(list(rows_of(tables, [dataset])), evidence)
    ]
    header = ["table", "dataset", "metric", "rows", "tau", "repeated"]
    own = Grid(*count_columns("table", {name: each for name, each in paper.counts.items() if name != "all"}))
    sections = [Section("How far the evidence has come", (own, Text(COUNTED))), *_off_cells(paper.off)]
    if claims := _claims(paper.tables, evidence):
        sections.append(Section("What holds, and what does not", tuple(_claim_blocks(claims))))
    sections += [*_section("The order of the rows", header, orders, ORDER), *_seed_sections(spreads(rows, evidence))]
    if figure := differences_figure(paper.name, [row for row in rows if not row.stand_in], evidence):
        sections.append(Section("Figure", (figure,)))
    told: dict[str, str] = {}
    files = Counter(table.name for table in paper.tables)
    for table in paper.tables:
        sections += _table_sections(table, evidence, told, files[table.name] > 1)
    for study in (each for each in paper.studies if each.stored(evidence)):
        title = f"{study.simulation.table} on {study.dataset}, {study.simulation.unit}"
        sections.append(Section(title, (Grid(*study_columns(study, evidence)), Text(study.simulation.account))))
    measured = {row.table.name for row in rows if measurements(row, evidence)}
    if missing := [name for name in dict.fromkeys(table.name for table in paper.tables) if name not in measured]:
        sections.append(Section("Not measured", (Text(f"No row has been measured of: {', '.join(missing)}."),)))
    marks = "; ".join(f"*{origin}*: {MEANING[origin]}" for origin in MEANING)
    return Page(TITLES.get(paper.name, paper.name), (f"{MARKED}. Settings are {marks}.",), tuple(sections))


def _section(title: str, header: list[str], body: list[list[str]], text: str) -> Iterator[Section]:
    """Yield a section with a table and a text on it, if the table has rows."""
    if body:
        yield Section(title, (Grid(header, body), Text(text)))


def _on_devices(tables: Sequence[PaperTable], evidence: Evidence) -> Iterator[Text]:
    """Say how many fits ran on a GPU, and whether they measure the same, if any did."""
    on_gpu, fits = fits_on_gpu(evidence)
    if not on_gpu:
        return
    said = [f"{on_gpu} of the {fits} fits in the evidence ran on a GPU."]
    if shift := gpu_shift(rows_of(tables), evidence):
        low, mean, high = (f"{100 * each:+.1f}" for each in (shift.low, shift.mean, shift.high))
        said.append(
            f"In the {shift.rows} rows with seeds on both, the mean on the GPU differs by {mean} % of that on processors on "
            f"average (95 % interval over the rows: {low} % to {high} %); {shift.lower} rows are lower there."
        )
    yield Text(" ".join(said))


def _off_cells(cells: Sequence[OffCell]) -> Iterator[Section]:
    """Yield a section about the cells that are off, if there are any."""
    body = [[CAUSES[cause], str(number), listed(rows)] for cause, number, rows in by_cause(cells)]
    return _section("Why cells are off", ["cause", "cells", "rows"], body, OFF)


def _seed_sections(found: Sequence[Spread]) -> Iterator[Section]:
    """Yield a section about the deviations between seeds, if any row has several."""
    kinds = {"validation chooses the epoch": True, "fixed": False}
    of_kind = {name: [each for each in found if each.stopped_early == early] for name, early in kinds.items()}
    body = [
        [
            name,
            str(len(own)),
            percent(statistics.median(each.of_seeds for each in own), ".2f"),
            percent(own[0].of_seeds, ".2f"),
            percent(statistics.median(each.of_users for each in own), ".2f"),
        ]
        for name, own in of_kind.items()
        if own
    ]
    widest = [
        [each.row.arm.label, each.row.table.name, each.row.dataset, each.metric, str(each.seeds), number(each.mean),
         percent(each.of_seeds, ".2f"), percent(each.of_users, ".2f")]
        for each in found[:WIDEST]
    ]  # fmt: skip
    if body:
        summary = Grid(["training", "settings", "median between seeds", "largest between seeds", "median over users"], body)
        header = ["row", "table", "dataset", "metric", "seeds", "mean", "between seeds", "over users"]
        yield Section("How much the seed matters", (summary, Grid(header, widest), Text(SPREAD)))


def _claims(tables: Sequence[PaperTable], evidence: Evidence) -> list[ShownClaim]:
    """Return the claims that the files of the tables state now, by dataset: those that were tested, and then those that were
    not, although rows of both sides are measured. A row that a claim has got since its tests is missing in them.
    """
    found = []
    for tests in (each for dataset in sorted(evidence.datasets(StoredClaim)) for each in evidence.lines(StoredClaim, dataset)):
        for table in (each for each in tables if each.name == tests.table and tests.dataset in each.cards):
            for stated in (each for each in table.spec.claims if (each.text, each.metric) == (tests.text, tests.metric)):
                standing, replaced = standing_pairs(tests, table, evidence)
                pairs = tuple(pair for pair in standing if pair.better in stated.better and pair.than in stated.than)
                rows, compared = (*stated.better, *stated.than), {label for pair in pairs for label in pair.rows}
                left = dict.fromkeys(label for label in (*tests.missing, *replaced, *rows) if label in {*rows} - compared)
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
            if (stated, dataset, table.spec.name) not in known and all(measured):
                about = {"dataset": dataset, "card": table.card_key(dataset), "table": table.name, "metric": stated.metric}
                none = {"users": 0, "tests": 0, "pairs": (), "runs": (), "missing": (*stated.better, *stated.than)}
                yield ShownClaim(stated, StoredClaim(text=stated.text, **about, **none), table)


def _rows_compared(claim: StoredClaim) -> str:
    if not claim.pairs:
        return "none"
    than = {pair.than for pair in claim.pairs}
    return f"{len(than)} of {len(than) + len(claim.missing)}"


def _seeds(claim: StoredClaim) -> str:
    if not claim.pairs:
        return ""
    few, many = min(pair.seeds for pair in claim.pairs), max(pair.seeds for pair in claim.pairs)
    return str(few) if few == many else f"{few} to {many}"


def _claim_blocks(claims: Sequence[ShownClaim]) -> Iterator[Block]:
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
    return [difference(pair.difference), interval(pair.low, pair.high, "+.4f"), p, f"{pair.agreeing} of {pair.seeds}"]


def _neighbour_blocks(table: PaperTable, dataset: str, evidence: Evidence) -> Iterator[Block]:
    for each in (each for each in evidence.lines(StoredNeighbours, dataset) if each.table == table.name):
        pairs, replaced = standing_pairs(each, table, evidence)
        missing = (*each.missing, *replaced)
        if pairs:
            header = [f"row, by {each.metric}", "the next row", "upper row", *TESTED, "corrected for"]
            sizes = [each.corrected_for(pair) for pair in pairs]
            body = [
                [pair.better, pair.than, pair.verdict, *_tested(pair), "not kept" if size is None else f"{size:,}"]
                for pair, size in zip(pairs, sizes, strict=True)
            ]
            yield Grid(header, body)
            yield Text(NEXT + (f" Not compared: {listed(missing)}." if missing else ""))


def _table_sections(table: PaperTable, evidence: Evidence, told: dict[str, str], several: bool) -> Iterator[Section]:
    """Yield the sections of a table, one per dataset. `told`: the accounts that earlier sections have, with their titles;
    `several`: whether another file has rows of the same table.
    """
    for name in table.cards:
        title, every = f"{table.name} on {name}", list(rows_of([table], [name]))
        if several:  # files of this table and dataset
            title += f" ({table.spec.name})"
        rows = [row for row in every if row.published]
        costs = Grid(*cost_columns(every, evidence))
        if not costs.body and not any(measurements(row, evidence) for row in rows):
            continue
        header, body, _ = table_columns(rows, evidence)
        lines = (
            *_unprinted(rows, evidence),
            *_searches(rows, evidence),
            *_deviations(rows, evidence),
            *_accounts(rows, title, told),
        )
        reason = table.stand_in(name)
        stem = table.spec.name if several else table.name.replace("/", "-")
        curves = curves_figure(f"{stem}-{name}-curves", rows, evidence)
        blocks: list[Block] = [
            *([Text(f"A stand-in, so that only the order can be compared: {reason}")] if reason else []),
            *([Grid(header, body)] if body else []),
            *([Text(TRAINED)] if "training" in header else []),
            *([curves] if curves else []),
            *([costs] if costs.body else []),
            *([Items(lines)] if lines else []),
            *_neighbour_blocks(table, name, evidence),
        ]
        yield Section(title, tuple(blocks))


def _accounts(rows: Sequence[PaperRow], title: str, told: dict[str, str]) -> Iterator[str]:
    """Yield why the numbers of rows differ, in the first section that has the row. Later sections refer to it."""
    elsewhere: dict[str, list[str]] = {}
    for row in (row for row in rows if row.arm.account):
        first = told.setdefault(row.arm.account, title)
        if first == title:
            yield f"{row.arm.label}: {row.arm.account}"
        else:
            elsewhere.setdefault(first, []).append(row.arm.label)
    for first, labels in elsewhere.items():
        yield f"{listed(labels)}: the causes, as far as they are known, are at {first}"


def _unprinted(rows: Sequence[PaperRow], evidence: Evidence) -> Iterator[str]:
    """Yield the values that printed optima lack, with the rows that were measured with them."""
    found: dict[str, list[str]] = {}
    printed = [row for row in rows if row.fits("printed", evidence)]
    for row in printed:
        config = row.setting("printed", evidence)
        for name in row.lacking if config else ():
            if name in config.used:
                found.setdefault(f"{name} {config.flat[name]}", []).append(row.arm.label)
    for value, labels in found.items():
        yield f"{value}, which the printed optimum lacks: {'all rows' if len(labels) == len(printed) else listed(labels)}"


def _searches(rows: Sequence[PaperRow], evidence: Evidence) -> Iterator[str]:
    """Yield what each search cost, and where its best value is the last one that was tried; and which rows the evidence has no
    search of.
    """
    by_file = [row.arm.label for row in rows if row.dataset in row.arm.chosen and row.fits("chosen", evidence)]
    if by_file:
        yield (
            f"{listed(by_file)}: chosen on validation by earlier searches, as the experiment file states; the evidence does "
            "not have the number of their draws"
        )
    for row in rows:
        searches = [("validation", row.arm.chosen, row.search(evidence, "valid"))]
        searches.append(("test, as the paper did", row.arm.as_published, row.search(evidence, "test")))
        for part, stated, search in searches:
            if search is None or row.dataset in stated:
                continue
            line = f"{row.arm.label}: chosen from {search.draws} settings by {search.metric} on {part}, {search.seconds:.0f} s"
            line += f" (ended after {search.bound:.0f} s)" if search.bound else ""
            line += f", {search.beyond} more beyond the ranges" if search.beyond else ""
            line += f", {search.stopped} of all ended early" if search.stopped else ""
            line += f", {search.failed} of all failed" if search.failed else ""
            yield line + (f"; the best {', '.join(search.edges)} is still the last one tried" if search.edges else "")


def _deviations(rows: Sequence[PaperRow], evidence: Evidence) -> list[str]:
    """Return how the measured settings differ from the paper's protocol: one sentence per parameter and pair of values.
    Settings of a row that was measured more than once are distinguished by their origin.
    """
    measured = []
    for row in rows:
        found = measurements(row, evidence)
        wanted = row.table.spec.protocol.params | row.arm.protocol
        for each in found:
            label = f"{row.arm.label} ({each.origin})" if len(found) > 1 else row.arm.label
            measured.append((label, wanted, each.fits[0].params))
    return differing_params(measured)
