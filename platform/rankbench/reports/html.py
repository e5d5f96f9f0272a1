"""Write a page as one HTML file that contains its style, script and pictures and loads nothing from the network.

Names come from experiment files and cards, which may be written by anyone: the template escapes all text (Jinja's
autoescape), and the markup that is added here is built only from escaped parts.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, Template
from markupsafe import Markup, escape

from rankbench.reports.page import Best, Link, Page, Picture, Second, State


def html(page: Page) -> str:
    """Return the document. A picture whose file is missing is left out."""
    return _template().render(page=page)


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"inline": _inline, "cell": _cell, "data_uri": _data_uri, "width": _width, "numeric": _numeric}
    return environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


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
        case State():
            return Markup('<span class="state {}">{}</span>').format(cell.replace(" ", "-"), text)
        case _:
            return text


def _data_uri(picture: Picture) -> str:
    """Return the picture as a data URI; empty if its file is missing."""
    if not picture.path.is_file():
        return ""
    return f"data:image/png;base64,{base64.b64encode(picture.path.read_bytes()).decode('ascii')}"


def _width(picture: Picture) -> int:
    """Return the width of a PNG file on the page: three quarters of its pixels, so that it is sharp on a dense screen."""
    return round(0.75 * int.from_bytes(picture.path.read_bytes()[16:20], "big"))


def _numeric(body: list[list[str]], column: int) -> bool:
    """Whether to align a column to the right: each of its cells is empty, starts with a number, or says why there is none."""
    none = ("not run", "failed", "not reached", "not available")
    cells = [line[column] for line in body if line[column] and not line[column].startswith(none)]
    return bool(cells) and all(re.match(r"(< )?[+-]?[\d,]*\.?\d+([ ÷–/%]|$)", cell) for cell in cells)
