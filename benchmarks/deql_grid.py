"""A DEQL grid by shared inverses against the same grid cell by cell, side by side in one process.

    python benchmarks/deql_grid.py                       movielens-1m: 6 p x 8 lam' x 9 b, two diagonals; ten minutes
    python benchmarks/deql_grid.py --dataset synthetic   the same on built-in data; a minute

Both sides fit on train, rank valid in full, and measure all metrics with their intervals, through the same code; cell by cell
each of the 864 cells is a run of its own. They take turns by dropout probability, so that whatever else the machine does meets
both. Prints the seconds of both, their ratio, the number of distinct models, and how far the metrics are apart.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import astuple

from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare
from rankbench.experiment.job import Job, MethodConfig, configure
from rankbench.experiment.run import run as run_job

P = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
LAM_PRIME = (50, 100, 200, 400, 800, 1600, 3200, 6400)
B = (0.1, 0.25, 0.4, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
METHODS = ("deql-l2", "deql-l2-zero-diag")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--dataset", default="movielens-1m")
    given = arguments.parse_args()
    environment = Environment.from_env()
    card = load_card(given.dataset, environment)
    prepare(card, environment)

    def run(cells: tuple[MethodConfig, ...]) -> dict[MethodConfig, dict]:
        job = Job(card, cells, fit_on="train", measure_on="valid", stage="search")
        return {cell: outcome.record.metrics for cell, outcome in zip(cells, run_job(job, environment), strict=True)}

    run((configure("ease", {}),))  # compiles
    seconds = {"shared": 0.0, "cell by cell": 0.0}
    apart, fits, cells, models = 0.0, 0, 0, set()
    for p in P:
        grid: dict[object, list[MethodConfig]] = {}
        for method, lam_prime, b in itertools.product(METHODS, LAM_PRIME, B):
            cell = configure(method, {"p": p, "lam_prime": lam_prime, "b": b})
            grid.setdefault(cell.share_key, []).append(cell)
            models.add(cell.identity)
        start = time.perf_counter()
        shared = {}
        for members in grid.values():
            shared |= run(tuple(members))
        seconds["shared"] += time.perf_counter() - start
        start = time.perf_counter()
        alone = {each: run((each,))[each] for members in grid.values() for each in members}
        seconds["cell by cell"] += time.perf_counter() - start
        fits, cells = fits + len(grid), cells + len(shared)
        for cell, metrics in shared.items():
            for name, value in metrics.items():
                pairs = zip(astuple(value), astuple(alone[cell][name]), strict=True)
                apart = max(apart, *(abs(one - other) for one, other in pairs if one is not None))
        print(f"p={p}: " + ", ".join(f"{side} {value:.1f} s" for side, value in seconds.items()), flush=True)
    ratio = seconds["cell by cell"] / seconds["shared"]
    print(f"{card.name}: {cells} cells, {len(models)} distinct models, {fits} factorisations against {cells}")
    took = ", ".join(f"{side} {value:.1f} s" for side, value in seconds.items())
    print(f"{took}: {ratio:.1f}x; metrics {apart:.1e} apart")


if __name__ == "__main__":
    main()
