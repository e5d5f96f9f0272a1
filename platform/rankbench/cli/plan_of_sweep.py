"""`sweep --dry-run`: the plan of a sweep as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbench.cli.console import clock, out, print_json, print_table

if TYPE_CHECKING:
    from rankbench.experiment.job import MethodConfig
    from rankbench.sweeps.dry_run import PlanRow
    from rankbench.sweeps.plan import Plan
    from rankbench.sweeps.request import SweepRequest

MANY_ROWS = 200  # of a plan, from which it is shown by dataset


def show_plan(request: SweepRequest, json: bool) -> None:
    """Print what a sweep would run, or what is left of the one that it resumes."""
    from rankbench.sweeps.dry_run import as_json, dry_run
    from rankbench.sweeps.resume import folder_to_resume
    from rankbench.sweeps.views.sweep_view import left_out

    plan, node = request.plan(), request.memory
    begun = folder_to_resume(plan, request.environment) if request.options.resume else None
    machines = request.machines(asked=True)
    preview = dry_run(plan, request.environment, machines, begun, request.options.fresh)
    if json:
        shares = {"total_bytes": node.total, "object_bytes": node.objects, "task_bytes": node.tasks} if node else None
        print_json(as_json(plan, preview) | {"memory": shares})
        return
    planned = [row for row in preview.rows if row.state == "planned"]
    header, body = _by_dataset(planned) if len(planned) > MANY_ROWS else _by_model(planned, plan)
    body += [[name, problem.state, *[""] * (len(header) - 2)] for name, problem in plan.not_available.items()]
    print_table(header, body, drop=("shared with", "cpus", "time per fit"))
    for line in left_out(plan.not_available):
        out.print(f"  {line}", style="yellow")
    if begun:
        out.print(f"{preview.finished} fits are finished and are kept; this is what --resume still runs")
    elif preview.finished:
        out.print(f"{preview.finished} fits of earlier sweeps are reused and not in this plan; --fresh repeats them")
    for line in (*preview.stand_ins, *preview.shared, *preview.by_tiles, *preview.wide, *plan.notes):
        out.print(f"  {line}")
    where = "this machine" if machines and len(machines) == 1 else "the cluster"
    for stage in preview.stages:
        if stage.seconds is None:
            time = f"{clock(stage.seconds_of_trials)} of sequential trials (a rough estimate, without the cluster)"
        else:
            time = f"about {clock(stage.seconds)} (rough), with up to {stage.concurrent} at a time on {where}"
        out.print(f"{stage.name}: {stage.fits} fits, {time}")
    todo = preview.statistics
    some = "" if todo.tested == todo.pairs else " (the best and neighbours; --all-pairs tests all)"
    out.print(
        f"statistics: {todo.comparisons} comparisons, {todo.tested:,} of {todo.pairs:,} pairs of models{some}, "
        f"about {clock(todo.seconds)} (rough)"
    )
    if plan.given is None:
        fewer = "; fewer if chosen settings share an inverse" if preview.at_most else ""
        out.print(f"the final stage has one fit for each chosen setting, split and seed{fewer}")
    if node:
        out.print(str(node))
    if preview.short:
        out.print(
            f"not enough memory: the largest trial needs {preview.short / 1e9:.1f} GB more than is available", style="yellow"
        )
    size = f"{preview.bytes_written / 1e6:.1f} MB"
    out.print(f"writes {preview.folder}: {preview.records} records (about {size}), each with an MLflow run, and a report")


def _by_model(rows: list[PlanRow], plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table with one line per dataset and arm."""
    header = ["dataset", "model", "settings", "fits", "shared with", "cpus", "memory GB", "time per fit", "total time"]
    given = {(dataset, each.arm): each for dataset, members in (plan.given or {}).items() for each in members}
    stated = {arm.label: {*arm.params}.union(*arm.chosen.values()) for arm in plan.spec.arms}
    return header, [
        [r.dataset, r.model, _settings_of(r, given, stated), str(r.fits), ", ".join(r.shared_with), str(r.cpus),
         f"{r.memory_bytes / 1e9:.1f}", clock(r.seconds_a_fit), clock(r.seconds_in_all)]
        for r in rows
    ]  # fmt: skip


def _by_dataset(rows: list[PlanRow]) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table with one line per dataset, for a plan with very many arms; --json lists them."""
    body = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [row for row in rows if row.dataset == dataset]
        memory, longest = max(row.memory_bytes for row in own), max(row.seconds_a_fit for row in own)
        total = sum(row.seconds_in_all for row in own)
        body.append([dataset, str(len(own)), f"{memory / 1e9:.1f}", clock(longest), clock(total)])
    return ["dataset", "models", "largest memory GB", "longest fit", "total time"], body


def _settings_of(row: PlanRow, given: dict[tuple[str, str | None], MethodConfig], stated: dict[str, set[str]]) -> str:
    """Number of settings; with --chosen, the setting, by the parameters that the file states."""
    if (row.dataset, row.model) in given:
        params = given[row.dataset, row.model].flat
        return " ".join(f"{name}={value}" for name, value in params.items() if name in stated[row.model])
    return "drawn" if row.settings is None else str(row.settings)
