"""What is left to measure of published tables, and the work on it under a budget of time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rankbench.cluster.session import host_and_port, require_reachable, session
from rankbench.cluster.workplace import require_shared
from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError, RankbenchError, require
from rankbench.core.files import require_writable
from rankbench.core.registry import nearest
from rankbench.core.threads import available_cpus
from rankbench.data.describe import at_hand
from rankbench.data.prepare import prepared_already
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.reproduce.adopt import adopt
from rankbench.reproduce.catalogue import PaperTable, paper_tables, selected_names, words_of
from rankbench.reproduce.engine import BudgetedRun, Outcome, run_alone, run_within_budget
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.forecast import forecast
from rankbench.reproduce.mlflow_tags import published_tags
from rankbench.reproduce.options import ReproduceOptions, StoreOptions
from rankbench.reproduce.paired import check_claims, check_neighbours, run_folders
from rankbench.reproduce.required_fits import PaperRow, metrics_for, required_fits, rows_of
from rankbench.reproduce.schedule import STAGES, Task, store_of, tasks
from rankbench.reproduce.simulations import SIMULATIONS, StudyTable, study_tables
from rankbench.reproduce.timing import require_idle
from rankbench.sweeps.running import Running
from rankbench.sweeps.units import Unit
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import run_name
from rankbench.tracking.saved_views import seeds_view

SWEEP = "reproduce"  # id of the parent run in MLflow
EVIDENCE = "evidence"  # folder beside the experiment files

Told = Callable[[str], None]


@dataclass(frozen=True)
class Agenda:
    """What a call is about: the selected `tables` and `studies`, the `rows` whose data are here, why other datasets are
    `not_available`, and the `tasks` that are left, in their order. `metrics` is what is measured on each dataset. `adopted`:
    the number of finished runs of this machine that were taken into the evidence.
    """

    options: ReproduceOptions
    tables: tuple[PaperTable, ...]
    studies: tuple[StudyTable, ...]
    rows: tuple[PaperRow, ...]
    metrics: dict[str, MetricSet]
    evidence: Evidence
    not_available: dict[str, str]
    adopted: int = 0
    tasks: tuple[Task, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether fits of a table may use GPUs."""
        return any(table.spec.resources.device == "cuda" for table in self.tables)

    @property
    def named_rows(self) -> tuple[PaperRow, ...]:
        """The rows with one of the labels that the options name."""
        return tuple(row for row in self.rows if not self.options.rows or row.arm.label in self.options.rows)

    def tasks_left(self, environment: Environment, cpus: int | None) -> tuple[Task, ...]:
        """The tasks of the chosen stages and rows that are left. Nothing is fitted again unless the stages say so."""
        stages, labels = self.options.stages, {*self.options.rows}
        here = run_folders(environment) if "again" in stages else None
        size_of = partial(Size.known, environment=environment) if self.evidence.read_only else None
        seconds = self.options.search_seconds
        studies = [each for each in self.studies if not each.simulation.alone]
        left = tasks(self.rows, studies, self.evidence, environment, self.metrics, cpus, seconds, here, size_of)
        chosen = (task for task in left if not stages or task.stage in stages)
        return tuple(task for task in chosen if not labels or labels & set(task.row_labels))


def all_names(tables: Sequence[PaperTable]) -> list[str]:
    """The names of all tables: those that compare models, and those that studies measure."""
    return [*(table.name for table in tables), *(each.table for each in SIMULATIONS)]


def table_words(environment: Environment) -> list[str]:
    """Return the words that name papers and tables, none if an experiment file cannot be read."""
    try:
        return words_of(all_names(paper_tables(environment)))
    except RankbenchError:
        return []


def stored_evidence(options: StoreOptions, environment: Environment, skipped: list[str] | None) -> Evidence:
    """Return the evidence to read. With `skipped`, lines that cannot be read are described there and left out."""
    folder = environment.stored_beside_experiments(EVIDENCE, options.store, to_read=True)
    return Evidence(folder, read_only=True, skipped=skipped)


def agenda(
    options: ReproduceOptions, environment: Environment, read_only: bool = False, told: Told = lambda line: None
) -> Agenda:
    """Return what is to be done for the tables that the options name (all without words). With the device cuda, each fit whose
    method can use a GPU gets a share of one (1 by default); without a device, the experiment files decide.

    Prepares the datasets whose raw data are available, takes finished runs of this machine into the evidence, and tests claims
    and neighbouring rows whose values are here. With `read_only` nothing is downloaded, prepared or written.

    Raises ConfigError for an unknown table, dataset, stage or label, DownloadError if no dataset of the selection is available.
    """
    options.check()
    if options.address:
        host_and_port(options.address)
    every = paper_tables(environment)
    names = selected_names(options.tables or (), all_names(every))
    chosen = (table for table in every if table.name in names)
    selected = tuple(table if options.device is None else table.on(options.device, options.gpus) for table in chosen)
    studies = tuple(study_tables(names, environment))
    cards = {name: card for table in selected for name, card in table.cards.items()}
    cards |= {each.dataset: each.card for each in studies if each.dataset not in cards}
    _require_known(options.datasets, list(cards), "--datasets: no selected table has")
    _require_known(options.stages, STAGES, "--stages: no stage is called")
    rows_known = [*(arm.label for table in selected for arm in table.spec.arms), *(each.simulation.study for each in studies)]
    _require_known(options.rows, rows_known, "--rows: no selected table has a row")
    evidence = Evidence(environment.stored_beside_experiments(EVIDENCE, options.store), read_only)
    wanted = {name: card for name, card in cards.items() if not options.datasets or name in options.datasets}
    problems = {name: why for name, card in wanted.items() if (why := at_hand(card, environment, read_only)[1])}
    available = [name for name in wanted if name not in problems]
    if not available:
        raise DownloadError("none of the datasets is available: " + ", ".join(f"{n} ({why})" for n, why in problems.items()))
    rows = tuple(row for row in rows_of(selected, available) if row.published or row.costs)
    fits = required_fits(rows, evidence)
    if read_only:  # whether a run is of these data is known if they are prepared
        fits = [fit for fit in fits if prepared_already(fit.card, environment)]
    adopted = adopt(fits, evidence, environment, told)
    if not read_only:  # an earlier call may have been interrupted before it made these tests
        check_claims(selected, available, evidence, environment)
        check_neighbours(selected, available, evidence, environment)
    metrics = {name: metrics_for(name, every) for name in available}
    studies = tuple(each for each in studies if each.dataset in available)
    plan = Agenda(options, selected, studies, rows, metrics, evidence, problems, adopted)
    return replace(plan, tasks=plan.tasks_left(environment, None if options.address else available_cpus()))


