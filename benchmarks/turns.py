"""The sides of a comparison, run in turn in one process, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping


def in_turn(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The seconds of each side in each round. The order is turned each round; a first round, which compiles, does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn, name in turns(sides, rounds):
        began = time.perf_counter()
        sides[name]()
        if turn:
            seconds[name].append(time.perf_counter() - began)
    return seconds


def turns(names: Mapping[str, object], rounds: int) -> Iterator[tuple[int, str]]:
    """Every name once a round, in an order that is turned each round; the round 0 is to warm up."""
    for turn in range(rounds + 1):
        yield from ((turn, name) for name in (list(names) if turn % 2 else list(names)[::-1]))
