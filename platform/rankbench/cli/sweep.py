"""rankbench sweep: run an experiment file with Ray Tune, and write records, MLflow runs and a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin, RunName, Tags
from rankbench.cli.console import Json, clock, epilog, err, out, print_json, print_table, program
from rankbench.cli.run_by_default import RunByDefault

if TYPE_CHECKING:
    from rankbench.core.environment import Environment
    from rankbench.schema.experiment import ExperimentSpec
    from rankbench.sweeps.plan import Plan
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


@app.command("run", epilog=epilog(EXAMPLES))
def sweep(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            help="An experiment file; a bare name is looked up in experiments/. Or give --datasets and --methods.",
            autocompletion=candidates.experiments,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[path=value]...", help="Changes to the file, such as search.trials=5.", autocompletion=candidates.changes
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest sweep of this experiment.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="With --resume: even if another process runs it, which then ends.")
    ] = False,
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--datasets",
            metavar="PATTERN",
            help="Datasets: names, patterns such as 'movielens-*', all; '!NAME' leaves out. With a file, those of its own.",
            autocompletion=candidates.selected_datasets,
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods",
            metavar="PATTERN",
            help="Methods: names, patterns such as 'deql*', family:NAME, all; '!NAME' leaves out. With a file, its own.",
            autocompletion=candidates.selected_methods,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="Metric on valid that settings are chosen by, such as ndcg@20.", autocompletion=candidates.metrics
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="[registry|none]",
            help="Search methods without a range in the registry's ranges, or nothing. Default without a file: registry.",
        ),
    ] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Search on where the best value of a parameter is at the end of its range.")
    ] = False,
    chosen: Annotated[
        bool, typer.Option("--chosen", help="Skip the search and measure the file's `chosen` parameters.")
    ] = False,
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arms", metavar="PATTERN", help="Run only the arms whose name matches, such as '*, MF'; may be repeated."
        ),
    ] = None,
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Test all pairs of many models, as final.pairs=all does; it may take long.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, with its time, memory and files, and exit.")
    ] = False,
    stand_in: Annotated[
        float | None,
        typer.Option(
            "--stand-in",
            metavar="FACTOR",
            help="Use synthetic data of the datasets' sizes times FACTOR: 1 for the full size, 0.01 for a trial.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="HOST:PORT of a running Ray cluster, or auto. Default: a local one."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory that the sweep may use on this machine, objects included, such as 8GB. Default: what is free."
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat runs that an earlier sweep has finished.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without a question, however high the price is.")] = False,
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Stop if a dataset is not available, instead of leaving it out.")
    ] = False,
    tag: Tags = None,
    run_name: RunName = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Search hyperparameters on valid, refit the best ones, measure them once per seed on test, and show the table."""
    from rankbench.api.run_sweep import execute
    from rankbench.cli.plan_of_sweep import machines_of, show_plan
    from rankbench.cli.price import can_ask, show_downloads, show_price
    from rankbench.cli.report import show_table
    from rankbench.cluster.machine import Machine
    from rankbench.cluster.session import host_and_port
    from rankbench.core.environment import Environment
    from rankbench.core.errors import ClusterError, DownloadError, require
    from rankbench.core.memory import available_memory
    from rankbench.core.threads import available_cpus
    from rankbench.reports.tables import as_json
    from rankbench.schema.experiment import of_arms
    from rankbench.schema.stored_sweep import ChosenFile, read_file
    from rankbench.sweeps.dry_run import dry_run as preview_of
    from rankbench.sweeps.placement import node_memory
    from rankbench.sweeps.plan import plan
    from rankbench.sweeps.sweep import folder_to_resume
    from rankbench.tracking.labels import Labels
    from rankbench.views.sweep_view import SweepView

    environment = Environment.from_env()
    changes = [*(changes or []), *["final.pairs=all"] * all_pairs, *["search.extend=true"] * extend]
    changes += [f"search.ranges={search}"] if search else []
    require(resume or not take_over, "--take-over continues a sweep that another process runs; give --resume, too")
    if address:
        host_and_port(address)
    node = node_memory(memory, address, "--memory")
    if experiment is not None and "=" in str(experiment) and not experiment.is_file():
        experiment, changes = None, [str(experiment), *changes]
    if chosen and experiment is None:
        changes = ["search.ranges=none", *changes]
    spec, source = _experiment(experiment, changes, datasets or [], methods or [], metric, environment)
    if arms:
        spec = of_arms(spec, arms, source)
    if spec.resources.device != "cpu" and not address:
        from rankbench.training.device import require_device  # imports PyTorch, which takes seconds

        require_device(spec.resources.device)
    if stand_in is not None:
        from rankbench.sweeps.stand_in import stand_in as on_stand_ins

        spec = on_stand_ins(spec, environment, stand_in, source)
    selections = {"--arms": arms or [], "--datasets": datasets or [], "--methods": methods or []}
    ask = can_ask((yes, json, dry_run))
    if not json:
        if fresh and resume:
            err.print("--fresh --resume: runs that this sweep has finished are kept; those of other sweeps are not reused")
        show_downloads(spec, environment, source, ask)
    cpus = None if address else available_cpus()
    machines = None if address else [Machine(available_cpus(), node.tasks if node else available_memory())]

    def price(plan: Plan, begun: Path | None) -> None:
        show_price(plan, preview_of(plan, environment, machines, begun, fresh), ask)

    try:
        if dry_run:
            planned = plan(spec, environment, cpus, source, chosen, require_all)
            begun = folder_to_resume(planned, environment) if resume else None
            if address:
                machines = machines_of(address)
            show_plan(planned, preview_of(planned, environment, machines, begun, fresh), machines, node, json, bool(begun))
            return
        folder, table, failed = execute(
            spec,
            source,
            environment,
            SweepView(spec.search.choose.metric, json, price),
            Labels.from_env(source, tag or (), run_name),
            resume=resume,
            take_over=take_over,
            use_chosen=chosen,
            address=address,
            memory=node,
            fresh=fresh,
            require_all=require_all,
            changes=_in_words(changes, selections, metric),
            command=_command(experiment, changes, selections, metric, plugin or [], chosen, stand_in),
        )
    except DownloadError as error:
        raise DownloadError(f"{error}; --stand-in 0.01 uses synthetic data instead, datasets=[NAME] another dataset") from None
    used = read_file(folder / "chosen.json", ChosenFile).used
    print_json(as_json(table) | {"folder": str(folder), "used": used}) if json else show_table(table)
    if failed:
        raise ClusterError(f"{failed} runs failed; {folder}/report/report.md gives the reasons, and --resume repeats them")
    if not json:
        if address and used:
            shares = ", ".join(f"{share:.0%} in the {stage} stage" for stage, share in used.items())
            out.print(f"\ntrials held {shares} of the processors' time")
        stored = f"\nstored   {environment.results_store}/sweeps/{folder.name}" if environment.results_store else ""
        out.print(f"\nreport   {folder}/report/report.html\nrecords  {folder}/records{stored}\nbrowse   {program()} ui")
        out.print(f"model    {program()} fit --from {folder.name} ROW")


