"""Write a page as Markdown for GitHub."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from rankbench.reports.page import Best, Block, Code, Grid, Items, Link, Page, Picture, Second


def markdown(page: Page) -> str:
    """Return the page, with links to pictures and other reports. Only the HTML page shows the facts."""
    parts = [f"# {page.title}", *page.lead]
    for section in page.sections:
        parts += [f"## {section.title}"] if section.title else []
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return header and cells as a table, with the best in bold and the second best underlined."""
    return tabulate([[_cell(cell) for cell in line] for line in body], header, tablefmt="github", disable_numparse=True)


def _block(block: Block) -> str:
    match block:
        case Grid():
            return (f"### {block.caption}\n\n" if block.caption else "") + table(block.header, block.body)
        case Items():
            return "\n".join(f"- {line}" for line in block.lines)
        case Picture():
            return f"![{block.path.stem}]({block.path.name})"
        case Code():
            return f"```json\n{block.text}\n```"
        case _:
            return block.text


def _cell(cell: str) -> str:
    # A bar would end the cell, and a name in angle brackets would be taken for a tag.
    text = re.sub(r"<(?=[A-Za-z/!])", "&lt;", cell.replace("|", "\\|"))
    match cell:
        case Best():
            return f"**{text}**"
        case Second():
            return f"<u>{text}</u>"
        case Link():
            return f"[{text}]({cell.stem}.md)"
        case _:
            return text
