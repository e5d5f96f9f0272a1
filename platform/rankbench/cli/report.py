"""rankbench report: print or write the table of a sweep or an experiment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, out, print_json, print_table
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.files import require_writable
from rankbench.core.registry import nearest

if TYPE_CHECKING:
    from rankbench.reports.tables import Table
    from rankbench.schema.stored_sweep import StoredSweep

EXAMPLES = """Examples:
  rankbench report
  rankbench report linear-movielens-1m --format latex
  rankbench report experiments/deql_table2.yaml
  rankbench report --out docs/results/mine --metrics recall@20,ndcg@20,ndcg@50
"""

FORMATS = ("table", "md", "html", "latex", "csv", "json")


Format = Annotated[
    str, typer.Option(help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.", autocompletion=candidates.one_of(*FORMATS))
]


def report(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWEEP|FILE]",
            help="A sweep (id, start of the id, or folder) or an experiment. Default: the newest sweep.",
            autocompletion=candidates.sweeps_and_experiments,
        ),
    ] = None,
    format: Format = "table",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics of the table, comma-separated, such as recall@20,ndcg@20.", autocompletion=candidates.metrics
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Write pages, tables and plots to this folder.")] = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Show the table of a sweep, or write its report. It has measured and published values, intervals, seconds and memory."""
    from rankbench.evaluation.metrics import metric_set
    from rankbench.reports.html import html
    from rankbench.reports.report import links_of, report_page, sweep_table, write_report
    from rankbench.reports.tables import as_json, render
    from rankbench.schema.find import find
    from rankbench.sweeps.comparisons import comparisons
    from rankbench.sweeps.views.plain_console import visible
    from rankbench.tracking.links import RunLinks

    require(format in FORMATS, f"--format: unknown {format!r}{nearest(format, FORMATS)}; one of {', '.join(FORMATS)}")
    require(not json or format in ("table", "json"), f"--format {format}: --json prints JSON; leave one of them out")
    environment = Environment.from_env()
    if to is not None:
        require_writable(to)
    stored = find(what, environment)
    columns = () if metrics is None else metric_set(metrics.split(",")).names
    _require_measured(columns, stored)
    stored = replace(stored, compared=comparisons(stored, columns))
    links = links_of(stored, environment) if to or format == "html" else RunLinks()
    table = sweep_table(stored, links)
    files = write_report(to, stored, links) if to else []
    if json or format == "json":
        print_json(as_json(table) | {"folder": str(stored.folder), "files": [str(path) for path in files]})
    elif format == "table":
        show_table(table)
        if stored.chosen is None and stored.about.id:
            out.print("this sweep is not finished; continue it with rankbench sweep FILE --resume", style="yellow")
        for path in files:
            out.print(str(path))
    elif format == "html":
        print(html(report_page(stored, table)), end="")
    else:
        print(visible(render(table, format)).rstrip("\n"))


def _require_measured(names: Iterable[str], stored: StoredSweep) -> None:
    """Raise ConfigError for a metric that no run has, if there are runs."""
    measured = {name for record in stored.records.values() for name in record.metrics}
    for name in names if measured else ():
        problem = f"--metrics: {name} was not measured{nearest(name, measured)}; measured: {', '.join(sorted(measured))}"
        require(name in measured, problem)


def show_table(table: Table) -> None:
    """Print title, conclusion, rows and notes. The best of a column is bold and the second underlined; without a terminal, ¹
    and ².
    """
    from rankbench.reports.page import Best, Second
    from rankbench.reports.tables import columns

    header, body = columns(table, best=Best, second=Second)
    signs = {} if out.is_terminal else {Best: " ¹", Second: " ²"}
    styles = {Best: "bold", Second: "underline"}
    out.print(table.title, style="bold")
    for position, sentence in enumerate(table.conclusions.sentences if any(row.cells for row in table.rows) else ()):
        out.print(sentence, style=None if position else "bold")
    marked = [[Text(cell + signs.get(type(cell), ""), styles.get(type(cell), "")) for cell in line] for line in body]
    print_table(header, marked, drop=("peak GB", "rank s", "fit s", "setting", "95 % interval"))
    if not out.is_terminal and any(type(cell) is Best for line in body for cell in line):
        out.print("  ¹ best, ² second best of a dataset", style="dim")
    for note in table.notes:
        out.print(f"  {note}", style="dim")
