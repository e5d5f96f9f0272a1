"""A sweep from file to table: plan, search on validation, choose, refit, measure on test once per seed, compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.extras import require_extra
from rankbench.core.files import require_writable
from rankbench.core.threads import available_cpus
from rankbench.data.cards import Card
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import MethodConfig, configure
from rankbench.experiment.methods import method
from rankbench.judge.printing import counted
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import CardName, ChosenFile, ChosenRow, SweepFile, read_file, read_if_there
from rankbench.schema.sweep_id import new_id
from rankbench.sweeps.comparisons import columns_of, compare_models
from rankbench.sweeps.heartbeat import Heartbeat, Progress, require_vacant
from rankbench.sweeps.placement import can_run
from rankbench.sweeps.plan import Plan
from rankbench.sweeps.request import SweepRequest
from rankbench.sweeps.resume import folder_to_resume, sweep_to_resume
from rankbench.sweeps.reuse import Earlier, changed_code
from rankbench.sweeps.search.extend_range import STEPS, ends_of, settings_beyond
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import AdaptiveSearch, Unit, part_of_refit, units
from rankbench.tracking.record import RunRecord, read_record, read_records

if TYPE_CHECKING:  # it imports Ray
    from rankbench.cluster.session import Session

Row = tuple[str, str]  # dataset and arm
Best = dict[Row, RunRecord]  # the runs of the chosen settings


@dataclass
class Listener:
    """Callbacks that a sweep calls as it is planned, as stages begin and as runs end. `accept` is called with the plan before
    anything is written; an error that it raises ends the sweep. It gets the folder that will be resumed, if any. `opened` is
    called with the place of the sweep once this process has claimed it, and `finished` with its folder when only its report is
    missing.
    """

    accept: Callable[[Plan, Path | None], None] = lambda plan, folder: None
    opened: Callable[[SweepStore], None] = lambda store: None
    planned: Callable[[Plan, Path], None] = lambda plan, folder: None
    stage: Callable[[Progress], None] = lambda progress: None
    done: Callable[[Unit, list[RunRecord]], None] = lambda unit, records: None
    finished: Callable[[Path], None] = lambda folder: None
    warn: Callable[[str], None] = lambda line: None


def open_sweep(
    plan: Plan, environment: Environment, begun: Path | None = None, changes: Sequence[str] = (), command: str = ""
) -> SweepStore:
    """Create results/sweeps/<name>-<key>-<time>, or continue the sweep in the folder `begun`; claims it for this process.

    On resuming, sweep.json is updated if other datasets are available now, or if what decides no result was edited. `changes`
    lists in words how the experiment differs from its file; `command` is the command that repeats the sweep.
    """
    about_plan = {
        "cards": tuple(CardName(name=card.name) for card in plan.declared),  # an address in a card may contain a key
        "not_available": plan.not_available,
        "notes": plan.notes,
        "settings": plan.n_settings,
        "fits": plan.n_fits,
    }
    if begun:
        store = SweepStore.of(begun, environment).claimed()
        about = read_file(begun / "sweep.json", SweepFile)
        if (about.not_available, about.experiment) != (plan.not_available, plan.spec):
            store.write("sweep.json", about.model_copy(update=about_plan | {"experiment": plan.spec}).content())
        return store
    folder = environment.results / "sweeps" / new_id(plan.spec.name, plan.key)
    about = SweepFile(
        id=folder.name, experiment=plan.spec, command=command, changes=tuple(changes), **about_plan, started_at=_now()
    )
    store = SweepStore.of(folder, environment).claimed()
    store.write("sweep.json", about.content())
    return store


def require_one_dataset(records: Sequence[RunRecord]) -> None:
    """Raise ConfigError if results of one dataset and split are of different data."""
    first: dict[tuple[str, int | None], str] = {}
    for record in (each for each in records if each.dataset.fingerprint):
        name = record.dataset.name
        same = first.setdefault((name, record.dataset.split_seed), record.dataset.fingerprint) == record.dataset.fingerprint
        require(same, f"the data of {name} changed while the sweep ran, so that its runs cannot be compared; run it again")


def run_sweep(request: SweepRequest, listener: Listener | None = None) -> tuple[Path, list[RunRecord]]:
    """Run the experiment of a request; return the folder of the sweep and its failed runs.

    An interrupted sweep keeps every finished run. The option `resume` continues it, unless another process runs it and this one
    is not to `take_over`. Runs that an earlier sweep has finished are copied, unless `fresh`. Datasets that are not available
    are left out, unless `require_all`; results of one that was available before are kept.

    Raises ConfigError, DataError and StorageError before any work starts, ClusterError if the cluster fails.
    """
    from rankbench.cluster.session import session
    from rankbench.cluster.workplace import require_shared

    require_extra("sweep", "a sweep")
    listener = listener or Listener()
    planned, store = _begin(request, listener)
    spec = planned.spec  # without patterns
    earlier = None if request.options.fresh else Earlier.than(store.folder, request.environment, spec.search.prunes)
    with Heartbeat(store) as heartbeat:
        with session(request.address, available_cpus(), gpus=spec.resources.device == "cuda", memory=request.memory) as cluster:
            if request.address:
                require_shared(request.environment)
            stages = _Stages(planned, request.environment, store, cluster, heartbeat, listener, earlier)
            search, best = stages.search()
            chosen = planned.given or {card.name: final_settings(best, card, spec) for card in planned.cards}
            finals = stages.run("final", stages.units_of(planned.final_cards, chosen, "final"))
            require_one_dataset([*search, *finals])
        failed = [record for record in [*search, *finals] if record.failed]
        ends = {key: ends_of(spec, record, search) for key, record in best.items()}
        stages.write_results(best, finals, ends, failed)
        heartbeat.progress = None
        listener.finished(store.folder)
    return store.folder, failed


def _begin(request: SweepRequest, listener: Listener) -> tuple[Plan, SweepStore]:
    """Plan the sweep, and claim its place: a new one, or that of the sweep to resume."""
    from rankbench.cluster.session import require_reachable

    environment, options = request.environment, request.options
    require_writable(environment.results / "sweeps")
    if environment.results_store:
        environment.results_store.require_writable()
    # The plan is made before the cluster is started, which takes seconds that a wrong key should not cost.
    planned = request.plan()
    if request.address:
        require_reachable(request.address)  # before the folder is created, so that no empty sweep is left behind
    if options.resume and not options.take_over:
        running = environment.results / "sweeps" / sweep_to_resume(planned, environment)
        require_vacant(SweepStore.of(running, environment), listener.warn)
    begun = folder_to_resume(planned, environment, take_over=True) if options.resume else None
    kept = read_records(begun / "records") if begun else []  # an unreadable record is refused before any work
    able = (each for each in kept if each.finished and each.lists is None)
    device = planned.spec.resources.device.partition(":")[0]
    if other := {each.device.partition(":")[0] for each in able if method(each.method).on_device} - {device}:
        listener.warn(f"fits of this sweep ran on {', '.join(other)}, others will on {device}: do not compare their seconds")
    listener.accept(planned, begun)
    if begun and not options.take_over:  # another process may have begun while `accept` asked
        require_vacant(SweepStore.of(begun, environment), listener.warn)
    store = open_sweep(planned, environment, begun, request.changes, request.command)
    if begun:  # whoever was taken over has stored more meanwhile, and nothing from now on
        store.fetch()
    listener.opened(store)
    listener.planned(planned, store.folder)
    if changed := changed_code(kept):
        names = ", ".join(changed)
        listener.warn(
            f"finished runs were made with another version of {names} and are kept; a sweep that is not resumed repeats them"
        )
    return planned, store


@dataclass(frozen=True)
class _Stages:
    """Runs the stages of a sweep, says how far they are, and writes what they found."""

    planned: Plan
    environment: Environment
    store: SweepStore
    cluster: Session
    heartbeat: Heartbeat
    listener: Listener
    earlier: Earlier | None

    def search(self) -> tuple[list[RunRecord], Best]:
        """Run the search, and on beyond the ends of its ranges if the experiment says so; return its runs and the best ones."""
        planned, spec = self.planned, self.planned.spec
        search = self.run("search", planned.search, planned.adaptive)
        require_one_dataset(search)
        best = choose(search, spec)
        unstopped = spec.model_copy(update={"search": spec.search.model_copy(update={"scheduler": "none", "by": "random"})})
        for _ in range(STEPS if spec.search.extend else 0):
            further = self.beyond(best, search)
            if not further:
                break
            search += self.run("extend", further, spec=unstopped)
            best = choose(search, spec)
        for (dataset, arm), tried in by_row(search).items():
            if (dataset, arm) not in best:
                n = counted(len(tried), "setting")
                self.listener.warn(f"{arm} on {dataset} is not measured on test: 0 of {n} finished ({tried[0].error})")
        return search, best

    def beyond(self, best: Best, search: Sequence[RunRecord]) -> list[Unit]:
        """The units one step beyond the ranges at whose ends the best settings lie. Those that no machine can run are left out
        with a warning, unless they are measured already.
        """
        # Imported here because it imports Optuna, which not every installation has.
        from rankbench.sweeps.search.stage import results_of

        planned, result = self.planned, list[Unit]()
        settings: dict[str, list[MethodConfig]] = defaultdict(list)
        for (dataset, _), record in best.items():
            settings[dataset] += settings_beyond(planned.spec, record, search)
        for unit in self.units_of(planned.cards, settings, "search"):
            if results_of(unit, self.store.records) or can_run(unit, self.cluster.machines, planned.spec.resources):
                result.append(unit)
            else:
                self.listener.warn(
                    f"search.extend: {unit.title}: no machine can run the step beyond the range, which needs {unit.needs}"
                )
        return result

    def run(
        self, name: str, fixed: Sequence[Unit], adaptive: Sequence[AdaptiveSearch] = (), spec: ExperimentSpec | None = None
    ) -> list[RunRecord]:
        """Run the units of a stage, and those that its searches draw."""
        # Imported here because it imports Ray, which reads the environment variables that the session sets.
        from rankbench.sweeps.run_units import run_units

        spec = spec or self.planned.spec
        members = [*fixed, *(search.draft for search in adaptive for _ in range(search.trials))]
        progress = self.begin(Progress(name, len(members), sum(unit.cost for unit in members)))
        # On the machines of the cluster, a unit may have another cost.
        costs: dict[object, float] = {unit.run_id: unit.cost for unit in fixed}
        costs |= {search.draft.arm: search.draft.cost for search in adaptive}

        def done(unit: Unit, finished: list[RunRecord], cached: bool) -> None:
            cost = costs.get(unit.run_id, costs.get(unit.arm, unit.cost))
            progress.add(finished, cost, spec.search.choose.metric, cached)
            self.listener.done(unit, finished)

        return run_units(
            fixed, self.environment, self.store, self.cluster, spec.resources, done, spec.search, adaptive, self.earlier,
            self.listener.warn, progress.running,
        )  # fmt: skip

    def units_of(self, cards: Iterable[Card], settings: dict[str, list[MethodConfig]], stage: str) -> list[Unit]:
        planned, result = self.planned, list[Unit]()
        for card in cards:
            size = Size.of(prepare(card, self.environment))
            result += units(card, size, settings[card.name], planned.spec, planned.metrics, stage, planned.cpus)
        return result

    def begin(self, progress: Progress) -> Progress:
        self.heartbeat.progress = progress
        self.listener.stage(progress)
        return progress

    def write_results(
        self,
        best: Best,
        finals: Sequence[RunRecord],
        ends: dict[Row, dict[str, tuple[float, float]]],
        failed: Sequence[RunRecord],
    ) -> None:
        """Compare the final runs; write chosen.json with the rows of an earlier one whose datasets are not available now."""
        planned, store, spec = self.planned, self.store, self.planned.spec
        best, ends, finals = dict(best), dict(ends), [*finals]
        final = by_row(finals)
        previous = read_if_there(store.folder / "chosen.json", ChosenFile)
        for row in previous.rows if previous else ():
            if row.dataset in planned.not_available:
                key = row.dataset, row.arm
                final[key] = [read_record(store.records / name) for name in row.final]
                finals += final[key]
                if row.search is not None:
                    best[key], ends[key] = read_record(store.records / row.search), row.ends
        columns = columns_of(spec, (record.dataset for record in finals))
        n_compared = len({record.dataset.name for record in finals if record.finished}) * len(columns)
        progress = self.begin(Progress("statistics", n_compared, 1.0, counted="comparisons"))
        compared = compare_models(finals, store.folder, spec, on_progress=progress.reach)
        store.write("comparisons.json", compared.content())
        seeded = {arm.label: method(arm.method).seeded for arm in spec.arms}
        rows = tuple(
            ChosenRow(
                dataset=dataset,
                arm=arm,
                search=best[dataset, arm].id if (dataset, arm) in best else None,
                final=tuple(record.id for record in final.get((dataset, arm), [])),
                ends=ends.get((dataset, arm), {}),
                seeded=seeded.get(arm),
            )
            for dataset, arm in dict.fromkeys([*best, *final])
        )
        by, failed_ids = spec.search.choose, tuple(record.id for record in failed)
        done = tuple(card.name for card in planned.cards)
        about = {"metric": by.metric, "on": by.on, "datasets": done, "failed": failed_ids, "finished_at": _now()}
        content = ChosenFile(rows=rows, **about)
        store.write("chosen.json", content.content())


def choose(search: Sequence[RunRecord], spec: ExperimentSpec) -> Best:
    """The best finished record of each dataset and arm by the chosen metric on validation; the earlier one in a tie."""
    metric, finished = spec.search.choose.metric, (record for record in search if record.finished)
    return {row: max(tried, key=lambda record: record.metrics[metric].mean) for row, tried in by_row(finished).items()}


def by_row(records: Iterable[RunRecord]) -> dict[Row, list[RunRecord]]:
    """The records by dataset and arm, in their order."""
    rows: dict[Row, list[RunRecord]] = defaultdict(list)
    for record in records:
        rows[record.dataset.name, record.label].append(record)
    return dict(rows)


def final_settings(best: Best, card: Card, spec: ExperimentSpec) -> list[MethodConfig]:
    """The chosen setting of each arm on a dataset.

    If final runs are also fitted on valid, they cannot stop early, and take the number of epochs that was best in the search.
    Where that number would change the learning rates, the default is to fit on train and stop early again.
    """
    settings = []
    for record in (record for (dataset, _), record in best.items() if dataset == card.name):
        config = configure(record.method, record.params, record.id, record.arm)
        settings.append(config if part_of_refit(config, card, spec) == "train" else config.without_valid(record.iterations))
    return settings


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
