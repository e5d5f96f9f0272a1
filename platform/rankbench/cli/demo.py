"""rankbench demo: a sweep over every method on the built-in data."""

from __future__ import annotations

from rankbench.cli.console import Json, out


def demo(json: Json = False) -> None:
    """Sweep all methods on built-in data with Ray Tune, record them in MLflow, and show the table (2 to 3 minutes)."""
    from pathlib import Path

    from rankbench.cli.sweep import sweep

    sweep(Path("demo.yaml"), [], resume=False, chosen=False, dry_run=False, address=None, json=json)
    if not json:
        out.print(
            "\nnext\n"
            "  rankbench ui                                        every run, in MLflow\n"
            "  rankbench methods deql-l2                           parameters of a method\n"
            "  rankbench run synthetic deql-l2 p=0.6 b=0.5 lam=20  one setting\n"
            "  rankbench data list                                 the real datasets",
            markup=False,
        )
