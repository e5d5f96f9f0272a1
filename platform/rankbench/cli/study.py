"""rankbench study: simulations and figures of the papers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.console import Json, out, phase_progress, print_json, print_table
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.files import require_writable
from rankbench.core.registry import Registry

if TYPE_CHECKING:
    from rankbench.studies.spec import Study

EXAMPLES = """Examples:
  rankbench study                                              list all studies
  rankbench study metric-inconsistency trials=10000
  rankbench study threshold-error dataset=amazon-beauty n_negatives=256 --out docs/results/studies/threshold-error
  rankbench study epoch-time dataset=amazon-beauty losses=bpr,psl,talos
"""


def study(
    name: Annotated[
        str | None, typer.Argument(help="Name of a study. Default: list all studies.", autocompletion=candidates.studies)
    ] = None,
    params: Annotated[list[str] | None, typer.Argument(metavar="[param=value]...", help="Parameters of the study.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    to: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for result.json, table.md and plot.png. Default: in the results folder."),
    ] = None,
    json: Json = False,
) -> None:
    """Repeat a simulation or a figure of a paper. Published numbers are shown beside the measured ones."""
    from rankbench.core.config import assignments
    from rankbench.core.params import parameters
    from rankbench.studies.spec import registered
    from rankbench.studies.write import body, write
    from rankbench.tracking.environment import describe_environment

    if name is None:
        require(to is None, f"--out {to}: give the NAME of a study, too")
        require(not seed, f"--seed {seed}: give the NAME of a study, too")
        _list(registered(), json)
        return
    chosen = registered().get(name)
    checked: Any = parameters(chosen.params, assignments(params or []), name)
    environment = Environment.from_env()
    if to is None:
        environment.require_folder_of_results("a study", "give --out FOLDER")
    folder = to or environment.results / "studies" / name
    require_writable(folder)
    with phase_progress() as progress:
        findings = chosen.measure(checked, seed, environment, progress)
    files = write(folder, chosen, checked, seed, findings, describe_environment())
    if json:
        about = {"study": name, "params": dataclasses.asdict(checked), "seed": seed, "datasets": findings.datasets}
        print_json(about | {"rows": findings.rows, "notes": findings.notes, "files": [str(path) for path in files]})
        return
    out.print(f"{chosen.title} ({chosen.source})", style="bold")
    print_table(list(findings.columns.values()), body(findings))
    for note in findings.notes:
        out.print(f"  {note}", style="dim")
    for path in files:
        out.print(str(path))


def _list(studies: Registry[Study], json: bool) -> None:
    facts: list[dict[str, Any]] = [
        {
            "name": each.name,
            "title": each.title,
            "source": each.source,
            "params": [
                {"name": field.name, "default": field.default, "help": field.metadata["help"]}
                for field in dataclasses.fields(each.params)
            ],
        }
        for each in studies
    ]
    if json:
        print_json(facts)
        return
    for each in facts:
        out.print(f"{each['name']}: {each['title']} ({each['source']})", style="bold")
        print_table(
            ["parameter", "default", "description"], [[p["name"], str(p["default"]), p["help"]] for p in each["params"]]
        )
