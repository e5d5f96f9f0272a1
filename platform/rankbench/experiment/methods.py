"""All methods: closed forms, alternating least squares, Newton-CG, and losses trained by gradient steps."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from rankbench.core.registry import Registry
from rankbench.fitting.method import METHODS, Method


@cache
def registered() -> Registry[Method]:
    """Return the registry after importing every file that registers a method."""
    _import_solvers()
    import_module("rankbench.training.methods")
    return METHODS


def method(name: str) -> Method:
    """Return the method called `name`. Methods trained by gradient steps, whose import of PyTorch takes seconds, are imported
    only if no solver has that name. Raises ConfigError with the nearest name if there is no such method.
    """
    _import_solvers()
    return METHODS.get(name) if name in METHODS else registered().get(name)


@cache
def _import_solvers() -> None:
    METHODS.filled_from("rankbench.solvers")
