"""Whether bfloat16 products pay: rates of float32 and bfloat16, and of a float32 product split into three of bfloat16.

    python benchmarks/low_precision.py [N]

The split: A = A1 + A2 in bfloat16, B likewise; A1 B1 + A1 B2 + A2 B1, sums in float32. Errors are against float64. It pays
where three products are quicker than one of float32, and its error is that of float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.linalg.blas
import torch

REPEATS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=4096)
    n = parser.parse_args().n
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(n, n, generator=generator), torch.randn(n, n, generator=generator)
    exact = A[:200].double() @ B.double()
    a, b = np.asfortranarray(A.numpy()), np.asfortranarray(B.numpy())
    A1, B1 = A.bfloat16(), B.bfloat16()
    A2, B2 = (A - A1.float()).bfloat16(), (B - B1.float()).bfloat16()
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "float32, SciPy's BLAS": lambda: torch.from_numpy(scipy.linalg.blas.sgemm(1.0, a, b)),
        "float32, PyTorch": lambda: A @ B,
        "bfloat16, PyTorch": lambda: A1 @ B1,
        "float32 split into three of bfloat16": lambda: (A1 @ B1).float() + (A1 @ B2).float() + (A2 @ B1).float(),
    }
    print("| product | GFLOP/s of 2 n³ | relative error |\n|---|---|---|")
    for name, product in ways.items():
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            found = product()
            seconds.append(time.perf_counter() - start)
        error = (found[:200].double() - exact).norm() / exact.norm()
        print(f"| {name} | {2 * n**3 / min(seconds) / 1e9:,.0f} | {float(error):.1e} |", flush=True)


if __name__ == "__main__":
    main()
