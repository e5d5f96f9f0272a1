"""Read YAML files, `path=value` words and JSON files into typed values, with errors that name the wrong key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rankbench.core.errors import ConfigError, DataError, UnreadableError, first_line, require, shown
from rankbench.core.names import DECLARED
from rankbench.core.plain import plain
from rankbench.core.registry import closest
from rankbench.core.wording import wording

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Base of file schemas. Instances are frozen; unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


MOST_BYTES = 1 << 18  # in a file: the largest experiment here has 15 kB, and PyYAML reads about 100 kB per second
MOST_VALUES = 50_000  # in a file, counted as often as aliases repeat them
MOST_LEVELS = 32
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError naming file and line if it is not one, is too large or too deep, or
    repeats values too often.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        require(len(content) <= MOST_BYTES, f"{path}: larger than {MOST_BYTES >> 10} kB, which no card or experiment is")
        value = _UniqueKeys(content.decode("utf-8")).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except (ValueError, yaml.YAMLError) as error:  # bytes that are not UTF-8, the date 2024-13-45, a null character
        raise ConfigError(f"{path}: not readable as YAML: {first_line(error)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found {'nothing' if value is None else shown(value)}")
    return value


class _TooMuch(yaml.MarkedYAMLError):  # type: ignore[misc]
    """The document exceeds one of the limits above."""


class _UniqueKeys(yaml.SafeLoader):  # type: ignore[misc]
    """SafeLoader with limits and rules of YAML 1.2: duplicate keys are an error, 1e-3 is a number, 064 is 64, and `on`
    and 1:30 are strings.
    """

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str):
        super().__init__(text)
        self.level = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "tag", None):
            raise yaml.MarkedYAMLError(problem=f"the tag {shown(event.tag)} is not supported", problem_mark=event.start_mark)
        self.level += 1
        if self.level > MOST_LEVELS:
            raise _TooMuch(problem=f"nested deeper than {MOST_LEVELS} levels", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _require_small(node)
        return node


def _require_small(node: yaml.Node) -> None:
    """Raise if there are too many values or levels at `node`, with aliases counted each time: one may contain itself."""
    n_values, left = 0, [(node, 1)]
    while left:
        node, level = left.pop()
        n_values += 1
        if n_values > MOST_VALUES:
            raise _TooMuch(problem=f"more than {MOST_VALUES:,} values, with what aliases repeat", problem_mark=node.start_mark)
        if level > MOST_LEVELS:
            raise _TooMuch(problem=f"nested deeper than {MOST_LEVELS} levels", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            left += [(each, level + 1) for pair in node.value for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += [(each, level + 1) for each in node.value]


def _mapping_without_duplicates(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a plain value", problem_mark=key.start_mark)
        if key.value in seen:
            raise yaml.MarkedYAMLError(problem=f"key {shown(key.value)} is given twice", problem_mark=key.start_mark)
        seen.add(key.value)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


def _whole_number(loader: _UniqueKeys, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    number = int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise yaml.MarkedYAMLError(problem="a whole number of more than 64 bits", problem_mark=node.start_mark)
    return number


_UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
_UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^([-+]?\d+(_\d+)*|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_UniqueKeys.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$", re.IGNORECASE), list("tTfF"))
_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)
_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _whole_number)


def scalar(text: str) -> Any:
    """Return a value as YAML reads it: 1 → int, 1e-3 → float, [1, 2] → list, abc → str. Invalid YAML is returned as a string.

    Raises ConfigError for a value that is too large or too deep, or repeats values too often.
    """
    require(len(text) <= MOST_BYTES, f"expected a value of at most {MOST_BYTES >> 10} kB, got {shown(text)}")
    try:
        return _UniqueKeys(text).get_single_data()
    except _TooMuch as error:
        raise ConfigError(f"{error.problem}, in {shown(text)}") from None
    except (ValueError, yaml.YAMLError):
        return text


def assignments(words: Sequence[str]) -> dict[str, Any]:
    """Return {"lam": 80, "search.trials": 4} for ["lam=80", "search.trials=4"]. Raises ConfigError for a word without `=`."""
    values: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        require(bool(sign and key), f"{shown(word)}: expected name=value")
        require(key not in values, f"{key}: given twice")
        try:
            values[key] = scalar(text)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return values


def override(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested `content` with values replaced at dotted paths such as "arms.0.params.lam" or "search.trials".

    `*` in place of a position stands for every entry of the list that already has the rest of the path.
    """
    result: dict[str, Any] = plain(content)  # of a value that aliases repeat, every place has its own copy
    for path, value in values.items():
        keys = path.split(".")
        require(len(keys) <= MOST_LEVELS, f"{shown(path)}: a path of more than {MOST_LEVELS} keys")
        _put(result, keys, value, path)
    return result


def _put(node: Any, keys: list[str], value: Any, path: str) -> None:
    key, *rest = keys
    if isinstance(node, list) and key == "*":
        matching = [each for each in node if _has(each, rest)] if rest else []
        require(bool(matching), f"{path}: no entry of the list has {'.'.join(rest) or 'what follows the *'}")
        for each in matching:
            _put(each, rest, value, path)
    elif isinstance(node, list):
        position = _index(key, node, path)
        if rest:
            _put(node[position], rest, value, path)
        else:
            node[position] = value
    elif not isinstance(node, dict):
        raise ConfigError(f"{path}: {key!r} is inside a plain value")
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


def _index(key: str, node: list[Any], path: str) -> int:
    known = key.isdecimal() and int(key) < len(node)
    require(known, f"{path}: {key!r} is not a position in a list of {len(node)}")
    return int(key)


