"""The contract of each kind, and the checks of all that a plugin registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rankbench.contracts import encoders, losses, metrics, protocols, readers, solvers
from rankbench.contracts.check import Contract, Finding
from rankbench.core.errors import ConfigError
from rankbench.core.plugins import Plugin
from rankbench.core.registry import Registry, added_by
from rankbench.data.protocols.spec import protocols as all_protocols
from rankbench.data.readers import READERS
from rankbench.evaluation.metrics import METRICS
from rankbench.experiment.methods import registered
from rankbench.fitting.method import METHODS
from rankbench.losses.spec import LOSSES
from rankbench.models.spec import MODELS


def contracts() -> dict[str, tuple[Contract, Registry[Any]]]:
    """The contract of each kind of registered thing, and its registry."""
    return {
        "loss": (losses.CONTRACT, LOSSES),
        "model": (encoders.CONTRACT, MODELS),
        "method": (solvers.CONTRACT, METHODS),
        "reader": (readers.CONTRACT, READERS),
        "protocol": (protocols.CONTRACT, all_protocols()),
        "metric": (metrics.CONTRACT, METRICS),
    }


def check_plugin(plugin: Plugin) -> Iterator[Finding]:
    """Yield the result of every check of everything that a loaded plugin has registered.

    Raises ConfigError if it has registered nothing.
    """
    registered()
    things = [(kind, name) for kind, name in added_by(plugin) if not (kind == "method" and name in LOSSES)]
    if not things:
        raise ConfigError(
            f"{plugin.origin}: registers nothing; decorate a function with @loss, @model, @closed_form, @direct, @als, "
            "@iterative, @reads, @protocol or @metric"
        )
    for kind, name in things:
        contract, registry = contracts()[kind]
        yield from contract.findings(name, registry.get(name))
