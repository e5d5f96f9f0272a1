"""rankbench fit: fit one method and save the model in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.arguments import Address, Dataset, Device, Dtype, Memory, Method, Params, Plugin, Resume, Workers
from rankbench.cli.console import Json, out, phase_progress, print_json, program
from rankbench.cli.plan_of_fit import DryRun, Nodes

EXAMPLES = """Examples:
  rankbench fit movielens-1m ease lam=300 --out my-model
  rankbench fit ./my-shop.yaml deql-l2 p=0.4 lam_prime=100 --out shop-model
  rankbench fit amazon-beauty talos tau=0.1 --out top-20
  rankbench fit movielens-1m ease lam=300 --out movies --register movies
  rankbench fit gowalla ials embedding_dim=256 --out factors      after an interrupt, add --resume
  rankbench fit amazon-book ease lam=200 --memory 4GB --out books      a matrix larger than 4 GB stays in files
"""


def fit(
    dataset: Dataset,
    method: Method,
    params: Params = None,
    to: Annotated[Path, typer.Option("--out", help="Folder for the model; it must not exist.")] = Path("model"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of methods that use random numbers.")] = 0,
    dtype: Dtype = "float32",
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
    """Fit METHOD on DATASET and save the model.

    The model is fitted on train + valid and saved as safetensors and JSON.
    A method that stops early on valid is fitted on train. A matrix that does not fit into memory is saved as tiles.
    """
    from rankbench import api
    from rankbench.cli.options import Options, card_and_method, open_execution, require_effect
    from rankbench.cli.plan_of_fit import require_both, show_plan
    from rankbench.cli.working_folders import remove, working_folders
    from rankbench.core.environment import Environment
    from rankbench.core.errors import require
    from rankbench.core.files import require_writable
    from rankbench.data.cards import load_card
    from rankbench.experiment.job import configure

    require_both(dry_run, nodes)
    require(dtype in ("float32", "float64"), f"--dtype: expected float32 or float64, got {dtype}")
    if nodes is not None:
        changes, values = card_and_method(params or [])
        show_plan(load_card(dataset, Environment.from_env(), changes), configure(method, values), dtype, nodes, json)
        return
    if register is not None:  # a wrong name, address or tag is refused before the fit
        from rankbench.tracking.address import tracking_uri
        from rankbench.tracking.labels import Labels
        from rankbench.tracking.model_registry import checked_model_name

        checked_model_name(register, "--register")
        environment, labels = Environment.from_env(), Labels.from_env("rankbench fit")
        tracking_uri(environment)
    require_writable(to)
    folders = working_folders(to)
    if (to / "model.json").is_file():
        remove(folders)  # left by a fit that was killed after its model was saved
    require(not to.exists(), f"{to}: already exists; choose another folder with --out")
    changes, values = card_and_method(params or [])
    chosen = configure(method, values)
    options = Options(address, resume, memory, device=device, workers=workers)
    require_effect(chosen, options)
    with open_execution(chosen.spec, options, *folders) as execution, phase_progress() as progress:
        more = {"dtype": dtype, "seed": seed, "progress": progress, "execution": execution}
        model = api.fit(dataset, method, changes=changes, **more, **values)
    model.save(to)
    remove(folders)
    registered = None
    if register is not None:
        from rankbench.api.register import register as register_model

        registered = register_model(to, register, environment, labels)
    if json:
        about = {"folder": str(to), "method": method, "params": model.params, "dataset": model.dataset, "workers": workers}
        print_json(about | ({"registered": registered.uri} if registered else {}))
        return
    out.print(f"{method} on {dataset}: {len(model.users):,} users, {len(model.items):,} items → {to}")
    out.print(f"next: {program()} recommend {to} --user {model.users[0].as_py()}")
    if registered is not None:
        from rankbench.cli.tracking import show_registered

        show_registered(registered)
