"""rankbench reproduce: measure the tables of the papers under a budget of time, and show how far the evidence has come."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbench.cli.arguments import Tags, skipping
from rankbench.cli.console import Json, clock, err, out, print_json, print_table
from rankbench.cli.declare import RunByDefault, command
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError, require
from rankbench.core.files import require_writable
from rankbench.core.threads import available_cpus
from rankbench.judge.printing import counted
from rankbench.reproduce.options import ReproduceOptions, StatusOptions, StoreOptions
from rankbench.tracking.labels import Labels

if TYPE_CHECKING:
    from rankbench.reproduce.agenda import Agenda
    from rankbench.reproduce.engine import Outcome
    from rankbench.reproduce.schedule import Task

EXAMPLES = """Examples:
  rankbench reproduce talos/3.1 --datasets amazon-beauty --budget 10m
  rankbench reproduce talos/3.1 --datasets amazon-beauty --budget 10m      again: goes on where it ended
  rankbench reproduce dcl deql/2 --budget 2h
  rankbench reproduce rg2 --search-budget 10m      at most as much training for the search of each row
  rankbench reproduce talos/3.1 --alone    seconds: one fit per method again, with the machine to itself
  rankbench reproduce talos/4.1 --stages seeds --rows "Talos; without quantile"      some of the work
  rankbench reproduce dcl/3 --stages again           fits of other machines again: tests of claims need their values per user
  rankbench reproduce --dry-run            what is left of all papers, in the order in which it would be done
  rankbench reproduce --budget 8h --address auto      on a Ray cluster
  rankbench reproduce deql/2 --device cuda --gpus 0.5     gradient steps and inverses on a GPU, two fits at once
  rankbench reproduce status               per paper: published, measured, and how near
  rankbench reproduce status talos/3.1 --json
  rankbench reproduce pages --out docs/results      a page per paper, from the evidence
