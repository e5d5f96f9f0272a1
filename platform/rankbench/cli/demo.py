"""rankbench demo: a sweep over every method on the built-in data."""

from __future__ import annotations

from rankbench.cli.console import Json, out, program


def demo(json: Json = False) -> None:
    """Sweep all methods on built-in data with Ray Tune, record them in MLflow, and show the table (2 to 3 minutes)."""
    from pathlib import Path

    from rankbench.cli.sweep import sweep

    sweep(Path("demo.yaml"), [], resume=False, chosen=False, dry_run=False, address=None, json=json)
    if not json:
        steps = {
            "ui": "every run, in MLflow",
            "methods deql-l2": "parameters of a method",
            "run synthetic deql-l2 p=0.6 b=0.5 lam=20": "one setting",
            "data list": "the real datasets",
        }
        out.print("\nnext")
        for words, purpose in steps.items():
            out.print(f"  {program()} {words:42s} {purpose}", markup=False)
