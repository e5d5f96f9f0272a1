"""rankbench sweep: run an experiment file with Ray Tune, and write records, MLflow runs and a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin, RunName, Tags
from rankbench.cli.console import Json, clock, err, out, print_json, print_table, program
from rankbench.cli.declare import RunByDefault, command
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError, DownloadError
from rankbench.judge.printing import number
from rankbench.sweeps.options import CommandOptions
from rankbench.tracking.labels import Labels

if TYPE_CHECKING:
    from rankbench.reports.tables import Table
    from rankbench.sweeps.request import SweepRequest
    from rankbench.tracking.record import RunRecord

EXAMPLES = """Examples:
  rankbench sweep experiments/demo.yaml
  rankbench sweep experiments/linear_movielens_1m.yaml search.trials=20 resources.cpus=1
  rankbench sweep experiments/demo.yaml --dry-run
  rankbench sweep experiments/talos_table3_1.yaml --stand-in 0.01 --dry-run
  rankbench sweep experiments/talos_table3_1.yaml datasets=[amazon-beauty] --arms "*, MF" arms.*.params.epochs=60
  rankbench sweep experiments/demo.yaml final.seeds=[0,1,2] final.split_seeds=[0,1,2]
  rankbench sweep --datasets 'movielens-*' --methods family:softmax --metric ndcg@20 epochs=30 --dry-run
  rankbench sweep --datasets gowalla --methods ease,ials 'lam={grid: [1, 10, 100]}'      without a file
  rankbench sweep --datasets gowalla --methods ease,sl --search none      their defaults, nothing searched
  rankbench sweep experiments/demo.yaml --extend      beyond the end of a range, where the best value is there
  rankbench sweep experiments/demo.yaml --methods family:linear      only these rows of a file
  rankbench sweep experiments/demo.yaml --resume
  rankbench sweep experiments/demo.yaml --resume --dry-run      what is left
  rankbench sweep experiments/demo.yaml --resume --take-over      ends the process that runs it, and continues here
  rankbench sweep experiments/talos_table3_1.yaml --chosen
  rankbench sweep status          in another shell: trials by state, best results so far, remaining time
  rankbench sweep stop            stop the newest running sweep as Ctrl-C would; --resume continues it
"""

app = typer.Typer(
    cls=RunByDefault,
    help="Run an experiment: search, refit, test, report. See also `sweep status` and `sweep stop`.",
    rich_markup_mode=None,
)


@command(app, "run", EXAMPLES)
def sweep(
    options: CommandOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, with its time, memory and files, and exit.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without a question, however high the price is.")] = False,
    tag: Tags = None,
    run_name: RunName = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Search hyperparameters on valid, refit the best ones, measure them once per seed on test, and show the table."""
    from rankbench.api.run_sweep import execute
    from rankbench.cli.confirm import can_ask, show_downloads, show_price
    from rankbench.cli.plan_of_sweep import show_plan
    from rankbench.sweeps.request import SweepRequest
    from rankbench.sweeps.views.sweep_view import SweepView

    request = SweepRequest.of_words(options, Environment.from_env(), plugin or [])
    ask = can_ask((yes, json, dry_run))
    if not json:
        if options.fresh and options.resume:
            err.print("--fresh --resume: runs that this sweep has finished are kept; those of other sweeps are not reused")
        show_downloads(request, ask)
    view = SweepView(request.spec.search.choose.metric, json, lambda plan, begun: show_price(request, plan, begun, ask))
    try:
        if dry_run:
            show_plan(request, json)
            return
        done = execute(request, view, Labels.from_env(request.source, tag or (), run_name))
    except DownloadError as error:
        raise DownloadError(f"{error}; --stand-in 0.01 uses synthetic data instead, datasets=[NAME] another dataset") from None
    _show_results(request, *done, json)


def _show_results(request: SweepRequest, folder: Path, table: Table, failed: int, json: bool) -> None:
    from rankbench.cli.report import show_table
    from rankbench.reports.tables import as_json

    problem = f"{failed} runs failed; {folder}/report/report.md gives the reasons, and --resume repeats them" if failed else ""
    if json:
        about = {"error": problem, "exit_code": ClusterError.exit_code} if failed else {}
        print_json(as_json(table) | {"folder": str(folder)} | about)
        if failed:  # raised, it would be a second object on stdout
            print(f"error: {problem}", file=sys.stderr)
            raise typer.Exit(ClusterError.exit_code)
        return
    show_table(table)
    if failed:
        raise ClusterError(problem)
    store = request.environment.results_store
    stored = f"\nstored   {store}/sweeps/{folder.name}" if store else ""
    out.print(f"\nreport   {folder}/report/report.html\nrecords  {folder}/records{stored}\nbrowse   {program()} ui")
    dataset = "DATASET " * (len({row.dataset for row in table.rows}) > 1)
    out.print(f"model    {program()} fit {dataset}--from {folder.name} ROW")


