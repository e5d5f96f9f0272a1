"""A report before it is Markdown or HTML: sections of text, tables and pictures, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class Best(str):
    """A cell that holds the best mean of its column and dataset."""


class Second(str):
    """A cell that holds the second best."""


class State(str):
    """A cell in one word, as in `reproduced`."""


class Link(str):
    """A cell that leads to another report; `stem` is its path from this page, without the suffix."""

    stem: str

    def __new__(cls, text: str, stem: str) -> Link:
        link = super().__new__(cls, text)
        link.stem = stem
        return link


@dataclass(frozen=True)
class Text:
    """A paragraph; what stands between backticks is code."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Items:
    """Lines of a list; backticks as in a Text."""

    kind: ClassVar = "items"
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table under an optional caption; `quiet`: rows, by position, that hold no measurement; `total`: the last line is
    the sum of the others.
    """

    kind: ClassVar = "grid"
    header: list[str]
    body: list[list[str]]
    caption: str = ""
    quiet: frozenset[int] = frozenset()
    total: bool = False


@dataclass(frozen=True)
class Picture:
    """A PNG file beside the page."""

    kind: ClassVar = "picture"
    path: Path
    caption: str


@dataclass(frozen=True)
class Code:
    kind: ClassVar = "code"
    text: str


Block = Text | Items | Grid | Picture | Code


@dataclass(frozen=True)
class Section:
    """Blocks under a title; the first section of a page has none."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """`lead`: the paragraphs under the title. `facts`: name and value of what is worth seeing first."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
