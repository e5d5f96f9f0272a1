"""rankbench demo: a sweep over methods of nine families on the built-in data."""

from __future__ import annotations

from pathlib import Path

from rankbench.cli.console import Json, out, program
from rankbench.cli.sweep import sweep
from rankbench.sweeps.options import CommandOptions

EXAMPLES = """Example:
  rankbench demo
"""


def demo(json: Json = False) -> None:
    """Sweep 18 methods of nine families on built-in data. The sweep runs on Ray Tune and is recorded in MLflow."""
    sweep(CommandOptions(experiment=Path("demo.yaml")), json=json)
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
