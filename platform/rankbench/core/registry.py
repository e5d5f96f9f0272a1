"""Registries from names to specs, which refuse duplicates and suggest the nearest name for an unknown one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Generic, TypeVar

from rankbench.core import plugins
from rankbench.core.errors import ConfigError
from rankbench.core.names import checked_name

Spec = TypeVar("Spec")
F = TypeVar("F", bound=Callable[..., Any])


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest of `names`, or an empty string if none is close."""
    found = closest(name, names)
    return "" if found is None else f"; did you mean {found}?"


def closest(name: str, names: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the closest of `names`, None if none is close."""
    spelled = {each.lower(): each for each in sorted(names)}
    word = str(name).lower()  # in a file, a name may be a value of any type
    # A short prefix counts as close, too: "amazon" for "amazon-beauty".
    close = difflib.get_close_matches(word, spelled, 1, likeness) or [
        each for each in spelled if word and each.startswith(word)
    ]
    return spelled[close[0]] if close else None


_ALL: list[Registry[Any]] = []


def added_by(plugin: plugins.Plugin) -> list[tuple[str, str]]:
    """The kind and name of everything that a plugin has registered."""
    return [(each.kind, name) for each in _ALL for name in each.names() if each.origin(name) == plugin.origin]


def plugins_behind(words: Iterable[str]) -> tuple[plugins.Plugin, ...]:
    """The loaded plugins that something with the names `words` depends on: those that registered one of them, and those that
    registered nothing, because they may change anything.
    """
    names, added = set(words), {plugin: added_by(plugin) for plugin in plugins.loaded()}
    return tuple(plugin for plugin, own in added.items() if not own or names & {name for _, name in own})


@cache
def _import_all(package: str) -> None:
    try:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    except BaseException:
        # A file that failed is imported again by the next call, and registers its first names again.
        for each in _ALL:
            each._forget_unimported()
        raise


class Registry(Generic[Spec]):
    """A mapping from names to specs that refuses duplicates and suggests the nearest name for an unknown one.

    It remembers which module or plugin added a name, and forgets the names of a plugin that is removed.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._specs: dict[str, Spec] = {}
        self._origins: dict[str, str] = {}
        self._watchers: list[Callable[[Spec], None]] = []
        plugins.on_unload(self._forget)
        _ALL.append(self)

    def add(self, name: str, spec: Spec, module: str) -> None:
        """Add `spec`, which `module` defines. Raises ConfigError if the name is taken, with the origins of both, or against the
        rule for names.
        """
        try:
            for each in (name, *getattr(spec, "families", ())):
                checked_name(each)
        except ValueError as error:
            raise ConfigError(f"{self.kind}: {error}") from None
        origin = plugins.origin_of(module)
        if name in self._specs:
            by = f"by {self._origins[name]} and by {origin}"
            raise ConfigError(f"{self.kind} {name!r} is registered twice, {by}; choose another name for one of them")
        self._specs[name], self._origins[name] = spec, origin
        for tell in self._watchers:
            tell(spec)

    def decorator(self, name: str, spec: Callable[[F], Spec]) -> Callable[[F], F]:
        """A decorator that adds `spec(function)` and returns the function unchanged."""

        def add(function: F) -> F:
            self.add(name, spec(function), getattr(function, "__module__", None) or "")
            return function

        return add

    def filled_from(self, package: str) -> Registry[Spec]:
        """This registry, after importing every module of `package` and every configured plugin, which add their entries."""
        _import_all(package)
        plugins.load_configured()
        return self

    def watch(self, tell: Callable[[Spec], None]) -> None:
        """Call `tell` once with every spec: now with those that are there, and later with those that are added."""
        if tell in self._watchers:
            return
        for spec in self:
            tell(spec)
        self._watchers.append(tell)

    def get(self, name: str) -> Spec:
        """Return the spec called `name`. Raises ConfigError with the nearest name if there is none."""
        if name not in self._specs:
            hint = nearest(name, self._specs) or f"; known: {', '.join(self.names())}"
            raise ConfigError(f"unknown {self.kind} {name!r}{hint}")
        return self._specs[name]

    def origin(self, name: str) -> str:
        """The module of the package, or the plugin, that added `name`. Raises ConfigError as `get`."""
        self.get(name)
        return self._origins[name]

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def names(self) -> list[str]:
        return sorted(self._specs)

    def __iter__(self) -> Iterator[Spec]:
        return (self._specs[name] for name in self.names())

    def __len__(self) -> int:
        return len(self._specs)

    def _forget_unimported(self) -> None:
        for origin in {*self._origins.values()}:
            if origin.startswith(f"{plugins.PACKAGE}.") and origin not in sys.modules:
                self._forget(origin)

    def _forget(self, origin: str) -> None:
        for name in [name for name, each in self._origins.items() if each == origin]:
            del self._specs[name], self._origins[name]
