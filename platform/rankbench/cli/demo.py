"""rankbench demo: a sweep over methods of nine families on the built-in data."""

from __future__ import annotations

from pathlib import Path

from rankbench.cli.console import Json, out, program
from rankbench.cli.sweep import sweep
from rankbench.core.environment import Environment, is_of_the_product
from rankbench.sweeps.options import CommandOptions

EXAMPLES = """Example:
  rankbench demo
"""


def demo(json: Json = False) -> None:
    """Sweep 18 methods of nine families on built-in data. The sweep runs on Ray Tune and is recorded in MLflow."""
    from rankbench.schema.find import experiment_file

    environment, file = Environment.from_env(), Path("demo.yaml")
    if not is_of_the_product(experiment_file(file, environment)):  # one of the user, or one in the working folder of others
        file = next(each for each in environment.catalogues("experiments") if is_of_the_product(each)) / file
    sweep(CommandOptions(experiment=file), json=json)
    if not json:
        steps = {
            "ui": "browse all runs in MLflow",
            "methods deql-l2": "show the parameters of a method",
            "run synthetic talos tau=0.1 epochs=20": "run one method, with its learning curve",
            "data list": "list the datasets",
        }
        out.print("\nnext")
        for words, purpose in steps.items():
            out.print(f"  {program()} {words:42s} {purpose}")
