"""rankbench sweep: an experiment file through Ray Tune, to records, MLflow and a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.console import Json, err, out, print_json, print_table, program

EXAMPLES = """Examples:

  rankbench sweep experiments/demo.yaml

  rankbench sweep experiments/linear_movielens_1m.yaml search.trials=20 resources.cpus=1

  rankbench sweep experiments/demo.yaml --dry-run

  rankbench sweep experiments/demo.yaml final.seeds=[0,1,2] final.split_seeds=[0,1,2]

  rankbench sweep experiments/demo.yaml --resume

  rankbench sweep experiments/deql_table2_gowalla.yaml --chosen

  rankbench sweep status          from another shell: trials by state, the best so far, the time that remains

  rankbench sweep stop            the newest running sweep ends as by Ctrl-C; --resume continues it
"""


class _RunByDefault(typer.core.TyperGroup):
    """`sweep FILE` is `sweep run FILE`."""

    def parse_args(self, ctx, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])


app = typer.Typer(cls=_RunByDefault, rich_markup_mode=None)


@app.command("run", epilog=EXAMPLES)
def sweep(
    experiment: Annotated[Path, typer.Argument(help="An experiment file; a bare name is looked up in experiments/.")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="[path=value]...", help="Changes to the file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest sweep of this experiment.")] = False,
    chosen: Annotated[bool, typer.Option("--chosen", help="No search: measure the file's `chosen` parameters.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    address: Annotated[str | None, typer.Option(envvar="RAY_ADDRESS", help="A running Ray cluster; default: local.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what an earlier sweep has finished.")] = False,
    json: Json = False,
) -> None:
    """Search hyperparameters on validation, refit the chosen ones, read test once a seed, and show the table."""
    from rankbench.cluster.session import host_and_port
    from rankbench.config import assignments
    from rankbench.errors import ClusterError
    from rankbench.settings import Settings
    from rankbench.sweeps.plan import load_experiment, plan
    from rankbench.threads import available_cpus

    settings = Settings.from_env()
    if address:
        host_and_port(address)
    path = _find(experiment, settings)
    spec = load_experiment(path, assignments(changes or []))
    if dry_run:
        _show_plan(plan(spec, settings, None if address else available_cpus(), str(path), chosen), json)
        return
    folder, failed = execute(
        spec, str(path), settings, resume=resume, use_chosen=chosen, address=address, fresh=fresh, quiet=json
    )
    show(folder, settings, json)
    if failed:
        raise ClusterError(f"{failed} runs failed; their reasons are in {folder}/report/report.md (--resume tries them again)")
    if not json:
        out.print(f"\nreport   {folder}/report/report.md\nrecords  {folder}/records\nbrowse   {program()} ui", markup=False)


def execute(
    spec, where: str, settings, *, resume=False, use_chosen=False, address=None, fresh=False, quiet=False
) -> tuple[Path, int]:
    """Run the sweep with progress and tracking, and write its report; returns its folder and how many runs failed."""
    from rankbench.cli.live import SweepView
    from rankbench.reports.report import sweep_table, write_report
    from rankbench.reports.tables import render
    from rankbench.sweeps.sweep import Listener, read_sweep, run_sweep
    from rankbench.tracking.mlflow_sink import MlflowSink, metric_key, tracking_uri

    def warn(line: str) -> None:
        err.print(f"warning: {line}", markup=False)

    # What a run is called by: the parameters that differ between the runs of its arm.
    named = {arm.label: [n for n, v in arm.params.items() if isinstance(v, dict)] or [*arm.params] for arm in spec.arms}
    sink = MlflowSink(tracking_uri(settings), spec.name, settings.results / "mlartifacts", warn)
    with SweepView(spec.search.choose.metric, quiet) as view:

        def planned(plan, folder: Path) -> None:
            if not quiet:
                err.print(f"{spec.name}: {plan.n_settings} settings in {plan.n_fits} fits → {folder}", markup=False)
                for note in plan.notes:
                    err.print(f"  {note}", markup=False)
            sink.open()
            facts = {"datasets": [card.name for card in plan.cards], "arms": [arm.label for arm in spec.arms]}
            facts |= {"settings": plan.n_settings, "fits": plan.n_fits, "chosen_by": spec.search.choose.metric}
            published = spec.published.model_dump(exclude={"recall"}) if spec.published else {}
            sink.start_sweep(folder.name, facts, {"rankbench.question": spec.question}, published)
            records["folder"] = folder / "records"

        def done(unit, finished) -> None:
            view.done(unit, finished)
            for record in finished:
                sink.send(record, records["folder"] / record.id, named.get(record.arm, ()))

        records: dict[str, Path] = {}
        result = run_sweep(
            spec,
            where,
            settings,
            resume=resume,
            use_chosen=use_chosen,
            address=address,
            fresh=fresh,
            listener=Listener(planned, view.stage, done),
        )
    stored = read_sweep(result.folder)
    compared = stored.comparisons()
    files = write_report(result.folder / "report", stored.about, stored.chosen, stored.records, compared)
    table = sweep_table(stored.about, stored.chosen, stored.records, compared)
    headline = {
        metric_key(f"final/{row.dataset}/{row.arm}", name): cell.mean for row in table.rows for name, cell in row.cells.items()
    }
    note = render(table, "md")
    sink.finish_sweep(headline, files, ok=not result.failed, note=f"{spec.question}\n\n{note}")
    return result.folder, len(result.failed)


def show(folder: Path, settings, json: bool) -> None:
    """Print a sweep's table."""
    from rankbench.cli.report import show_table
    from rankbench.reports.report import sweep_table
    from rankbench.reports.tables import as_json
    from rankbench.sweeps.sweep import read_sweep

    stored = read_sweep(folder)
    table = sweep_table(stored.about, stored.chosen, stored.records, stored.comparisons())
    if json:
        print_json(as_json(table) | {"folder": str(folder)})
        return
    show_table(table)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="A sweep's folder, id, or the start of it; default: the newest.")] = None,
    json: Json = False,
) -> None:
    """Show how far a sweep is: running, interrupted or finished, its trials by state, the best of each arm."""
    import time

    from rankbench.cli.live import clock
    from rankbench.settings import Settings
    from rankbench.sweeps.pulse import signs
    from rankbench.sweeps.sweep import find_sweep, read_sweep

    stored = read_sweep(find_sweep(name, Settings.from_env().results))
    running = signs(stored.folder)
    state = "running" if running else "finished" if stored.chosen else "interrupted"
    metric = stored.spec.search.choose.metric
    rows = _by_arm(stored.records.values(), metric)
    if json:
        keys = ("dataset", "model", "finished", "stopped", "failed", "best", "final")
        arms = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"id": stored.folder.name, "state": state, "metric": metric, "running": running, "arms": arms})
        return
    out.print(f"{stored.folder.name}: {state}", style="bold", markup=False)
    if running:
        seen = time.time() - running["seen_at"]
        out.print(f"process {running['pid']} on {running['host']}, seen {seen:.0f} s ago", markup=False)
        if progress := running.get("progress"):
            done = progress["finished"] + progress["stopped"] + progress["failed"]
            left = running["remaining_seconds"]
            rest = f", {clock(left)} left" if left is not None else ""
            out.print(f"{progress['stage']}: {done} of {progress['of']} fits{rest}", markup=False)
    elif state == "interrupted":
        out.print("the same command with --resume continues it", markup=False)
    header = ["dataset", "model", "searched", "stopped", "failed", f"best {metric} on valid", "on test"]
    print_table(header, [[*map(str, row[:5]), "" if row[5] is None else f"{row[5]:.4f}", str(row[6])] for row in rows])


