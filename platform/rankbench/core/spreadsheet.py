"""CSV files that spreadsheets may open: text that would run as a formula has an apostrophe before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# What a formula begins with, and the apostrophe itself, so that reading is the reverse of writing.
_FIRST = re.compile(r"^(?=[=+\-@\t\r'])")
_QUOTED = re.compile(r"^'(?=[=+\-@\t\r'])")


def inert(text: str) -> str:
    """Return `text` with an apostrophe before it if a spreadsheet would run it, or if it begins with an apostrophe."""
    return _FIRST.sub("'", text)


def inert_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with `inert` text in all of its cells."""
    words = frame.select_dtypes(include=["object", "string"]).columns
    return frame.assign(**{name: [inert(cell) if isinstance(cell, str) else cell for cell in frame[name]] for name in words})


def original(text: str) -> str:
    """Return the text of which `inert` made `text`."""
    return _QUOTED.sub("", text)
