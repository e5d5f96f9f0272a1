"""What pydantic finds wrong with a value, in the words of someone who writes YAML, JSON or a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankbench.core.errors import shown

# Regular expressions of fields, and what they mean.
SHA256 = r"^[0-9a-f]{64}$"
MD5 = r"^[0-9a-f]{32}$"
DEVICE = r"^(cpu(:\d+)?|cuda)$"
FORMS = {SHA256: "64 hexadecimal digits", MD5: "32 hexadecimal digits", DEVICE: "cpu, cpu:N for N threads, or cuda"}
WORDS = {  # kind of a problem → what it means
    kind: text
    for text, kinds in {
        "expected true or false": "bool_parsing bool_type",
        "expected keys with values": "dict_type mapping_type model_attributes_type model_type",
        "expected a number": "float_parsing float_type",
        "expected a finite number": "finite_number",
        "expected a whole number": "int_from_float int_parsing int_type",
        "expected a text": "string_type",
        "expected a list": "list_type tuple_type",
        "expected {expected}": "literal_error",
        "expected {form}": "string_pattern_mismatch",
        "expected at most {max_length} values": "too_long",
        "expected at least {min_length} value": "too_short",
        "must be > {gt:g}": "greater_than",
        "must be ≥ {ge:g}": "greater_than_equal",
        "must be < {lt:g}": "less_than",
    }.items()
    for kind in kinds.split()
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
