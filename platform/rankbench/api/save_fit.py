"""A fit as `rankbench fit` makes it: checked, fitted, saved in a folder, and registered in MLflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankbench.api.execution import card_and_params, open_execution, require_effect
from rankbench.api.fit import fit
from rankbench.api.fit_from import Winner, winner
from rankbench.api.register import register
from rankbench.core.display import setting_text
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.extras import require_extra
from rankbench.core.files import require_writable
from rankbench.experiment.fitted_model import PARTS, Model
from rankbench.experiment.job import MethodConfig, configure
from rankbench.experiment.options import ModelOptions
from rankbench.experiment.working_folders import remove, working_folders
from rankbench.sweeps.views.phases import err, phase_progress
from rankbench.tracking.address import tracking_uri
from rankbench.tracking.labels import Labels
from rankbench.tracking.model_registry import Registered, checked_model_name


@dataclass(frozen=True)
class PlannedFit:
    """A setting, the data, and the further arguments of `fit`. `won`: the row of a sweep that they come from."""

    config: MethodConfig
    data: Any
    arguments: dict[str, Any]
    won: Winner | None = None


@dataclass(frozen=True)
class SavedFit:
    """A saved model, why it was fitted on its parts, a sentence on the row of the sweep that won, and its version in MLflow."""

    model: Model
    why: str
    row: str = ""
    registered: Registered | None = None


def plan_fit(options: ModelOptions) -> PlannedFit | None:
    """Return what is fitted, None for the row of a sweep, which `save_fit` looks up. Raises ConfigError for what is wrong."""
    fit_on, dtype = options.fit_on, options.dtype
    require(dtype in (None, "float32", "float64"), f"--dtype: expected float32 or float64, got {dtype}")
    require(fit_on in (None, *PARTS), f"--fit-on: expected {', '.join(PARTS)}, got {fit_on}")
    if options.source is not None:
        require(options.method is None, "--from: the row says METHOD and its parameters; leave them out")
        require(options.nodes is None, "--dry-run: give DATASET and METHOD in place of --from")
        return None
    if options.dataset is None or options.method is None:
        raise ConfigError("give DATASET and METHOD, or --from SWEEP ROW")
    changes, values = card_and_params(options.params or ())
    config = configure(options.method, values)
    config.require_end(fit_on, f"--fit-on {fit_on}")
    about = {"changes": changes, "fit_on": fit_on, "dtype": dtype or "float32", "seed": options.seed or 0}
    return PlannedFit(config, options.dataset, about | values)


def save_fit(options: ModelOptions, planned: PlannedFit | None, environment: Environment) -> SavedFit:
    """Fit what is planned, or what won a sweep, save the model in a new folder, and register it, if the options say so.

    Raises ConfigError, DataError and StorageError before the fit for what can be known then.
    """
    to, name = options.to, options.register
    if name is not None:  # a wrong name, address or tag is refused before the fit
        checked_model_name(name, "--register")
        require_extra("tracking", "--register")
        labels = Labels.from_env("rankbench fit")
        tracking_uri(environment)
    require_writable(to)
    folders = working_folders(to)
    if (to / "model.json").is_file():
        remove(folders)  # left by a fit that was killed after its model was saved
    require(not to.exists(), f"{to}: already exists; choose another folder with --out")
    planned = planned or _of_winner(options, environment)
    config = planned.config
    require_effect(config, options)
    with open_execution(config.spec, options, *folders) as execution, phase_progress() as progress:
        model = fit(planned.data, config.method, progress=progress, execution=execution, **planned.arguments)
    model.save(to)
    remove(folders)
    registered = None if name is None else register(to, name, environment, labels)
    as_won = planned.won is not None and options.fit_on is None
    why = "as the final run was" if as_won else _why(model, config, options.fit_on)
    return SavedFit(model, why, _row(planned, options, model), registered)


def _of_winner(options: ModelOptions, environment: Environment) -> PlannedFit:
    assert options.source is not None
    with phase_progress() as progress:
        won = winner(*options.source, options.dataset, environment, progress)
    require(options.dtype in (None, won.record.dtype), f"--dtype: the final run has {won.record.dtype}; leave it out")
    for warning in won.warnings(options.fit_on, options.device):
        err.print(f"warning: {warning}")
    return PlannedFit(won.config(options.fit_on), won.data, won.arguments(options.fit_on, options.seed), won)


def _row(planned: PlannedFit, options: ModelOptions, model: Model) -> str:
    """Return a sentence on the row of the sweep that won; empty if the model is of none."""
    won = planned.won
    if won is None or options.source is None:
        return ""
    first = f" (the first of {won.n_runs} final runs)" if won.n_runs > 1 and options.seed is None else ""
    usual = configure(planned.config.method, {}).flat
    setting = setting_text({name: value for name, value in model.params.items() if value != usual[name]}) or "defaults"
    return f"row {options.source[1]} of {won.sweep}: {setting}, seed {model.seed}{first}"


def _why(model: Model, chosen: MethodConfig, fit_on: str | None) -> str:
    """Return the reason for the parts that a model was fitted on."""
    if fit_on == "all":
        return "--fit-on all, so that no part is left to measure this model on"
    if fit_on is not None:
        return f"--fit-on {fit_on}"
    if chosen.stopping is None:
        return "the protocol of the split says so"
    why = f"valid chose iteration {model.iterations} (patience={chosen.stopping.patience})"
    if not chosen.spec.nested(chosen.params):
        return why
    fixed = " ".join(f"{name}={value}" for name, value in chosen.without_valid(model.iterations).flat.items()
                     if value != chosen.flat[name])  # fmt: skip
    return f"{why}; to use more, add --fit-on all {fixed}"
