"""rankbench fit: one setting, fitted and kept as a folder that recommends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.console import Json, out, phase_progress, print_json, program

EXAMPLES = """Examples:

  rankbench fit movielens-1m ease lam=300 --out my-model

  rankbench fit ./my-shop.yaml deql-l2 p=0.4 lam_prime=100 --out shop-model

  rankbench fit amazon-beauty talos tau=0.1 --out top-20

  rankbench fit gowalla ials embedding_dim=256 --out factors      then, after an interrupt, the same with --resume
"""


def fit(
    dataset: Annotated[str, typer.Argument(help="A dataset's name (rankbench data list) or a card file.")],
    method: Annotated[str, typer.Argument(help="A method's name (rankbench methods).")],
    params: Annotated[list[str] | None, typer.Argument(metavar="[param=value]...", help="Parameters.")] = None,
    to: Annotated[Path, typer.Option("--out", help="A new folder for the model.")] = Path("model"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of random methods.")] = 0,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a Ray cluster; else RAY_ADDRESS, else this process.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where gradient steps and inverses are computed: cpu, or cuda where there is one.")
    ] = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last iteration that was saved.")] = False,
    json: Json = False,
) -> None:
    """Fit METHOD on train + valid of DATASET, or on train where valid says when training ends, and save it: safetensors and
    JSON, no pickle.
    """
    from rankbench import api, experiment
    from rankbench.checkpoint import Checkpoints
    from rankbench.cluster.place import require_iterations, workplace
    from rankbench.config import assignments
    from rankbench.errors import require
    from rankbench.fitting import Fitting
    from rankbench.solvers.on_device import require_device

    if device != "cpu":
        require_device(device)
    require(not to.exists(), f"{to}: exists already; choose another folder with --out")
    values = assignments(params or [])
    solver = experiment.setting(method, values).solver
    require_iterations(method, solver.iterate is not None, solver.shares, address, resume)
    # Beside the model to be: it goes when the model is there.
    checkpoints = Checkpoints(to.with_name(f"{to.name}.checkpoints"), resume)
    with workplace(address if solver.shares else "") as where, phase_progress() as progress:
        fitting = Fitting(where, lambda step: progress("fit", step.number, step.of), checkpoints, device=device)
        model = api.fit(dataset, method, dtype=dtype, seed=seed, progress=progress, fitting=fitting, **values)
    model.save(to)
    checkpoints.clear()
    if json:
        print_json({"folder": str(to), "method": method, "params": model.params, "dataset": model.dataset})
        return
    out.print(f"{method} on {dataset}: {len(model.users):,} users, {len(model.items):,} items → {to}", markup=False)
    out.print(f"next: {program()} recommend {to} --user {model.users[0].as_py()}", markup=False)
