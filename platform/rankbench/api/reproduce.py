"""Measure published tables under a budget of time; for the command and for Python."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rankbench.cluster.session import require_reachable, session
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DownloadError, RankbenchError
from rankbench.core.files import require_writable
from rankbench.core.registry import nearest
from rankbench.core.threads import available_cpus
from rankbench.data.availability import why_missing
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare, prepared_already
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.reproduce.adopt import adopt, records_folder
from rankbench.reproduce.catalogue import PaperTable, paper_tables, selected_names
from rankbench.reproduce.claims import check_claims
from rankbench.reproduce.costs import n_cost_cells
from rankbench.reproduce.engine import BudgetedRun, run_alone, run_within_budget
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.mlflow_tags import published_tags
from rankbench.reproduce.neighbours import check_neighbours
from rankbench.reproduce.paired import run_folders
from rankbench.reproduce.required_fits import PaperRow, metrics_for, required_fits, rows_of
from rankbench.reproduce.schedule import STAGES, Task, tasks
from rankbench.reproduce.simulations import SIMULATIONS, Simulation
from rankbench.reproduce.timing import require_idle
from rankbench.sweeps.running import Running
from rankbench.sweeps.units import Unit
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_sink import MlflowSink, tracking_uri
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import run_name
from rankbench.tracking.saved_views import sweep_views

SWEEP = "reproduce"  # id of the parent run in MLflow
EVIDENCE = "evidence"  # folder beside the experiment files


@dataclass(frozen=True)
class Agenda:
    """What a call is about: the selected `tables` and `studies`, the `rows` whose data are here, why other datasets are
    `not_available`, and the `tasks` that are left, in their order. `all_tables` are those of all papers. `search_seconds`: the
    training time that each search may use. `stages` and `labels`: the stages and row labels to which the tasks are narrowed;
    all if empty.
    """

    all_tables: tuple[PaperTable, ...]
    tables: tuple[PaperTable, ...]
    studies: tuple[tuple[Simulation, str], ...]
    rows: tuple[PaperRow, ...]
    tasks: tuple[Task, ...]
    evidence: Evidence
    not_available: dict[str, str]
    adopted: int = 0
    search_seconds: float | None = None
    stages: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()

    @property
    def on_gpu(self) -> bool:
        """Whether fits of a table may use GPUs."""
        return any(table.spec.resources.device == "cuda" for table in self.tables)

    @property
    def named_rows(self) -> tuple[PaperRow, ...]:
        """The rows with one of the labels."""
        return tuple(row for row in self.rows if not self.labels or row.arm.label in self.labels)


@dataclass
class Outcome:
    """What a call has done, and whether tasks are left."""

    fitted: int
    searched: int
    studied: int
    complete: bool
    failed: list[str] = field(default_factory=list)


def all_names(tables: Sequence[PaperTable]) -> list[str]:
    """The names of all tables: those that compare models, and those that studies measure."""
    return [*(table.name for table in tables), *(each.table for each in SIMULATIONS)]


def table_words(environment: Environment) -> list[str]:
    """The words that name papers and tables: talos, talos/3.1 and so on. Empty if an experiment file cannot be read."""
    try:
        names = dict.fromkeys(all_names(paper_tables(environment)))
    except RankbenchError:
        return []
    return [*dict.fromkeys(name.split("/")[0] for name in names), *names]


def evidence_folder(environment: Environment, given: Path | None = None) -> Path:
    """Return the folder of the store: as given; evidence/ in the folder of the experiment files if that can be written, as in a
    checkout; otherwise evidence/ in the results folder.
    """
    return given or environment.stored_beside("experiments", EVIDENCE)


def agenda(
    words: Sequence[str],
    environment: Environment,
    datasets: Sequence[str] = (),
    store: Path | None = None,
    cpus: int | None = None,
    search_seconds: float | None = None,
    read_only: bool = False,
    warn: Callable[[str], None] = lambda line: None,
    on_dataset: Callable[[str], None] = lambda name: None,
    stages: Sequence[str] = (),
    labels: Sequence[str] = (),
    device: str | None = None,
    gpus: float | None = None,
) -> Agenda:
    """Return what is to be done for the tables that `words` name (all without words), on some of their datasets, in some
    `stages` of the work, and for the rows with one of the `labels`. With `device` cuda, each fit whose method can use a GPU
    gets `gpus` of one (1 by default); without `device`, the experiment files decide.

    Prepares the datasets whose raw data are available, takes finished runs of this machine into the evidence, and tests claims
    and neighbouring rows whose values are here. With `read_only` nothing is downloaded, prepared or written.

    Raises ConfigError for an unknown table, dataset, stage or label, DownloadError if no dataset of the selection is available.
    """
    every = paper_tables(environment)
    names = selected_names(words, all_names(every))
    selected = tuple(table if device is None else table.on(device, gpus) for table in every if table.name in names)
    simulations = tuple(each for each in SIMULATIONS if each.table in names)
    cards = {name: card for table in selected for name, card in table.cards.items()}
    cards |= {name: load_card(name, environment) for each in simulations for name in each.datasets if name not in cards}
    _require_known(datasets, list(cards), "--datasets: no selected table has")
    _require_known(stages, STAGES, "--stages: no stage is called")
    rows_known = [*(arm.label for table in selected for arm in table.spec.arms), *(each.study for each in simulations)]
    _require_known(labels, rows_known, "--rows: no selected table has a row")
    evidence = Evidence(evidence_folder(environment, store), read_only)
    here: dict[str, bool] = {}
    problems: dict[str, str] = {}
    for name, card in cards.items():
        if datasets and name not in datasets:
            continue
        on_dataset(name)
        try:
            if not read_only:
                prepare(card, environment)
            elif not prepared_already(card, environment) and (why := why_missing(card, environment)):
                raise DownloadError(f"{name}: {why}", why)
            here[name] = True
        except DownloadError as error:
            here[name], problems[name] = False, error.brief
    available = [name for name, there in here.items() if there]
    if not available:
        raise DownloadError("none of the datasets is available: " + ", ".join(f"{n} ({why})" for n, why in problems.items()))
    rows = tuple(row for row in rows_of(selected, available) if row.published or n_cost_cells(row))
    wanted = required_fits(rows, evidence)
    if read_only:  # whether a run is of these data is known if they are prepared
        wanted = [fit for fit in wanted if prepared_already(fit.card, environment)]
    adopted = adopt(wanted, evidence, environment, warn)
    # An earlier call may have been interrupted before it made these tests.
    check_claims(selected, available, evidence, environment)
    if not read_only:
        check_neighbours(selected, available, evidence, environment)
    metrics = {name: metrics_for(name, every) for name in available}
    studies = [(each, name) for each in simulations for name in each.datasets if name in available]
    plan = Agenda(every, selected, tuple(studies), rows, (), evidence, problems, adopted, search_seconds,
                  frozenset(stages), frozenset(labels))  # fmt: skip
    return replace(plan, tasks=_tasks_left(plan, environment, metrics, cpus))


def _require_known(given: Sequence[str], known: Sequence[str], problem: str) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"{problem} {name!r}{nearest(name, known)}")


def _tasks_left(plan: Agenda, environment: Environment, metrics: dict[str, MetricSet], cpus: int | None) -> tuple[Task, ...]:
    """Return the tasks of the plan's stages and row labels that are left. Nothing is fitted again unless the stages say so."""
    here = run_folders(environment) if "again" in plan.stages else None
    size_of = partial(Size.known, environment=environment) if plan.evidence.read_only else None
    left = tasks(plan.rows, plan.studies, plan.evidence, environment, metrics, cpus, plan.search_seconds, here, size_of)
    return tuple(
        task
        for task in left
        if (not plan.stages or task.stage in plan.stages) and (not plan.labels or plan.labels & set(task.row_labels))
    )


