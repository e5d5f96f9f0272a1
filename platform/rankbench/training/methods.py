"""Every loss as a method: its parameters, those of the encoders and those of training in one flat dataclass.

A loss, or an encoder, registers by existing; importing this file makes a method of each loss, called as the loss.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Hashable

import numpy as np
import scipy.sparse as sp

from rankbench.errors import require
from rankbench.fitting import Fitting
from rankbench.losses.spec import Loss
from rankbench.losses.spec import registered as losses
from rankbench.models.spec import registered as encoders
from rankbench.recommender import Recommender
from rankbench.solvers.spec import SOLVERS, Solver
from rankbench.training.params import TrainingParams
from rankbench.training.trainer import train


def _method(loss: Loss) -> Solver:
    bases = (loss.params, *(encoder.params for encoder in encoders()), TrainingParams)
    # Parameters of one name and one default are one parameter; with two meanings they could not share a flat list.
    taken: dict[str, tuple[type, object]] = {}
    for base in bases:
        for field in dataclasses.fields(base):
            owner, default = taken.setdefault(field.name, (base, field.default))
            if owner is not base and (base is TrainingParams or owner is loss.params or default != field.default):
                raise TypeError(f"{loss.name}: {owner.__name__} and {base.__name__} both have a parameter {field.name!r}")

    def check(p: TrainingParams) -> None:
        for base in bases:
            if hasattr(base, "__post_init__"):
                base.__post_init__(p)
        used = encoders().get(p.model).params
        for encoder in encoders():
            for field in dataclasses.fields(encoder.params):
                mine = field.name in {own.name for own in dataclasses.fields(used)}
                require(mine or getattr(p, field.name) == field.default, f"model {p.model} has no parameter {field.name!r}")

    name = loss.params.__name__ + "Training"
    unique = name if not hasattr(sys.modules[__name__], name) else f"{name}_{loss.name}"
    namespace = {"__post_init__": check, "__module__": __name__}
    params = dataclasses.make_dataclass(unique, [], bases=tuple(dict.fromkeys(bases)), frozen=True, namespace=namespace)
    setattr(sys.modules[__name__], unique, params)  # so that a setting can be sent to a worker

    def iterate(X: sp.csr_array, p: TrainingParams, seed: int, dtype: type, fitting: Fitting) -> Recommender:
        return train(X, p, loss, seed, np.dtype(dtype).type, fitting)

    own = tuple(field.name for field in dataclasses.fields(loss.params))

    def identity(p: TrainingParams) -> Hashable:
        twin = loss.twin(p)
        # Adam's step has no scale, but beside a penalty, or an encoder's own loss, the scale is a weight.
        if twin is None or (twin.scale != 1 and not (p.weight_decay == 0 and p.model in ("mf", "lightgcn"))):
            return (loss.name, dataclasses.astuple(p))
        others = {name: value for name, value in dataclasses.asdict(p).items() if name not in own}
        if p.sampler == "auto":
            others["sampler"] = loss.sampler
        return (twin.name, twin.params, *sorted(others.items()))

    def layers(p: TrainingParams) -> int:
        return encoders().get(p.model).layers(p)

    return Solver(
        loss.name,
        params,
        title=loss.title,
        source=loss.source,
        iterate=iterate,
        identity=identity,
        seeded=True,
        folds=False,
        trained=True,
        own=own,
        pace=loss.pace,
        whole_catalogue=loss.whole_catalogue,
        layers=layers,
    )


for _loss in losses():
    SOLVERS.add(_loss.name, _method(_loss))
