"""Pages that link to each other, in one folder: reports of sweeps, papers, leaderboards, datasets and methods.

A function that makes the pages of a kind registers itself with the form of their names. A new kind needs no other file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rankbench.core.files import write_text
from rankbench.reports.draw import draw
from rankbench.reports.figure import Figure
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Link, Page

Maker = TypeVar("Maker", bound=Callable[..., Page])
_KINDS: dict[str, tuple[str, Callable[..., Page]]] = {}
_FORMS = {"html": html, "md": markdown}


def page_kind(kind: str, stem: str = "{}") -> Callable[[Maker], Maker]:
    """Register the decorated function, which makes a page of `kind`. `stem`: name of its files, with a place for its own."""

    def register(make: Maker) -> Maker:
        _KINDS[kind] = stem, make
        return make

    return register


def link(kind: str, name: str) -> Link:
    """Return the cell of a table that links to the page of a kind by its name."""
    return Link(name, _KINDS[kind][0].format(name))


@dataclass
class Site:
    """The pages of a folder, each written as it is added, as `html` files, `md` files, or both. `files` are all paths."""

    folder: Path
    forms: Sequence[str] = ("html",)
    files: list[Path] = field(default_factory=list)

    def add(self, kind: str, name: str, *about: Any) -> None:
        """Make the page `name` of a kind from what its maker needs, and write it. Raises StorageError if that is impossible."""
        stem, make = _KINDS[kind]
        self.write(stem.format(name), make(*about))

    def write(self, stem: str, page: Page, pictures: bool = True) -> None:
        """Write a page, in Markdown with its figures as pictures beside it. Without `pictures`, they are there already."""
        path = self.folder / stem
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files += [write_text(path.with_name(f"{path.name}.{form}"), _FORMS[form](page)) for form in self.forms]
        if pictures and "md" in self.forms:
            blocks = (block for section in page.sections for block in section.blocks)
            self.files += [draw(block, path.with_name(f"{block.name}.png")) for block in blocks if isinstance(block, Figure)]
