"""Compare methods on datasets with a sweep: search on validation, final runs on test, intervals and paired tests."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankbench.api.dataset import card_of
from rankbench.api.display import sweep_display
from rankbench.api.results import Results
from rankbench.api.run_sweep import execute
from rankbench.core.config import override, validate
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.options import takes_options
from rankbench.core.patterns import is_pattern
from rankbench.core.plain import plain, whole_number
from rankbench.core.public import public
from rankbench.experiment import methods as known
from rankbench.schema.datasets import Entry
from rankbench.schema.datasets import card_of as card_of_entry
from rankbench.schema.experiment import NO_FILE, ExperimentSpec, with_question
from rankbench.schema.find import experiment_file
from rankbench.schema.reading import key_by_key, load_experiment
from rankbench.schema.stored_sweep import read_sweep
from rankbench.sweeps.options import SweepOptions
from rankbench.sweeps.placement import node_memory
from rankbench.sweeps.request import SweepRequest, without_idle_search
from rankbench.sweeps.selection import by_name


@public
@takes_options
def sweep(
    experiment: str | Path | None = None,
    *,
    datasets: Any = None,
    methods: str | Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    params: Mapping[str, Any] | None = None,
    metric: str | None = None,
    trials: int | None = None,
    seeds: int | Sequence[int] | None = None,
    name: str | None = None,
    changes: Mapping[str, Any] | None = None,
    options: SweepOptions,
    progress: bool = True,
    environment: Environment | None = None,
) -> Results:
    """Run an experiment file, or compare `methods` on `datasets`, and return the results.

    experiment
        The name or path of an experiment file, such as "linear_movielens_1m". Without it, `datasets` and `methods` say what to
        compare.
    datasets
        One dataset or a list of them, each in any form that `rb.dataset` takes or returns, or a pattern such as
        `movielens-*`. Those that are not available are left out with a warning.
    methods
        Names of methods, patterns such as `deql*`, families such as "family:softmax", "all", or a mapping from the label of a
        row to its parameters: {"sl": {"tau": {"grid": [0.1, 0.2]}}}. A value is fixed or a search space, as in an experiment
        file. A key "method" names the method if the label is not its name.
    params
        Values or search spaces for all methods that have the parameter, such as {"epochs": 20}.
    metric
        The metric, with its cutoff, by which settings are chosen on validation. By default ndcg@20.
    trials
        The number of draws for each method with random parameters. By default 10.
    search
        "registry" searches a method without a range in the ranges that `rankbench methods NAME` lists, its defaults first;
        "none" measures it as it is given. By default, an experiment file decides itself, and without a file it is "registry".
    extend
        Whether a parameter whose best value is at the end of its range is tried beyond it.
    seeds
        The seeds of the final runs. By default 0 alone.
    name
        The name in the results folder and in MLflow, where a sweep without one is in an experiment named after its datasets.
    changes
        Further values of the experiment by dotted keys, such as {"search.by": "tpe"}.
    register
        "best" registers the model of the best row of each dataset in MLflow, "all" that of each row, with its test metrics.
    chosen, resume, take_over, fresh, require_all, address, memory
        As the options of `rankbench sweep`: skip the search, continue the newest sweep of this experiment, even if another
        process runs it, repeat finished runs, stop if a dataset is not available, the address of a Ray cluster, and the memory
        that a sweep without one may use, such as "8GB".
    progress
        Whether a notebook or terminal shows the running sweep.

    A run that fails does not end the sweep; its row says why. Raises ConfigError, DataError and StorageError before any work
    starts, and ClusterError if the cluster fails.
    """
    environment = environment or Environment.from_env()
    require(options.search in (None, "registry", "none"), f"search: expected 'registry' or 'none', got {options.search!r}")
    node_memory(options.memory, options.address, "memory")
    values = options.beside(plain(dict(changes or {})))
    values = values if experiment is not None else key_by_key(values)  # beside the defaults of a sweep without a file
    given = {"datasets": datasets, "methods": methods, "params": params, "name": name}
    given |= {"search.choose.metric": metric, "search.trials": trials, "final.seeds": seeds}
    for key in [key for key, value in given.items() if value is not None]:
        argument = key.rpartition(".")[2]
        require(experiment is None, f"{argument}: the experiment file says this; use changes={{...}} to replace its values")
        given_too = next((each for each in values if f"{key}.".startswith(f"{each}.")), None)
        require(given_too is None, f"{argument}: {given_too} is given, too; leave one of them out")
    if experiment is not None:
        path = experiment_file(Path(experiment), environment)
        source = str(path)
        spec = by_name(load_experiment(path, values, known.load_plugin), environment, source)
    else:
        if datasets is None or methods is None:
            raise ConfigError("sweep: give an experiment, or datasets and methods such as ['bpr', 'sl']")
        ranges = "none" if options.chosen else "registry"
        content = {
            "name": NO_FILE if name is None else name,
            "datasets": [_entry(each, environment) for each in _as_list(datasets)],
            "params": plain(dict(params or {})),
            "search": {
                "choose": {"metric": "ndcg@20" if metric is None else metric},
                "trials": 10 if trials is None else plain(trials),
                "ranges": ranges,
            },
            "final": {"seeds": _seeds(0 if seeds is None else seeds)},
        } | _arms(plain(methods))
        source = "sweep"
        spec = with_question(by_name(validate(ExperimentSpec, override(content, values), source), environment, source))
        options = without_idle_search(options, spec)
    display = sweep_display(spec.search.choose.metric, progress)
    # Ray would show widgets of its own in a notebook, and complains where it cannot.
    logging.getLogger("ray.widgets").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        folder, _, _ = execute(SweepRequest(spec, source, environment, options), display)
    return Results(folder, read_sweep(folder))


def _seeds(given: int | Iterable[int]) -> list[int]:
    return [whole_number("seeds", seed) for seed in ([given] if isinstance(given, int) else given)]


def _as_list(datasets: Any) -> list[Any]:
    return list(datasets) if isinstance(datasets, list | tuple) else [datasets]


def _entry(dataset: Any, environment: Environment) -> Entry:
    if isinstance(dataset, str) and is_pattern(dataset):
        return dataset
    card = card_of(dataset, environment)
    if not card.path:
        return card.name
    entry = {"name": card.name, "file": card.reference} | card.changes
    same = card_of_entry(entry, environment, "datasets").model_dump() == card.model_dump()
    require(same, f"{card.name}: a sweep changes its card key by key; change it by dotted keys such as 'split.seed'")
    return entry


def _arms(methods: str | Sequence[str] | Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return `methods` or `arms` of an experiment."""
    if not isinstance(methods, Mapping):
        return {"methods": [methods] if isinstance(methods, str) else [*methods]}
    arms = []
    for label, values in methods.items():
        own = {name: value for name, value in values.items() if name != "method"}
        arms.append({"method": values.get("method", label), "name": label, "params": own})
    return {"arms": arms}
