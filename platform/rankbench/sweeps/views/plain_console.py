"""A console that shows text as it is: neither markup nor the control sequences of a terminal are run.

Labels, questions and names come from files, which may be another person's.
"""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


class PlainConsole(Console):
    def __init__(self, **options: Any):
        # Names of datasets, arms and files may contain brackets.
        super().__init__(highlight=False, markup=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(_shown(each) for each in objects), **options)


def visible(text: str) -> str:
    """Return `text` with the control characters escaped that a terminal would run."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def as_cell(content: str | Text) -> Text:
    """The content of a cell of a table; its style is kept unless it has control characters."""
    plain = content if isinstance(content, str) else content.plain
    return Text(visible(plain)) if isinstance(content, str) or _CONTROL.search(plain) else content


def _shown(each: Any) -> Any:
    if isinstance(each, str):
        return visible(each)
    return as_cell(each) if isinstance(each, Text) else each