"""


COUNTED = """\
measured: cells whose setting the paper prints or a search on validation chose; data here: cells whose data this machine has.
agree: within 3 %, or in the 95 % interval; half-width: of that interval, on average; by chance: cells that would agree if each
had the published number of another row of its table. found on test: cells whose setting was found on the test set (counted
separately). not trained to its end: cells of fits whose curve still rises, or that are shorter than the paper's without a curve
that shows that they suffice."""


app = typer.Typer(
    cls=RunByDefault,
    help="Measure published tables under a budget of time. See also `reproduce status`.",
    rich_markup_mode=None,
)


@command(app, "run", EXAMPLES)
def reproduce(
    options: ReproduceOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, in its order, and exit.")] = False,
    tag: Tags = None,
    json: Json = False,
) -> None:
    """Measure the rows of published tables, and show the published numbers beside the measured ones.

    Each row is first fitted at the optimum that its paper prints, then at the setting that a search on validation chooses, then
    with further seeds. One fit serves all tables, metrics and cutoffs that it can. Each finished fit is stored at once, and the
    same command goes on where it ended.
    """
    from rankbench.experiment.execution import require_device
    from rankbench.reproduce.agenda import agenda
    from rankbench.reproduce.agenda import reproduce as work_on
    from rankbench.sweeps.views.live import ReproduceView

    options.check()
    alone = "--dry-run shows what is to be measured, and --alone times what is; leave one of them out"
    require(not (dry_run and options.alone), alone)
    environment = Environment.from_env()
    view = ReproduceView(options.seconds, quiet=json)
    plan = agenda(options, environment, dry_run, view.told)
    if not json:
        for name, why in plan.not_available.items():
            err.print(f"not available: {name} ({why})", style="dim")
        if plan.adopted:
            err.print(f"{plan.adopted} finished runs of this machine were taken over")
    if dry_run:
        _show_tasks(plan, json)
        return
    outcome = None
    if (options.alone or plan.tasks) and options.seconds != 0:
        if not options.address:
            require_device("cuda" if plan.on_gpu else "cpu")
        if not options.alone:
            to_spend = f", {clock(options.seconds)} to spend" if options.seconds else ""
            view.told(f"{counted(len(plan.tasks), 'task')} to do{to_spend}")
        labels = Labels.from_env("reproduce", tag or (), None)
        with view:
            outcome = work_on(plan, environment, view.told, labels, view.running)
    _show_results(plan, outcome, json)
    if outcome and outcome.failed:
        raise typer.Exit(ClusterError.exit_code)


@command(app, "status", EXAMPLES)
def status(options: StatusOptions, json: Json = False) -> None:
    """Show per paper and table how many published cells are measured, and how near. Nothing is downloaded or fitted."""
    from rankbench.reproduce.agenda import all_names, stored_evidence
    from rankbench.reproduce.catalogue import paper_tables, selected_names
    from rankbench.reproduce.counts import MEANING, by_cause, off_cells
    from rankbench.reproduce.counts import counts as count_cells
    from rankbench.reproduce.results import count_columns

    environment = Environment.from_env()
    with skipping(options.skip_bad) as skipped:
        evidence = stored_evidence(options, environment, skipped)
    every = paper_tables(environment)
    names = selected_names(options.tables or [], all_names(every))
    counts = count_cells(every, names, evidence, environment)
    off = by_cause(off_cells(every, names, evidence, environment))
    if json:
        causes = [{"cause": cause, "meaning": MEANING[cause], "cells": number, "rows": rows} for cause, number, rows in off]
        by_table = {name: asdict(each) for name, each in counts.items()}
        print_json({"evidence": str(evidence.folder), "tables": by_table, "off": causes})
        return
    print_table(*count_columns("table", counts))
    out.print(COUNTED, style="dim")
    if off:
        out.print()
        print_table(["cells that are off", "cause"], [[str(number), MEANING[cause]] for cause, number, _ in off])


@command(app, "pages", EXAMPLES)
def pages(
    options: StoreOptions,
    to: Annotated[Path, typer.Option("--out", help="Folder of the pages.")] = Path("docs/results"),
    json: Json = False,
) -> None:
    """Write a page per paper and an index from the evidence. Nothing is fitted."""
    from rankbench.reproduce.agenda import stored_evidence
    from rankbench.reproduce.catalogue import paper_tables
    from rankbench.reproduce.pages import write_pages

    environment = Environment.from_env()
    require_writable(to)
    with skipping(options.skip_bad) as skipped:
        evidence = stored_evidence(options, environment, skipped)
    files = [str(path) for path in write_pages(to, paper_tables(environment), evidence, environment)]
    print_json({"files": files}) if json else out.print("\n".join(files))


def _show_tasks(plan: Agenda, json: bool) -> None:
    from rankbench.reports.page import Column, tabulated
    from rankbench.reproduce.forecast import forecast

    found = forecast(plan.tasks, plan.options.seconds, available_cpus())
    rows = [
        {"stage": task.stage, "dataset": task.dataset, "rows": task.labels, "tables": task.tables, "fits": len(task.fits),
         "cells": task.n_cells, "seconds": round(task.seconds), "in_budget": found.of(task)}
        for task in plan.tasks
    ]  # fmt: skip
    if json:
        about = {"not_available": plan.not_available, "evidence": str(plan.evidence.folder), "forecast": found.lines()}
        print_json({"tasks": rows, **about})
        return

    def left(task: Task) -> str:
        return " left" if task.begun else ""

    columns: list[Column] = [
        ("stage", lambda task: task.stage),
        ("dataset", lambda task: task.dataset),
        ("rows", lambda task: task.name),
        ("tables", lambda task: task.tables),
        ("fits", lambda task: str(len(task.fits))),
        ("cells", lambda task: str(task.n_cells)),
        ("time (rough)", lambda task: f"{clock(task.seconds)}{left(task)}" if task.seconds else "size not known"),
        *[("in the budget", found.of)] * (plan.options.seconds is not None),
    ]
    print_table(*tabulated(plan.tasks, columns), drop=("tables",))
    for line in found.lines() if rows else ():
        out.print(line)
    out.print(f"{counted(len(rows), 'task')} left; evidence in {plan.evidence.folder}")


def _show_results(plan: Agenda, outcome: Outcome | None, json: bool) -> None:
    """Print the selected tables with what is measured so far."""
    from rankbench.reproduce.agreement import measurements
    from rankbench.reproduce.engine import Outcome
    from rankbench.reproduce.required_fits import MEANING
    from rankbench.reproduce.results import MARKED, as_json, cost_columns, study_columns, table_columns

    if json:
        about = outcome or Outcome(complete=not plan.tasks)
        print_json(as_json(plan.rows, plan.studies, plan.evidence) | vars(about))
        return
    for name in dict.fromkeys(table.name for table in plan.tables):
        for dataset in dict.fromkeys(row.dataset for row in plan.rows if row.table.name == name):
            own = [row for row in plan.rows if row.table.name == name and row.dataset == dataset]
            out.print(f"\n{name} on {dataset}", style="bold")
            if reason := own[0].table.stand_in(dataset):
                out.print(f"a stand-in: {reason}", style="yellow")
            header, body, settings = table_columns(own, plan.evidence)
            print_table(header, body, drop=("seeds",))
            costs = cost_columns(own, plan.evidence)
            if costs[1]:
                print_table(*costs)
            for setting in (each for each in MEANING if each in settings):
                out.print(f"{setting}: {MEANING[setting]}", style="dim")
            for row in own:
                if row.arm.account and measurements(row, plan.evidence):
                    out.print(f"{row.arm.label}: {row.arm.account}", style="dim")
    for study in plan.studies:
        out.print(f"\n{study.simulation.table} on {study.dataset}, {study.simulation.unit}", style="bold")
        print_table(*study_columns(study, plan.evidence))
        out.print(study.simulation.account, style="dim")
    out.print(f"\n{MARKED}", style="dim")
    if outcome:
        done = [counted(outcome.fitted, "fit"), counted(outcome.searched, "search", "searches")]
        done.append(counted(outcome.studied, "study", "studies"))
        left = "nothing is left" if outcome.complete else "the same command goes on"
        out.print(f"{done[0]}, {done[1]} and {done[2]} done; {left}")
        for line in outcome.failed:
            out.print(f"failed: {line}", style="red")
