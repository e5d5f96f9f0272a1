"""Functions of the Python interface check their arguments by the annotations, and their errors name arguments, not options."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from rankbench.core.errors import LONGEST_VALUE, ConfigError, RankbenchError, own_error, require, shortened
from rankbench.core.plain import plain

P = ParamSpec("P")
R = TypeVar("R")
_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
_WORDS: dict[Any, tuple[str, str]] = {  # one, and several
    Any: ("a value", "values"),
    Hashable: ("a name", "names"),
    bool: ("True or False", "truth values"),
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    str: ("a text", "texts"),
}
_PLAIN = (bool, bytes, float, int, NoneType, str)
_SEVERAL = (list, tuple, set, Mapping)
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of the Python interface. Raises ConfigError, naming the argument, for a value of a wrong type and for
    an empty list where names or numbers are expected; its other errors name arguments, not options. NumPy's numbers and arrays
    become numbers and lists, iterators become lists, and a text becomes a path where only a path is expected.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound, hints = signature.bind(*args, **kwargs), _hints(function)
        for name, value in bound.arguments.items():
            if not _fits(value, hint := hints.get(name, Any)):
                bound.arguments[name] = value = _converted(value, hint)
            check(name, value, hint)
        try:
            return function(*bound.args, **bound.kwargs)
        except Exception as error:
            known = own_error(error)
            if isinstance(known, RankbenchError):
                known.args = (_in_python(str(known), signature),)
            if known is error:
                raise
            raise known from error

    return call


def check(name: str, value: Any, hint: Any) -> None:
    """Raise ConfigError, beginning with `name`, unless `value` is of the type `hint`. A Sequence may not be empty."""
    if any(get_origin(each) is Sequence for each in _alternatives(hint)) and isinstance(value, (str, *_SEVERAL)):
        require(len(value) > 0, f"{name}: give at least one")
    if not _fits(value, hint):
        raise ConfigError(f"{name}: expected {_expected(hint)}, got {shortened(_given(value), LONGEST_VALUE)}")


def check_fields(value: Any) -> None:
    """Raise ConfigError, with its class and name, if a field of a dataclass is not of the type of its annotation."""
    for name, hint in _hints(type(value)).items():
        check(f"{type(value).__name__}.{name}", getattr(value, name), hint)


def _converted(value: Any, hint: Any) -> Any:
    if isinstance(value, str) and Path in _alternatives(hint):
        return Path(value)
    return [*value] if isinstance(value, Iterator) else plain(value)


def _given(value: Any) -> str:
    """What a message shows of a value: plain values as in Python, and the types of others."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_given(each)}' for key, each in value.items())}}}"
    if isinstance(value, _SEVERAL):
        return f"[{', '.join(map(_given, value))}]"
    return repr(value) if isinstance(value, _PLAIN) else type(value).__name__


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in args)
    if kind is Literal:
        return any(isinstance(value, type(each)) and value == each for each in args)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_fits(each, args[0]) and _fits(value[each], args[1]) for each in value)
    if kind in (Sequence, Iterable):  # a text is one name, and not several letters
        several = isinstance(value, Sequence | Set | ValuesView) and not isinstance(value, str | bytes)
        return several and all(_fits(each, args[0]) for each in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return kind is Any or isinstance(value, (int, float) if kind is float else kind)


def _expected(hint: Any, several: bool = False) -> str:
    """What values of a type are called in a message."""
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType, Literal):
        *most, last = [str(each) if kind is Literal else _expected(each, several) for each in args if each is not NoneType]
        return f"{', '.join(most)} or {last}" if most else last
    if kind in _WORDS:
        return _WORDS[kind][several]
    if kind in (Sequence, Iterable):
        return f"a list of {_expected(args[0], True)}"
    if kind is Mapping:
        return "mappings" if several else f"a mapping from names to {_expected(args[1], True)}"
    name = "function" if kind is Callable else kind.__name__
    return f"{name}s" if several else f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _in_python(message: str, signature: inspect.Signature) -> str:
    """Return a message with options of a command, such as --take-over, as arguments of a function, such as take_over=True.
    Commands in backticks stay as they are.
    """

    def renamed(option: re.Match[str]) -> str:
        parameter = signature.parameters.get(option[1].replace("-", "_"))
        if parameter is None:
            return option[0]
        return f"{parameter.name}=True" if parameter.annotation in (bool, "bool") else parameter.name

    parts = " ".join(message.splitlines()).split("`")
    parts[::2] = [_OPTION.sub(renamed, part) for part in parts[::2]]
    return "`".join(parts)
