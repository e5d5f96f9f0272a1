"""What an experiment must satisfy before its data are read: names, resources, metrics and the number of fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.extras import installed
from rankbench.core.registry import nearest
from rankbench.data.cards import Card
from rankbench.data.cards import card_names as names_of_cards
from rankbench.evaluation.metrics import MetricSet, metric_set, require_better_if_larger
from rankbench.experiment.methods import method, registered
from rankbench.judge.printing import counted
from rankbench.schema.datasets import card_of
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.space import MOST
from rankbench.sweeps.comparisons import with_both_recalls
from rankbench.sweeps.selection import require_somewhere
from rankbench.sweeps.settings import draws

MOST_SPLITS = 100  # of a dataset, each of which is prepared for the plan


def require_names(spec: ExperimentSpec, source: str) -> None:
    """Raise ConfigError if two arms have one name, or a row that is not run has that of an arm."""
    names = [arm.label for arm in spec.arms]
    doubled = _doubled(names)
    require(not doubled, f"{source}: arms: the name {doubled} is given twice; set a `name` for each")
    for position, row in enumerate(spec.not_run):
        require(row.name not in names, f"{source}: not_run[{position}]: {row.name} is already the name of an arm")


def require_parameters(spec: ExperimentSpec, source: str) -> None:
    """Raise ConfigError for what the file says of the paper's parameters if no method has one of that name."""
    for position, arm in enumerate(spec.arms):
        for key, params in {"protocol": arm.protocol, "unprinted": arm.unprinted}.items():
            require_somewhere(params, [arm.method], f"{source}: arms[{position}].{key}")
    if installed("train"):  # without PyTorch, the parameters of losses are not known
        for key, params in {"protocol.params": spec.protocol.params, "unprinted": spec.unprinted}.items():
            # Not the arms alone: a file that continues another one, or an option, may have left some of them out.
            require_somewhere(params, registered().names() if params else (), f"{source}: {key}")


def require_resources(spec: ExperimentSpec, cpus: int | None, source: str) -> None:
    """Raise ConfigError if a trial needs more than the `cpus` processors of this machine; None stands for a cluster."""
    wanted, workers = spec.resources.cpus, spec.resources.workers
    require(
        cpus is None or wanted == "auto" or wanted <= cpus,
        f"{source}: resources.cpus: a trial needs {wanted}, this machine has {cpus}",
    )
    require(
        cpus is None or workers <= cpus,
        f"{source}: resources.workers: a trial of {workers} workers needs as many processors, this machine has {cpus}",
    )


def checked_metrics(spec: ExperimentSpec, source: str) -> MetricSet:
    """Return all metrics that are measured. Raises ConfigError for an unknown one, and for one that cannot choose a setting."""
    chosen_by, key = spec.search.choose.metric, f"{source}: search.choose.metric"
    require("@" in chosen_by, f"{key}: write it with a cutoff, as in ndcg@20")
    require_better_if_larger(chosen_by, key)
    chooses = metric_set([chosen_by], source=key)
    for name, words in (("metrics", spec.metrics), ("published", spec.report_metrics)):
        metric_set(words, spec.cutoffs, f"{source}: {name}")
    for word in spec.report_metrics:
        require("@" in word or word == "auc", f"{source}: published: write {word} with its cutoff, as in {word}@20")
    for position, claim in enumerate(spec.claims):
        metric_set([claim.metric], spec.cutoffs, f"{source}: claims[{position}].metric")
    return metric_set([*spec.metrics, *chooses.names, *with_both_recalls(spec.report_metrics)], spec.cutoffs)


def declared_cards(spec: ExperimentSpec, environment: Environment, source: str) -> tuple[Card, ...]:
    """Return the cards of all datasets. Raises ConfigError if one is named twice, or if there is no card of a dataset for which
    a row has numbers or settings.
    """
    cards = [card_of(entry, environment, f"{source}: datasets[{i}]") for i, entry in enumerate(spec.datasets)]
    names = [card.name for card in cards]
    doubled = _doubled(names)
    require(not doubled, f"{source}: datasets: {doubled} is given twice; its rows could not be distinguished")
    # A file may be run on some of its datasets; its entries for the others are ignored then.
    known = {*names_of_cards(environment), *names}
    for rows in ("arms", "not_run"):
        for position, row in enumerate(getattr(spec, rows)):
            for name in ("published", "costs", "chosen", "printed", "as_published"):
                _require_known(getattr(row, name, ()), known, f"{source}: {rows}[{position}].{name}")
    for position, claim in enumerate(spec.claims):
        _require_known(claim.datasets, known, f"{source}: claims[{position}].datasets")
    _require_known(spec.published.beside if spec.published else (), known, f"{source}: published.beside")
    return tuple(cards)


def require_few_draws(spec: ExperimentSpec, source: str) -> None:
    """Raise ConfigError if the search would have too many fits."""
    drawing = sum(draws(arm) for arm in spec.arms)
    _require_bounded("search", {"dataset": len(spec.datasets), "model": drawing, "trial": spec.search.trials}, source)


def require_few_finals(spec: ExperimentSpec, source: str) -> None:
    """Raise ConfigError if there would be too many final runs, or too many splits to prepare. The methods must be known."""
    splits = len(spec.final.split_seeds or ("own",))
    require(
        splits <= MOST_SPLITS,
        f"{source}: final.split_seeds: {splits:,} splits of each dataset, where a sweep prepares at most {MOST_SPLITS}",
    )
    seeded = sum(method(arm.method).seeded for arm in spec.arms)
    factors = {"dataset": len(spec.datasets), "split seed": splits}
    _require_bounded("final", factors | {"model": seeded, "seed": len(spec.final.seeds)}, source)
    _require_bounded("final", factors | {"model": len(spec.arms)}, source)


def _require_bounded(stage: str, factors: dict[str, int], source: str) -> None:
    n, words = math.prod(factors.values()), " x ".join(counted(number, name) for name, number in factors.items())
    require(n <= MOST, f"{source}: {stage}: {n:,} fits ({words}), where a stage has at most {MOST:,}; use fewer of them")


def _doubled(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(name for name in names if names.count(name) > 1))


def _require_known(datasets: Iterable[str], known: Iterable[str], source: str) -> None:
    for dataset in datasets:
        require(dataset in known, f"{source}: unknown dataset {dataset!r}{nearest(dataset, known)}")
