"""Times as people write them."""

from __future__ import annotations

import re

from rankbench.core.errors import ConfigError, shown

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def seconds_of(text: str, source: str) -> float:
    """Return the seconds of 90s, 10m, 2h or a plain number. Raises ConfigError, starting with `source`, for any other text."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*(s|m|min|h|d)?", text.strip())
    if not match:
        raise ConfigError(f"{source}: expected a time such as 90s, 10m or 2h, got {shown(text)}")
    return float(match[1]) * _UNITS[match[2]]
