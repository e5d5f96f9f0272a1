"""rankbench fit: fit one method and save the model in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Address, Device, Memory, Params, Plugin, Resume, Workers
from rankbench.cli.console import Json, err, out, phase_progress, print_json, program
from rankbench.cli.plan_of_fit import DryRun, Nodes

if TYPE_CHECKING:
    from rankbench.experiment.fitted_model import Model
    from rankbench.experiment.job import MethodConfig

EXAMPLES = """Examples:
  rankbench fit movielens-1m ease lam=300 --out my-model
  rankbench fit ./my-shop.yaml deql-l2 p=0.4 lam_prime=100 --out shop-model
  rankbench fit amazon-beauty talos tau=0.1 --out top-20
  rankbench fit movielens-1m ease lam=300 --out movies --register movies
  rankbench fit gowalla ials embedding_dim=256 --out factors      after an interrupt, add --resume
  rankbench fit amazon-book ease lam=200 --memory 4GB --out books      a matrix larger than 4 GB stays in files
  rankbench fit --from demo edlae --out best      what won a sweep: the setting, length, seed and parts of its final run
  rankbench fit movielens-1m --from my-sweep talos --fit-on all --out deployed      of several datasets; on test, too
"""


def fit(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A dataset's name (rankbench data list) or a card file; with --from, one of those.",
            autocompletion=candidates.datasets,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Argument(help="A method's name (rankbench methods); not with --from.", autocompletion=candidates.methods),
    ] = None,
    params: Params = None,
    source: Annotated[
        tuple[str, str] | None,
        typer.Option("--from", metavar="SWEEP ROW", help="Fit what won: the final run of this row of a sweep."),
    ] = None,
    fit_on: Annotated[
        str | None,
        typer.Option(
            "--fit-on",
            help="train, train+valid or all; a model of all, which includes test, cannot be measured.  "
            "[default: as the protocol says, or train if the validation set ends the fit; with --from as the final run]",
        ),
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder for the model; it must not exist.")] = Path("model"),
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of methods that use random numbers.  [default: 0; with --from that of the final run]"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32 or float64.  [default: float32; with --from that of the final run]",
            autocompletion=candidates.one_of("float32", "float64"),
        ),
    ] = None,
    address: Address = None,
    workers: Workers = 1,
    device: Device = "cpu",
    memory: Memory = None,
    resume: Resume = False,
    register: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register the model in MLflow under NAME, once it is saved.")
    ] = None,
    dry_run: DryRun = False,
    nodes: Nodes = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Fit METHOD on DATASET, or what won a sweep, and save the model.

    The model is fitted on train + valid and saved as safetensors and JSON.
    A method that stops early on valid is fitted on train. A matrix that does not fit into memory is saved as tiles.
    """
    from rankbench import api
    from rankbench.api.fit_from import winner
    from rankbench.cli.options import Options, card_and_method, open_execution, require_effect
    from rankbench.cli.plan_of_fit import require_both, show_plan
    from rankbench.core.environment import Environment
    from rankbench.core.errors import ConfigError, require
    from rankbench.core.files import require_writable
    from rankbench.data.cards import load_card
    from rankbench.experiment.fitted_model import PARTS
    from rankbench.experiment.job import configure
    from rankbench.experiment.working_folders import remove, working_folders
    from rankbench.judge.printing import setting_text

    require_both(dry_run, nodes)
    require(dtype in (None, "float32", "float64"), f"--dtype: expected float32 or float64, got {dtype}")
    require(fit_on in (None, *PARTS), f"--fit-on: expected {', '.join(PARTS)}, got {fit_on}")
    environment = Environment.from_env()
    arguments: dict[str, Any]
    if source is None:
        if dataset is None or method is None:
            raise ConfigError("give DATASET and METHOD, or --from SWEEP ROW")
        changes, values = card_and_method(params or [])
        chosen = configure(method, values)
        chosen.require_end(fit_on, f"--fit-on {fit_on}")
        arguments = {"changes": changes, "fit_on": fit_on, "dtype": dtype or "float32", "seed": seed or 0, **values}
        if nodes is not None:
            show_plan(load_card(dataset, environment, changes), chosen, dtype or "float32", nodes, json)
            return
    else:
        require(method is None, "--from: the row says METHOD and its parameters; leave them out")
        require(nodes is None, "--dry-run: give DATASET and METHOD in place of --from")
    if register is not None:  # a wrong name, address or tag is refused before the fit
        from rankbench.tracking.address import tracking_uri
        from rankbench.tracking.labels import Labels
        from rankbench.tracking.model_registry import checked_model_name

        checked_model_name(register, "--register")
        labels = Labels.from_env("rankbench fit")
        tracking_uri(environment)
    require_writable(to)
    folders = working_folders(to)
    if (to / "model.json").is_file():
        remove(folders)  # left by a fit that was killed after its model was saved
    require(not to.exists(), f"{to}: already exists; choose another folder with --out")
    data: Any = dataset
    if source is not None:
        won = winner(*source, dataset, environment)
        chosen, data, arguments = won.config(fit_on), won.data, won.arguments(fit_on, seed)
        require(dtype in (None, won.record.dtype), f"--dtype: the final run has {won.record.dtype}; leave it out")
        for name in won.changed:
            err.print(f"warning: {name} has changed since the sweep, so that the model may be another one")
        if won.record.device.partition(":")[0] != device:
            err.print(f"warning: the final run was fitted on {won.record.device}; --device gives the same bits")
    options = Options(address, resume, memory, device=device, workers=workers)
    require_effect(chosen, options)
    with open_execution(chosen.spec, options, *folders) as execution, phase_progress() as progress:
        model = api.fit(data, chosen.method, progress=progress, execution=execution, **arguments)
    model.save(to)
    remove(folders)
    registered = None
    if register is not None:
        from rankbench.api.register import register as register_model

        registered = register_model(to, register, environment, labels)
    why = "as the final run was" if source and fit_on is None else _why(model, chosen, fit_on)
    if json:
        about = {name: getattr(model, name) for name in ("method", "params", "dataset", "fit_on", "seed", "iterations")}
        about |= {"folder": str(to), "workers": workers, "why": why}
        print_json(about | ({"registered": registered.uri} if registered else {}))
        return
    where = f"{model.method} on {model.dataset['name']}"
    out.print(f"{where}: {len(model.users):,} users, {len(model.items):,} items → {to}")
    out.print(f"fitted on {PARTS[model.fit_on]}: {why}")
    if source is not None:
        of = f" (the first of {won.n_runs} final runs)" if won.n_runs > 1 and seed is None else ""
        usual = configure(chosen.method, {}).flat
        setting = setting_text({name: value for name, value in model.params.items() if value != usual[name]}) or "defaults"
        out.print(f"row {source[1]} of {won.sweep}: {setting}, seed {model.seed}{of}")
    out.print(f"next: {program()} recommend {to} --user {model.first_known_user}")
    if registered is not None:
        from rankbench.cli.tracking import show_registered

        show_registered(registered)


def _why(model: Model, chosen: MethodConfig, fit_on: str | None) -> str:
    """Return the reason for the parts that a model was fitted on."""
    if fit_on == "all":
        return "--fit-on all, so that no part is left to measure this model on"
    if fit_on is not None:
        return f"--fit-on {fit_on}"
    if chosen.stopping is None:
        return "the protocol of the split says so"
    kept = "" if model.iterations is None else f" and kept iteration {model.iterations}"
    fixed = " ".join(f"{name}={value}" for name, value in chosen.without_valid(model.iterations).flat.items()
                     if value != chosen.flat[name])  # fmt: skip
    return f"valid ended the fit (patience={chosen.stopping.patience}){kept}; to use more, add --fit-on all {fixed}"