SweepName = Annotated[
    str | None,
    typer.Argument(help="Folder, id, or start of the id of a sweep. Default: the newest.", autocompletion=candidates.sweeps),
]


@app.command(epilog="Examples:\n\n  rankbench sweep status\n\n  rankbench sweep status demo-1f2e --json")
def status(name: SweepName = None, json: Json = False) -> None:
    """Show the state of a sweep: running, interrupted or finished, its trials, and the best result of each arm."""
    from rankbench.schema.stored_sweep import find_sweep, read_sweep
    from rankbench.sweeps.heartbeat import last_heartbeat
    from rankbench.sweeps.store import SweepStore
    from rankbench.sweeps.views.live import SHOWN

    environment = Environment.from_env()
    stored = read_sweep(find_sweep(name, environment))
    running = last_heartbeat(stored.folder, SweepStore.of(stored.folder, environment).shared)
    state = "running" if running else "finished" if stored.finished else "interrupted"
    metric = stored.about.experiment.search.choose.metric
    searched = [record for record in stored.records.values() if record.stage == "search"]
    rows = _by_arm([*searched, *stored.finals], metric)
    if json:
        missing = {name: vars(problem) for name, problem in stored.about.not_available.items()}
        about = {"id": stored.folder.name, "state": state, "metric": metric, "running": running, "not_available": missing}
        print_json(about | {"arms": rows})
        return
    out.print(f"{stored.folder.name}: {state}", style="bold")
    if running:
        seen = max(time.time() - running["seen_at"], 0)
        since = f" since {running['since']}" if "since" in running else ""
        out.print(f"process {running['pid']} on {running['host']}{since}, last heartbeat {seen:.0f} s ago")
        if progress := running.get("progress"):
            done = progress["finished"] + progress["stopped"] + progress["failed"]
            left = running["remaining_seconds"]
            rest = f", {n} reused" if (n := progress.get("reused")) else ""
            rest += f", {clock(left)} left" if left is not None else ""
            out.print(f"{progress['stage']}: {done} of {progress['of']} {progress.get('counted', 'fits')}{rest}")
            for fit in progress.get("running", ())[:SHOWN]:
                how_far = f": {fit['done']} of {fit['of']} {fit['counted']}" if fit["of"] and fit["done"] else ""
                out.print(f"  running: {fit['title']}{how_far}")
    elif state == "interrupted":
        out.print("the same command with --resume continues it")
    for problem in stored.about.not_available.values():
        out.print(f"not available: {problem.reason}", style="yellow")
    header = ["dataset", "model", "searched", "stopped", "failed", f"best {metric} on valid", "on test"]
    print_table(header, [[number(value) if key == "best" else str(value) for key, value in row.items()] for row in rows])


@app.command(epilog="Examples:\n\n  rankbench sweep stop\n\n  rankbench sweep stop demo-1f2e")
def stop(name: SweepName = None, json: Json = False) -> None:
    """Stop a running sweep as Ctrl-C would, from any shell that sees its folder; finished runs are kept."""
    from rankbench.schema.stored_sweep import find_sweep
    from rankbench.sweeps.heartbeat import request_stop
    from rankbench.sweeps.store import SweepStore

    environment = Environment.from_env()
    folder = find_sweep(name, environment) if name else _newest_running(environment)
    request_stop(folder, SweepStore.of(folder, environment).shared)
    if json:
        print_json({"id": folder.name, "asked": True})
    else:
        out.print(f"{folder.name}: asked to stop; the same command with --resume continues it")


def _newest_running(environment: Environment) -> Path:
    """The folder of the newest sweep that runs, or of the newest one if none does."""
    from rankbench.schema.stored_sweep import find_sweep, ids_here
    from rankbench.sweeps.heartbeat import last_heartbeat
    from rankbench.sweeps.store import SweepStore

    for each in reversed(ids_here(environment)):
        folder = environment.results / "sweeps" / each
        if last_heartbeat(folder, SweepStore.of(folder, environment).shared):
            return folder
    return find_sweep(None, environment)


def _by_arm(records: Iterable[RunRecord], metric: str) -> list[dict[str, Any]]:
    """Per dataset and model, the numbers of finished, stopped and failed trials, the best value on valid, and the number of
    final runs.
    """
    rows: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        rows.setdefault((record.dataset.name, record.label), []).append(record)
    result = []
    for (dataset, arm), members in sorted(rows.items()):
        searched = [record for record in members if record.stage == "search"]
        values = [record.metrics[metric].mean for record in searched if record.finished]
        counts = {state: sum(record.status == state for record in searched) for state in ("finished", "stopped", "failed")}
        finals = sum(record.stage == "final" and record.finished for record in members)
        result.append({"dataset": dataset, "model": arm, **counts, "best": max(values, default=None), "final": finals})
    return result
