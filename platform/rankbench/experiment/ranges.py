"""The registry's ranges: what a search tries for a parameter, read from the text in which it describes its usual values.

0.05 to 0.3          drawn between both bounds
10 to 500            drawn on a logarithmic scale, because the bounds are a factor of ten or more apart
0 to 1, log scale    drawn so, too, from a small share of the upper bound on; without "log scale", a range from 0 is linear
linear, embedding    one of these
64, not published    not searched
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import Field
from typing import Any

from rankbench.experiment.job import MethodConfig

# How long and how exactly a solver computes, and what an evaluation costs, are no properties of the model. A method without one
# of its parts is another method.
FIXED = (
    "embedding_dim", "latent_dim", "hidden_dim", "iterations", "epochs", "patience", "eval_every", "stop_metric", "tolerance",
    "solver", "subspace_dim", "cg_steps", "cg_tolerance", "init_scale", "ablation",
)  # fmt: skip
SPREAD = 10.0  # ratio of the bounds from which on a range is searched on a logarithmic scale
FROM_ZERO = 1e-3  # on a logarithmic scale, a range from 0 begins at this share of its upper bound
LOG = ", log scale"
_NUMBER = r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER}) to ({_NUMBER})")


def space_of(config: MethodConfig, given: Collection[str] = ()) -> dict[str, dict[str, list[Any]]]:
    """Return the ranges of the parameters that make the model what it is, without those that are `given`."""
    fields = {each.name: each for each in config.spec.fields()}
    names = [each for each in config.spec.searched(config.params) if each not in FIXED and each not in given]
    space = {each: how for each in names if (how := range_of(fields[each])) is not None}
    # Parameters that are absent by default are other ways to give the same number, such as lam_prime for lam.
    absent = [each for each in space if fields[each].default is None]
    return {each: how for each, how in space.items() if each not in absent[1:]}


def range_of(field: Field[Any]) -> dict[str, list[Any]] | None:
    """Return how to draw a value of a parameter, as in an experiment file, or None if it is not searched."""
    words = str(field.metadata.get("search", "")).removesuffix("; not published")
    text = words.removesuffix(LOG)
    whole = field.type in (int, "int")
    if match := _RANGE.fullmatch(text):
        low, high = map(float, match.groups())
        if whole:
            return {"choice": _whole_numbers(int(low), int(high))}
        if low == 0 and words.endswith(LOG):
            low = FROM_ZERO * high
        return {"loguniform" if low > 0 and high / low >= SPREAD else "uniform": [low, high]}
    values = [_value(word.strip(), field) for word in text.split(",")]
    return {"choice": values} if len(values) > 1 and None not in values else None


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
