"""All methods: closed forms, alternating least squares, Newton-CG, losses trained by gradient steps, and autoencoders."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from rankbench.core import plugins
from rankbench.core.errors import ConfigError
from rankbench.core.extras import installed, missing_packages
from rankbench.core.patterns import Families
from rankbench.core.registry import Registry, added_by, nearest
from rankbench.experiment.method_facts import families_of
from rankbench.fitting.method import METHODS, Method


def registered() -> Registry[Method]:
    """Return the registry after importing every file and configured plugin that registers a method; without PyTorch, those of
    the solvers alone.
    """
    _import_solvers()
    if installed("train"):
        import_module("rankbench.training.methods").register_losses()
        METHODS.filled_from("rankbench.training.autoencoders")
    return METHODS


def method(name: str) -> Method:
    """Return the method called `name`. Methods trained by gradient steps, whose import of PyTorch takes seconds, are imported
    only if no solver of the package has that name.

    Raises ConfigError with the nearest name if there is no such method, with a loss if the name is that of an encoder, or with
    the command that installs PyTorch if it is missing.
    """
    _import_solvers()
    if name not in METHODS and not installed("train"):
        hint = nearest(name, METHODS.names())
        losses = f"losses trained by gradient steps need {missing_packages('train')}"
        raise ConfigError(f"no closed form or solver is called {name!r}{hint}; {losses}")
    own = name in METHODS and METHODS.origin(name).startswith("rankbench.")
    if not own and name not in registered():
        import_module("rankbench.training.methods").refuse_encoder(name)
    return METHODS.get(name)


def families() -> Families:
    """Every family of a registered method, with its members."""
    return families_of(registered())


def load_plugin(word: str | Path, folder: Path | None = None, source: str = "") -> plugins.Plugin:
    """Load a plugin as `plugins.load` does, and make sure that no name of its losses, encoders and solvers is taken.

    Plugins that are configured for this machine are loaded before it. Raises ConfigError as `plugins.load` does.
    """
    plugins.load_configured()
    plugin = plugins.load(word, folder, source)
    if {"loss", "model", "method"} & {kind for kind, _ in added_by(plugin)}:
        try:
            registered()
        except BaseException:
            plugins.unload(plugin)
            raise
    return plugin


@cache
def _import_solvers() -> None:
    METHODS.filled_from("rankbench.solvers")
