"""A sweep from file to table: plan, search on validation, choose, refit, measure on test once per seed, compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rankbench.core.code import package_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.extras import require_extra
from rankbench.core.files import require_writable
from rankbench.core.registry import plugins_behind
from rankbench.core.threads import available_cpus
from rankbench.data.cards import ORIGIN, Card
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import MethodConfig, configure
from rankbench.experiment.methods import method
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.shared_sweeps import copy_sweep, stored_ids
from rankbench.schema.stored_sweep import (
    CardName,
    ChosenFile,
    ChosenRow,
    ComparisonsFile,
    StoredSweep,
    SweepFile,
    read_file,
    read_if_there,
)
from rankbench.schema.sweep_id import new_id
from rankbench.sweeps.comparisons import compare_finals
from rankbench.sweeps.heartbeat import Heartbeat, Progress, require_vacant
from rankbench.sweeps.plan import Plan, with_both_recalls
from rankbench.sweeps.request import SweepRequest
from rankbench.sweeps.reuse import Earlier, other_plugins
from rankbench.sweeps.search.extend_range import STEPS, ends_of, settings_beyond
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import AdaptiveSearch, Unit, part_of_refit, units
from rankbench.tracking.record import RunRecord, read_record, read_records


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
    spec: ExperimentSpec,
    plan: Plan,
    environment: Environment,
    begun: Path | None = None,
    changes: Sequence[str] = (),
    command: str = "",
) -> SweepStore:
    """Create results/sweeps/<name>-<key>-<time>, or continue the sweep in the folder `begun`; claims it for this process.

    On resuming, sweep.json is updated if other datasets are available now. `changes` lists in words how `spec` differs from its
    file; `command` is the command that repeats the sweep.
    """
    about_plan = {
        "cards": tuple(CardName(**card.model_dump(mode="json", exclude=ORIGIN)) for card in plan.declared),
        "not_available": plan.not_available,
        "notes": plan.notes,
        "settings": plan.n_settings,
        "fits": plan.n_fits,
    }
    if begun:
        store = SweepStore.of(begun, environment).claimed()
        about = read_file(begun / "sweep.json", SweepFile)
        if about.not_available != plan.not_available:
            store.write("sweep.json", about.model_copy(update=about_plan).content())
        return store
    folder = environment.results / "sweeps" / new_id(spec.name, plan.key)
    about = SweepFile(id=folder.name, experiment=spec, command=command, changes=tuple(changes), **about_plan, started_at=_now())
    store = SweepStore.of(folder, environment).claimed()
    store.write("sweep.json", about.content())
    return store


def folder_to_resume(plan: Plan, environment: Environment, take_over: bool = False) -> Path:
    """The folder of `sweep_to_resume`; of a store, its local copy, brought up to date as `copy_sweep` does.

    Raises ConfigError if there is none, or if the data have changed since its runs; DataError for a record that cannot be read.
    """
    name = sweep_to_resume(plan, environment)
    if environment.results_store:
        copy_sweep(name, environment, take_over)
    folder = environment.results / "sweeps" / name
    _require_same_data(folder, plan, environment)
    return folder


def sweep_to_resume(plan: Plan, environment: Environment) -> str:
    """The id of the newest sweep with the name and key of `plan`. Raises ConfigError if there is none."""
    start, root = f"{plan.spec.name}-{plan.key}-", environment.results / "sweeps"
    store = environment.results_store
    ids = stored_ids(store) if store else sorted(path.parent.name for path in root.glob(f"{start}*/sweep.json"))
    if not (ours := [name for name in ids if name.startswith(start)]):
        place = f"{store}/sweeps" if store else root
        raise ConfigError(
            f"{plan.spec.name}: nothing to resume in {place} for this experiment as it stands; run it without --resume"
        )
    return ours[-1]


def _require_same_data(folder: Path, plan: Plan, environment: Environment) -> None:
    """Raise ConfigError if a result in the folder is of other data than those that the rest would be measured on."""
    cards = {(card.name, card.split.seed): card for card in (*plan.cards, *plan.final_cards)}
    for record in read_records(folder / "records"):
        card = cards.get((record.dataset.name, record.dataset.split_seed))
        # A run that the scheduler ended may know only the name of its data.
        if card is not None and not record.failed and record.dataset.fingerprint:
            require(
                record.dataset.fingerprint == prepare(card, environment).fingerprint,
                f"--resume: the data of {card.name} have changed since {folder.name} began, so that its results could not be "
                "compared with new ones; run it without --resume",
            )


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
    from rankbench.cluster.session import require_reachable, session
    from rankbench.cluster.workplace import require_shared

    require_extra("sweep", "a sweep")
    environment, options, address = request.environment, request.options, request.address
    listener = listener or Listener()
    require_writable(environment.results / "sweeps")
    if environment.results_store:
        environment.results_store.require_writable()
    # The plan is made before the cluster is started, which takes seconds that a wrong key should not cost.
    planned = request.plan()
    spec = planned.spec  # without patterns
    if address:
        require_reachable(address)  # before the folder is created, so that no empty sweep is left behind
    if options.resume and not options.take_over:
        running = environment.results / "sweeps" / sweep_to_resume(planned, environment)
        require_vacant(SweepStore.of(running, environment), listener.warn)
    begun = folder_to_resume(planned, environment, take_over=True) if options.resume else None
    kept = read_records(begun / "records") if begun else []  # an unreadable record is refused before any work
    listener.accept(planned, begun)
    if begun and not options.take_over:  # another process may have begun while `accept` asked
        require_vacant(SweepStore.of(begun, environment), listener.warn)
    store = open_sweep(spec, planned, environment, begun, request.changes, request.command)
    folder = store.folder
    listener.opened(store)
    listener.planned(planned, folder)
    if changed := changed_code(kept):
        names = ", ".join(changed)
        listener.warn(
            f"finished runs were made with another version of {names} and are kept; a sweep that is not resumed repeats them"
        )
    earlier = None if options.fresh else Earlier.than(folder, environment)
    metric = spec.search.choose.metric
    gpus = spec.resources.device == "cuda"
    with Heartbeat(store) as heartbeat:
        with session(address, available_cpus(), gpus=gpus, memory=request.memory) as cluster:
            if address:
                require_shared(environment)

            # Imported here because it imports Ray, which reads the environment variables that the session sets.
            from rankbench.sweeps.run_units import run_units

            def run_stage(
                name: str, fixed: Sequence[Unit], adaptive: Sequence[AdaptiveSearch] = (), spec: ExperimentSpec = spec
            ) -> list[RunRecord]:
                members = [*fixed, *(search.draft for search in adaptive for _ in range(search.trials))]
                progress = heartbeat.progress = Progress(name, len(members), sum(unit.cost for unit in members))
                listener.stage(progress)

                def done(unit: Unit, finished: list[RunRecord], cached: bool) -> None:
                    progress.add(finished, unit.cost, metric, cached)
                    listener.done(unit, finished)

                return run_units(
                    fixed, environment, store, cluster, spec.resources, done, spec.search, adaptive, earlier,
                    listener.warn, progress.running,
                )  # fmt: skip

            def units_of(cards: Iterable[Card], settings: dict[str, list[MethodConfig]], stage: str) -> list[Unit]:
                result: list[Unit] = []
                for card in cards:
                    size = Size.of(prepare(card, environment))
                    result += units(card, size, settings[card.name], spec, planned.metrics, stage, planned.cpus)
                return result

            search = run_stage("search", planned.search, planned.adaptive)
            require_one_dataset(search)
            best = choose(search, spec)
            unstopped = spec.model_copy(update={"search": spec.search.model_copy(update={"scheduler": "none", "by": "random"})})
            for _ in range(STEPS if spec.search.extend else 0):
                beyond: dict[str, list[MethodConfig]] = defaultdict(list)
                for (dataset, _), record in best.items():
                    beyond[dataset] += settings_beyond(spec, record, search)
                further = units_of(planned.cards, beyond, "search")
                if not further:
                    break
                search += run_stage("extend", further, spec=unstopped)
                best = choose(search, spec)
            ends = {key: ends_of(spec, record, search) for key, record in best.items()}
            chosen = planned.given or {card.name: final_settings(best, card, spec) for card in planned.cards}
            finals = run_stage("final", units_of(planned.final_cards, chosen, "final"))
            require_one_dataset([*search, *finals])
        final: dict[tuple[str, str], list[RunRecord]] = {}
        for record in finals:
            final.setdefault((record.dataset.name, record.label), []).append(record)
        failed = [record for record in [*search, *finals] if record.failed]
        previous = read_if_there(folder / "chosen.json", ChosenFile)
        for row in previous.rows if previous else ():
            if row.dataset in planned.not_available:
                key = row.dataset, row.arm
                final[key] = [read_record(store.records / name) for name in row.final]
                finals += final[key]
                if row.search is not None:
                    best[key], ends[key] = read_record(store.records / row.search), row.ends
        n_compared = len({record.dataset.name for record in finals if record.finished}) * len(_columns(finals, spec))
        progress = heartbeat.progress = Progress("statistics", n_compared, 1.0, counted="comparisons")
        listener.stage(progress)
        store.write("comparisons.json", _compared(finals, folder, spec, on_progress=progress.reach).content())
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
        content = ChosenFile(metric=by.metric, on=by.on, rows=rows, failed=failed_ids, finished_at=_now())
        store.write("chosen.json", content.content())
        heartbeat.progress = None
        listener.finished(folder)
    return folder, failed


def choose(search: list[RunRecord], spec: ExperimentSpec) -> dict[tuple[str, str], RunRecord]:
    """The best finished record of each dataset and arm by the chosen metric on validation; the earlier one in a tie."""
    metric = spec.search.choose.metric
    best: dict[tuple[str, str], RunRecord] = {}
    for record in search:
        key = (record.dataset.name, record.label)
        if record.finished and (key not in best or record.metrics[metric].mean > best[key].metrics[metric].mean):
            best[key] = record
    return best


def final_settings(best: dict[tuple[str, str], RunRecord], card: Card, spec: ExperimentSpec) -> list[MethodConfig]:
    """The chosen setting of each arm on a dataset.

    If final runs are also fitted on valid, they cannot stop early, and take the number of epochs that was best in the search.
    Where that number would change the learning rates, the default is to fit on train and stop early again.
    """
    settings = []
    for record in (record for (dataset, _), record in best.items() if dataset == card.name):
        config = configure(record.method, record.params, record.id, record.arm)
        settings.append(config if part_of_refit(config, card, spec) == "train" else config.without_valid(record.iterations))
    return settings


def _columns(finals: list[RunRecord], spec: ExperimentSpec) -> tuple[str, ...]:
    """The metrics of the table."""
    is_open = spec.published is not None and spec.published.recall == "open"
    if is_open or any(record.dataset.recall == "open" for record in finals):
        return with_both_recalls(spec.report_metrics)
    return spec.report_metrics


def _compared(
    finals: list[RunRecord],
    folder: Path,
    spec: ExperimentSpec,
    metrics: tuple[str, ...] = (),
    on_progress: Callable[[float, float], None] = lambda done, share: None,
) -> ComparisonsFile:
    arms = [arm.label for arm in spec.arms]
    in_order = sorted(finals, key=lambda record: arms.index(record.label) if not record.lists else len(arms))
    columns, every_pair = metrics or _columns(finals, spec), spec.final.pairs == "all"
    return compare_finals(in_order, folder / "records", columns, spec.final.seeds[0], every_pair, on_progress)


def comparisons(stored: StoredSweep, metrics: tuple[str, ...] = ()) -> ComparisonsFile:
    """The content of comparisons.json; computed if `metrics` are not those of the experiment's table, or if foreign lists that
    have these metrics are not in it.
    """
    foreign: list[RunRecord] = []
    if stored.compared is not None:
        wanted, known = metrics or stored.compared.metrics, {(each.dataset, each.model) for each in stored.compared.models}
        foreign = [each for each in stored.foreign if {*wanted} <= {*each.metrics}]
        if wanted == stored.compared.metrics and known >= {(each.dataset.name, each.arm) for each in foreign}:
            return stored.compared
    names = [name for row in (stored.chosen.rows if stored.chosen else ()) for name in row.final]
    finals = [stored.records[name] for name in names if name in stored.records]
    return _compared([*finals, *foreign], stored.folder, stored.about.experiment, metrics)


def changed_code(records: Sequence[RunRecord]) -> list[str]:
    """Names of the plugins through which finished records would be made by other code now; and rankbench, if its source files
    differ and no plugin explains it.
    """
    finished = [record for record in records if record.finished]
    plugins = sorted({name for record in finished for name in other_plugins(record, plugins_behind(_words(record)))})
    codes = {record.environment.get("code") for record in finished}
    return plugins or (["rankbench"] if codes - {package_fingerprint()} else [])


def _words(record: RunRecord) -> list[str]:
    """The names in a record that a plugin may have registered."""
    words = [record.method, *map(str, record.params.values()), *record.metrics, record.dataset.protocol]
    return [word.partition("@")[0] for word in words]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
