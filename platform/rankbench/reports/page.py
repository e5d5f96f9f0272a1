"""The content of a report before it is rendered as Markdown or HTML: sections of text, tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class Best(str):
    """A table cell with the best mean of its column and dataset."""


class Second(str):
    """A table cell with the second best mean."""


class State(str):
    """A table cell with the state of an experiment, such as `reproduced`."""


class Link(str):
    """A table cell that links to another report; `stem` is its path relative to this page, without the suffix."""

    stem: str

    def __new__(cls, text: str, stem: str) -> Link:
        link = super().__new__(cls, text)
        link.stem = stem
        return link


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
    sum of the others.
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
    """Blocks under a title, which the first section of a page does not have."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A report. `lead`: paragraphs under the title. `facts`: names and values that are shown first."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
