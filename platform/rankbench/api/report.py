"""Read the results of a sweep that has run."""

from __future__ import annotations

from pathlib import Path

from rankbench.api.results import Results
from rankbench.core.environment import Environment
from rankbench.core.public import public
from rankbench.schema.find import find


@public
def report(what: str | Path | None = None, *, environment: Environment | None = None) -> Results:
    """Return the results of a sweep: by its id, the start of its id or its folder, or the newest sweep of an experiment, by
    the name or path of its file. By default the newest sweep of all.

    An experiment that was never run has a table of its published numbers. Raises ConfigError if there is nothing of that name,
    and DataError if a file of the sweep is damaged.
    """
    stored = find(None if what is None else str(what), environment or Environment.from_env())
    return Results(stored.folder, stored)
