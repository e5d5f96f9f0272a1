"""Load an own loss, encoder, solver, reader, protocol or metric from a file or an installed module."""

from __future__ import annotations

from pathlib import Path

from rankbench.core.public import public
from rankbench.experiment.methods import load_plugin


@public
def plugin(file: str | Path) -> str:
    """Load a file, or an installed module, with your own losses, encoders, solvers, readers, protocols and metrics.

    Their names work at once in every function. Load a file again after changing it: what it registered before is replaced. The
    plugin travels to the workers of a cluster, and its hash is part of every record. Returns the name of the plugin.

    Raises ConfigError if the file is missing, fails while it is imported (with its line), or takes a name that is registered.
    """
    return load_plugin(file).name
