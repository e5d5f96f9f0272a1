"""The fit of a run: one model per configuration, whatever the shape of the method."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy.sparse as sp

from rankbench.core.progress import Progress
from rankbench.data.blocks import gram
from rankbench.experiment.by_tiles import fit_by_tiles
from rankbench.experiment.execution import Execution, ignore_progress
from rankbench.experiment.forms import checked_model
from rankbench.experiment.job import MethodConfig
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.drive import Row, Validation, drive, result_of
from rankbench.fitting.method import ClosedForm, Direct, Iterative
from rankbench.fitting.recommenders import Recommender
from rankbench.fitting.step import Step
from rankbench.solvers.inverse.gram_cache import gram_of
from rankbench.solvers.inverse.linalg import spd_inverse_
from rankbench.solvers.inverse.shared import Invert, fit_shared


@dataclass(frozen=True)
class Fitted:
    """One model per configuration, in order. Iterative methods also have a curve, the number of the iteration whose model was
    kept, and seconds of the fit: those that were `paused`, as for evaluations, and those `earlier` of the checkpoint from which
    it went on. `tiles`: rows of a tile, if the fit used tiles.
    """

    models: Sequence[Recommender]
    curve: list[Row] = field(default_factory=list)
    iterations: int | None = None
    paused: float = 0.0
    earlier: float = 0.0
    tiles: int | None = None


def fit_stepwise(
    configs: tuple[MethodConfig, ...],
    X: sp.csr_array,
    dtype: str,
    seed: int,
    execution: Execution,
    progress: Progress = ignore_progress,
    validation: Validation | None = None,
    observe: Callable[[Step], Row] | None = None,
    data: Hashable = None,
) -> Generator[list[Row], Checkpoints | None, Fitted]:
    """Fit `configs` on X (n_users, n_items) 0/1 CSR, and yield the curve so far after each iteration. A caller that wants to go
    on later sends where the state is saved.

    Configurations with the same share key are fitted from one Gram; others are only given together if they are one model.
    `data` identifies the content of X, so that successive fits on the same data share the Gram. Raises what the method raises.
    """
    first, context, number = configs[0], execution.context, np.dtype(dtype).type
    match first.spec:
        case Iterative() as iterative:
            limit = iterative.limit(first.params)

            def on_step(step: Step) -> Row:
                row = observe(step) if observe else {}
                progress("fit", step.number, limit)
                return row

            fit = yield from drive(
                lambda start: iterative.steps(X, first.params, seed, number, context, start),
                limit, validation, on_step, execution.checkpoints,
            )  # fmt: skip
            same = [checked_model(fit.model, X, iterative.name)] * len(configs)
            return Fitted(same, fit.curve, fit.iterations, fit.paused, fit.earlier)
        case Direct() as method:
            return Fitted([checked_model(method.fit(X, first.params, seed), X, method.name)] * len(configs))
        case ClosedForm():
            # A closed form shares its key only with closed forms.
            members = [(each.spec, each.params) for each in configs if isinstance(each.spec, ClosedForm)]
            spill, is_distributed = execution.spill, context.executor.flow() is not None
            if spill and (is_distributed or not spill.fits(X.shape[1], np.dtype(dtype).itemsize, X.nnz)):
                models = fit_by_tiles(members, X, dtype, spill, context.executor, progress)
                return Fitted(models, earlier=models[0].C.earlier, tiles=models[0].C.tile)
            G = gram(X, number) if data is None else gram_of(data, X, number)
            return Fitted(list(fit_shared(G, members, partial(progress, "fit"), _inversion(context.device))))
    raise TypeError(f"{first.method}: a method is a ClosedForm, Direct or Iterative")


def fit(
    configs: tuple[MethodConfig, ...],
    X: sp.csr_array,
    dtype: str,
    seed: int,
    execution: Execution | None = None,
    observe: Callable[[Step], Row] | None = None,
) -> Fitted:
    """Run `fit_stepwise` to its end and return the fitted models."""
    return result_of(fit_stepwise(configs, X, dtype, seed, execution or Execution(), observe=observe))


def _inversion(device: str) -> Invert:
    if device == "cpu":
        return spd_inverse_
    # Imported here, so that a fit without PyTorch does not import it.
    from rankbench.training.device import spd_inverse_on_

    return lambda C, progress: spd_inverse_on_(C, device)
