"""Write a page as one HTML file that contains its style, scripts and pictures and loads nothing from the network.

A page with interactive charts contains Bokeh, 1.3 MB, and draws a chart when it comes into sight. Without scripts and on paper,
the pictures are shown instead.

Names come from experiment files and cards, which may be written by anyone: the template escapes all text (Jinja's autoescape),
and the markup that is added here is built only from escaped parts.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, Template
from markupsafe import Markup, escape

from rankbench.reports.page import Addresses, Best, Chart, Link, Page, Picture, Second, State
from rankbench.reports.palette import Style

HERE = Path(__file__).parent
MARKS = {  # outlines in a box of 34 by 14
    "circle": "M12.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "square": "M13 3h8v8h-8z",
    "triangle": "M17 2l5 9h-10z",
    "diamond": "M17 1.5l4.5 5.5l-4.5 5.5l-4.5 -5.5z",
    "inverted_triangle": "M17 12l5 -9h-10z",
    "hex": "M14.5 2.7h5l2.5 4.3l-2.5 4.3h-5l-2.5 -4.3z",
}


def html(page: Page) -> str:
    """Return the document. A picture whose file is missing is left out."""
    pictures = [block for section in page.sections for block in section.blocks if isinstance(block, Picture)]
    charts = [chart for picture in pictures for chart in picture.charts]
    numbers = {id(chart): number for number, chart in enumerate(charts)}
    return _template().render(page=page, numbers=numbers, library=Markup(_library()) if charts else "")


def _library() -> str:
    from rankbench.reports.interactive import bokeh_script  # imports Bokeh

    return bokeh_script().replace("</script", "<\\/script")


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "inline": _inline, "cell": _cell, "data_uri": _data_uri, "width": _width, "numeric": _numeric, "data": _data,
        "sign": _sign, "identity": id,
    }  # fmt: skip
    environment.globals |= {name: Markup((HERE / f"page.{name}").read_text(encoding="utf-8")) for name in ("css", "js")}
    return environment.from_string((HERE / "page.html").read_text(encoding="utf-8"))


def _data(chart: Chart) -> Markup:
    """Return the JSON of a chart such that no text in it can end the script element."""
    return Markup(chart.content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _sign(style: Style) -> Markup:
    """Return a small picture of a method's line and marker for the legend."""
    shape = MARKS[style.marker]
    return Markup(
        '<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true"><line x1="0" y1="7" x2="34" y2="7" stroke="{}" '
        'stroke-width="2" stroke-dasharray="{}"/><path d="{}" fill="{}"/></svg>'
    ).format(style.colour, " ".join(map(str, style.dash)) or "none", shape, style.colour)


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
            return Markup('<span class="state {}">{}</span>').format(cell.partition(" at ")[0].replace(" ", "-"), text)
        case Addresses():
            return Markup(", ").join(
                Markup('<a href="{}" rel="noopener noreferrer">{}</a>').format(address, name)
                for name, address in cell.pages
                if address.startswith(("http://", "https://"))
            )
        case _:
            return text


def _data_uri(picture: Picture) -> str:
    """Return the picture as a data URI; empty if its file is missing."""
    if picture.path is None or not picture.path.is_file():
        return ""
    return f"data:image/png;base64,{base64.b64encode(picture.path.read_bytes()).decode('ascii')}"


def _width(picture: Picture) -> int:
    """Return the width of a PNG file on the page: three quarters of its pixels, so that it is sharp on a dense screen."""
    assert picture.path is not None
    return round(0.75 * int.from_bytes(picture.path.read_bytes()[16:20], "big"))


def _numeric(body: list[list[str]], column: int) -> bool:
    """Whether to align a column to the right: each of its cells is empty, starts with a number, or says why there is none."""
    none = ("not run", "failed", "not reached", "not available")
    cells = [line[column] for line in body if line[column] and not line[column].startswith(none)]
    return bool(cells) and all(re.match(r"(< )?[+-]?[\d,]*\.?\d+([ ÷–/%]|$)", cell) for cell in cells)
