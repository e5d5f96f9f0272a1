"""rankbench reproduce: measure the tables of the papers under a budget of time, and show how far the evidence has come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli.arguments import Tags
from rankbench.cli.console import Json, clock, epilog, err, out, print_json, print_table

if TYPE_CHECKING:
    from rankbench.api.reproduce import Agenda
    from rankbench.reproduce.wanted import Row

EXAMPLES = """Examples:
  rankbench reproduce talos/3.1 --datasets amazon-beauty --budget 10m
  rankbench reproduce talos/3.1 --datasets amazon-beauty --budget 10m      again: goes on where it ended
  rankbench reproduce dcl deql/2 --budget 2h
  rankbench reproduce --dry-run            what is left of all papers, in the order in which it would be done
  rankbench reproduce --budget 8h --address auto      on a Ray cluster
  rankbench reproduce status               per paper: published, measured, and how near
  rankbench reproduce status talos/3.1 --json
"""


class _RunByDefault(typer.core.TyperGroup):
    """`reproduce TABLE` is `reproduce run TABLE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])


app = typer.Typer(
    cls=_RunByDefault,
    help="Measure published tables under a budget of time. See also `reproduce status`.",
    rich_markup_mode=None,
)

Tables = Annotated[
    list[str] | None, typer.Argument(metavar="[PAPER[/TABLE]]...", help="Papers and tables, such as talos/3.1. Default: all.")
]
Datasets = Annotated[str | None, typer.Option("--datasets", help="Only these datasets of the tables, comma-separated.")]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store", help="Folder of the evidence. Default: evidence/ beside the experiment files, or in the results folder."
    ),
]


@app.command("run", epilog=epilog(EXAMPLES))
def reproduce(
    tables: Tables = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Time to spend, such as 90s, 10m or 2h. Default: until all is measured.")
    ] = None,
    datasets: Datasets = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, in its order, and exit.")] = False,
    address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="HOST:PORT of a running Ray cluster, or auto. Default: a local one."),
    ] = None,
    store: Store = None,
    tag: Tags = None,
    json: Json = False,
) -> None:
    """Measure the rows of published tables, and show the published numbers beside the measured ones.

    Each row is first fitted at the optimum that its paper prints, then at the setting that a search on validation chooses, then
    with further seeds. One fit serves all tables, metrics and cutoffs that it can. Each finished fit is stored at once, and the
    same command goes on where it ended.
    """
    from rankbench.api.reproduce import agenda
    from rankbench.api.reproduce import reproduce as work_on
    from rankbench.cluster.session import host_and_port
    from rankbench.core.environment import Environment
    from rankbench.core.threads import available_cpus
    from rankbench.tracking.labels import Labels

    seconds = None if budget is None else _seconds(budget)
    environment = Environment.from_env()
    if address:
        host_and_port(address)

    def told(line: str) -> None:
        if not json:
            err.print(line, highlight=False)

    cpus = None if address else available_cpus()
    plan = agenda(tables or [], environment, _words(datasets), store, cpus, told)
    if not json:
        for name, why in plan.not_available.items():
            err.print(f"not available: {name} ({why})", style="dim")
        if plan.adopted:
            err.print(f"{plan.adopted} finished runs of this machine were taken over")
    if dry_run:
        _show_tasks(plan, json)
        return
    outcome = None
    if plan.tasks and seconds != 0:
        told(f"{_plural(len(plan.tasks), 'task')} to do" + (f", {clock(seconds)} to spend" if seconds else ""))
        outcome = work_on(plan, environment, seconds, address, told, Labels.from_env("reproduce", tag or (), None))
    _show_results(plan, outcome, json)


@app.command("status", epilog=epilog(EXAMPLES))
def status(tables: Tables = None, store: Store = None, json: Json = False) -> None:
    """Show per paper and table how many published cells are measured, and how near. Nothing is downloaded or fitted."""
    from dataclasses import asdict

    from rankbench.api.reproduce import all_names, evidence_folder
    from rankbench.core.environment import Environment
    from rankbench.reproduce.catalogue import paper_tables, selected_names
    from rankbench.reproduce.counts import counts as count_cells
    from rankbench.reproduce.evidence import Evidence

    environment = Environment.from_env()
    evidence = Evidence(evidence_folder(environment, store))
    every = paper_tables(environment)
    counts = count_cells(every, selected_names(tables or [], all_names(every)), evidence, environment)
    if json:
        print_json({"evidence": str(evidence.folder), "tables": {name: asdict(each) for name, each in counts.items()}})
        return
    header = ["table", "published", "data here", "measured", "in the interval", "within 1 %", "within 3 %", "found on test"]
    body = [
        [name, *map(str, (c.published, c.data_here, c.measured)), *(_share(n, c.measured) for n in (c.in_interval, c.within_1, c.within_3)),
         f"{c.on_test}" if c.on_test else ""]
        for name, c in counts.items()
    ]  # fmt: skip
    print_table(header, body)
    out.print(
        "measured: cells whose setting is printed in the paper or was chosen on validation. within 1 % and 3 %: or in the 95 % "
        "interval. found on test: cells whose setting was found on test, counted apart.",
        style="dim",
    )


def _show_tasks(plan: Agenda, json: bool) -> None:
    rows = [
        {"stage": task.stage, "dataset": task.dataset, "rows": task.labels, "tables": task.tables, "fits": len(task.fits),
         "cells": task.n_cells, "seconds": round(task.seconds)}
        for task in plan.tasks
    ]  # fmt: skip
    if json:
        print_json({"tasks": rows, "not_available": plan.not_available, "evidence": str(plan.evidence.folder)})
        return
    body = [
        [
            task.stage,
            task.dataset,
            task.labels,
            task.tables,
            str(len(task.fits)),
            str(task.n_cells),
            clock(task.seconds) if task.seconds else "",
        ]
        for task in plan.tasks
    ]
    print_table(["stage", "dataset", "rows", "tables", "fits", "cells", "time (rough)"], body)
    out.print(f"{_plural(len(rows), 'task')} left; evidence in {plan.evidence.folder}")


def _show_results(plan: Agenda, outcome: Any, json: bool) -> None:
    """Print the selected tables with what is measured so far."""
    from rankbench.reproduce.standing import standings

    rows = [each for row in plan.rows for each in standings(row, plan.evidence)]
    if json:
        print_json(
            {
                "rows": [
                    {"table": each.row.table.name, "dataset": each.row.dataset, "row": each.row.arm.label, "setting": each.origin,
                     "seeds": [fit.seed for fit in each.fits],
                     "cells": [vars(cell) | {"relative": cell.relative, "state": cell.state} for cell in each.cells]}
                    for each in rows
                ],
                "fitted": outcome.fitted if outcome else 0,
                "complete": outcome.complete if outcome else not plan.tasks,
                "failed": outcome.failed if outcome else [],
            }
        )  # fmt: skip
        return
    for name in dict.fromkeys(table.name for table in plan.tables):
        for dataset in dict.fromkeys(row.dataset for row in plan.rows if row.table.name == name):
            own = [row for row in plan.rows if row.table.name == name and row.dataset == dataset]
            out.print(f"\n{name} on {dataset}", style="bold")
            if reason := own[0].table.stand_in(dataset):
                out.print(f"a stand-in: {reason}", style="yellow")
            _print_rows(own, plan)
    for study, dataset in plan.studies:
        cells = study.cells(dataset, plan.evidence)
        out.print(f"\n{study.table} on {dataset}, {study.unit}", style="bold")
        print_table(
            ["row", "metric", "measured", "published", "difference"],
            [
                [row, cell.metric, f"{cell.mean:.4g}", f"{cell.published:.4g}", f"{100 * cell.relative:+.1f} %"]
                for row, cell in cells
            ],
        ) if cells else out.print("not measured yet")
        out.print(study.account, style="dim")
    if outcome:
        left = "nothing is left" if outcome.complete else "the same command goes on"
        out.print(
            f"\n{_plural(outcome.fitted, 'fit')}, {_plural(outcome.searched, 'search', 'searches')} and {_plural(outcome.studied, 'study', 'studies')} done; {left}"
        )
        for line in outcome.failed:
            out.print(f"failed: {line}", style="red")


def _print_rows(own: list[Row], plan: Agenda) -> None:
    from rankbench.reproduce.standing import standings
    from rankbench.reproduce.wanted import MEANING, ORIGINS

    metrics = list(dict.fromkeys(name for row in own for name in row.published))
    header = ["row", "setting", "seeds"]
    for name in metrics:
        header += [name, "published", "difference"]
    body: list[list[str]] = []
    origins: set[str] = set()
    for row in own:
        found = standings(row, plan.evidence)
        if not found:
            line = [row.arm.label, "not measured yet", ""]
            for name in metrics:
                line += ["", f"{row.published[name]:.4f}" if name in row.published else "", ""]
            body.append(line)
        for each in found:
            origins.add(each.origin)
            cells = {cell.metric: cell for cell in each.cells}
            line = [row.arm.label, each.origin, str(len(each.fits))]
            for name in metrics:
                cell = cells.get(name)
                line += ["", "", ""] if cell is None else [
                    f"{cell.mean:.4f}", f"{cell.published:.4f}", f"{100 * cell.relative:+.1f} %{_MARKS[cell.state]}"
                ]  # fmt: skip
            body.append(line)
    print_table(header, body, drop=("seeds",))
    out.print("● in the 95 % interval, ◐ within 1 %, ○ within 3 % of the published number", style="dim")
    for origin in ORIGINS:
        if origin in origins:
            out.print(f"{origin}: {MEANING[origin]}", style="dim")


_MARKS = {"within the interval": " ●", "within 1 %": " ◐", "within 3 %": " ○", "off": ""}


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else ""


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _plural(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _seconds(text: str) -> float:
    """Seconds of 90s, 10m, 2h or a plain number. Raises ConfigError for any other text."""
    import re

    from rankbench.core.errors import ConfigError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?", text.strip())
    if not match:
        raise ConfigError(f"--budget: expected a time such as 90s, 10m or 2h, got {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, None: 1}[match[2]]
