"""Write a page as Markdown for GitHub."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from rankbench.reports.page import Addresses, Best, Block, Code, Grid, Items, Legend, Link, Page, Picture, Second


def markdown(page: Page) -> str:
    """Return the page, with links to pictures and other reports. Only the HTML page shows the facts."""
    parts = [f"# {page.title}", *(f"**{_text(sentence)}**" for sentence in page.conclusion[:1])]
    parts += [*map(_text, page.conclusion[1:]), *page.lead]
    for section in page.sections:
        parts += [f"## {section.title}"] if section.title else []
        parts += [text for block in section.blocks if (text := _block(block))]
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
            return f"![{block.caption}]({block.path.name})" if block.path else ""
        case Legend():
            return ""  # a picture has its own
        case Code():
            return f"```{block.language}\n{block.text}\n```"
        case _:
            return block.text


def _cell(cell: str) -> str:
    text = _text(cell).replace("|", "\\|")  # a bar would end the cell
    match cell:
        case Best():
            return f"**{text}**"
        case Second():
            return f"<u>{text}</u>"
        case Link():
            return f"[{text}]({cell.stem}.md)"
        case Addresses():
            return ", ".join(f"[{name}]({address})" for name, address in cell.pages)
        case _:
            return text


def _text(text: str) -> str:
    """Return text in which a name in angle brackets is not taken for a tag."""
    return re.sub(r"<(?=[A-Za-z/!])", "&lt;", text)
