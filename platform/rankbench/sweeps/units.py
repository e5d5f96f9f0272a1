"""What the trials of a sweep fit: settings that share a fit, the part that they are fitted on, and what a trial needs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rankbench.cluster.machine import Needs
from rankbench.core.errors import ConfigError
from rankbench.data.cards import Card
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment import estimate
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import Job, MethodConfig, configure
from rankbench.fitting.method import Iterative
from rankbench.schema.experiment import ArmSpec, ExperimentSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unit:
    """Settings that one trial fits together, and the needs of the trial.

    `cost` is a rough number of seconds. `tiled` means that the matrix does not fit into memory and is stored in a file. With
    `nodes` above 1, the blocks of the fit run on that many nodes, with `cpus` processors on each. `workers` processes make the
    gradient steps; each has one of the `cpus`.
    """

    job: Job
    cpus: int
    memory_bytes: int
    cost: float
    tiled: bool = False
    device: str = "cpu"
    gpu_share: float = 1.0
    nodes: int = 1
    workers: int = 1

    @property
    def gpus(self) -> float:
        return self.gpu_share if self.device.startswith("cuda") else 0

    @property
    def needs(self) -> Needs:
        return Needs(self.cpus, self.memory_bytes, self.gpus, self.nodes)

    @property
    def title(self) -> str:
        return f"{self.job.card.name}: {', '.join(dict.fromkeys(config.method for config in self.job.configs))}"

    @property
    def arm(self) -> tuple[str, str]:
        """Names of the dataset and of the arm of the first setting."""
        first = self.job.configs[0]
        return self.job.card.name, first.label

    @property
    def run_id(self) -> str:
        """The id of the run of the first setting."""
        return self.job.run_id(self.job.configs[0])

    @property
    def ids(self) -> list[str]:
        """The ids of the runs of all settings."""
        return [self.job.run_id(config) for config in self.job.configs]

    @property
    def can_end_early(self) -> bool:
        """Whether the search may stop it: it has a single setting, which is evaluated on the validation set as it is fitted."""
        return self.job.stage == "search" and len(self.job.configs) == 1 and self.job.configs[0].stopping is not None


@dataclass(frozen=True)
class AdaptiveSearch:
    """`trials` units of an arm on a dataset, whose parameters are drawn one after another by the results of earlier ones.

    `draft` is a unit of one possible draw, with needs that suffice for all of them.
    """

    arm: ArmSpec
    draft: Unit
    trials: int

    def unit(self, values: dict[str, Any]) -> Unit:
        """The unit of a draw, with `values` for the searched parameters."""
        config = configure(self.arm.method, self.arm.fixed | values, self.arm.label, self.arm.label)
        return replace(self.draft, job=replace(self.draft.job, configs=(config,)))

    def drawn(self, values: dict[str, Any]) -> Unit | None:
        """The unit of a draw; None if its values do not fit together, so that nothing runs. It is told of ranges that the
        experiment states; those of the registry are known to have such values.
        """
        try:
            return self.unit(values)
        except ConfigError as error:
            if not self.arm.ranges:
                log.warning("a draw is left out: %s", error)
            return None


def units(
    card: Card,
    size: Size,
    candidates: Iterable[MethodConfig],
    spec: ExperimentSpec,
    metrics: MetricSet,
    stage: str,
    cpus: int | None,
) -> list[Unit]:
    """Group settings that share a fit into units.

    The search fits on train and measures on valid, with one seed. The final stage fits on the part of `part_of_final` and
    measures on test, once for each seed if the method uses it.
    """
    searching = stage == "search"
    measure_on = "valid" if searching else "test"
    seeds = (spec.search.seed,) if searching else spec.final.seeds
    groups: dict[tuple[int, str, Any], list[MethodConfig]] = defaultdict(list)
    for seed in seeds:
        for config in candidates:
            if seed == seeds[0] or config.spec.seeded:
                key, fit_on = config.share_key, "train" if searching else part_of_final(config, card, spec)
                groups[seed, fit_on, config.identity if key is None else key].append(config)
    result = []
    for (seed, fit_on, _), members in groups.items():
        # Only final runs have a curve over all iterations; the search has too many runs for that.
        curve = 0 if searching else members[0].flat.get("eval_every", 1) or 1
        job = Job(card, tuple(members), fit_on, measure_on, metrics, spec.dtype, seed, stage, curve=curve)
        dense = members[0].spec.dense
        wanted = spec.resources.cpus
        # Up to a few thousand items, a core is better used by a second trial than by a second thread of one inverse.
        share = ((cpus or 4) if dense and size.items > 6000 else 1) if wanted == "auto" else wanted
        device = spec.resources.device if members[0].spec.on_device else "cpu"
        workers = spec.resources.workers if members[0].spec.by_workers else 1
        share = workers if workers > 1 else share
        needs = estimate.memory(job, size, workers, device), estimate.seconds(job, size, share, workers)
        result.append(Unit(job, share, *needs, device=device, gpu_share=spec.resources.gpus, workers=workers))
    return result


def can_score(config: MethodConfig, card: Card) -> bool:
    """Whether a method can score the users that the card's split measures: held-out users need a method with fold-in."""
    return config.spec.scores_new_users(config.params) or card.final_fit != "train"


def part_of_final(config: MethodConfig, card: Card, spec: ExperimentSpec) -> str:
    """The part that the final run of a setting is fitted on."""
    return config.part_to_fit(card) if spec.final.fit_on == "auto" else spec.final.fit_on


def part_of_refit(config: MethodConfig, card: Card, spec: ExperimentSpec) -> str:
    """The part that a setting is fitted on after the search has found it. Valid can be part of it if it does not have to end
    the fit, because the search has found its length.
    """
    has_length = not (isinstance(config.spec, Iterative) and config.stopping) or config.spec.nested(config.params)
    return card.final_fit if spec.final.fit_on == "auto" and has_length else part_of_final(config, card, spec)
