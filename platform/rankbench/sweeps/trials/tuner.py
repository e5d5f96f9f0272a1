"""Runs a group of units as trials of Ray Tune. Each trial writes its own records; a failed one writes the reason."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray import tune
from ray.tune.error import TuneError
from ray.tune.experiment import Trial

from rankbench.cluster.private_folder import private_folder
from rankbench.cluster.ray_internals import skip_usage_statistics
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError, RankbenchError, first_line
from rankbench.core.plugins import Shipment
from rankbench.sweeps.running import Running
from rankbench.sweeps.search.stage import OnDone
from rankbench.sweeps.trials.callbacks import Nodes, Reports, Silence, Waiting
from rankbench.sweeps.trials.ends import Lost, TrialEnds
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.queue import Queue
from rankbench.sweeps.trials.scheduler import Scheduler
from rankbench.sweeps.trials.trainable import Planned, UnitTrainable
from rankbench.sweeps.units import Unit

skip_usage_statistics()


def run_group(
    group: Group,
    environment: Environment,
    session: Session,
    on_done: OnDone,
    on_late: Callable[[Unit, str], None],
    warn: Callable[[str], None],
    running: Running,
    again: bool,
    begins: Callable[[Unit], bool],
) -> list[Lost]:
    """Run the units of a group, planned and drawn; returns those whose worker was lost. `again`: whether they will be run
    again. `begins`: as in `Queue`; `on_late`: as in `TrialEnds`.
    """
    units, searches, search = group.units, group.searches, group.search
    of_units = [group.shared(unit) for unit in units]
    of_searches = [group.shared(each.draft) for each in searches]

    def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        needs = of_units[config["unit"]] if "unit" in config else of_searches[config["search"]]
        return tune.PlacementGroupFactory(replace(needs, nodes=config["nodes"]).bundles)

    trainable = tune.with_resources(
        tune.with_parameters(
            UnitTrainable,
            planned=Planned(Shipment.of_this_process(), units, searches),
            environment=replace(environment, tracking_uri=None),  # no trial needs it, and it may contain a password
            store=search.store,
            prunes=search.spec.prunes,
        ),
        resources,
    )
    scheduler = Scheduler(group)
    ends = TrialEnds(group, on_done, on_late, warn, again)
    # A lost worker is reported here, in one line; Tune would print its stack.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # Nobody needs Tune's own state, since a sweep is resumed from its records. It stays off the disk of the results, because
    # Tune reads it again at the end and fails if that disk is full.
    with private_folder() as scratch:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                num_samples=len(units) + sum(each.trials for each in searches),
                search_alg=Queue(group, on_done, begins),
                scheduler=scheduler,
                trial_dirname_creator=lambda trial: trial.trial_id,
                # A worker starts once and runs trial after trial: its imports take longer than a small fit.
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=f"trials-{os.getpid()}",
                storage_path=str(scratch),
                verbose=0,
                progress_reporter=Unreported(),
                callbacks=[
                    ends,
                    Waiting(group, warn, session.local),
                    Reports(group.unit_of, running, warn),
                    Silence(running, warn, scheduler.held),
                    *([] if session.local else [Nodes(group)]),
                ],
                # Tune's own retry waits forever for the worker that it kept for reuse; run_units retries instead.
                failure_config=tune.FailureConfig(max_failures=0),
                # Fits save their own state, in a format that needs no pickle.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        try:
            tuner.fit()
        except TuneError as error:
            raise _told(error) from None
        return ends.units_lost()


def _told(error: TuneError) -> RankbenchError:
    """The error of this program that ended Tune's loop, such as a store that does not answer, or else that of Tune."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, RankbenchError):
            return current
        current = current.__cause__ or current.__context__
    return ClusterError(f"Ray Tune ended the sweep: {first_line(error)}; --resume continues")


class Unreported(tune.ProgressReporter):
    """Reports nothing: without it, Tune clears the output of a notebook's cell, where the sweep shows its own progress."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None: ...
