"""How an object shows itself in Python and in a notebook: a title and facts about it; and parameters as words."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def setting_text(params: Mapping[str, object]) -> str:
    """Return parameters as `name=value` words."""
    return " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items())


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
