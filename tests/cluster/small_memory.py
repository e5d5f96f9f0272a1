"""Programs that need more memory than a small cluster has, and print what came of it as JSON.

python small_memory.py spill                  answers of four times the object store, all of them held
python small_memory.py disk FOLDER            the same, and the disk that objects are moved to, at FOLDER, is full
python small_memory.py hog                    one block of eight takes memory until it is killed
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
from nodes import cluster

from rankbench.cluster.session import _ENVIRONMENT, session
from rankbench.core.errors import RankbenchError

STORE = 80 << 20
SIZE = STORE // 4 // 8  # numbers of one answer
BLOCKS = 16


def answer(block: int) -> np.ndarray:
    return np.random.default_rng(block).normal(size=SIZE)


def hog(block: int, most: int) -> int:
    """Block 3 allocates up to `most` bytes, and touches them."""
    held = []
    while block == 3 and len(held) << 26 < most:
        held.append(np.ones(1 << 23))
        time.sleep(0.01)
    return block


def ended(work: Callable[[], Any]) -> dict[str, Any]:
    """What `work` returned, or how it failed, and the seconds that it took."""
    began = time.monotonic()
    try:
        result = {"value": work()}
    except RankbenchError as error:
        result = {"error": str(error), "kind": type(error).__name__, "code": error.exit_code}
    return result | {"seconds": time.monotonic() - began}


def all_right(where: Any) -> bool:
    held = dict(where.map(answer, range(BLOCKS)))
    return sorted(held) == [*range(BLOCKS)] and all(np.array_equal(held[block], answer(block)) for block in held)


def main() -> None:
    program, *words = sys.argv[1:]
    if program == "hog" and words == ["monitor"]:
        # Ray's own monitor ends what takes the machine beyond 1.5 GB more than is used now.
        memory = psutil.virtual_memory()
        most = (memory.total - memory.available + 1.5e9) / memory.total
        _ENVIRONMENT["RAY_memory_usage_threshold"] = f"{most:.4f}"
    spill = words[0] if program == "disk" else None
    with cluster(1, cpus=2, object_store_memory=STORE, spill=spill) as running, session(running.address):
        from rankbench.cluster.ray_map import RayMap

        where = RayMap()
        list(where.map(hog, [0, 1], 0))
        if program == "hog":
            seen = ended(lambda: len(list(where.map(hog, range(8), 8 << 30))))
        else:
            seen = ended(lambda: all_right(where))
            seen["afterwards"] = ended(lambda: sorted(value for _, value in where.map(hog, [5, 6, 7], 0)))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
