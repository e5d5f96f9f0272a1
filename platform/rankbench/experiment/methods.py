"""Every method there is: closed forms and half steps, Newton-CG, and the losses that are trained by gradient steps."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from rankbench.core.registry import Registry
from rankbench.fitting.method import METHODS, Method


@cache
def registered() -> Registry[Method]:
    """The registry, with every file that may register a method imported."""
    solvers = import_module("rankbench.solvers")
    for module in pkgutil.walk_packages(solvers.__path__, f"{solvers.__name__}."):
        import_module(module.name)
    import_module("rankbench.training.methods")
    import_module("rankbench.solvers.newton.newton_cg")
    return METHODS
