"""The settings of a search: as many different ones for every row of a table, as far as its ranges have so many."""

from __future__ import annotations

import itertools
import math
from typing import Any

from rankbench.schema.space import DRAWS, GRIDS, expand, kinds

TRIES = 16  # times the number of draws, after which a range has hardly any setting left that was not drawn


def distinct_settings(space: dict[str, Any], trials: int, seed: int, source: str) -> list[dict[str, Any]]:
    """Return `trials` different settings of `space`, drawn as a sweep draws them; all of them if there are no more. Grids are
    run completely. Raises ConfigError as `expand` does.
    """
    first = expand(space, trials, seed, source)  # checks the space
    if not kinds(space) & {*DRAWS}:
        return first
    listed = {name: next(iter(value.values())) for name, value in space.items() if isinstance(value, dict)}
    if kinds(space) <= {"choice", *GRIDS} and math.prod(map(len, listed.values())) <= trials:
        every = itertools.product(*listed.values())
        return [space | dict(zip(listed, values, strict=True)) for values in every]
    found: list[dict[str, Any]] = []
    for setting in expand(space, TRIES * trials, seed, source):
        if setting not in found:
            found.append(setting)
        if len(found) == trials:
            break
    return found
