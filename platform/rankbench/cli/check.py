"""rankbench check: check everything that a plugin registers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, err, out, print_json

EXAMPLES = """Examples:
  rankbench check my_loss.py
  rankbench check my_solver.py --json
"""

SIGNS = {"passed": ("ok", "green"), "failed": ("FAILED", "bold red"), "skipped": ("skipped", "dim")}


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plugin: a Python file, or the name of an installed module.")],
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Check every loss, encoder, solver, reader, protocol and metric that a plugin registers.

    These are the checks that rankbench asks of its own: values and gradients at the extremes, seeds, threads, devices, and that
    an interrupted fit goes on exactly. Each failed check says what to do. The exit code is 2 if one fails.
    """
    from rankbench.contracts.plugin import check_plugin
    from rankbench.experiment.methods import load_plugin

    findings = []
    with err.status("checking"):
        for found in check_plugin(load_plugin(file)):
            findings.append(found)
            if not json:
                sign, style = SIGNS[found.state]
                out.print(f"{sign:<8}{found.kind} {found.subject}: {found.check}", style=style)
                if found.problem:
                    out.print(f"        {found.problem}")
                if found.advice:
                    out.print(f"        what to do: {found.advice}")
    failed = [found for found in findings if found.state == "failed"]
    if json:
        print_json({"plugin": file, "ok": not failed, "checks": [asdict(found) for found in findings]})
    else:
        n_passed = sum(found.state == "passed" for found in findings)
        out.print(f"{n_passed} checks passed, {len(failed)} failed, {len(findings) - n_passed - len(failed)} skipped")
    if failed:
        raise typer.Exit(2)
