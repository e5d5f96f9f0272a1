"""Pages that link to each other, in one folder: reports of sweeps, papers, leaderboards, datasets and methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankbench.core.files import write_text
from rankbench.reports.draw import draw
from rankbench.reports.figure import Figure
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Page

_FORMS = {"html": html, "md": markdown}


@dataclass
class Site:
    """The pages of a folder, each written as it is added, as `html` files, `md` files, or both. `files` are all paths."""

    folder: Path
    forms: Sequence[str] = ("html",)
    files: list[Path] = field(default_factory=list)

    def write(self, stem: str, page: Page, pictures: bool = True) -> None:
        """Write a page, in Markdown with its figures as pictures beside it. Without `pictures`, they are there already."""
        path = self.folder / stem
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files += [write_text(path.with_name(f"{path.name}.{form}"), _FORMS[form](page)) for form in self.forms]
        if pictures and "md" in self.forms:
            blocks = (block for section in page.sections for block in section.blocks)
            self.files += [draw(block, path.with_name(f"{block.name}.png")) for block in blocks if isinstance(block, Figure)]
