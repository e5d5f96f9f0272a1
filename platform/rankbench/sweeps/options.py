"""What a sweep may be asked for beside its experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.core.errors import require
from rankbench.core.options import Options, cluster_address, option

# Options that set a key of an experiment.
KEYS = {"search": "search.ranges", "extend": "search.extend", "metric": "search.choose.metric", "all_pairs": "final.pairs"}


@dataclass(frozen=True)
class SweepOptions(Options):
    """How a sweep runs, from the command line and from Python."""

    resume: bool = option(False, "Continue the newest sweep of this experiment.")
    take_over: bool = option(False, "With --resume: even if another process runs it, which then ends.")
    search: str | None = option(
        None, "Search methods without a range in the registry's ranges, or nothing. Default without a file: registry.",
        metavar="[registry|none]",
    )  # fmt: skip
    extend: bool = option(False, "Search on where the best value of a parameter is at the end of its range.")
    chosen: bool = option(False, "Skip the search and measure the file's `chosen` parameters.")
    address: str | None = cluster_address()
    memory: str | None = option(
        None, "Memory that the sweep may use on this machine, objects included, such as 8GB. Default: what is free."
    )
    fresh: bool = option(False, "Repeat runs that an earlier sweep has finished.")
    register: str | None = option(
        None, "Register the best model of each dataset, or that of each row, in MLflow.", metavar="[best|all]",
    )  # fmt: skip
    require_all: bool = option(False, "Stop if a dataset is not available, instead of leaving it out.")

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of an experiment that some of the options set."""
        given = {key: getattr(self, name, None) for name, key in KEYS.items()}
        return {key: "all" if key == "final.pairs" else value for key, value in given.items() if value not in (None, False)}

    def beside(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return `changes` of an experiment with those of the options. Raises ConfigError for what is said twice, and for an
        option without effect.
        """
        for name, key in KEYS.items():
            twice = key in changes and key in self.keys
            require(not twice, f"--{name.replace('_', '-')}: {key} is given, too; leave one of them out")
        for name, given in {"search": self.search == "registry", "extend": self.extend}.items():
            require(not (self.chosen and given), f"--{name}: --chosen skips the search; leave one of them out")
        return {**changes, **self.keys}


@dataclass(frozen=True)
class CommandOptions(SweepOptions):
    """What the words of a command select and change, too."""

    experiment: Path | None = option(
        None, "An experiment file; a bare name is looked up in experiments/. Or give --datasets and --methods.",
        argument=True, complete="experiments",
    )  # fmt: skip
    changes: list[str] | None = option(
        None, "Changes to the file, such as search.trials=5.", argument=True, metavar="[path=value]...", complete="changes"
    )
    datasets: list[str] | None = option(
        None, "Datasets: names, patterns such as 'movielens-*', all; '!NAME' leaves out. With a file, those of its own.",
        metavar="PATTERN", complete="selected_datasets",
    )  # fmt: skip
    methods: list[str] | None = option(
        None, "Methods: names, patterns such as 'deql*', family:NAME, all; '!NAME' leaves out. With a file, its own.",
        metavar="PATTERN", complete="selected_methods",
    )  # fmt: skip
    metric: str | None = option(None, "Metric on valid that settings are chosen by, such as ndcg@20.", complete="metrics")
    arms: list[str] | None = option(
        None, "Run only the arms whose name matches, such as '*, MF'; may be repeated.", metavar="PATTERN"
    )
    all_pairs: bool = option(False, "Test all pairs of many models, as final.pairs=all does; it may take long.")
    stand_in: float | None = option(
        None, "Use synthetic data of the datasets' sizes times FACTOR: 1 for the full size, 0.01 for a trial.", metavar="FACTOR"
    )
