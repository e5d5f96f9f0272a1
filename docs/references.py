"""Read docs/references.bib: its entries as Markdown, and the keys of the papers that the source of a method names."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "references.bib"


def keys(source: str) -> list[str]:
    """Return wu-tois-2024 for "Wu et al., TOIS 2024, Eq. 8": the first author, the venue and the year of each paper."""
    papers = re.findall(r"(?:^|; )([^\W\d]+)[^;]*?, (\w+) (\d{4})", source)
    plain = unicodedata.normalize("NFKD", "|".join("-".join(each) for each in papers))
    return plain.encode("ascii", "ignore").decode().lower().split("|") if papers else []


@cache
def references() -> dict[str, str]:
    """Return every entry of the bibliography as Markdown, by its key, in the order of the file."""
    from pybtex.database import parse_file
    from pybtex.plugin import find_plugin

    style, markdown = find_plugin("pybtex.style.formatting", "unsrt")(), find_plugin("pybtex.backends", "markdown")()
    entries = parse_file(FILE).entries
    return {each.key: each.text.render(markdown) for each in style.format_entries(entries.values())}
