"""rankbench fit: fit one method and save the model in a folder."""

from __future__ import annotations

import shlex

from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, out, print_json, program
from rankbench.core.environment import Environment
from rankbench.experiment.options import ModelOptions

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


def fit(*, options: ModelOptions, json: Json = False, plugin: Plugin = None) -> None:
    """Fit METHOD on DATASET, or what won a sweep, and save the model.

    The model is fitted on train + valid and saved as safetensors and JSON.
    A method that stops early on valid is fitted on train. A matrix that does not fit into memory is saved as tiles.
    """
    from rankbench.api.save_fit import plan_fit, save_fit
    from rankbench.cli.plan_of_fit import require_both, show_plan
    from rankbench.data.cards import load_card
    from rankbench.experiment.fitted_model import PARTS

    require_both(options)
    environment = Environment.from_env()
    planned = plan_fit(options)
    if planned and options.nodes is not None:
        card = load_card(planned.data, environment, planned.arguments["changes"])
        show_plan(card, planned.config, options.dtype or "float32", options.nodes, json)
        return
    saved = save_fit(options, planned, environment)
    model, registered = saved.model, saved.registered
    if json:
        about = {name: getattr(model, name) for name in ("method", "params", "dataset", "fit_on", "seed", "iterations")}
        about |= {"folder": str(options.to), "workers": options.workers, "why": saved.why}
        print_json(about | ({"registered": registered.uri} if registered else {}))
        return
    where = f"{model.method} on {model.dataset['name']}"
    out.print(f"{where}: {len(model.users):,} users, {len(model.items):,} items → {options.to}")
    out.print(f"fitted on {PARTS[model.fit_on]}: {saved.why}")
    if saved.row:
        out.print(saved.row)
    words = shlex.join(["recommend", str(options.to), "--user", str(model.first_known_user)])  # an id may be anything
    out.print(f"next: {program()} {words}")
    if registered is not None:
        from rankbench.cli.tracking import show_registered

        show_registered(registered)
