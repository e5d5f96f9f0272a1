"""Random streams that are named by purpose, so that the order of calls has no effect."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a generator that depends only on `seed` and the words of `purpose`, as in stream(0, "split", "valid")."""
    digest = hashlib.sha256("/".join(map(str, purpose)).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
