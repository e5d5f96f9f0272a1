"""The standings of a leaderboard as one page of Markdown, with its pictures beside it, for a repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rankbench.core.files import write_text
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.site import board_page
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Block, Grid, Page, Picture

LEFT_OUT = ("All entries",)  # sections that are too long for such a page


def write_summary(path: Path, boards: Sequence[Board], families: Mapping[str, Sequence[str]]) -> list[Path]:
    """Write the first of the `boards`, one per budget. Returns the paths of the page and its pictures.

    Raises StorageError if they cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    page = board_page(boards[0], boards, families, path.parent)
    sections = tuple(
        replace(each, blocks=tuple(block for block in map(_alone, each.blocks) if block is not None))
        for each in page.sections
        if each.title not in LEFT_OUT
    )
    facts = "; ".join(f"{name}: {value}" for name, value in page.facts)
    page = replace(page, sections=sections, lead=(*page.lead, f"{facts[0].upper()}{facts[1:]}."))
    write_text(path, markdown(page))
    return [path, *_pictures(page)]


def _alone(block: Block) -> Block | None:
    """The block without links to the other pages of the site, which are not written. A table with a caption is a detail."""
    if not isinstance(block, Grid):
        return block
    return None if block.caption else replace(block, body=[[str(cell) for cell in line] for line in block.body])


def _pictures(page: Page) -> list[Path]:
    blocks = [block for section in page.sections for block in section.blocks]
    return [block.path for block in blocks if isinstance(block, Picture) and block.path]
