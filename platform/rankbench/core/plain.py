"""Arguments from Python as plain values, which a file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rankbench.core.errors import require, shown


def plain(value: Any) -> Any:
    """Return `value` with NumPy's numbers and arrays as numbers and lists, also inside of mappings, lists and tuples."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """Return the argument `name` as an int. Raises ConfigError unless it is a whole number from `least` on."""
    known = isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)
    require(known, f"{name}: expected a whole number from {least}, got {shown(value)}")
    return int(value)