@app.command()
def stop(
    name: Annotated[str | None, typer.Argument(help="A sweep's folder, id, or the start of it; default: the newest.")] = None,
    json: Json = False,
) -> None:
    """End a running sweep as Ctrl-C would, from any shell that sees its folder; what is finished is kept."""
    from rankbench.settings import Settings
    from rankbench.sweeps.pulse import ask_to_stop
    from rankbench.sweeps.sweep import find_sweep

    folder = find_sweep(name, Settings.from_env().results)
    ask_to_stop(folder)
    if json:
        print_json({"id": folder.name, "asked": True})
    else:
        out.print(f"{folder.name}: asked to stop; the same command with --resume continues it", markup=False)


def _by_arm(records, metric: str) -> list[tuple]:
    """Dataset, model, searched, stopped, failed, the best on validation, final runs; in the order of the records' ids."""
    rows = {}
    for record in records:
        mine = rows.setdefault((record.dataset["name"], record.arm or record.method), [])
        mine.append(record)
    result = []
    for (dataset, arm), mine in sorted(rows.items()):
        searched = [record for record in mine if record.stage == "search"]
        values = [record.metrics[metric]["mean"] for record in searched if record.finished]
        counts = [sum(record.status == state for record in searched) for state in ("finished", "stopped", "failed")]
        finals = sum(record.stage == "final" and record.finished for record in mine)
        result.append((dataset, arm, *counts, max(values, default=None), finals))
    return result


