"""Write a page as one HTML file that contains its style, script and figures and loads nothing from the network.

Names come from experiment files and cards, which may be written by anyone: the template escapes all text (Jinja's autoescape),
and the markup that is added here is built only from escaped parts.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import count
from pathlib import Path

from jinja2 import Environment, Template
from markupsafe import Markup, escape

from rankbench.reports.draw import svg
from rankbench.reports.figure import Figure, Style
from rankbench.reports.page import Addresses, Best, Link, Page, Second, State

HERE = Path(__file__).parent
MARKS = {  # outlines in a box of 34 by 14
    "o": "M12.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "s": "M13 3h8v8h-8z",
    "^": "M17 2l5 9h-10z",
    "D": "M17 1.5l4.5 5.5l-4.5 5.5l-4.5 -5.5z",
    "v": "M17 12l5 -9h-10z",
    "h": "M14.5 2.7h5l2.5 4.3l-2.5 4.3h-5l-2.5 -4.3z",
}


def html(page: Page) -> str:
    """Return the document."""
    numbers = count()

    def drawn(figure: Figure) -> list[Markup]:
        return [Markup(svg(panel, next(numbers))) for panel in figure.panels]

    return _template().render(page=page, drawn=drawn)


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"inline": _inline, "cell": _cell, "numeric": _numeric, "sign": _sign}
    environment.globals |= {name: Markup((HERE / f"page.{name}").read_text(encoding="utf-8")) for name in ("css", "js")}
    return environment.from_string((HERE / "page.html").read_text(encoding="utf-8"))


def _sign(style: Style) -> Markup:
    """Return a small picture of a method's line and marker for the legend."""
    return Markup(
        '<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true"><line x1="0" y1="7" x2="34" y2="7" stroke="{}" '
        'stroke-width="2" stroke-dasharray="{}"/><path d="{}" fill="{}"/></svg>'
    ).format(style.colour, " ".join(map(str, style.dash)) or "none", MARKS[style.marker], style.colour)


def _inline(text: str) -> Markup:
    """Return escaped text with backticks turned into code markup."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _cell(cell: str) -> Markup:
    text = escape(str(cell))
    match cell:
        case Best():
            return Markup("<b>{}</b>").format(text)
        case Second():
            return Markup("<u>{}</u>").format(text)
        case Link():
            return Markup('<a href="{}.html">{}</a>').format(cell.stem, text)
        case State():  # its colour is of the verdict, without the level of a test
            return Markup('<span class="state {}">{}</span>').format(cell.partition(" at ")[0].replace(" ", "-"), text)
        case Addresses():
            return Markup(", ").join(
                Markup('<a href="{}" rel="noopener noreferrer">{}</a>').format(address, name)
                for name, address in cell.pages
                if address.startswith(("http://", "https://"))
            )
        case _:
            return text


def _numeric(body: list[list[str]], column: int) -> bool:
    """Whether to align a column to the right: each of its cells is empty, starts with a number, or says why there is none."""
    none = ("not ", "failed", "over budget", "diverged")
    cells = [line[column] for line in body if line[column] and not line[column].startswith(none)]
    return bool(cells) and all(re.match(r"(< )?[+-]?[\d,]*\.?\d+([ ÷–/%]|$)", cell) for cell in cells)