def reproduce(
    plan: Agenda,
    environment: Environment,
    budget: float | None,
    address: str | None = None,
    told: Callable[[str], None] = lambda line: None,
    labels: Labels | None = None,
    alone: bool = False,
    running: Running | None = None,
) -> Outcome:
    """Work through the tasks of an agenda until they are done or `budget` seconds have passed. Each finished fit is added to
    the evidence at once and sent to MLflow. With `alone`, nothing new is measured: of the `named_rows`, one measured fit per
    dataset, method and encoder is run again with the machine to itself, so that its seconds can be compared. `running` is told
    how far fits are.

    Raises ConfigError if results are in a store, if no machine has the GPU that the plan asks for, or if other processes
    use the machine and `alone` is set, ClusterError if the cluster at `address` cannot be joined, StorageError if results
    cannot be written.
    """
    started = time.monotonic()
    if alone:
        require_idle(available_cpus())
    require_writable(plan.evidence.folder)
    environment.require_folder_of_results("reproduce")
    require_writable(records_folder(environment))
    if address:
        require_reachable(address)
    metrics = {name: metrics_for(name, plan.all_tables) for name in {row.dataset for row in plan.rows}}
    sink = MlflowSink(
        tracking_uri(environment), "reproduce", environment.results / "mlartifacts", told, labels=labels or Labels()
    )
    sink.open()
    names = [table.name for table in plan.tables]
    published = Counter(name for row in plan.rows for name in row.published)
    metrics_shown = [name for name, _ in published.most_common(4)] or ["recall@20"]
    facts = {"tables": ", ".join(names) if len(names) < 10 else len(names), "budget_seconds": budget}
    views = sweep_views("reproduce", SWEEP, metrics_shown[0], metrics_shown, [])
    sink.start_sweep(SWEEP, facts, {"rankbench.question": "How near are measured numbers to published ones?"}, {}, views)

    def sent(unit: Unit, records: list[RunRecord], folder: Path, rows: list[Sequence[PaperRow]]) -> None:
        used = {unit.job.run_id(config): config.used for config in unit.job.configs}
        for record, served in zip(records, rows, strict=True):
            name, tags = run_name(record, (), True, False), published_tags(record, served)
            sink.send(record, folder / record.id, name, used.get(record.id), first=metrics_shown[0], tags=tags)

    budgeted = BudgetedRun(plan.evidence, plan.search_seconds, told, sent, running or Running())
    deadline = None if budget is None else started + budget
    try:
        with session(address, available_cpus(), gpus=plan.on_gpu) as cluster:
            cpus = None if address else cluster.cpus
            if alone:
                complete = run_alone(plan.named_rows, budgeted, environment, cluster, metrics, deadline)
            else:
                complete = run_within_budget(
                    lambda: _tasks_left(plan, environment, metrics, cpus), budgeted, environment, cluster, metrics, deadline
                )
    finally:
        sink.finish_sweep([], ok=not budgeted.failed)
    datasets = {row.dataset for row in plan.rows}
    check_claims(plan.tables, datasets, plan.evidence, environment)
    check_neighbours(plan.tables, datasets, plan.evidence, environment)
    return Outcome(budgeted.fitted, budgeted.searched, budgeted.studied, complete, budgeted.failed)
