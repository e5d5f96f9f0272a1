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

  rankbench fit amazon-book ease lam=200 --memory 4GB --out books      a matrix too large for memory stays in files of the model
"""


def fit(
    dataset: Annotated[str, typer.Argument(help="A dataset's name (rankbench data list) or a card file.")],
    method: Annotated[str, typer.Argument(help="A method's name (rankbench methods).")],
    params: Annotated[
        list[str] | None,
        typer.Argument(metavar="[param=value]...", help="Parameters; data.PATH=VALUE changes the card."),
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="A new folder for the model.")] = Path("model"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of random methods.")] = 0,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a Ray cluster; else RAY_ADDRESS, else this process.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where gradient steps and inverses are computed: cpu, or cuda where there is one.")
    ] = "cpu",
    memory: Annotated[
        str | None,
        typer.Option(help="As in 4GB: a closed form that needs more is solved by tiles in a file. On a cluster: of a worker."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last iteration, or tiles, that were saved.")] = False,
    json: Json = False,
) -> None:
    """Fit METHOD on train + valid of DATASET, or on train where valid says when training ends, and save it: safetensors, JSON
    and, of a matrix that does not fit into memory, its tiles; no pickle.
    """
    import shutil

    from rankbench import api
    from rankbench.cli.options import Options, card_and_method, execution, require_meaning
    from rankbench.core.errors import require
    from rankbench.core.files import require_place
    from rankbench.experiment.job import configure

    require_place(to)
    checkpoint_folder, tile_folder = (to.with_name(f"{to.name}.{kind}") for kind in ("checkpoints", "tiles"))
    if (to / "model.json").is_file():
        for folder in (checkpoint_folder, tile_folder):  # left by a fit that was killed after its model was saved
            shutil.rmtree(folder, ignore_errors=True)
    require(not to.exists(), f"{to}: exists already; choose another folder with --out")
    changes, values = card_and_method(params or [])
    chosen = configure(method, values)
    options = Options(address, resume, memory, device=device)
    require_meaning(chosen.spec, options)
    # Both beside the model to be: they go when the model is there.
    with execution(chosen.spec, options, checkpoint_folder, tile_folder) as how, phase_progress() as progress:
        more = {"dtype": dtype, "seed": seed, "progress": progress, "execution": how}
        model = api.fit(dataset, method, changes=changes, **more, **values)
    model.save(to)
    for left in (checkpoint_folder, tile_folder):
        shutil.rmtree(left, ignore_errors=True)
    if json:
        print_json({"folder": str(to), "method": method, "params": model.params, "dataset": model.dataset})
        return
    out.print(f"{method} on {dataset}: {len(model.users):,} users, {len(model.items):,} items → {to}", markup=False)
    out.print(f"next: {program()} recommend {to} --user {model.users[0].as_py()}", markup=False)
