"""What is asked of every dataclass of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rankbench.contracts.check import Contract, expect
from rankbench.core.errors import ConfigError
from rankbench.core.params import Choice, Params, Range, parameters

ADVICE = "write each parameter as `name: type = param(default, help, values)` in a frozen dataclass that inherits Params"


def check_parameters(contract: Contract, params_of: Callable[[Any], type]) -> None:
    """Add the check of the dataclass of parameters that `params_of` finds in what is registered."""

    @contract.check("every parameter says what it is, and values outside its bounds are refused", ADVICE)
    def parameters_are_described(subject: Any) -> None:
        params = params_of(subject)
        expect_checked(params, subject.name)
        for field in dataclasses.fields(params):
            for text in ("help", "search"):
                expect(bool(field.metadata.get(text)), f"the parameter {field.name} has no {text}")


def at_the_ends(params: type) -> Iterator[Any]:
    """The default parameters, then each one with its other values if it has several given ones, and at the ends of the range
    that its papers search.
    """
    yield params()
    kinds = get_type_hints(params)
    for field in dataclasses.fields(params):
        kind, values = kinds[field.name], field.metadata["values"]
        if isinstance(values, Range):
            tried = [end for drawn in values.space(field).values() for end in (drawn[0], drawn[-1])]
        elif kind is bool:
            tried = [False, True]
        else:
            tried = [*values.values] if isinstance(values, Choice) else [*get_args(kind)] * (get_origin(kind) is Literal)
        for value in tried:
            with suppress(ConfigError):
                made = dataclasses.replace(params(), **{field.name: value})
                if made != params():
                    yield made


def expect_checked(params: type, name: str) -> None:
    """Values survive a round trip, bounds are checked, and an unknown parameter is refused."""
    expect(dataclasses.is_dataclass(params), f"{params.__name__} is not a dataclass")
    expect(parameters(params, dataclasses.asdict(params()), name) == params(), f"{params.__name__} changes its own defaults")
    for field in dataclasses.fields(params):
        for bound, value in (field.metadata.get("bounds") or {}).items():
            outside = value if bound in ("gt", "lt") else value - 1 if bound == "ge" else value + 1
            refused = issubclass(params, Params) and _refuses(params, {field.name: outside}, name)
            expect(refused, f"{field.name}={outside} is outside its bounds and was accepted")
    expect(_refuses(params, {"no_such_parameter": 1}, name), "a parameter that does not exist was accepted")


def _refuses(params: type, values: dict[str, Any], name: str) -> bool:
    try:
        parameters(params, values, name)
    except ConfigError:
        return True
    return False
