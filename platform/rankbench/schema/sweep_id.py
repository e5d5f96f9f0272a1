"""The id of a sweep, which is also the name of its folder: experiment, key of the plan, and time of the start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

_FORM = re.compile(r"(?P<experiment>.+)-[0-9a-f]{8}-(?P<started>\d{8}-\d{6}-\d{6})")


def new_id(experiment: str, key: str) -> str:
    """Return the id of a sweep that starts now, by UTC. With microseconds, two that start together get two folders."""
    return f"{experiment}-{key}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


def experiment_of(sweep: str) -> str:
    """Return the name of the experiment of a sweep; a name that is no id is returned as it is."""
    found = _FORM.fullmatch(sweep)
    return found["experiment"] if found else sweep


def title_of(sweep: str) -> str:
    """Return the name of a sweep for people: the minute in which it started, by UTC, and its experiment."""
    found = _FORM.fullmatch(sweep)
    return f"{datetime.strptime(found['started'][:13], '%Y%m%d-%H%M'):%Y-%m-%d %H:%M} {found['experiment']}" if found else sweep


def by_start(names: Iterable[str]) -> list[str]:
    """Return the ids among `names`, oldest first."""
    started = [(found["started"], found[0]) for name in names if (found := _FORM.fullmatch(name))]
    return [name for _, name in sorted(started)]
