"""The registry's ranges: what a search tries for the parameters of a method unless an experiment file says otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from rankbench.core.params import space_of as space_of_parameter
from rankbench.experiment.job import MethodConfig

# How long and how exactly a solver computes, and what an evaluation costs, are no properties of the model. A method without one
# of its parts is another method.
FIXED = (
    "embedding_dim", "latent_dim", "hidden_dim", "iterations", "epochs", "patience", "eval_every", "stop_metric", "tolerance",
    "solver", "subspace_dim", "cg_steps", "cg_tolerance", "init_scale", "ablation",
)  # fmt: skip


def space_of(config: MethodConfig, given: Collection[str] = ()) -> dict[str, dict[str, list[Any]]]:
    """Return the ranges of the parameters that make the model what it is, without those that are `given`."""
    # Of encoders that have a parameter of one name, each has its own range.
    own = getattr(config.params, "encoder", None)
    parts = *config.spec.fields(), *(dataclasses.fields(own) if own else ())
    fields = {each.name: each for each in parts}
    names = [each for each in config.spec.searched(config.params) if each not in FIXED and each not in given]
    space = {each: how for each in names if (how := space_of_parameter(fields[each])) is not None}
    # Parameters that are absent by default are other ways to give the same number, such as lam_prime for lam.
    absent = [each for each in space if fields[each].default is None]
    stated = any(each in fields and fields[each].default is None for each in given)
    return {each: how for each, how in space.items() if each not in absent[0 if stated else 1 :]}
