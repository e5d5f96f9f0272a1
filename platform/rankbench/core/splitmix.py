"""Random bits for a key and a position, by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), in compiled code.

The bits of a position depend on nothing else, so that draws do not depend on the thread that makes them, nor on their order.
"""
# Compiled functions come without types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba


@numba.njit(cache=True, inline="always")
def bits(key, position):
    """Return 64 random bits, uint64, for a position ≥ 0; `key` is uint64."""
    z = key + np.uint64(0x9E3779B97F4A7C15) * (np.uint64(position) + np.uint64(1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(cache=True, inline="always")
def below(drawn, n):
    """Return a whole number in [0, n), n < 2^31, int64, from the upper 32 of the bits `drawn`, uint64."""
    return np.int64(((drawn >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
