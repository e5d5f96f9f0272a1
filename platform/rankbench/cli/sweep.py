"""rankbench sweep: an experiment file through Ray Tune, to records, MLflow and a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.console import Json, UnitProgress, err, out, print_json, print_table, program

EXAMPLES = """Examples:

  rankbench sweep experiments/demo.yaml

  rankbench sweep experiments/linear_movielens_1m.yaml search.trials=20 resources.cpus=1

  rankbench sweep experiments/demo.yaml --dry-run

  rankbench sweep experiments/demo.yaml final.seeds=[0,1,2] final.split_seeds=[0,1,2]

  rankbench sweep experiments/demo.yaml --resume

  rankbench sweep experiments/deql_table2_gowalla.yaml --chosen
"""


def sweep(
    experiment: Annotated[Path, typer.Argument(help="An experiment file; a bare name is looked up in experiments/.")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="[path=value]...", help="Changes to the file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest sweep of this experiment.")] = False,
    chosen: Annotated[bool, typer.Option("--chosen", help="No search: measure the file's `chosen` parameters.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    address: Annotated[str | None, typer.Option(envvar="RAY_ADDRESS", help="A running Ray cluster; default: local.")] = None,
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
    folder, failed = execute(spec, str(path), settings, resume=resume, use_chosen=chosen, address=address, quiet=json)
    show(folder, settings, json)
    if failed:
        raise ClusterError(f"{failed} runs failed; their reasons are in {folder}/report/report.md (--resume tries them again)")
    if not json:
        out.print(f"\nreport   {folder}/report/report.md\nrecords  {folder}/records\nbrowse   {program()} ui", markup=False)


def execute(spec, where: str, settings, *, resume=False, use_chosen=False, address=None, quiet=False) -> tuple[Path, int]:
    """Run the sweep with progress and tracking, and write its report; returns its folder and how many runs failed."""
    from rankbench.reports.report import sweep_table, write_report
    from rankbench.reports.tables import render
    from rankbench.sweeps.sweep import Listener, read_sweep, run_sweep
    from rankbench.tracking.mlflow_sink import MlflowSink, metric_key, tracking_uri

    def warn(line: str) -> None:
        err.print(f"warning: {line}", markup=False)

    sink = MlflowSink(tracking_uri(settings), spec.name, settings.results / "mlartifacts", warn)
    with UnitProgress(quiet) as progress:

        def planned(plan, folder: Path) -> None:
            if not quiet:
                err.print(f"{spec.name}: {plan.n_settings} settings in {len(plan.search)} fits → {folder}", markup=False)
                for note in plan.notes:
                    err.print(f"  {note}", markup=False)
            sink.open()
            facts = {"datasets": [card.name for card in plan.cards], "arms": [arm.label for arm in spec.arms]}
            facts |= {"settings": plan.n_settings, "fits": len(plan.search), "chosen_by": spec.search.choose.metric}
            sink.start_sweep(folder.name, facts, {"rankbench.question": spec.question})
            records["folder"] = folder / "records"

        def done(unit, finished) -> None:
            progress.done(unit, finished)
            for record in finished:
                sink.send(record, records["folder"] / record.id)

        records: dict[str, Path] = {}
        result = run_sweep(
            spec,
            where,
            settings,
            resume=resume,
            use_chosen=use_chosen,
            address=address,
            listener=Listener(planned, progress.stage, done),
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
    from rankbench.reports.report import sweep_table
    from rankbench.reports.tables import as_json, columns
    from rankbench.sweeps.sweep import read_sweep

    stored = read_sweep(folder)
    table = sweep_table(stored.about, stored.chosen, stored.records, stored.comparisons())
    if json:
        print_json(as_json(table) | {"folder": str(folder)})
        return
    out.print(table.title, style="bold", markup=False)
    print_table(*columns(table))
    for note in table.notes:
        out.print(f"  {note}", style="dim", markup=False)


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
        f"{plan.n_settings} settings in {len(plan.search)} fits, then one final fit for each chosen inverse, split and seed",
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
