"""Text into frozen values: YAML files, `path=value` words and parameter dataclasses, with errors that name the place."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rankbench.errors import ConfigError, require
from rankbench.registry import nearest

T = TypeVar("T")
M = TypeVar("M", bound="Strict")


class Strict(BaseModel):
    """Base of every file schema: frozen, an unknown key is an error, and so is a number that is not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError naming file and line for anything else."""
    try:
        content = _UniqueKeys(path.read_text(encoding="utf-8")).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # bytes that are no text, 2024-13-45, [[[[...
        raise ConfigError(f"{path}: not readable as YAML: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found {type(content).__name__}")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader with three rules of YAML 1.2: a key given twice is an error, 1e-3 is a number, `on` is a word."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:bool"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _mapping_without_duplicates(loader: _UniqueKeys, node: yaml.MappingNode) -> dict:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a plain word", problem_mark=key.start_mark)
        if key.value in seen:
            raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is given twice", problem_mark=key.start_mark)
        seen.add(key.value)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
_UniqueKeys.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$", re.IGNORECASE), list("tTfF"))
_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)


def scalar(text: str) -> Any:
    """One value as YAML reads it: 1 → int, 1e-3 → float, [1, 2] → list, abc → str."""
    try:
        return _UniqueKeys(text).get_single_data()
    except (ValueError, RecursionError, yaml.YAMLError):
        return text


def assignments(words: Sequence[str]) -> dict[str, Any]:
    """["lam=80", "search.trials=4"] → {"lam": 80, "search.trials": 4}. Raises ConfigError on a word without `=`."""
    values: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise ConfigError(f"{word!r}: expected name=value")
        if key in values:
            raise ConfigError(f"{key}: given twice")
        values[key] = scalar(text)
    return values


def override(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested `content` with dotted paths replaced: "arms.0.params.lam", "search.trials", "resources.cpus".

    `*` in place of a position means every entry of the list in which the rest of the path is there already.
    """
    result: Any = _copy(content)
    for path, value in values.items():
        _put(result, path.split("."), value, path)
    return result


def _put(node: Any, keys: list[str], value: Any, path: str) -> None:
    key, *rest = keys
    if isinstance(node, list) and key == "*":
        matching = [each for each in node if _has(each, rest)] if rest else []
        if not matching:
            raise ConfigError(f"{path}: {'.'.join(rest) or 'what follows the *'} is in no entry of the list")
        for each in matching:
            _put(each, rest, value, path)
    elif isinstance(node, list):
        place = _index(key, node, path)
        if rest:
            _put(node[place], rest, value, path)
        else:
            node[place] = value
    elif not isinstance(node, dict):
        raise ConfigError(f"{path}: {key!r} lies inside a plain value")
    elif rest:
        _put(node.setdefault(key, {}), rest, value, path)
    else:
        node[key] = value


def _has(node: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def _index(key: str, node: list, path: str) -> int:
    if not key.isdecimal() or int(key) >= len(node):
        raise ConfigError(f"{path}: {key!r} is no position in a list of {len(node)}")
    return int(key)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def validate(model: type[M], content: Mapping[str, Any], where: str) -> M:
    """`content` as a `model`. Raises ConfigError for the first wrong field, named by its path from `where`."""
    try:
        return model.model_validate(content)
    except ConfigError as error:  # of a part that has a schema of its own
        raise ConfigError(f"{where}: {error}") from None
    except ValidationError as error:
        raise ConfigError(_first_problem(model, error, where)) from None


def _first_problem(model: type[BaseModel], error: ValidationError, where: str) -> str:
    problems = error.errors(include_url=False)
    # A misspelt key comes with a missing one; the misspelling is what the reader can mend.
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, first["loc"][:-1])
        *parents, key = place.split(".")
        inside = ".".join([*parents, key])
        hint = nearest(key, known) or (f"; known: {', '.join(sorted(known))}" if known else "")
        return f"{where}: {inside}: unknown key{hint}"
    if first["type"] == "missing":
        return f"{where}: {place}: missing"
    if isinstance(cause := first.get("ctx", {}).get("error"), Exception):
        return f"{where}: {place}: {cause}" if place else f"{where}: {cause}"
    return f"{where}: {place}: {first['msg'].lower()}, got {first['input']!r}"


def _fields_at(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """The field names of the model that `loc` leads to, through optional and container types."""
    current: Any = model
    for part in loc:
        if isinstance(part, str) and _is_model(current) and part in current.model_fields:
            current = current.model_fields[part].annotation
        while not _is_model(current) and (inner := [a for a in get_args(current) if a not in (type(None), ...)]):
            current = inner[-1]
    return list(current.model_fields) if _is_model(current) else []


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def param(default: Any, help: str, search: str = "") -> Any:
    """A parameter field: its default, what it is, and the range that its papers search."""
    return dataclasses.field(default=default, metadata={"help": help, "search": search})


def parameters(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """A parameter dataclass from plain values, types checked. Raises ConfigError naming `where` and the field.

    NaN and infinity are refused: no parameter of any method here means anything by them.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            known = f"; known: {', '.join(fields)}" if fields else " (it has no parameters)"
            raise ConfigError(f"{where}: unknown parameter {key!r}{nearest(key, fields) or known}")
    try:
        result = _adapter(cls).validate_python(dict(values))
        for name in fields:
            value = getattr(result, name)
            require(not isinstance(value, float) or math.isfinite(value), f"{name} must be finite, got {value}")
        return result
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {name}: {first['msg'].lower()}, got {first['input']!r}") from None


@cache
def _adapter(cls: type[T]) -> TypeAdapter[T]:
    """Building one takes milliseconds, and a sweep may check thousands of settings."""
    return TypeAdapter(cls)
