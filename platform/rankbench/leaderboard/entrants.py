"""The entrants of a leaderboard: every method, every encoder trained with the loss of its paper, and two of them with others.

Vectors have `DIM` numbers; the layers of autoencoders have their default sizes. The settings of training that the papers share
are not searched, so that what is compared is the method and not how much was tried on it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rankbench.core.errors import ConfigError
from rankbench.core.extras import installed
from rankbench.core.registry import plugins_behind
from rankbench.experiment.job import MethodConfig, configure
from rankbench.experiment.methods import registered
from rankbench.experiment.ranges import space_of
from rankbench.fitting.method import Iterative, Method
from rankbench.schema.space import expand

DIM = 64
DRAWS = 256  # most settings of a search
PATIENCE = 10  # iterations without improvement on the validation set after which a fit ends
LIMIT = 1000  # iterations, which the budget of time usually ends
# Encoders that also enter with other losses: of the losses that Talos's paper trains with both of them, the three with the best
# mean ranks on the first leaderboard (ten seconds, twelve datasets), taken before the collection of 52 datasets was measured.
CROSSED = ("lightgcn", "xsimgcl")
LOSSES = ("bsl", "advinfonce", "sl")


@dataclass(frozen=True)
class Entrant:
    """A method, the parameters that are the same in all of its fits, and the `space` of those that are searched."""

    name: str
    method: str
    fixed: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> Method:
        return self.config().spec

    def config(self, values: dict[str, Any] | None = None) -> MethodConfig:
        """The method with the given values of what is searched, by default its own."""
        return configure(self.method, self.fixed | (values or {}))

    @property
    def code(self) -> str:
        """The checksums of the plugins that have the method, the encoder or the metric that ends fits; empty if these are this
        program's own.
        """
        words = self.method, self.fixed.get("model", ""), self.fixed.get("stop_metric", "").partition("@")[0]
        return "".join(sorted(each.sha256 for each in plugins_behind(words)))

    @property
    def key(self) -> str:
        """A key of the code of the method and the encoder, if plugins have it, and of what is fixed and searched."""
        content = json.dumps([self.method, self.code, self.fixed, self.space, DRAWS], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:10]

    def given(self, config: MethodConfig) -> dict[str, Any]:
        """The values in `config` of the parameters that are fixed or searched."""
        flat = config.flat
        return {name: flat[name] for name in (*self.fixed, *self.space)}

    def settings(self, seed: int) -> list[MethodConfig]:
        """What a search tries, in its order: the defaults, then draws. Left out are draws that do not fit together, and those
        with the ranking of an earlier one.
        """
        first = self.config()
        found = {first.identity: first}
        for values in expand(self.space, DRAWS, seed, self.name) if self.space else []:
            with suppress(ConfigError):
                config = self.config(values)
                found.setdefault(config.identity, config)
        return [*found.values()]


def entrants(metric: str) -> dict[str, Entrant]:
    """All entrants by name. `metric`, on the validation set, decides when a fit ends."""
    methods = registered()
    pairs = {method.name: (method.name, "") for method in methods}
    pairs |= {each.name: (each.paper_loss, each.name) for each in _encoders() if each.paper_loss}
    pairs |= {f"{encoder}-{loss}": (loss, encoder) for encoder in CROSSED if encoder in pairs for loss in LOSSES}
    return {name: _entrant(name, methods.get(method), encoder, metric) for name, (method, encoder) in sorted(pairs.items())}


def _encoders() -> list[Any]:
    if not installed("train"):
        return []
    from rankbench.models.spec import registered as encoders  # imports PyTorch, as losses do

    return list(encoders())


def _entrant(name: str, method: Method, encoder: str, metric: str) -> Entrant:
    fixed: dict[str, Any] = {"embedding_dim": DIM} if "embedding_dim" in {each.name for each in method.fields()} else {}
    if isinstance(method, Iterative):
        fixed |= {method.length: LIMIT, "patience": PATIENCE, "eval_every": 0, "stop_metric": metric}
    if encoder:
        fixed["model"] = encoder
    return Entrant(name, method.name, fixed, space_of(configure(method.name, fixed)))