def _require_known(given: Sequence[str], known: Sequence[str], problem: str) -> None:
    for name in given:
        require(name in known, f"{problem} {name!r}{nearest(name, known)}")


def reproduce(
    plan: Agenda,
    environment: Environment,
    told: Told = lambda line: None,
    labels: Labels | None = None,
    running: Running | None = None,
) -> Outcome:
    """Work through the tasks of an agenda until they are done or the time of its options has passed. Each finished fit is added
    to the evidence at once and sent to MLflow. With the option alone, of the named rows one measured fit per dataset,
    method and encoder is run again with the machine to itself, so that its seconds can be compared, and studies that measure
    seconds are run; nothing else is measured. `running` is told how far fits are.

    Raises ConfigError if results are in a store, if no machine has the GPU that the plan asks for, or if other processes
    use the machine and it is needed alone, ClusterError if the cluster cannot be joined, StorageError if results cannot be
    written.
    """
    started, options, budget = time.monotonic(), plan.options, plan.options.seconds
    if options.alone:
        require_idle(available_cpus())
    require_writable(plan.evidence.folder)
    environment.require_folder_of_results("reproduce")
    require_writable(store_of(environment).records)
    if options.address:
        require_reachable(options.address)
    sink = MlflowSink.of(environment, SWEEP, labels, told)
    sink.open()
    names = [table.name for table in plan.tables]
    published = Counter(name for row in plan.rows for name in row.published)
    metrics_shown = [name for name, _ in published.most_common(4)] or ["recall@20"]
    facts = {"tables": ", ".join(names) if len(names) < 10 else len(names), "budget_seconds": budget}
    views = [seeds_view(SWEEP, SWEEP, metrics_shown[0], metrics_shown, curves=True)]
    sink.start_sweep(SWEEP, facts, {"rankbench.question": "How near are measured numbers to published ones?"}, {}, views)

    def shown(unit: Unit, record: RunRecord, folder: Path) -> dict[str, Any]:
        used = {unit.job.run_id(config): config.used for config in unit.job.configs}
        name = run_name(record, (), True, False)
        return {"folder": folder / record.id, "name": name, "params": used.get(record.id), "first": metrics_shown[0]}

    def on_records(unit: Unit, records: list[RunRecord], folder: Path, rows: list[Sequence[PaperRow]]) -> None:
        for record, served in zip(records, rows, strict=True):
            sink.send(record, **shown(unit, record, folder), tags=published_tags(record, served))

    running = running or Running()
    running.follow = lambda unit, record: sink.follow(record, **shown(unit, record, store_of(environment).records))
    deadline, outcome = None if budget is None else started + budget, Outcome()
    how = plan.metrics, options.search_seconds, deadline, told, on_records, running, outcome
    with sink:  # which says that the call was aborted if an error or Ctrl-C ends it
        with session(options.address, available_cpus(), gpus=plan.on_gpu) as cluster:
            if not cluster.local:
                require_shared(environment)
            budgeted = BudgetedRun(plan.evidence, environment, cluster, *how)
            if options.alone:
                named = [each for each in plan.studies if not options.rows or each.simulation.study in options.rows]
                outcome.complete = run_alone(plan.named_rows, named, budgeted)
            else:
                cpus = None if options.address else cluster.cpus
                for study in plan.studies:
                    if study.simulation.alone and study.stored(plan.evidence) is None:
                        where = f"{study.simulation.table} on {study.dataset}"
                        told(f"{where} measures seconds: --alone runs it, on an idle machine")
                for line in forecast(plan.tasks, budget, cluster.cpus, cluster.gpus).lines():
                    told(line)
                outcome.complete = run_within_budget(lambda: plan.tasks_left(environment, cpus), budgeted)
        sink.finish_sweep([], ok=not outcome.failed)
    datasets = {row.dataset for row in plan.rows}
    plan.evidence.read()  # with what other commands have measured and tested meanwhile
    check_claims(plan.tables, datasets, plan.evidence, environment)
    check_neighbours(plan.tables, datasets, plan.evidence, environment)
    return outcome
