"""rankbench report: the table of a sweep, printed or written as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.console import Json, out, print_json, print_table

EXAMPLES = """Examples:

  rankbench report

  rankbench report linear-movielens-1m --format latex

  rankbench report --out docs/results/mine --metrics recall@20,ndcg@20,ndcg@50
"""


def report(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's folder, id, or the start of it; default: the newest.")] = None,
    format: Annotated[str, typer.Option(help="table, md, latex, csv or json.")] = "table",
    metrics: Annotated[str | None, typer.Option(help="Columns, comma-separated, as in recall@20,ndcg@20.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Write report.md, tables and plots into this folder.")] = None,
    json: Json = False,
) -> None:
    """Show the final table of a sweep: measured, interval, published, difference, setting, seconds, memory."""
    from rankbench.errors import require
    from rankbench.evaluation.metrics import metric_set
    from rankbench.registry import nearest
    from rankbench.reports.report import sweep_table, write_report
    from rankbench.reports.tables import as_json, columns, render
    from rankbench.settings import Settings
    from rankbench.sweeps.sweep import find_sweep, read_sweep

    formats = ("table", "md", "latex", "csv", "json")
    require(format in formats, f"--format: unknown {format!r}{nearest(format, formats)}; one of {', '.join(formats)}")
    stored = read_sweep(find_sweep(sweep, Settings.from_env().results))
    wanted = metric_set(metrics.split(",")).names if metrics else ()
    compared = stored.comparisons(wanted)
    table = sweep_table(stored.about, stored.chosen, stored.records, compared)
    files = write_report(to, stored.about, stored.chosen, stored.records, compared) if to else []
    if json or format == "json":
        print_json(as_json(table) | {"folder": str(stored.folder), "files": [str(path) for path in files]})
    elif format == "table":
        out.print(table.title, style="bold", markup=False)
        print_table(*columns(table))
        for note in table.notes:
            out.print(f"  {note}", style="dim", markup=False)
        if stored.chosen is None:
            out.print("this sweep is not finished: continue it with rankbench sweep ... --resume", style="yellow")
        for path in files:
            out.print(str(path), markup=False)
    else:
        print(render(table, format))
