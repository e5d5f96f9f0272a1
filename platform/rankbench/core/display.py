"""How an object shows itself in Python and in a notebook: a title and facts about it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def as_text(title: str, facts: Mapping[str, str]) -> str:
    """Return the title and one aligned line per fact, for `__repr__`."""
    width = max(map(len, facts), default=0)
    return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in facts.items())])


def as_html(title: str, facts: Mapping[str, str]) -> str:
    """Return the title and a table of the facts, for `_repr_html_`."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<strong>{escape(title)}</strong><table><tbody>{rows}</tbody></table>"
