"""The index of all experiments: which published tables were run, and how far the measured values are from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rankbench.core.files import write_json, write_text
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Grid, Link, Page, Section, State, Text
from rankbench.reports.sweep_page import table_or_figure
from rankbench.reports.tables import Cell, Row, Table
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import ChosenFile, NotAvailable, SweepFile

NEAR = 0.03  # relative to the published number
STATES = ("reproduced", "partly", "differs", "measured", "not run", "unreadable")

RULE = f"""\
`rows`: measured rows, of all in the experiment file. `met`: published numbers that are met, of those that could be compared. A
published number is met if it lies in the 95 % interval of the measured mean, or if the difference is at most {100 * NEAR:g} %
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


def entry(experiment: ExperimentSpec, file: Path, table: Table, about: SweepFile, chosen: ChosenFile | None) -> Entry:
    """Return the entry of an experiment file with the `table` of its newest finished sweep, if there is one.

    `experiment` is the content of the file, which may have more arms and datasets than the sweep described in `about`.
    """
    judged = [(row, metric, cell) for row in table.rows for metric, cell in _judged(row, table.stand_ins)]
    met = sum(is_met(cell) for _, _, cell in judged)
    by_size = sorted(judged, key=lambda each: abs(_percent(each[2])))
    worst = by_size[-1] if by_size else None
    published = experiment.published
    measured = sum(not row.missing for row in table.rows)
    return Entry(
        experiment.name,
        file.name,
        experiment.question,
        f"{published.paper}, {table_or_figure(published)}" if published else "",
        _state(experiment, table, len(judged), met, measured),
        chosen.finished_at if chosen else "",
        measured,
        measured + len(_not_measured(experiment, table)),
        met,
        len(judged),
        worst[2].delta if worst else None,
        _percent(worst[2]) if worst else None,
        f"{worst[0].arm} on {worst[0].dataset}, {worst[1]}" if worst else "",
        about.id if chosen else None,
        not_available=table.not_available,
    )


def unreadable(file: Path, why: str) -> Entry:
    """Return the entry of an experiment whose file or sweep cannot be read, so that it does not hide the others."""
    return Entry(file.stem, file.name, "", "", "unreadable", why=why)


def is_met(cell: Cell) -> bool:
    """Whether the measured mean agrees with the published number by RULE."""
    if cell.published is None or cell.delta is None:
        return False
    inside = cell.low is not None and cell.high is not None and cell.low <= cell.published <= cell.high
    return inside or abs(cell.delta) <= NEAR * abs(cell.published)


def write_index(folder: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write index.html, index.md and index.json into `folder`, beside the folders of the reports. Returns their paths."""
    page = index_page(entries)
    texts = {"index.html": html(page), "index.md": markdown(page)}
    files = [write_text(folder / name, text) for name, text in texts.items()]
    counts = {state: sum(each.state == state for each in entries) for state in STATES}
    content = {"rule": " ".join(RULE.split()), "states": counts, "experiments": [asdict(each) for each in entries]}
    return [*files, write_json(folder / "index.json", content)]


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
    yield Link(each.name, f"{each.name}/report") if readable else each.name
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


def _judged(row: Row, stand_ins: Sequence[str]) -> Iterator[tuple[str, Cell]]:
    """Yield the measured cells with a published number for the same data, one for each number in the paper."""
    if row.dataset in stand_ins:
        return
    cells = {metric: cell for metric, cell in row.cells.items() if cell.published is not None}
    for metric, cell in cells.items():
        twin = metric.replace("recall@", "recall_capped@") if metric.startswith("recall@") else metric.replace("_capped@", "@")
        other = cells.get(twin) if metric.startswith("recall") else None
        # If one published number is beside both recalls, because the paper does not say which it means, the nearer one counts.
        if other is None or other.published != cell.published or _distance(metric, cell) <= _distance(twin, other):
            yield metric, cell


def _distance(metric: str, cell: Cell) -> tuple[float, bool]:
    return abs(cell.delta or 0.0), metric.startswith("recall_capped@")


def _percent(cell: Cell) -> float:
    return 100 * cell.delta / cell.published if cell.delta and cell.published else 0.0
