"""Draw figures by matplotlib: as a PNG file of all panels, and as SVG elements of single panels inside a page.

In a page, text and lines without a method take the colours of the page, markers have their tips, and what belongs to a method
has its name, by which the legend of the page hides it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np

from rankbench.core.files import atomic_file
from rankbench.reports.figure import GREY, INK, Figure, Marks, Panel, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

STYLE: dict[Any, Any] = {
    "font.size": 9.5, "axes.titlesize": 10.5, "axes.labelsize": 9.5, "axes.titleweight": "bold", "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#8a94a0", "axes.titlecolor": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "text.color": INK, "grid.color": "#c9d0d8",
    "grid.linewidth": 0.6, "svg.fonttype": "none", "legend.fontsize": 8,
    "text.parse_math": False,  # a dollar sign in the name of a model is one
}  # fmt: skip
OF_THE_PAGE = {INK: "currentColor", "#8a94a0": "var(--soft)", "#c9d0d8": "var(--line)", "#ffffff": "var(--card)"}
FONT = re.compile(r"font: (?:bold |\d+ )?([\d.]+px)[^;\"]*")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what no SVG may contain
COLOURS = 128  # in the palette of a saved picture: more than it uses, and a third of the bytes of a full-colour file
LEGEND_LINES = 15  # as many as one panel has room for
LIGHT = 85  # percent from where on the numbers of a table of colours are white
AROUND = [(1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)]  # sides for the name of a point, best first
GAPS = (1.5, 9, 18, 30, 44)  # distances between a point and its name, nearest first
SVG = "{http://www.w3.org/2000/svg}"


def draw(figure: Figure, path: Path, dpi: int = 130) -> Path:
    """Write a figure atomically as a file: PNG with a palette, or PDF or SVG by the name of the file. The settings of
    matplotlib, which belong to the user of a notebook, stay as they are, and pyplot is not used.
    """
    from matplotlib import rc_context
    from PIL import Image

    kind = path.suffix.removeprefix(".")
    with rc_context(STYLE), atomic_file(path) as scratch:
        _drawn(figure.panels, figure.columns, figure.shared).savefig(scratch, dpi=dpi, format=kind)
        if kind == "png":
            with Image.open(scratch, formats=["PNG"]) as picture:
                small = picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
            small.save(scratch, format="PNG", optimize=True)
    return path


def svg(panel: Panel, number: int) -> str:
    """Return a panel as an SVG element for a page that has others. `number` tells them apart."""
    from matplotlib import rc_context

    text = StringIO()
    with rc_context(STYLE | {"svg.hashsalt": f"panel {number}"}):
        drawing = _drawn([panel], in_page=True)
        drawing.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    root = ET.fromstring(CONTROL.sub("", text.getvalue()))
    for element in list(root.iter()):
        name, _, number_of = element.attrib.pop("id", "").partition("-")
        if name and element.tag in (f"{SVG}path", f"{SVG}clipPath"):  # of a marker, by which it is used
            element.set("id", name)
        elif name == "mark":
            _say_what_it_is(element, panel.marks[int(number_of)])
        elif name == "label" and (arm := panel.labels[int(number_of)].arm):
            element.set("data-arm", arm)
        for part in [*element.findall(f"{SVG}metadata"), *element.findall(f"{SVG}style")]:
            element.remove(part)
    wide = float(root.attrib.pop("width").removesuffix("pt")) / 72 * 96
    del root.attrib["height"]
    size = f"flex: 1 1 {wide:.0f}px; max-width: min(100%, {1.25 * wide:.0f}px)"
    root.attrib |= {
        "style": size,
        "role": "img",
        "aria-label": ", ".join(filter(None, (panel.title, panel.y_label, panel.x_label))),
    }
    ET.register_namespace("", SVG.strip("{}"))
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    found = ET.tostring(root, encoding="unicode")
    for colour, of_page in OF_THE_PAGE.items():
        found = found.replace(colour, of_page)
    return FONT.sub(r"font-size: \1", CONTROL.sub("", found))


def _say_what_it_is(element: ET.Element, marks: Marks) -> None:
    """Give drawn marks their method, and each marker its tip."""
    if marks.arm:
        element.set("data-arm", marks.arm)
    markers = list(element.iter(f"{SVG}use"))
    if len(markers) == len(marks.tips):
        for marker, tip in zip(markers, marks.tips, strict=True):
            ET.SubElement(marker, f"{SVG}title").text = tip


def _drawn(panels: Sequence[Panel], columns: int = 1, shared: bool = False, in_page: bool = False) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    columns = min(columns, len(panels))
    lines = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    wide = [max(line[column].size[0] for line in lines if column < len(line)) for column in range(columns)]
    high = [max(panel.size[1] for panel in line) for line in lines]
    size = sum(wide), sum(high)
    drawing = Drawing(figsize=size, dpi=72)  # so that pixels are points
    axes = drawing.subplots(len(lines), columns, squeeze=False, width_ratios=wide, height_ratios=high)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes.flat, panels, strict=False):
        _panel(axis, panel)
    if shared:
        _shared_legend(axes[0][-1], panels)
    if panels[0].small:
        # Computed from inches: matplotlib's own layout would draw eighty panels twice.
        drawing.subplots_adjust(0.6 / size[0], 0.45 / size[1], 1 - 0.1 / size[0], 1 - 0.2 / size[1], wspace=0.32, hspace=0.75)
    else:
        drawing.tight_layout()
    for axis, panel in zip(axes.flat, panels, strict=False):
        _name_points(axis, panel, in_page)
    return drawing


def _panel(axis: Axes, panel: Panel) -> None:
    if panel.shares is not None:
        _table_of_colours(axis, np.asarray(panel.shares, float))
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    if panel.band:
        axis.axvspan(*panel.band, color="#c9d0d8", alpha=0.5, lw=0, zorder=0)
    if panel.zero:
        axis.axvline(0, color=INK, lw=0.8, zorder=1)
    for number, marks in enumerate(panel.marks):
        _marks(axis, marks, f"mark-{number}")
    for number, label in enumerate(panel.labels):
        if label.side:
            align = "right" if label.side == "left" else "left"
            axis.text(label.x, label.y, label.text, ha=align, va="center", fontsize=8, gid=f"label-{number}")
    axis.margins(0.12 if panel.small else panel.margin)
    if panel.small:
        axis.set_title(short(panel.title, 29), fontsize=8, pad=3)
        axis.set_xlabel(panel.x_label, fontsize=7.5, labelpad=1)
        axis.set_ylabel(panel.y_label, fontsize=7)
        axis.tick_params(labelsize=6.5, length=2, pad=1.5)
    else:
        axis.set_title(short(panel.title, 48), loc="left")
        axis.set(xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.grid:
        axis.grid(axis=panel.grid, lw=0.4 if panel.small else 0.6)
        axis.set_axisbelow(True)
    _ticks(axis, panel)
    if panel.x_limits:
        axis.set_xlim(*panel.x_limits)
    if panel.shares is not None:
        axis.xaxis.tick_top()
        axis.tick_params(length=0, labelsize=8)
        axis.spines[:].set_visible(False)
        for tick in axis.get_xticklabels():
            tick.set(rotation=40, ha="left")
    if not any(len(marks.x) for marks in panel.marks) and panel.shares is None:
        axis.set_axis_off()  # a panel of names alone
    if any(marks.name for marks in panel.marks):
        above = {"loc": "lower right", "bbox_to_anchor": (1, 0.98), "ncols": 3}
        axis.legend(**({"loc": panel.legend} if panel.legend else above))


def _marks(axis: Axes, marks: Marks, gid: str) -> None:
    style = marks.style
    line = ((0, style.dash) if style.dash else "-") if marks.width else ""
    inside = "white" if marks.hollow else style.colour
    look: dict[str, Any] = {"color": style.colour, "ls": line, "lw": marks.width, "label": marks.name or None, "gid": gid}
    if marks.across:
        axis.axhline(marks.y[0], **look)
        return
    axis.plot(
        marks.x, marks.y, marker=style.marker if marks.size else "", ms=marks.size, mfc=inside,
        mec=marks.edge or style.colour, drawstyle="steps-post" if marks.steps else "default",
        solid_capstyle="butt", zorder=3 if marks.size else 2, **look,
    )  # fmt: skip


def _ticks(axis: Axes, panel: Panel) -> None:
    """Set the places and texts of the ticks: names, plain numbers of logarithmic axes, or few numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for own, logarithmic, ends in ((axis.xaxis, panel.log_x, axis.get_xlim()), (axis.yaxis, panel.log_y, axis.get_ylim())):
        if logarithmic:
            own.set_major_locator(LogLocator(subs=(1, 2, 5) if ends[1] < 1000 * ends[0] and not panel.small else (1,)))
            own.set_major_formatter(StrMethodFormatter("{x:g}"))
            own.set_minor_formatter(NullFormatter())
    if panel.rows:
        axis.set_yticks(range(len(panel.rows)), [short(name, 32) for name in panel.rows])
        if panel.dense:
            axis.tick_params(labelsize=7)
        axis.set_ylim(len(panel.rows) - (0.5 if panel.shares else 0.3), -0.5 if panel.shares else -0.7)
    elif panel.small and not panel.log_y:
        axis.locator_params(axis="y", nbins=4)
    if panel.columns:
        axis.set_xticks(range(len(panel.columns)), panel.columns)
        axis.set_xlim(-0.5, len(panel.columns) - 0.5)
        if panel.small and sum(map(len, panel.columns)) > 22:
            axis.tick_params(axis="x", rotation=45)
    elif not panel.log_x:
        axis.locator_params(axis="x", nbins=8 if panel.dense else 4 if panel.small or panel.rows else 6)
    if panel.percent:
        axis.xaxis.set_major_formatter(lambda value, position: f"{100 * value:+.0f} %")


