"""What pydantic finds wrong with a value, in the words of someone who writes YAML, JSON or a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankbench.core.errors import shown

# Regular expressions of fields, and what they mean.
SHA256 = r"^[0-9a-f]{64}$"
MD5 = r"^[0-9a-f]{32}$"
DEVICE = r"^(cpu(:\d+)?|cuda)$"
FORMS = {
    SHA256: "64 hexadecimal digits",
    MD5: "32 hexadecimal digits",
    DEVICE: "cpu, cpu:N for N threads, or cuda",
}
WORDS = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "dict_type": "expected keys with values",
    "finite_number": "expected a finite number",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "greater_than": "must be > {gt:g}",
    "greater_than_equal": "must be ≥ {ge:g}",
    "int_from_float": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "less_than": "must be < {lt:g}",
    "less_than_equal": "must be ≤ {le:g}",
    "list_type": "expected a list",
    "literal_error": "expected {expected}",
    "mapping_type": "expected keys with values",
    "model_attributes_type": "expected keys with values",
    "model_type": "expected keys with values",
    "string_pattern_mismatch": "expected {form}",
    "string_type": "expected a text",
    "too_long": "expected at most {max_length} values",
    "too_short": "expected at least {min_length} value",
    "tuple_type": "expected a list",
}
# How pydantic names the alternatives of a union, in the place of a problem.
ALTERNATIVES = ("str", "int", "float", "bool", "dict", "list", "tuple")


def _place(problem: Any) -> tuple[str | int, ...]:
    """The keys and positions that lead to the value, without the alternatives that were tried there."""
    return tuple(part for part in problem["loc"] if not (isinstance(part, str) and (part in ALTERNATIVES or "[" in part)))


def wording(problem: Any, problems: Sequence[Any]) -> str:
    """The place of a value and what is wrong with it: one of its alternatives is expected, which the other problems name."""
    place = _place(problem)
    said = dict.fromkeys(_said(each) for each in problems if _place(each) == place and each["type"] in WORDS)
    if problem["type"] not in WORDS:
        text = problem["msg"].lower()
    elif all(each.startswith("expected ") for each in said):
        text = "expected " + " or ".join(each.removeprefix("expected ") for each in said)
    else:
        text = _said(problem)
    value = problem["input"]
    return f"{'.'.join(map(str, place))}: {text}, got {'nothing' if value is None else shown(value)}"


def _said(problem: Any) -> str:
    about = problem.get("ctx", {})
    pattern = about.get("pattern", "")
    return WORDS[problem["type"]].format(**about, form=FORMS.get(pattern, f"a text that fits {pattern}"))
