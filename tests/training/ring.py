"""Workers as threads of this process, connected by gloo over loopback."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numba
import torch.distributed as dist

from rankbench.training.exchange import Ring

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def together(size: int, work):
    """[work(exchange of worker 0), ...] of `size` workers."""
    store = dist.HashStore()

    def run(rank: int):
        numba.set_num_threads(1)
        group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=60))
        return work(Ring(group))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