def _shared_legend(axis: Axes, panels: Sequence[Panel]) -> None:
    """Name the methods of all panels beside the last one of the first line."""
    from matplotlib.lines import Line2D

    looks = {marks.arm: marks.style for panel in panels for marks in panel.marks if marks.arm}
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, ls=(0, look.dash) if look.dash else "-", ms=2.4, lw=1.1)
        for look in looks.values()
    ]
    columns = -(-len(looks) // LEGEND_LINES)
    axis.legend(handles, [*map(short, looks)], loc="upper left", bbox_to_anchor=(1.01, 1), ncols=columns)


def _table_of_colours(axis: Axes, shares: np.ndarray) -> None:
    """Draw percents as the depth of a colour, with their numbers; 50 is as pale as nothing."""
    rows, columns = (np.arange(n + 1) - 0.5 for n in shares.shape)
    axis.pcolormesh(columns, rows, shares, cmap="Blues", vmin=50, vmax=100)
    for (row, column), share in np.ndenumerate(shares):
        # A cell without a value has the ground of the page, which may be dark.
        text, colour = ("–", INK) if np.isnan(share) else (f"{share:.0f}", "#fefefe" if share > LIGHT else "#000001")
        axis.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)


def _name_points(axis: Axes, panel: Panel, in_page: bool) -> None:
    """Write each name near its point, with a thin line if it is not next to it: at the first place inside of the panel that
    covers no other name or point, or else at the first one.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    names = [(number, label) for number, label in enumerate(panel.labels) if not label.side]
    if not names:
        return
    legend, room, place = axis.get_legend(), axis.get_window_extent(), axis.transData.transform
    radius_at = {at: marks.size / 2 for marks in panel.marks if marks.size for at in zip(marks.x, marks.y, strict=True)}
    taken = [Bbox([place(at) - radius, place(at) + radius]) for at, radius in radius_at.items()]
    taken += [legend.get_window_extent()] if legend else []
    for number, label in names:
        at: Any = place((label.x, label.y))
        radius = radius_at.get((label.x, label.y), 0)
        text = axis.annotate(label.text, at, xycoords="figure pixels", fontsize=7.5, ha="center", va="center")
        size = text.get_window_extent()
        text.remove()
        half = np.array([size.width / 2 + 1, size.height / 2])
        offsets: list[Any] = [np.array(side) * (radius + gap + half) for gap in GAPS for side in AROUND]
        boxes = [Bbox([at + offset - half, at + offset + half]) for offset in offsets]
        inside = (i for i, box in enumerate(boxes) if room.contains(*box.min) and room.contains(*box.max))
        chosen = next((i for i in inside if not any(map(boxes[i].fully_overlaps, taken))), 0)
        taken.append(boxes[chosen])
        near = chosen < len(AROUND)
        line = None if near else {"arrowstyle": "-", "lw": 0.4, "color": GREY, "shrinkA": 0, "shrinkB": radius}
        name = axis.annotate(
            label.text, (label.x, label.y), xytext=offsets[chosen], textcoords="offset points", fontsize=7.5, ha="center",
            va="center", zorder=4, arrowprops=line, gid=f"label-{number}",
        )  # fmt: skip
        if not in_page:  # where it would be drawn as outlines, and the style of the page does the same
            name.set_path_effects([withStroke(linewidth=2, foreground="white")])  # readable where it crosses a line
        name.set_in_layout(False)
