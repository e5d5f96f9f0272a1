"""Runs the units of a stage, those that are not measured yet, and runs them again if their worker is lost."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from rankbench.cluster.machine import capacity
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.files import make_folder
from rankbench.experiment.outcome import failure
from rankbench.schema.experiment import Resources, SearchSpec
from rankbench.sweeps.placement import adapted, require_machine
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.running import Running
from rankbench.sweeps.search.stage import OnDone, Search, records_of, results_of
from rankbench.sweeps.store import CHECKPOINTS, OUTGOING, SweepStore
from rankbench.sweeps.trials.dispatch import Dispatch
from rankbench.sweeps.trials.ends import NODE_LOST
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.limits import OVERDUE
from rankbench.sweeps.trials.trainable import SPILL
from rankbench.sweeps.trials.tuner import run_group
from rankbench.sweeps.units import AdaptiveSearch, Unit
from rankbench.sweeps.width import widths
from rankbench.tracking.record import RunRecord, find_record

# How often a unit is run if its worker is lost, because it was killed or had too little memory; and how often in all: that its
# node was lost is no fault of the unit, since cheap machines may be taken away at any moment.
ATTEMPTS, ROUNDS = 2, 10
NO_SEARCH = SearchSpec()


def run_units(
    units: Sequence[Unit],
    environment: Environment,
    store: SweepStore,
    session: Session,
    resources: Resources,
    on_done: OnDone,
    spec: SearchSpec = NO_SEARCH,
    searches: Sequence[AdaptiveSearch] = (),
    earlier: Earlier | None = None,
    warn: Callable[[str], None] = lambda line: None,
    running: Running | None = None,
    in_order: bool = False,
    may_begin: Callable[[Unit], bool] = lambda unit: True,
) -> list[RunRecord]:
    """Run all units, and those that `searches` draw, as trials of Ray Tune; returns a record for each of their settings.

    Records are written to `store` as trials finish, and `on_done` is called for each unit. A setting is not run again if it
    has a finished record there or in an `earlier` sweep, or if its search stopped it. `warn` is called if trials wait for long
    or get several nodes, and `running` knows how far the fits are. Large units start first, so that all end at about the same
    time; `in_order`: the units start in their order, for a caller who may end before all are done. `may_begin` is asked of a
    unit when its turn comes; if it says no, the unit is left out.
    Raises StorageError if a unit needs more memory than any machine has, ConfigError if no machine has the rest.
    """
    make_folder(store.folder)  # which every node must see
    search, records, losses, failures = Search(store, spec), store.records, Counter[str](), Counter[str]()
    running = running or Running()
    running.expect(len(units) + sum(each.trials for each in searches))
    to_run = []

    def ended(unit: Unit, results: list[RunRecord], cached: bool) -> None:
        on_done(unit, results, cached)
        running.end()

    def late(unit: Unit, reason: str) -> None:
        give_up(unit, store, reason)
        (store.folder / OVERDUE / unit.run_id).unlink(missing_ok=True)  # the folder is also that of other commands
        ended(unit, records_of(unit, records), False)

    def begins(unit: Unit) -> bool:
        if unit.run_id in losses or may_begin(unit):
            return True
        running.end()
        return False

    machines = session.machines
    units = [adapted(unit, machines, resources) for unit in units]
    searches = [replace(each, draft=adapted(each.draft, machines, resources)) for each in searches]
    for unit in units:
        results = results_of(unit, records)
        if len(results) < len(unit.job.configs) and earlier and earlier.adopt(unit, store):
            results = results_of(unit, records)
        if len(results) == len(unit.job.configs):
            ended(unit, results, True)
        else:
            to_run.append(unit)
    for unit in units:
        search.add(unit)
    for unit in (*to_run, *(each.draft for each in searches)):
        require_machine(unit, machines, resources, "this machine" if session.local else "the cluster")
    members = [*((unit, 1) for unit in to_run), *((each.draft, each.trials) for each in searches)]
    wide = widths(members, machines, resources, shared_folder=environment.results_store is None)
    for reason in dict.fromkeys(why for _, why in wide if why):
        warn(reason)
    to_run = [unit for unit, _ in wide[: len(to_run)]]
    searches = [replace(each, draft=unit) for each, (unit, _) in zip(searches, wide[len(to_run) :], strict=True)]
    limit = None if resources.concurrent == "auto" else int(resources.concurrent)
    for each in searches:
        concurrent = min(capacity(each.draft.needs, machines), limit or sys.maxsize)
        # The only arm that searches leaves processors idle while it waits for a slow trial, unless its lag is larger.
        search.open(each, lag=concurrent if len(searches) > 1 else 2 * concurrent - 1)
    for number in range(1, ROUNDS + 1):
        if not to_run and not searches:
            break
        group = Group(to_run, searches, search, Dispatch(machines, limit), in_order)
        lost = run_group(group, environment, session, ended, late, warn, running, number < ATTEMPTS, begins)
        to_run, searches = [], []
        for end in lost:
            unit = end.unit
            store.fetch(unit.ids)
            results = results_of(unit, records)
            if len(results) == len(unit.job.configs):  # it was stored before the worker was lost, or by another command
                ended(unit, results, False)
                continue
            losses[unit.run_id] += 1
            failures[unit.run_id] += end.reason != NODE_LOST
            if number < ROUNDS and failures[unit.run_id] < ATTEMPTS:
                to_run.append(unit)
                continue
            give_up(unit, store, f"{end.reason} (the worker was lost {losses[unit.run_id]} times)")
            ended(unit, records_of(unit, records), False)
    # Fits of other commands have their checkpoints and tiles in the same folders.
    for name in (CHECKPOINTS, SPILL):
        for unit in (*units, *search.drawn):
            if len(results_of(unit, records)) == len(unit.job.configs):  # a failed fit goes on from there when it is repeated
                shutil.rmtree(store.folder / name / unit.run_id, ignore_errors=True)
        with suppress(OSError):  # not empty, or none
            (store.folder / name).rmdir()
    shutil.rmtree(store.folder / OUTGOING, ignore_errors=True)
    for run_id in losses:
        (store.folder / OVERDUE / run_id).unlink(missing_ok=True)
    ids = dict.fromkeys(name for unit in (*units, *search.drawn) for name in unit.ids)
    return [record for name in ids if (record := find_record(records / name))]


def give_up(unit: Unit, store: SweepStore, reason: str) -> None:
    """Write a failure for each setting of a unit without a result; its worker may have been lost after it had written some."""
    store.fetch(unit.ids)
    done = {record.id for record in results_of(unit, store.records)}
    attempt = store.trial(unit.run_id, unit.ids)
    for config in unit.job.configs:
        if unit.job.run_id(config) not in done:
            attempt.write(failure(unit.job, config, reason), None)
    store.fetch(unit.ids)