def validate(model: type[M], content: Mapping[str, Any], source: str, stored: bool = False) -> M:
    """Return `content` as a `model`. `stored`: this package wrote it. Raises ConfigError for the first wrong field, with
    `source` and the field's path.
    """
    try:
        value = model.model_validate(content, context=None if stored else DECLARED)
        require_numbers(content, value, "")
        return value
    except ConfigError as error:  # from a part with its own schema
        raise ConfigError(f"{source}: {error}") from None
    except ValidationError as error:
        raise ConfigError(_first_problem(model, error, source)) from None


def _first_problem(model: type[BaseModel], error: ValidationError, source: str) -> str:
    problems = error.errors(include_url=False)
    # A misspelt key often makes another one missing, but the misspelling is what the user has to correct.
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        *place, key = first["loc"]
        known = ", ".join(sorted(_fields_at(model, place)))
        hint = nearest_key(model, str(key), place) or (f"; known: {known}" if known else "")
        return f"{source}: {field}: unknown key{hint}"
    if first["type"] == "missing":
        return f"{source}: {field}: missing"
    if isinstance(cause := first.get("ctx", {}).get("error"), Exception):
        return f"{source}: {field}: {cause}" if field else f"{source}: {cause}"
    return f"{source}: {wording(first, problems)}"


def nearest_key(model: type[BaseModel], key: str, place: Sequence[str | int] = ()) -> str:
    """Return `; did you mean X?` for an unknown key at a `place` in a model, or an empty string: X is a name known there, or
    the dotted key of another place that ends in `key` or nearly so.
    """
    here = {name: name for name in _fields_at(model, place)}
    elsewhere = {path.rpartition(".")[2]: path for path, _ in reversed([*keys_of(model)])}  # of two, the first one
    for places, likeness in ((elsewhere, 1.0), (here, 0.6), (elsewhere, 0.7)):
        alike = [name for name in places if abs(len(name) - len(key)) < 3]  # lam is not meant to be claims
        if found := closest(key, alike, likeness):
            return f"; did you mean {places[found]}?"
    return ""


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted keys of plain values in a model and in the models that it always has, with their fields."""
    for name, field in model.model_fields.items():
        if _is_model(field.annotation):
            yield from keys_of(field.annotation, f"{prefix}{name}.")  # type: ignore[arg-type]
        elif not field.exclude:
            yield prefix + name, field


def require_numbers(given: Any, value: Any, field: str) -> None:
    """Raise ConfigError if pydantic converted a boolean or a string in `given` to a number in `value`.

    A whole number may be written as 1e3 or 64.0, and in place of a float. Pydantic's strict mode would refuse this, and lists
    in place of tuples.
    """
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(given, Mapping) and isinstance(value, Mapping):
        for name in given:
            if name in value:
                require_numbers(given[name], value[name], f"{field}.{name}" if field else str(name))
    elif isinstance(given, list | tuple) and isinstance(value, list | tuple):
        for position, (one, other) in enumerate(zip(given, value, strict=False)):
            require_numbers(one, other, f"{field}.{position}" if field else str(position))
    elif isinstance(given, bool | str | bytes) and isinstance(value, int | float) and not isinstance(value, bool):
        kind = "a whole number" if isinstance(value, int) else "a number"
        raise ConfigError(f"{field}: expected {kind}, got {shown(given)}")


def _fields_at(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """Return the field names of the model at `loc`, looking through optional and container types."""
    current: Any = model
    for part in loc:
        if isinstance(part, str) and _is_model(current) and part in current.model_fields:
            current = current.model_fields[part].annotation
        while not _is_model(current) and (inner := [a for a in get_args(current) if a not in (type(None), ...)]):
            current = inner[-1]
    return [name for name, field in current.model_fields.items() if not field.exclude] if _is_model(current) else []


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def read_json(path: Path, adapter: TypeAdapter[T], what: str, most: int | None = None) -> T:
    """Return the content of a JSON file that this package wrote. Raises DataError naming the file, `what` it should be and the
    first wrong field; UnreadableError if the system refuses it. `most`: how many values it may have, of 4 kB on average.
    """
    if path.exists() and not path.is_file():  # reading a pipe would never end
        raise DataError(f"{path}: not {what} (not a regular file)")
    try:
        if most is not None and (path.stat().st_size > most << 12 or _has_more_values(path.read_bytes(), most)):
            raise DataError(f"{path}: not {what} (it may have {most:,} values and {MOST_VALUES:,} lists)")
        return adapter.validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        kind = DataError if isinstance(error, FileNotFoundError) else UnreadableError
        raise kind(f"{path}: not {what} ({error.strerror})") from None
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # A file of another format has other wrong fields as well.
        first = next((problem for problem in problems if problem["loc"] == ("format",)), problems[0])
        field = ".".join(map(str, first["loc"]))[:100]
        if field == "format":
            reason = f"format {shown(first['input'])}, this version reads {first['ctx']['expected']}"
        else:
            reason = (f"{field}: " if field else "") + f"{first['msg'][:1].lower()}{first['msg'][1:200]}"
        raise DataError(f"{path}: not {what} ({reason})") from None


def _has_more_values(text: bytes, most: int) -> bool:
    """Return whether JSON has more than `most` values, by its commas, or very many lists and mappings: parsed, a number takes
    30 bytes and a list 300.
    """

    def too_many(part: bytes) -> bool:
        return part.count(b",") > most or part.count(b"[") + part.count(b"{") > MOST_VALUES

    return too_many(text) and too_many(_JSON_STRING.sub(b"", text))


@cache
def adapter(cls: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type, cached: to build it takes milliseconds, and a sweep may check thousands of settings."""
    return TypeAdapter(cls)
