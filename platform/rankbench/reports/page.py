"""The content of a page before it is rendered as Markdown or HTML: sections of text, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rankbench.reports.figure import Figure, Style


class Best(str):
    """A table cell with the best mean of its column and dataset."""


class Second(str):
    """A table cell with the second best mean."""


class State(str):
    """A table cell with the verdict of a test, such as `worse`."""


class Link(str):
    """A table cell that links to another report; `stem` is its path relative to this page, without the suffix."""

    stem: str

    def __new__(cls, text: str, stem: str) -> Link:
        link = super().__new__(cls, text)
        link.stem = stem
        return link


class Addresses(str):
    """A table cell of links to web pages; `pages` are their names and addresses."""

    pages: tuple[tuple[str, str], ...]

    def __new__(cls, pages: tuple[tuple[str, str], ...]) -> Addresses:
        cell = super().__new__(cls, ", ".join(name for name, _ in pages))
        cell.pages = pages
        return cell


Column = tuple[str, Callable[[Any], str]]  # the heading, and the cell of a row


def tabulated(rows: Iterable[Any], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table, for a page, a terminal or a file."""
    return [name for name, _ in columns], [[cell(row) for _, cell in columns] for row in rows]


@dataclass(frozen=True)
class Text:
    """A paragraph. Text between backticks is code."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Items:
    """Lines of a list, with backticks as in Text."""

    kind: ClassVar = "items"
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table with an optional caption. `quiet`: positions of rows without a measurement. `total`: whether the last line is the
    sum of the others. `sticky`: number of columns that stay in sight when the others scroll, 1 or 2.
    """

    kind: ClassVar = "grid"
    header: list[str]
    body: list[list[str]]
    caption: str = ""
    quiet: frozenset[int] = frozenset()
    total: bool = False
    sticky: int = 1


@dataclass(frozen=True)
class Legend:
    """The methods of all figures of a page, with their colours, lines and markers. A picture in a file has its own."""

    kind: ClassVar = "legend"
    entries: dict[str, Style]


@dataclass(frozen=True)
class Code:
    kind: ClassVar = "code"
    text: str
    language: str = "json"


@dataclass(frozen=True)
class Interactive:
    """A part of a page that its own `script` makes of `data` (JSON without `<`), in the element `name`, with its own `style`. A
    Markdown page leaves it out.
    """

    kind: ClassVar = "interactive"
    name: str
    data: str
    script: str
    style: str


Block = Text | Items | Grid | Figure | Legend | Code | Interactive


@dataclass(frozen=True)
class Section:
    """Blocks under a title, which the first section of a page does not have."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A report. `conclusion`: sentences that come before all else. `lead`: paragraphs under them. `facts`: names and values
    that are shown above the sections.
    """

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
    conclusion: tuple[str, ...] = ()
