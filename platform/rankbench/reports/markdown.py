"""Write a page as Markdown for GitHub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from tabulate import tabulate

from rankbench.core.markdown import without_tags
from rankbench.reports.figure import Figure
from rankbench.reports.page import Addresses, Best, Block, Code, Grid, Interactive, Items, Legend, Link, Page, Second


def markdown(page: Page) -> str:
    """Return the page, with links to pictures and other reports. Only the HTML page shows the facts."""
    parts = [f"# {without_tags(page.title)}", *(f"**{without_tags(sentence)}**" for sentence in page.conclusion[:1])]
    parts += map(without_tags, [*page.conclusion[1:], *page.lead])
    for section in page.sections:
        parts += [f"## {without_tags(section.title)}"] if section.title else []
        parts += [text for block in section.blocks if (text := _block(block))]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return header and cells as a table, with the best in bold and the second best underlined."""
    cells = [[_cell(cell) for cell in line] for line in body]
    return tabulate(cells, [_cell(name) for name in header], tablefmt="github", disable_numparse=True)


def _block(block: Block) -> str:
    match block:
        case Grid():
            return (f"### {without_tags(block.caption)}\n\n" if block.caption else "") + table(block.header, block.body)
        case Items():
            return "\n".join(f"- {without_tags(line)}" for line in block.lines)
        case Figure():
            return f"![{without_tags(block.caption)}]({block.name}.png)"
        case Legend() | Interactive():
            return ""  # a picture has its own legend, and text has no script
        case Code():
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", block.text))])  # longer than any in the text
            return f"{fence}{block.language}\n{block.text}\n{fence}"
        case _:
            return without_tags(block.text)


def _cell(cell: str) -> str:
    text = without_tags(cell).replace("|", "\\|")  # a bar would end the cell
    match cell:
        case Best():
            return f"**{text}**"
        case Second():
            return f"<u>{text}</u>"
        case Link():
            return f"[{text}]({quote(cell.stem)}.md)"
        case Addresses():
            return ", ".join(f"[{name}]({address})" for name, address in cell.pages)
        case _:
            return text
