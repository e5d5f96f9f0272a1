"""How far an order of methods depends on the datasets, the metric and the seed that it was measured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rankbench.leaderboard.standings import Standings


@dataclass(frozen=True)
class Jackknife:
    """`tau`: Kendall's τ-b between the mean ranks of all datasets and those without one, per dataset left out. `places`: the
    best and worst place of each method.
    """

    tau: dict[str, float]
    places: dict[str, tuple[int, int]]


def jackknife(full: Standings) -> Jackknife | None:
    """Leave out each dataset in turn. None for fewer than three datasets or two methods."""
    if len(full.datasets) < 3 or len(full.methods) < 2:
        return None
    tau, places = dict[str, float](), {name: list[int]() for name in full.methods}
    for number, dataset in enumerate(full.datasets):
        part = full.without(number)
        tau[dataset] = kendall(full.mean_ranks, part.mean_ranks)
        for place, position in enumerate(part.order, start=1):
            places[full.methods[position]].append(place)
    return Jackknife(tau, {name: (min(each), max(each)) for name, each in places.items()})


def agreement(full: Standings, others: Mapping[str, Standings]) -> dict[str, float]:
    """Kendall's τ-b of the mean ranks with those of other standings, such as by other metrics, over the methods of both."""
    result = {}
    for name, other in others.items():
        common = [method for method in full.methods if method in other.methods]
        if len(common) > 1:
            a = full.mean_ranks[[full.methods.index(method) for method in common]]
            b = other.mean_ranks[[other.methods.index(method) for method in common]]
            result[name] = kendall(a, b)
    return result


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's τ-b of two rankings (n,); 0 if one of them has only ties."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(a, b).statistic)
    return 0.0 if np.isnan(tau) else tau
