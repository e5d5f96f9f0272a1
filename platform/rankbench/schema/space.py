"""Expand the search spaces of experiment files to settings: crossed grids and seeded random draws."""

from __future__ import annotations

import itertools
import math
from typing import Any

from rankbench.core.errors import ConfigError, require
from rankbench.core.registry import nearest
from rankbench.core.rng import stream

GRIDS = ("grid",)
DRAWS = ("choice", "uniform", "loguniform", "randint")
MOST = 100_000  # settings of a space, each of which is a fit
TRIES = 16  # times the number of draws, after which a range has hardly any setting left that was not drawn


def expand(space: dict[str, Any], trials: int, seed: int, source: str, distinct: bool = False) -> list[dict[str, Any]]:
    """Return all settings of `space`: parameter → value, {grid: [...]}, {choice: [...]}, {uniform: [low, high]},
    {loguniform: [low, high]} or {randint: [low, high]} (high excluded).

    Grids are crossed. If any parameter is random, `trials` draws are made, each crossed with the grids; with `distinct` they
    are different ones, or all that there are. The draws of a parameter depend only on `seed`, its name and `trials`. Raises
    ConfigError naming the parameter, or if there are too many settings.
    """
    searched = {name: _kind(name, value, source) for name, value in space.items() if isinstance(value, dict)}
    grids = {name: arguments for name, (kind, arguments) in searched.items() if kind in GRIDS}
    drawn = {name: found for name, found in searched.items() if name not in grids}
    n = math.prod(map(len, grids.values())) * (trials if drawn else 1)
    require(
        n <= MOST, f"{source}: {n:,} settings, where a search has at most {MOST:,}; use fewer values of a grid, or fewer draws"
    )
    draws = _draws(drawn, trials, seed)
    if distinct and len(_different(draws)) < len(draws):
        listed = {name: values for name, (kind, values) in drawn.items() if kind == "choice"}
        small = len(listed) == len(drawn) and math.prod(map(len, listed.values())) <= trials
        draws = _different(_crossed(listed) if small else _draws(drawn, min(TRIES * trials, MOST), seed))[:trials]
    # Keys are in the order of the file, so that equal settings have equal run ids.
    return [space | draw | cell for draw in draws for cell in _crossed(grids)]


def kinds(space: dict[str, Any]) -> set[str]:
    """Return the kinds of search in a checked space."""
    return {kind for value in space.values() if isinstance(value, dict) for kind in value}


def _kind(name: str, value: dict[str, Any], source: str) -> tuple[str, list[Any]]:
    field = f"{source}.{name}"
    found = ", ".join(map(str, value)) or "nothing"
    require(len(value) == 1, f"{field}: expected one of {', '.join(GRIDS + DRAWS)}, found {found}")
    ((kind, arguments),) = value.items()
    if kind not in GRIDS + DRAWS:
        raise ConfigError(f"{field}: unknown search {kind!r}{nearest(str(kind), GRIDS + DRAWS)}")
    if not isinstance(arguments, list) or not arguments:
        raise ConfigError(f"{field}.{kind}: expected a list of values, got {arguments!r}")
    if kind in ("uniform", "loguniform", "randint"):
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in arguments)
        if len(arguments) != 2 or not numbers or arguments[0] >= arguments[1]:
            raise ConfigError(f"{field}.{kind}: expected [low, high] with low < high, got {arguments}")
        if kind == "randint" and not all(float(x).is_integer() for x in arguments):
            raise ConfigError(f"{field}.{kind}: expected whole numbers, got {arguments}")
        if kind == "loguniform" and arguments[0] <= 0:
            raise ConfigError(f"{field}.{kind}: low must be > 0, got {arguments[0]}")
    return kind, arguments


def _crossed(listed: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())]


def _different(draws: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the draws, each once; their values can be lists, which have no hash."""
    return list({repr(each): each for each in draws}.values())


def _draws(drawn: dict[str, tuple[str, list[Any]]], trials: int, seed: int) -> list[dict[str, Any]]:
    """Return as many draws of the random parameters, or an empty one if there are none."""
    draws = {name: _draw(kind, arguments, trials, seed, name) for name, (kind, arguments) in drawn.items()}
    return [dict(zip(draws, values, strict=True)) for values in zip(*draws.values(), strict=True)] if draws else [{}]


def _draw(kind: str, arguments: list[Any], trials: int, seed: int, name: str) -> list[Any]:
    rng = stream(seed, "search", name)
    if kind == "choice":
        return [arguments[position] for position in rng.integers(0, len(arguments), trials)]
    low, high = arguments
    if kind == "randint":
        return [int(x) for x in rng.integers(low, high, trials)]
    if kind == "uniform":
        return [float(x) for x in rng.uniform(low, high, trials)]
    return [float(x) for x in 10 ** rng.uniform(math.log10(low), math.log10(high), trials)]
