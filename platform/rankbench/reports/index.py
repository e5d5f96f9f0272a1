"""The index of all experiments: which published tables were run, and how far the measured values are from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rankbench.core.files import write_json
from rankbench.judge.agreement import Agreement
from rankbench.reports.page import Grid, Page, Section, State, Text
from rankbench.reports.rows import ReportRow
from rankbench.reports.site import Site, link, page_kind
from rankbench.reports.sweep_page import table_or_figure
from rankbench.reports.tables import Table
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import NotAvailable, StoredSweep

STATES = ("reproduced", "partly", "differs", "measured", "not run", "unreadable")

RULE = """\
`rows`: measured rows, of all in the experiment file. `met`: published numbers that are met, of those that could be compared. A
published number is met if it lies in the 95 % interval of the measured mean, or if the difference is at most 3 %
of it. `reproduced`: every published number of the table is met. `partly`: every measured one is met, but some rows or datasets
were not run, or their data were not available. `differs`: at least one measured number is not met. `measured`: there is no
published number for the same data. `not run`: there is no finished sweep. If a paper does not say which recall it means, the
nearer of the two counts. A number beside a stand-in belongs to other data and is not compared."""


@dataclass(frozen=True)
class Entry:
    """One experiment. `met` of `judged` published numbers are met. `largest`: the difference that is largest relative to its
    published number, also as `largest_percent`; `largest_of`: its arm, dataset and metric. `not_available`: dataset → reason.
    """

    name: str
    file: str
    question: str
    paper: str
    state: str
    finished_at: str = ""
    rows_measured: int = 0
    rows: int = 0
    met: int = 0
    judged: int = 0
    largest: float | None = None
    largest_percent: float | None = None
    largest_of: str = ""
    sweep: str | None = None
    why: str = ""
    not_available: dict[str, NotAvailable] = field(default_factory=dict)


def entry(experiment: ExperimentSpec, file: Path, table: Table, stored: StoredSweep) -> Entry:
    """Return the entry of an experiment file with the `table` of its newest finished sweep, if there is one.

    `experiment` is the content of the file, which may have more arms and datasets than the `stored` sweep.
    """
    judged = [(row, each) for row in table.rows for each in _judged(row, table.stand_ins)]
    met = sum(each.state != "off" for _, each in judged)
    row, worst = max(judged[::-1], key=lambda each: abs(_percent(each[1])), default=(None, None))
    published = experiment.published
    measured = sum(not row.missing for row in table.rows)
    return Entry(
        experiment.name,
        file.name,
        experiment.question,
        f"{published.paper}, {table_or_figure(published)}" if published else "",
        _state(experiment, table, len(judged), met, measured),
        stored.chosen.finished_at if stored.chosen else "",
        measured,
        measured + len(_not_measured(experiment, table)),
        met,
        len(judged),
        worst.difference if worst else None,
        _percent(worst) if worst else None,
        f"{row.arm} on {row.dataset}, {worst.metric}" if row and worst else "",
        stored.about.id if stored.chosen else None,
        not_available=table.not_available,
    )


def unreadable(file: Path, why: str) -> Entry:
    """Return the entry of an experiment whose file or sweep cannot be read, so that it does not hide the others."""
    return Entry(file.stem, file.name, "", "", "unreadable", why=why)


def write_index(folder: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write index.html, index.md and index.json into `folder`, beside the folders of the reports. Returns their paths."""
    site = Site(folder, ("html", "md"))
    site.add("sweeps", "index", entries)
    counts = {state: sum(each.state == state for each in entries) for state in STATES}
    content = {"rule": " ".join(RULE.split()), "states": counts, "experiments": [asdict(each) for each in entries]}
    return [*site.files, write_json(folder / "index.json", content)]


@page_kind("sweeps")
def index_page(entries: Sequence[Entry]) -> Page:
    """Return the page with one table of all experiments, those with published results first."""
    lacking = any(each.not_available for each in entries)
    header = ["experiment", "state", "paper", "rows", "met", "largest difference", "of", "finished"]
    header += [*["not available"] * lacking, "question"]
    ordered = sorted(entries, key=lambda each: (not each.paper, each.paper, each.name))
    body = [list(_line(each, lacking)) for each in ordered]
    quiet = frozenset(position for position, each in enumerate(ordered) if each.state in ("not run", "unreadable"))
    counts = [(state, str(sum(each.state == state for each in entries))) for state in STATES]
    facts = (("experiments", str(len(entries))), *((name, number) for name, number in counts if number != "0"))
    lead = ("Every experiment file, with its newest finished sweep compared with the published numbers.",)
    return Page(
        "Published tables and their state", lead, (Section("", (Grid(header, body, quiet=quiet, sticky=2), Text(RULE))),), facts
    )


def _line(each: Entry, lacking: bool) -> Iterator[str]:
    readable = each.state != "unreadable"
    yield link("sweep", f"{each.name}/report", each.name) if readable else each.name
    yield State(each.state)
    yield each.paper
    yield f"{each.rows_measured} of {each.rows}" if readable else ""
    yield f"{each.met} of {each.judged}" if each.judged else ""
    yield "" if each.largest is None else f"{each.largest:+.4f} ({each.largest_percent:+.1f} %)"
    yield each.largest_of
    yield each.finished_at[:10]
    if lacking:
        yield ", ".join(f"{dataset}: {why.brief}" for dataset, why in each.not_available.items())
    yield each.question or each.why


def _state(experiment: ExperimentSpec, table: Table, judged: int, met: int, measured: int) -> str:
    if not measured:
        return "not run"
    if met < judged:
        return "differs"
    expected = _published_numbers(experiment, table.stand_ins)
    if not expected:
        return "measured"
    return "partly" if judged < expected or _not_measured(experiment, table) else "reproduced"


def _published_numbers(experiment: ExperimentSpec, stand_ins: Sequence[str]) -> int:
    """Return how many published numbers the file has for its datasets, without those replaced by stand-ins."""
    published = [*(arm.published for arm in experiment.arms), *(row.published for row in experiment.not_run)]
    return sum(len(each.get(name, ())) for each in published for name in experiment.dataset_names if name not in stand_ins)


def _not_measured(experiment: ExperimentSpec, table: Table) -> set[tuple[str, str]]:
    """Return dataset and name of each row of the file that has no measurement in the table."""
    measured = {(row.dataset, row.arm) for row in table.rows if not row.missing}
    datasets = experiment.dataset_names
    arms = {(dataset, arm.label) for dataset in datasets for arm in experiment.arms}
    others = {(dataset, row.name) for row in experiment.not_run for dataset in datasets if dataset in row.published}
    return (arms | others) - measured


def _judged(row: ReportRow, stand_ins: Sequence[str]) -> Iterator[Agreement]:
    """Yield the agreements of a row with the numbers published for the same data, one for each number in the paper."""
    if row.dataset in stand_ins:
        return
    found = {metric: near for metric, cell in row.cells.items() if (near := cell.agreement(metric))}
    for metric, near in found.items():
        twin = metric.replace("recall@", "recall_capped@") if metric.startswith("recall@") else metric.replace("_capped@", "@")
        other = found.get(twin) if metric.startswith("recall") else None
        # If one published number is beside both recalls, because the paper does not say which it means, the nearer one counts.
        if other is None or other.published != near.published or _distance(near) <= _distance(other):
            yield near


def _distance(near: Agreement) -> tuple[float, bool]:
    return abs(near.difference), near.metric.startswith("recall_capped@")


def _percent(near: Agreement) -> float:
    return 100 * near.difference / near.published if near.published else 0.0
