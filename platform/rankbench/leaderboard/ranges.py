"""The values that a search tries for a parameter, read from the text in which the parameter describes its usual values.

0.05 to 0.3          drawn between both bounds, on a logarithmic scale if they are a factor of ten or more apart
10 to 500, log scale
linear, embedding    one of these
64, not published    not searched
"""

from __future__ import annotations

import re
from dataclasses import Field
from typing import Any

SPREAD = 10.0  # ratio of the bounds from which on a range is searched on a logarithmic scale
FROM_ZERO = 1e-3  # of a range that begins at 0, the share of its upper bound from which on values are drawn
_NUMBER = r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER}) to ({_NUMBER})")


def range_of(field: Field[Any]) -> dict[str, list[Any]] | None:
    """Return how to draw a value of a parameter, as in an experiment file, or None if it is not searched.

    A range from 0 is searched on a logarithmic scale too: 0 itself usually is the default, which every search tries.
    """
    text = str(field.metadata.get("search", "")).removesuffix("; not published").removesuffix(", log scale")
    whole = field.type in (int, "int")
    if match := _RANGE.fullmatch(text):
        low, high = map(float, match.groups())
        if whole:
            return {"choice": _whole_numbers(int(low), int(high))}
        if low == 0:
            low = FROM_ZERO * high
        return {"loguniform" if low > 0 and high / low >= SPREAD else "uniform": [low, high]}
    words = [word.strip() for word in text.split(",")]
    values = [_value(word, field) for word in words]
    return {"choice": values} if len(words) > 1 and None not in values else None


def _whole_numbers(low: int, high: int) -> list[int]:
    """All of them if they are few, otherwise each about twice the one before it."""
    if high - low < SPREAD:
        return list(range(low, high + 1))
    numbers, n = [low], max(low, 1)
    while 2 * n < high:
        n *= 2
        numbers.append(n)
    return [*numbers, high]


def _value(word: str, field: Field[Any]) -> Any:
    """The value that a word stands for, None if it has another type than the parameter's default."""
    if isinstance(field.default, bool):
        return {"true": True, "false": False}.get(word)
    if isinstance(field.default, str):
        return word if re.fullmatch(r"[\w+-]+", word) else None
    if not re.fullmatch(_NUMBER, word):
        return None
    number = float(word)
    return int(number) if isinstance(field.default, int) and number.is_integer() else number
