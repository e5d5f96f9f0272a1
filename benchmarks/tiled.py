"""The inverse by tiles against what its arithmetic alone would take.

    python benchmarks/tiled.py 4000 8000                  a quarter of the dense matrix's bytes as memory
    python benchmarks/tiled.py 41000 --share 0.1 --folder FOLDER

For every size a line: seconds, the floor (n³ flops at the rate of float32 products of 2048 x 2048, measured before and after
in the same process) and their ratio; tile, the memory given and taken, and what went through the file.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core import threads
from rankbench.data.blocks import csr_from_pairs
from rankbench.fitting.method import Shift
from rankbench.solvers.tiled.inverse import tiled_inverse
from rankbench.tracking.environment import peak_memory, reset_peak_memory

ORDER, PRODUCTS = 2048, 7
PER_ITEM = 25  # interactions


def some_data(n_items: int) -> sp.csr_array:
    """As many users as items; popularity falls as 1/rank."""
    rng = np.random.default_rng(0)
    popularity = 1 / (10.0 + np.arange(n_items))
    items = rng.choice(n_items, PER_ITEM * n_items, p=popularity / popularity.sum())
    return csr_from_pairs(rng.integers(0, n_items, len(items)), rng.permutation(n_items)[items], (n_items, n_items))


def product_seconds() -> list[float]:
    """Of products of float32 matrices of ORDER, 2 · ORDER³ flops each."""
    A = np.random.default_rng(0).standard_normal((ORDER, ORDER), np.float32)
    out, seconds = np.empty_like(A), []
    with threadpool_limits(threads.available_cpus(), "blas"):
        for _ in range(PRODUCTS):
            start = time.perf_counter()
            np.matmul(A, A, out=out)
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="+", type=int, metavar="N_ITEMS")
    parser.add_argument("--share", type=float, default=0.25, help="memory over the bytes of the dense matrix")
    parser.add_argument(
        "--folder", type=Path, help="where the tiles lie for the time being; default: the system's temporary one"
    )
    options = parser.parse_args()
    with threads.pinned(threads.available_cpus()), tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        tiled_inverse(some_data(600), Shift(0.0, 10.0), Path(scratch), 10**9)  # compiles
        for n in options.sizes:
            measure(n, int(options.share * 4 * n**2), Path(scratch))


def measure(n: int, memory: int, folder: Path) -> None:
    X, process = some_data(n), psutil.Process()
    products = product_seconds()
    reset_peak_memory()
    resident, moved, start = process.memory_info().rss, process.io_counters(), time.perf_counter()
    C = tiled_inverse(X, Shift(0.0, 10.0), folder, memory)
    seconds, now = time.perf_counter() - start, process.io_counters()
    taken = peak_memory() - resident
    rate = 2 * ORDER**3 / statistics.median(products + product_seconds())
    floor = n**3 / rate
    print(
        f"n={n:,} tile={C.tile:,} seconds={seconds:.1f} floor={floor:.1f} ratio={seconds / floor:.2f} gflops={rate / 1e9:.0f} "
        f"memory_mb={memory / 1e6:.0f} taken_mb={taken / 1e6:.0f} read_gb={(now.read_chars - moved.read_chars) / 1e9:.2f} "
        f"written_gb={(now.write_chars - moved.write_chars) / 1e9:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
