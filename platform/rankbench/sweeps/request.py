"""What is asked of a sweep: an experiment, where it came from, and how it runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rankbench.cluster.machine import Machine
from rankbench.cluster.node_memory import NodeMemory
from rankbench.cluster.session import host_and_port, session
from rankbench.core.config import assignments
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.extras import require_extra
from rankbench.core.memory import available_memory
from rankbench.core.options import comma_separated, words_of
from rankbench.core.threads import available_cpus
from rankbench.experiment.execution import gpus_of_host, require_device
from rankbench.experiment.job import configure
from rankbench.experiment.methods import load_plugin
from rankbench.schema.experiment import ExperimentSpec, with_question
from rankbench.schema.find import experiment_file
from rankbench.schema.reading import experiment_of_words, load_experiment, of_arms, of_datasets
from rankbench.sweeps.options import CommandOptions, SweepOptions
from rankbench.sweeps.placement import node_memory
from rankbench.sweeps.plan import Plan, plan
from rankbench.sweeps.selection import by_name, of_methods
from rankbench.sweeps.stand_in import stand_in

O = TypeVar("O", bound=SweepOptions)


@dataclass(frozen=True)
class SweepRequest:
    """An experiment without patterns, its name in messages, and how it runs. `changes` says in words how it differs from its
    file, and `command` repeats it.
    """

    spec: ExperimentSpec
    source: str
    environment: Environment
    options: SweepOptions = field(default_factory=SweepOptions)
    changes: tuple[str, ...] = ()
    command: str = ""

    def __post_init__(self) -> None:
        which = self.options.register
        require(which in (None, "best", "all"), f"--register: expected 'best' or 'all', got {which!r}")
        require(
            self.options.resume or not self.options.take_over,
            "--take-over continues a sweep that another process runs; give --resume, too",
        )
        searched = any(arm.searched for arm in self.spec.arms)
        require(searched or not self.options.extend, "--extend: no parameter has a range that could be extended; leave it out")
        own = ", ".join(arm.label for arm in self.spec.arms if arm.ranges)
        unheard = own and self.options.search == "none" and not self.options.chosen
        require(not unheard, f"--search none: {own} has `ranges: registry` of its own, which counts; leave one of them out")
        if which:
            require_extra("tracking", "register")

    @classmethod
    def of_words(cls, options: CommandOptions, environment: Environment, plugins: Sequence[str] = ()) -> SweepRequest:
        """Return what a command asks for: the experiment of a file, of whose datasets, methods and arms the options select
        some, or one of the options alone. Then the first change may stand in the place of the file.

        Raises ConfigError for whatever is wrong with them.
        """
        file, words = options.experiment, [*(options.changes or ())]
        if options.address:
            host_and_port(options.address)
        node_memory(options.memory, options.address, "--memory")
        if file is not None and "=" in str(file) and not file.is_file():
            file, words = None, [str(file), *words]
        values = options.beside(assignments(words))
        if options.chosen and file is None:
            values = {"search.ranges": "none"} | values
        spec, source = _experiment(file, values, options, environment)
        words += [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.keys.items()]
        if options.arms:
            spec = of_arms(spec, options.arms, source)
        how = options if file is not None else without_idle_search(options, spec)
        if not options.address:
            require_device(spec.resources.device)
        if options.stand_in is not None:
            spec = stand_in(spec, environment, options.stand_in, source)
        selections = {"--arms": options.arms, "--datasets": options.datasets, "--methods": options.methods}
        chosen = [(name, pattern) for name, patterns in selections.items() for pattern in patterns or ()]
        changes = [*words, *(f"{name} {pattern!r}" for name, pattern in chosen)]
        # What decides its results, without options such as the address of a cluster.
        repeated = ["rankbench", "sweep", *([str(file)] if file is not None else []), *words]
        repeated += [word for pair in (*chosen, *(("--plugin", each) for each in plugins)) for word in pair]
        repeated += ["--chosen"] * options.chosen
        repeated += ["--stand-in", f"{options.stand_in:g}"] if options.stand_in is not None else []
        return cls(spec, source, environment, how, tuple(changes), shlex.join(repeated))

    @property
    def address(self) -> str | None:
        """Address of the cluster; None for this machine."""
        return self.options.address or os.environ.get("RAY_ADDRESS") or None

    @property
    def memory(self) -> NodeMemory | None:
        """The memory that the options allow on this machine, if they do."""
        return node_memory(self.options.memory, self.address, "--memory")

    def machines(self, asked: bool = False) -> list[Machine] | None:
        """This machine, or the nodes of the cluster; None without having `asked` it."""
        if not self.address:
            memory = self.memory.tasks if self.memory else available_memory()
            return [Machine(available_cpus(), memory, gpus_of_host(self.spec.resources.device))]
        if not asked:
            return None
        with session(self.address) as cluster:
            return [*cluster.machines]

    def plan(self) -> Plan:
        """Raises ConfigError and DataError for what cannot be planned."""
        options, cpus = self.options, None if self.address else available_cpus()
        return plan(self.spec, self.environment, cpus, self.source, options.chosen, options.require_all)


def without_idle_search(options: O, spec: ExperimentSpec) -> O:
    """Return `options` that also skip the search of an experiment without a file if validation decides nothing: no value of a
    parameter, and not after how many iterations a fit ends. Then nothing needs to be fitted on train and measured on valid.
    """
    decides = any(arm.searched or configure(arm.method, arm.params, f"methods: {arm.label}").stopping for arm in spec.arms)
    return replace(options, chosen=options.chosen or not decides)


def _experiment(
    file: Path | None, values: dict[str, Any], options: CommandOptions, environment: Environment
) -> tuple[ExperimentSpec, str]:
    """The experiment of a command, without patterns, and its name in error messages."""
    datasets = words_of("--datasets", comma_separated, options.datasets or ())
    methods = words_of("--methods", comma_separated, options.methods or ())
    if file is not None:
        path = experiment_file(file, environment)
        spec = by_name(load_experiment(path, values, load_plugin), environment, str(path))
        spec = of_datasets(spec, datasets, str(path)) if datasets else spec
        return of_methods(spec, methods, f"{path}: --methods") if methods else spec, str(path)
    if not datasets or not methods:
        raise ConfigError("give an experiment file, or --datasets and --methods, as in --datasets gowalla --methods ease,ials")
    source = "this sweep"
    return with_question(by_name(experiment_of_words(datasets, methods, values, source), environment, source)), source