def _command(
    experiment: Path | None,
    changes: list[str],
    selections: dict[str, list[str]],
    metric: str | None,
    plugins: list[str],
    chosen: bool,
    stand_in: float | None,
) -> str:
    """The command that repeats a sweep: what decides its results, without options such as the address of a cluster."""
    words = ["rankbench", "sweep", *([str(experiment)] if experiment is not None else []), *changes]
    for option, values in (selections | {"--plugin": plugins}).items():
        words += [word for value in values for word in (option, value)]
    words += ["--metric", metric] if metric else []
    words += ["--chosen"] * chosen + (["--stand-in", f"{stand_in:g}"] if stand_in is not None else [])
    return shlex.join(words)


SweepName = Annotated[
    str | None,
    typer.Argument(help="Folder, id, or start of the id of a sweep. Default: the newest.", autocompletion=candidates.sweeps),
]


@app.command(epilog="Examples:\n\n  rankbench sweep status\n\n  rankbench sweep status demo-1f2e --json")
def status(
    name: SweepName = None,
    json: Json = False,
) -> None:
    """Show the state of a sweep: running, interrupted or finished, its trials, and the best result of each arm."""
    import time

    from rankbench.core.environment import Environment
    from rankbench.schema.stored_sweep import find_sweep, read_sweep
    from rankbench.sweeps.heartbeat import last_heartbeat
    from rankbench.sweeps.store import SweepStore
    from rankbench.views.live import SHOWN

    environment = Environment.from_env()
    stored = read_sweep(find_sweep(name, environment))
    running = last_heartbeat(stored.folder, SweepStore.of(stored.folder, environment).shared)
    state = "running" if running else "finished" if stored.chosen else "interrupted"
    metric = stored.about.experiment.search.choose.metric
    rows = _by_arm(stored.records.values(), metric)
    if json:
        keys = ("dataset", "model", "finished", "stopped", "failed", "best", "final")
        arms = [dict(zip(keys, row, strict=True)) for row in rows]
        missing = {name: vars(problem) for name, problem in stored.about.not_available.items()}
        about = {"id": stored.folder.name, "state": state, "metric": metric, "running": running, "not_available": missing}
        print_json(about | {"arms": arms})
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
    print_table(header, [[*map(str, row[:5]), "" if row[5] is None else f"{row[5]:.4f}", str(row[6])] for row in rows])


