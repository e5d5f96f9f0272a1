"""Registries from names to specs, which refuse duplicates and suggest the nearest name for an unknown one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from rankbench.core.errors import ConfigError

Spec = TypeVar("Spec")
F = TypeVar("F", bound=Callable[..., Any])


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest of `names`, or an empty string if none is close."""
    spelled = {each.lower(): each for each in sorted(names)}
    word = str(name).lower()  # in a file, a name may be a value of any type
    # A short prefix counts as close, too: "amazon" for "amazon-beauty".
    close = difflib.get_close_matches(word, spelled, n=1, cutoff=0.5) or [n for n in spelled if word and n.startswith(word)]
    return f"; did you mean {spelled[close[0]]}?" if close else ""


class Registry(Generic[Spec]):
    """A mapping from names to specs that refuses duplicates and suggests the nearest name for an unknown one."""

    def __init__(self, kind: str):
        self.kind = kind
        self._specs: dict[str, Spec] = {}

    def add(self, name: str, spec: Spec) -> None:
        if name in self._specs:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._specs[name] = spec

    def decorator(self, name: str, spec: Callable[[F], Spec]) -> Callable[[F], F]:
        """A decorator that adds `spec(function)` and returns the function unchanged."""

        def add(function: F) -> F:
            self.add(name, spec(function))
            return function

        return add

    def filled_from(self, package: str) -> Registry[Spec]:
        """This registry, after importing every module of `package`, each of which adds its own entries."""
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
        return self

    def get(self, name: str) -> Spec:
        """Return the spec called `name`. Raises ConfigError with the nearest name if there is none."""
        if name not in self._specs:
            hint = nearest(name, self._specs) or f"; known: {', '.join(self.names())}"
            raise ConfigError(f"unknown {self.kind} {name!r}{hint}")
        return self._specs[name]

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    def names(self) -> list[str]:
        return sorted(self._specs)

    def __iter__(self) -> Iterator[Spec]:
        return (self._specs[name] for name in self.names())

    def __len__(self) -> int:
        return len(self._specs)