def _find(experiment: Path, settings) -> Path:
    """The file as given, or under experiments/ of the user, the folder or the product."""
    from rankbench.errors import ConfigError
    from rankbench.registry import nearest

    if experiment.is_file():
        return experiment
    name = experiment.name if experiment.suffix in (".yaml", ".yml") else f"{experiment.name}.yaml"
    known = {}
    for folder in settings.catalogues("experiments"):
        for path in sorted(folder.glob("*.yaml")):
            known.setdefault(path.name, path)
    if name in known and experiment.parent.name in ("", "experiments"):
        return known[name]
    raise ConfigError(f"{experiment}: no such experiment file{nearest(name, known)}")


def _show_plan(plan, json: bool) -> None:
    if plan.given is not None:
        _show_given(plan, json)
        return
    rows = [
        {
            "fit": position,
            "dataset": unit.job.card.name,
            "settings": [{"model": s.arm, "params": s.resolved} for s in unit.job.settings],
            "cpus": unit.cpus,
            "memory_gb": round(unit.memory_bytes / 1e9, 2),
        }
        for position, unit in enumerate(plan.search, start=1)
    ]
    if json:
        print_json({"experiment": plan.spec.name, "settings": plan.n_settings, "fits": rows, "notes": list(plan.notes)})
        return
    header = ["fit", "dataset", "models", "settings", "cpus", "memory GB"]
    body = [
        [str(r["fit"]), r["dataset"], ", ".join(dict.fromkeys(s["model"] for s in r["settings"])), str(len(r["settings"])),
         str(r["cpus"]), f"{r['memory_gb']:.1f}"]
        for r in rows
    ]  # fmt: skip
    print_table(header, body)
    for note in plan.notes:
        out.print(f"  {note}", markup=False)
    out.print(
        f"{plan.n_settings} settings in {plan.n_fits} fits, then one final fit for each chosen inverse, split and seed",
        markup=False,
    )


def _show_given(plan, json: bool) -> None:
    """The plan of --chosen: what is fitted and measured on test, without a search."""
    rows = [(dataset, each.arm, each.method, each.resolved) for dataset, members in plan.given.items() for each in members]
    if json:
        keys = ("dataset", "model", "method", "params")
        given = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"experiment": plan.spec.name, "given": given, "notes": list(plan.notes)})
        return
    body = [[d, arm, " ".join(f"{k}={v}" for k, v in params.items() if v is not None)] for d, arm, _, params in rows]
    print_table(["dataset", "model", "setting"], body)
    for note in plan.notes:
        out.print(f"  {note}", markup=False)
    out.print(f"no search: {len(rows)} given settings are fitted and measured on test", markup=False)