@app.command(epilog="Examples:\n\n  rankbench sweep stop\n\n  rankbench sweep stop demo-1f2e")
def stop(
    name: SweepName = None,
    json: Json = False,
) -> None:
    """Stop a running sweep as Ctrl-C would, from any shell that sees its folder; finished runs are kept."""
    from rankbench.core.environment import Environment
    from rankbench.schema.stored_sweep import find_sweep
    from rankbench.sweeps.heartbeat import request_stop
    from rankbench.sweeps.store import SweepStore

    environment = Environment.from_env()
    folder = find_sweep(name, environment)
    request_stop(folder, SweepStore.of(folder, environment).shared)
    if json:
        print_json({"id": folder.name, "asked": True})
    else:
        out.print(f"{folder.name}: asked to stop; the same command with --resume continues it")


def _by_arm(records: Iterable[RunRecord], metric: str) -> list[tuple[Any, ...]]:
    """Rows of dataset, model, numbers of finished, stopped and failed trials, best value on valid, and number of final runs."""
    rows: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        rows.setdefault((record.dataset.name, record.arm or record.method), []).append(record)
    result = []
    for (dataset, arm), members in sorted(rows.items()):
        searched = [record for record in members if record.stage == "search"]
        values = [record.metrics[metric].mean for record in searched if record.finished]
        counts = [sum(record.status == state for record in searched) for state in ("finished", "stopped", "failed")]
        finals = sum(record.stage == "final" and record.finished for record in members)
        result.append((dataset, arm, *counts, max(values, default=None), finals))
    return result


def _experiment(
    file: Path | None,
    changes: list[str],
    datasets: list[str],
    methods: list[str],
    metric: str | None,
    environment: Environment,
) -> tuple[ExperimentSpec, str]:
    """The experiment of a command, without patterns, and its name in error messages. It comes from a file, of whose datasets
    and methods the options select some, or from the options alone.
    """
    from rankbench.core.config import assignments
    from rankbench.core.errors import ConfigError
    from rankbench.experiment.methods import load_plugin
    from rankbench.schema.experiment import experiment_of_words, load_experiment, of_datasets
    from rankbench.schema.find import experiment_file
    from rankbench.sweeps.selection import by_name, of_methods

    values = assignments(changes) | ({"search.choose.metric": metric} if metric else {})
    datasets, methods = (list(_words(options)) for options in (datasets, methods))
    if file is not None:
        path = experiment_file(file, environment)
        spec = by_name(load_experiment(path, values, load_plugin), environment, str(path))
        spec = of_datasets(spec, datasets, str(path)) if datasets else spec
        return of_methods(spec, methods, f"{path}: --methods") if methods else spec, str(path)
    if not datasets or not methods:
        raise ConfigError("give an experiment file, or --datasets and --methods, as in --datasets gowalla --methods ease,ials")
    source = "this sweep"
    return by_name(experiment_of_words(datasets, methods, values, source), environment, source), source


def _words(options: Iterable[str]) -> Iterable[str]:
    return (word.strip() for option in options for word in option.split(",") if word.strip())


def _in_words(changes: list[str], options: dict[str, list[str]], metric: str | None) -> list[str]:
    """What a command adds to its experiment file, as in the command."""
    selections = [f"{name} {pattern!r}" for name, patterns in options.items() for pattern in patterns]
    return [*changes, *selections, *([f"--metric {metric}"] if metric else [])]
