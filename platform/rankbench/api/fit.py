"""Fit a method on a dataset."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from rankbench.api.dataset import card_of
from rankbench.api.display import fit_display
from rankbench.cluster.workplace import crew_of
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.plain import plain, whole_number
from rankbench.core.progress import Progress
from rankbench.core.public import public
from rankbench.data.blocks import union
from rankbench.experiment.execution import Execution, require_device
from rankbench.experiment.fit_warnings import fit_warnings, unread
from rankbench.experiment.fitted_model import Model, scores_histories
from rankbench.experiment.job import Job, configure
from rankbench.experiment.model_files import FittedOn, Part
from rankbench.experiment.run import load_and_fit

log = logging.getLogger(__name__)


@public
def fit(
    dataset: Any,
    method: str,
    *,
    fit_on: Part | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    seed: int = 0,
    environment: Environment | None = None,
    progress: Progress | bool = True,
    execution: Execution | None = None,
    workers: int = 1,
    changes: Mapping[str, Any] | None = None,
    **params: Any,
) -> Model:
    """Fit `method` with `params` on a dataset and return the model.

    `dataset` is a name, the path of a card, a table with the columns user and item, or anything else that `rb.dataset` takes or
    returns; `changes` replace values of a card by dotted keys. `fit_on` is "train", "train+valid" or "all": by default the
    protocol decides, and a method that stops early on valid is fitted on train. With "all", which includes test, a deployed
    model knows the newest interactions, and nothing is left to measure it on.

    A notebook or terminal shows the progress of the fit. With `progress=False` it does not, and a function
    `progress(phase, done, total)` is called instead. `execution` says how the fit is computed: by default in this process,
    without saving anything. With `workers`, so many processes of this machine, or of the cluster that RAY_ADDRESS names, make
    gradient steps together: the model is that of one worker, up to rounding. A model whose matrix did not fit into memory reads
    the folder of `execution.spill`. What should be known of the fit, such as a loss that grew, is a warning of the log.

    Raises ConfigError for an unknown name, parameter or value, DataError for data that are not available or not readable,
    NumericalError if the method breaks down, and StorageError if memory or disk do not suffice.
    """
    workers = whole_number("workers", workers, 1)
    require(workers == 1 or execution is None, "workers: leave it out if execution is given, which has a crew")
    seed = whole_number("seed", seed)
    environment = environment or Environment.from_env()
    config = configure(method, plain(params))
    if execution:
        alone = f"execution: {method} runs only on CPUs; leave out device={execution.device}"
        require(execution.device.startswith("cpu") or config.spec.on_device, alone)
        require_device(execution.device)
    processes = execution.workers if execution else workers
    config.require_workers(processes, f"workers={processes}")
    for warning in unread(config, params):
        log.warning(warning)
    card = card_of(dataset, environment, plain(dict(changes or {})))
    config.require_end(fit_on, f"fit_on={fit_on}")
    part = fit_on or config.part_to_fit(card)
    job = Job(card, (config,), part, dtype=dtype, seed=seed)
    with crew_of(workers) as crew, fit_display(progress) as (on_progress, on_curve):
        execution = Execution(crew=crew) if crew else execution
        data, fitted = load_and_fit(job, environment, execution, on_progress, on_curve)
    for warning in fit_warnings(method, config.flat, fitted.curve, fitted.iterations, dtype):
        log.warning(warning)
    history = data.split.fit_matrix(part)
    if scores_histories(fitted.models[0]):  # others know nothing of users who were held out
        history = union(history, data.split.valid_history, data.split.test_history)
    about: FittedOn = {"card": card.reference, "changes": card.changes, "name": data.name, "fingerprint": data.fingerprint}
    if data.split.excluded is not None:
        about["self_excluded"] = True
    fitted_on = about, part, seed, data.users, data.items, history, fitted.iterations if config.stopping else None
    return Model(fitted.models[0], method, config.flat, *fitted_on)
