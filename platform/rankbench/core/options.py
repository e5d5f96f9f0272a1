"""Options that a command and a function of the Python interface share: each is declared once, as a field of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_type_hints

from rankbench.core.errors import ConfigError, require

R = TypeVar("R")
Make = Callable[[dataclasses.Field[Any], Any], tuple[Any, Any]]  # field and type → default and annotation


class Options:
    """Base of frozen dataclasses whose fields are options."""


def option(default: Any, help: str, **about: Any) -> Any:
    """Return a field with its default and its description. `about` is what a command line needs besides; see `cli.declare`."""
    return dataclasses.field(default=default, metadata={"help": help, **about})


def required(help: str, **about: Any) -> Any:
    """Return a field without a default."""
    return dataclasses.field(metadata={"help": help, **about})


def cluster_address() -> Any:
    """The option of the commands that start a local cluster without an address."""
    return option(None, "HOST:PORT of a running Ray cluster, or auto. Default: a local one.", envvar="RAY_ADDRESS")


def lines_to_skip() -> Any:
    return option(False, "Leave out the lines of the store that cannot be read, and say which they are.")


def comma_separated(text: str) -> list[str]:
    """The words of an option such as --datasets a,b. Raises ConfigError for an empty one."""
    words = [word.strip() for word in text.split(",")]
    require(all(words), f"expected names separated by commas, such as a,b, got {text!r}")
    return words


def words_of(option: str, parse: Callable[[str], list[str]], texts: Iterable[str]) -> list[str]:
    """The words of all values of an option. Raises ConfigError, which names it, as `parse` does and for a value without any."""
    words: list[str] = []
    for text in texts:
        try:
            found = parse(text)
        except ConfigError as error:
            raise ConfigError(f"{option}: {error}") from None
        require(bool(found), f"{option}: expected at least one name, got {text!r}")
        words += found
    return words


def takes_options(
    function: Callable[..., R], make: Make = lambda field, annotation: (field.default, annotation)
) -> Callable[..., R]:
    """Return `function` with the fields of an Options class in place of the parameter with that class. `make` says the default
    and the annotation of each.
    """
    signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        hint = hints[each.name]
        if isinstance(hint, type) and issubclass(hint, Options):
            groups[each.name], types = hint, get_type_hints(hint)
            for field in dataclasses.fields(hint):  # type: ignore[arg-type]
                default, annotation = make(field, types[field.name])
                default = inspect.Parameter.empty if default is dataclasses.MISSING else default
                parameters.append(inspect.Parameter(field.name, each.kind, default=default, annotation=annotation))
        else:
            parameters.append(each.replace(annotation=hint))
    flat = signature.replace(parameters=parameters, return_annotation=hints.get("return"))

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> R:
        bound = flat.bind(*given, **named)
        bound.apply_defaults()
        values = bound.arguments
        for name, cls in groups.items():
            values[name] = cls(**{field.name: values.pop(field.name) for field in dataclasses.fields(cls)})
        return function(**values)

    call.__signature__ = flat  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call
