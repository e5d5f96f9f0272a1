"""What a run is: methods with their parameters, the data, and the measurement."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from rankbench.core.errors import ConfigError, require
from rankbench.core.plugins import Plugin
from rankbench.core.registry import plugins_behind
from rankbench.data.cards import Card
from rankbench.evaluation.metrics import MetricSet, metric_set, require_of_hits
from rankbench.experiment import methods
from rankbench.fitting.method import Iterative, Method
from rankbench.fitting.stopping import Stopping


@dataclass(frozen=True)
class MethodConfig:
    """A method with checked parameters, and the arm of an experiment that it belongs to."""

    method: str
    params: Any
    arm: str | None = None

    @property
    def label(self) -> str:
        """The name of its row in a table: that of its arm, or of the method without one."""
        return self.arm or self.method

    @property
    def spec(self) -> Method:
        return methods.method(self.method)

    @property
    def share_key(self) -> Hashable:
        return self.spec.share_key(self.params)

    @property
    def identity(self) -> Hashable:
        return self.spec.identity_of(self.params)

    @property
    def flat(self) -> dict[str, Any]:
        """The parameters by name, as in records and experiment files."""
        return self.spec.flat(self.params)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the flat parameters that the fit reads; the others have no effect with these values."""
        return self.spec.used(self.params)

    @property
    def stopping(self) -> Stopping | None:
        """When its fit ends early, by a metric on the validation set; None if it never does."""
        return self.spec.stopping(self.params)

    def require_workers(self, workers: int, source: str) -> None:
        """Raise ConfigError, starting with `source`, if several workers are wanted and cannot fit it together."""
        problem = self.spec.why_alone(self.params) if workers > 1 else ""
        require(not problem, f"{source}: {self.method} is fitted by one worker only, because {problem}; leave it out")

    def require_end(self, fit_on: str | None, source: str) -> None:
        """Raise ConfigError, starting with `source`, if a fit on valid, too, would have to end by valid."""
        problem = "no validation set is left to end the fit early; set patience=0 and the number of epochs, or fit on train"
        require(not self.stopping or fit_on in (None, "train"), f"{source}: {self.label}: {problem}")

    def without_valid(self, iterations: int | None) -> MethodConfig:
        """Return the setting with a fixed number of iterations in place of an end by valid; unchanged if it has no such end."""
        if not (self.stopping and isinstance(self.spec, Iterative)):
            return self
        length = self.spec.length
        return configure(self.method, self.flat | {length: iterations or self.flat[length], "patience": 0}, arm=self.arm)

    def part_to_fit(self, card: Card) -> Literal["train", "train+valid"]:
        """Return the part for a final fit: as the protocol of the split prescribes, or only train if the validation set decides
        when the fit ends.
        """
        return "train" if self.stopping else card.final_fit


def configure(method: str, values: dict[str, Any], source: str = "", arm: str | None = None) -> MethodConfig:
    """Return a MethodConfig from flat parameters. Raises ConfigError, starting with `source` or the method, for unknown methods
    or parameters and for values out of range.
    """
    try:
        spec = methods.method(method)
    except ConfigError as error:
        raise ConfigError(f"{source.removesuffix('.params')}: {error}" if source else str(error)) from None
    config = MethodConfig(method, spec.configure(values, source or method), arm)
    if config.stopping:
        require_of_hits(config.stopping.stop_metric, f"{source or method}: stop_metric")
    return config


@dataclass(frozen=True)
class Job:
    """What to fit, on which part of which data, and what to measure. All configs must have the same share key or identity.

    `curve`: number of iterations between measurements of the convergence curve of iterative methods; 0 for no curve.
    """

    card: Card
    configs: tuple[MethodConfig, ...]
    fit_on: str = "train+valid"
    measure_on: str = "test"
    metrics: MetricSet = field(default_factory=metric_set)
    dtype: str = "float32"
    seed: int = 0
    stage: str = "run"
    curve: int = 0

    @property
    def title(self) -> str:
        """Prefix of errors that concern the whole job."""
        return f"{self.card.name}: {self.configs[0].method}"

    def plugins(self, config: MethodConfig) -> tuple[Plugin, ...]:
        """The loaded plugins that the result of `config` depends on: for its method and parameters, metrics and data."""
        words = [config.method, *map(str, config.flat.values()), *self.metrics.names]
        words += [self.card.read.format, self.card.split.protocol]
        return plugins_behind(word.partition("@")[0] for word in words)

    def run_id(self, config: MethodConfig) -> str:
        """Return an id made from the content: equal configurations on equal data, measured in the same way, are one run."""
        content = [
            config.method, config.arm, config.flat, self.card.content_key(), self.fit_on, self.measure_on,
            self.metrics.names, self.dtype, self.seed,
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:10]
        return f"{self.stage}-{self.card.name}-{config.method}-{digest}"
