"""The pages of the results: one per paper, with what holds, what does not and what is not significant, and an index of all."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.judge.printing import difference, interval, listed, number, percent
from rankbench.reports.deviations import differing_params
from rankbench.reports.page import Block, Grid, Items, Page, Section, Text
from rankbench.reports.site import Site
from rankbench.reproduce.agenda import all_names
from rankbench.reproduce.agreement import Count, agreements, counted_cells, measurements
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.counts import MEANING as CAUSES
from rankbench.reproduce.counts import OffCell, by_cause, counts, off_cells
from rankbench.reproduce.devices import fits_on_gpu, gpu_shift
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.figure import curves_figure, differences_figure
from rankbench.reproduce.missing_data import files_to_bring, missing_data
from rankbench.reproduce.required_fits import MEANING, PaperRow, rows_of
from rankbench.reproduce.results import MARKED, cost_columns, count_columns, seed_columns, study_columns, table_columns
from rankbench.reproduce.seeds import Spread, spreads
from rankbench.reproduce.shown_claims import TESTS, claim_blocks, neighbour_blocks, rows_compared, seeds_compared, shown_claims
from rankbench.reproduce.simulations import StudyTable, study_tables

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
STAND_IN = """\
The claims on data that take the place of the paper's, which were not available. They say whether the order of the rows is the
paper's there; a claim is neither shown nor refuted by them."""

COUNTED = """\
`measured`: cells of which the paper prints the searched values, or a search on validation chose them. `within 1 %`, `within
3 %`: the measured mean differs from the published number by no more. `agree`: within 3 %, or the published number lies in the
95 % interval of the mean over users. A wide interval agrees with much: `half-width` is half the interval in percent of the
mean, on average, and `by chance` is the share of cells that would agree if each had the published number of another row of its
table. Costs, the results of studies and what one row alone publishes have no such number; the share then says `of` how many
cells it is, and how many of these agree. `found on test`: cells measured at a setting that was found on the test set, which are
counted separately. `not trained to its end`: measured cells of fits whose curve still rises, or that are shorter than the
paper's without a curve that shows that they suffice. Cells beside stand-ins belong to other data and are not counted."""

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


def write_pages(folder: Path, tables: Sequence[PaperTable], evidence: Evidence, environment: Environment) -> list[Path]:
    """Write a page and a figure per paper that has evidence, and README.md, the index. Returns the paths."""
    names = all_names(tables)
    site, papers = Site(folder, ("md",)), []
    for name in dict.fromkeys(table.paper for table in tables):
        own = tuple(table for table in tables if table.paper == name)
        mine = {each for each in names if each.split("/")[0] == name}
        studies, off = tuple(study_tables(mine, environment)), off_cells(own, mine, evidence, environment)
        papers.append(Paper(name, own, studies, counts(tables, mine, evidence, environment), off))
        site.write(name, _paper_page(papers[-1], evidence))
    site.write("README", _index(papers, evidence, environment))
    return site.files


def _index(papers: Sequence[Paper], evidence: Evidence, environment: Environment) -> Page:
    by_paper = {f"[{TITLES.get(paper.name, paper.name)}]({paper.name}.md)": paper.total for paper in papers}
    tables = [table for paper in papers for table in paper.tables]
    header = ["claim", "dataset", "table", "verdict", "rows compared", "seeds"]
    bodies: dict[bool, list[list[str]]] = {False: [], True: []}  # whether the data are a stand-in
    for each in shown_claims(tables, evidence):
        tests = each.tests
        line = [tests.text, tests.dataset, tests.table, each.verdict, rows_compared(tests), seeds_compared(tests)]
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
        Section(
            "Published cells",
            (cells, Text(COUNTED), Grid(*seed_columns(total)), *_after_test(tables, evidence), *_on_devices(tables, evidence)),
        ),
        *_off_cells([cell for paper in papers for cell in paper.off]),
        *_section("Claims of the papers", header, bodies[False], TESTS),
        *_section("Claims on stand-ins", header, bodies[True], STAND_IN),
        *_section("Cells without data", missing.header, missing.body, BRING),
    )
    return Page("Results", lead, sections)


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
    if claims := shown_claims(paper.tables, evidence):
        sections.append(Section("What holds, and what does not", tuple(claim_blocks(claims))))
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


def _after_test(tables: Sequence[PaperTable], evidence: Evidence) -> Iterator[Text]:
    """Say which rows were searched in ranges that were changed after numbers on test were known, and how many cells that is."""
    rows = [row for row in rows_of(tables) if row.arm.after_test and not row.stand_in and row.arm.variant_of is None]
    found = Counter[str]()
    for row in rows:  # one per dataset
        found[f"{row.arm.label} ({row.table.name})"] += len(counted_cells(row, evidence))
    if found := +found:
        yield Text(
            f"{sum(found.values())} of the measured cells are of rows whose ranges were changed after numbers on test were "
            f"known, as their accounts say: {listed(found)}. Validation chose within these ranges."
        )


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
            *neighbour_blocks(table, name, evidence),
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
        for each in found:
            label = f"{row.arm.label} ({each.origin})" if len(found) > 1 else row.arm.label
            measured.append((label, row.protocol, each.fits[0].params))
    return differing_params(measured)
