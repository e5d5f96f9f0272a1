"""Every method there is: the solvers of closed forms and half steps, and the losses that are trained by gradient steps."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from rankbench.registry import Registry
from rankbench.solvers.spec import Solver
from rankbench.solvers.spec import registered as solvers


@cache
def registered() -> Registry[Solver]:
    """The registry, with every file of both rooms imported."""
    import_module("rankbench.training.methods")
    import_module("rankbench.training.newton_cg")
    return solvers()
