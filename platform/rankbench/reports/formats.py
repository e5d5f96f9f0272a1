"""The table of a sweep as text: Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import json

from tabulate import tabulate

from rankbench.reports import markdown
from rankbench.reports.frame import csv_text
from rankbench.reports.page import Best, Second
from rankbench.reports.tables import Table, as_json, columns


def render(table: Table, format: str) -> str:
    """Return the table as `md`, `latex`, `csv` or `json` text. Marks in cells are explained below the table."""
    if format == "json":
        return json.dumps(as_json(table), indent=2)
    if format == "csv":
        return csv_text(table)
    if format == "latex":
        # tabulate escapes special characters of LaTeX, so commands are inserted afterwards.
        header, body = columns(table, best="\x02{}\x04".format, second="\x03{}\x04".format)
        text = tabulate(body, header, tablefmt="latex_booktabs", disable_numparse=True)
        text += "".join(f"\n\n\\noindent {{\\footnotesize {line}}}" for line in table.legend)
        commands = {"\x02": r"\textbf{", "\x03": r"\underline{", "\x04": "}", "†": r"$^{\dagger}$", "±": r"$\pm$"}
        for sign, command in commands.items():
            text = text.replace(sign, command)
        return text
    return "\n\n".join([markdown.table(*columns(table, best=Best, second=Second)), *table.legend])
