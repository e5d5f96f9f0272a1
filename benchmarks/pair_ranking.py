"""Full ranking by a network of pairs (NeuMF) against the plain PyTorch recipe, side by side in one process.

    python benchmarks/pair_ranking.py                        both networks, as many users and items as Gowalla: three minutes
    python benchmarks/pair_ranking.py ngcf --rounds 6        one network, longer

The recipe: for each user, concatenate the user's vector with those of all items, and with their product for ngcf, run the
network on all rows, take the 20 best. Both sides have the same random vectors and layers, and rank without leaving out items.
Rounds of the two alternate, the order turned each time; the median of the rounds counts, and a first round does not. The share
of equal items is printed: scores that differ in the last digit can change places. The second line of a network counts the
processor time of all threads instead, divided by the number of processors, which other work on the machine hardly changes. The
projections are the seconds of all users, and of 2,000, at the median rate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from turns import turns

from rankbench.core.threads import available_cpus, pinned
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import BLOCK_USERS, rank
from rankbench.fitting.recommenders import Recommender
from rankbench.models.neumf import NeuMF, NeuMFModel
from rankbench.tracking.environment import describe_environment

N_USERS, N_ITEMS, K = 29_858, 40_981, 20
NETWORKS = {"ngcf": (NeuMF(), 64), "he": (NeuMF(network="he"), 40)}  # layers [64, 64]; [64, 32, 16, 8]


def network(name: str) -> NeuMFModel:
    p, dim = NETWORKS[name]
    start = torch.Generator().manual_seed(0)
    tables = (torch.randn(n, dim, generator=start) for n in (N_USERS, N_ITEMS))
    return NeuMFModel(sp.csr_array((N_USERS, N_ITEMS)), p, *tables, start).eval()


def ours(model: Recommender, users: np.ndarray) -> np.ndarray:
    """The K best items of each user (m, K)."""
    nothing = sp.csr_array((len(users), N_ITEMS), dtype=np.float32)
    with pinned(available_cpus()):
        return rank([model], Holdout(users, nothing, nothing), K, rows=np.arange(len(users)))[0].items


@torch.inference_mode()
def plain(model: NeuMFModel, users: np.ndarray) -> np.ndarray:
    """The recipe: a user at a time, the network on whole rows."""
    f, V, best = model.f, model.items, []
    for user in torch.from_numpy(users.astype(np.int64)):
        u = model.users[user].expand(N_ITEMS, -1)
        z = torch.cat([u[:, f:], V[:, f:]] if f else [u, V, u * V], dim=1)
        for W, b in zip(model.weights, model.biases, strict=True):
            z = torch.relu(z @ W + b)
        z = torch.cat([u[:, :f] * V[:, :f], z], dim=1) if f else z
        best.append((z @ model.output).topk(K).indices)
    return torch.stack(best).numpy()


def users_per_second(call: Callable[[np.ndarray], np.ndarray], users: np.ndarray) -> tuple[float, float]:
    """By the clock, and by processor time."""
    start, processor = time.perf_counter(), time.process_time()
    call(users)
    used = (time.process_time() - processor) / available_cpus()
    return len(users) / (time.perf_counter() - start), len(users) / used


def task(name: str, rounds: int, n_users: int) -> None:
    model = network(name)
    recommender = model.recommender(model.users, model.items)
    sides = {"ours": lambda users: ours(recommender, users), "plain": lambda users: plain(model, users)}
    users = np.random.default_rng(0).permutation(N_USERS).astype(np.int32)
    equal = np.mean(sides["ours"](users[:16]) == sides["plain"](users[:16]))
    sizes, rates = {"ours": n_users, "plain": 24}, {side: list[tuple[float, float]]() for side in sides}
    for turn, side in turns(sides, rounds):
        rate = users_per_second(sides[side], users[: sizes[side]])
        if turn:
            rates[side].append(rate)
    for position, kind in enumerate(("clock", "processors")):
        mine, theirs = (statistics.median(each[position] for each in rates[side]) for side in sides)
        print(
            f"{name + ', ' + kind:18s} {mine:10.1f} {theirs:14.1f} {mine / theirs:8.1f}x {N_USERS / mine:10.0f} s "
            f"{N_USERS / theirs:10.0f} s {2000 / mine:8.1f} s   {equal:.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=", ".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--users", type=int, default=4 * BLOCK_USERS, help="users that rankbench ranks in a round")
    given = parser.parse_args()
    print(f"{N_USERS:,} users x {N_ITEMS:,} items, the best {K}; {available_cpus()} processors")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; revision {describe_environment()['revision']}")
    print(
        f"{'users/s':18s} {'rankbench':>10s} {'plain PyTorch':>14s} {'ratio':>9s} {'all users':>12s} {'in PyTorch':>12s} "
        f"{'2,000':>10s}   equal items"
    )
    for name in given.networks:
        task(name, given.rounds, given.users)


if __name__ == "__main__":
    main()
