"""Random streams named by purpose, so that the order of calls changes nothing."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator that depends on `seed` and the words of `purpose` alone: stream(0, "split", "valid")."""
    digest = hashlib.sha256("/".join(map(str, purpose)).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
