"""A page as one HTML file that needs nothing else: style, script and pictures lie in it, and no address is ever called.

Names come from experiment files and cards, which may be anyone's: the template escapes all text (Jinja's autoescape), and
what this file adds as markup is built from escaped parts alone.
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
    """The whole document. A picture whose file is missing is left out."""
    return _template().render(page=page)


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"inline": _inline, "cell": _cell, "data_uri": _data_uri, "width": _width, "numeric": _numeric}
    return environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


def _inline(text: str) -> Markup:
    """Text whose backticks stand around code."""
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
    """Empty where there is no such file."""
    if not picture.path.is_file():
        return ""
    return f"data:image/png;base64,{base64.b64encode(picture.path.read_bytes()).decode('ascii')}"


def _width(picture: Picture) -> int:
    """Of a PNG file, in the pixels of a page: three quarters of its own, so that it is sharp on a dense screen."""
    return round(0.75 * int.from_bytes(picture.path.read_bytes()[16:20], "big"))


def _numeric(body: list[list[str]], column: int) -> bool:
    """Whether a column is set to the right: every cell that is not empty starts with a number, or says that there is none."""
    none = ("not run", "failed", "not reached", "not available")
    cells = [line[column] for line in body if line[column] and not line[column].startswith(none)]
    return bool(cells) and all(re.match(r"(< )?[+-]?[\d,]*\.?\d+([ ÷–/%]|$)", cell) for cell in cells)
