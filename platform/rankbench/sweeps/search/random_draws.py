"""The settings of a random search: as many different ones for every arm, as far as its ranges have so many."""

from __future__ import annotations

import itertools
import math
from typing import Any

from rankbench.schema.space import GRIDS, MOST, expand, kinds

TRIES = 16  # times the number of draws, after which a range has hardly any setting left that was not drawn


def distinct_settings(space: dict[str, Any], trials: int, seed: int, source: str) -> list[dict[str, Any]]:
    """Return settings of `space` with `trials` different draws of its random parameters, or with all draws if there are no
    more. Grids are run completely, with each of the draws. Raises ConfigError as `expand` does.
    """
    settings = expand(space, trials, seed, source)
    if len(_different(settings)) == len(settings):
        return settings
    searched = {name: value for name, value in space.items() if isinstance(value, dict)}
    grids = {name: value for name, value in searched.items() if kinds({name: value}) <= {*GRIDS}}
    drawn = _draws({name: value for name, value in space.items() if name not in grids}, trials, seed, source)
    crossed = [space | draw | cell for draw in drawn for cell in expand(grids, 1, seed, source)]
    # Keys in the order of the file, so that equal settings have equal run ids.
    return [{name: each[name] for name in space} for each in crossed]


def _draws(space: dict[str, Any], trials: int, seed: int, source: str) -> list[dict[str, Any]]:
    """Return up to `trials` different draws of a checked space without grids."""
    listed = {name: next(iter(value.values())) for name, value in space.items() if isinstance(value, dict)}
    if kinds(space) == {"choice"} and math.prod(map(len, listed.values())) <= trials:
        every = [space | dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())]
        return _different(every)
    return _different(expand(space, min(TRIES * trials, MOST), seed, source))[:trials]


def _different(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings, each once; their values can be lists, which have no hash."""
    return list({repr(each): each for each in settings}.values())
