"""Interactive figures of a report: the same data, colours and markers as the plots, with hover and zoom, drawn by Bokeh.

A chart is one dataset of a figure. Each method is a renderer of its own called `arm-<position>`, by which the legend of the
page hides it in all charts. What has no method is tagged `ink`: the page gives it the colour of text, on light and on dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbench.evaluation.compare import Comparison, p_text
from rankbench.reports.effects import in_order, is_logarithmic, is_strip, searched
from rankbench.reports.figures import short
from rankbench.reports.page import Chart
from rankbench.reports.palette import INK
from rankbench.reports.pareto import fit_seconds, front
from rankbench.reports.plots import far, followed_curves
from rankbench.reports.tables import Row, Table, setting_text
from rankbench.tracking.record import RunRecord

if TYPE_CHECKING:
    from bokeh.plotting import figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"  # that of the page
TOOLS = ".bk-divider { background-color: currentColor; opacity: 0.25; }"  # its own colour glares on a dark page
HIGH, SMALL = 380, 250  # pixels; a chart with a line per method is as high as its lines need
Columns = Mapping[str, Sequence[Any] | np.ndarray]


def bokeh_script() -> str:
    """Return Bokeh's JavaScript, which a page with charts contains."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], minified=True, log_level="warn").js_raw)


def final_charts(table: Table, metric: str) -> list[Chart]:
    """Return one chart per dataset: `metric` of each model on test with its interval, and the published number."""
    charts = []
    for dataset, rows in _by_dataset(row for row in table.rows if metric in row.cells or metric in row.published):
        plot = _plot(f"{metric} on test", high=_high(len(rows)))
        _lines(plot, [row.arm for row in rows])
        hover = []
        for y, row in enumerate(rows):
            if cell := row.cells.get(metric):
                low, high = cell.low if cell.low is not None else cell.mean, cell.high if cell.high is not None else cell.mean
                columns: Columns = {
                    "arm": [_plain(row.arm)], "y": [y], "x": [cell.mean], "low": [low], "high": [high],
                    "published": [_number(cell.published)], "setting": [_setting(row)],
                }  # fmt: skip
                source = _source(columns)
                _interval(plot, source, table, row.arm)
                hover.append(_points(plot, source, table, row.arm))
        _hover(plot, hover, ("model", "@arm"), (metric, "@x{0.0000}"), ("95 %", "@low{0.0000} – @high{0.0000}"),
               ("published", "@published"), ("setting", "@setting"))  # fmt: skip
        published = [(_plain(row.arm), y, row.published[metric]) for y, row in enumerate(rows) if metric in row.published]
        if published:
            names, ys, numbers = zip(*published, strict=True)
            mark = _marks(plot, {"arm": names, "y": ys, "x": numbers}, "diamond", 12)
            _hover(plot, [mark], ("model", "@arm"), ("published", "@x{0.0000}"))
        charts.append(_chart(plot, dataset))
    return charts


def difference_charts(table: Table) -> list[Chart]:
    """Return one chart per dataset and metric: the difference of each model from the best one with its interval."""
    from bokeh.models import Span

    charts = []
    for dataset, metric in dict.fromkeys((pair.dataset, pair.metric) for pair in table.differences):
        pairs = [pair for pair in table.differences if (pair.dataset, pair.metric) == (dataset, metric)]
        edge = far(pairs) or 1.0
        label = f"difference from {short(pairs[0].against, 28)}"
        plot = _plot(label, high=_high(len(pairs)), x_range=_around(pairs, edge))
        _lines(plot, [pair.model for pair in pairs])
        plot.add_layout(Span(location=0, dimension="height", line_width=1, line_color=INK, tags=["ink"]))
        hover = []
        for y, pair in enumerate(pairs):
            outside = abs(pair.difference) > edge
            shown = math.copysign(edge, pair.difference) if outside else pair.difference
            columns: Columns = {
                "arm": [_plain(pair.model)], "y": [y], "x": [shown], "difference": [pair.difference], "verdict": [pair.verdict],
                "low": [pair.low], "high": [pair.high], "shares": [_shares(pair)], "p": [_p(pair)],
            }  # fmt: skip
            if outside:
                marker = "triangle_left" if shown < 0 else "triangle_right"
                hover.append(_points(plot, columns, table, pair.model, marker=marker))
                continue
            source = _source(columns)
            _interval(plot, source, table, pair.model)
            hover.append(_points(plot, source, table, pair.model, hollow=not pair.distinguishable))
        _hover(plot, hover, ("model", "@arm"), ("verdict", "@verdict"), ("difference", "@difference{+0.0000}"),
               ("95 %", "@low{+0.0000} – @high{+0.0000}"), ("p (Holm)", "@p"), ("users better", "@shares"))  # fmt: skip
        charts.append(_chart(plot, f"{dataset}, {metric}"))
    return charts


def convergence_charts(table: Table, finals: Sequence[RunRecord], metric: str) -> list[Chart]:
    """Return two charts per dataset with curves: the metric against iterations, and against training seconds."""
    from bokeh.models import Line

    followed = followed_curves(finals, metric)
    if followed is None:
        return []
    column, label, runs = followed
    charts = []
    for dataset in dict.fromkeys(record.dataset.name for record in runs):
        own = [record for record in runs if record.dataset.name == dataset]
        curves = {arm: _curve([r for r in own if (r.arm or r.method) == arm], column) for arm in _arms(table, own)}
        times = np.concatenate([curve["seconds"] for curve in curves.values()])
        times = times[times > 0]
        logarithmic = len(times) > 0 and times.max() > 4 * times.min()
        for axis, title in (("iteration", "iterations"), ("seconds", "training seconds without evaluation")):
            scale = "log" if logarithmic and axis == "seconds" else "linear"
            plot = _plot(title, label, x_axis_type=scale)
            hover = []
            for arm, curve in curves.items():
                style = table.styles[arm]
                columns = curve | {"arm": [_plain(arm)] * len(curve["value"])}
                source = _source(columns)
                line = Line(x=axis, y="value", line_color=style.colour, line_dash=list(style.dash), line_width=1.5)
                plot.add_glyph(source, line, name=table.style_id(arm))
                hover.append(_points(plot, source, table, arm, x=axis, y="value", size=4))
            _hover(plot, hover, ("model", "@arm"), ("value", "@value{0.0000}"), ("iteration", "@iteration"),
                   ("seconds", "@seconds{0.00}"), ("seed", "@seed"))  # fmt: skip
            charts.append(_chart(plot, f"{dataset}, by {'iteration' if axis == 'iteration' else 'time'}"))
    return charts


def pareto_charts(table: Table, metric: str) -> list[Chart]:
    """Return one chart per dataset with two measured models: `metric` on test against fit seconds, with the front."""
    from bokeh.core.properties import value
    from bokeh.models import Step, Text

    charts = []
    largest = max((row.peak_memory_gb for row in table.rows if metric in row.cells), default=0.0) or 1.0
    for dataset, rows in _by_dataset(row for row in table.rows if metric in row.cells):
        if len(rows) < 2:
            continue
        seconds = [fit_seconds(row) for row in rows]
        scale = "log" if max(seconds) > 4 * min(seconds) else "linear"
        plot = _plot("seconds of the fit", f"{metric} on test", x_axis_type=scale)
        steps = front(rows, metric)
        line = {"x": [fit_seconds(row) for row in steps], "y": [row.cells[metric].mean for row in steps]}
        plot.add_glyph(_source(line), Step(x="x", y="y", mode="after", line_color=INK, tags=["ink"]))
        plot.x_range.range_padding = plot.y_range.range_padding = 0.25
        hover = []
        for row in rows:
            columns: Columns = {
                "arm": [_plain(row.arm)], "x": [fit_seconds(row)], "y": [row.cells[metric].mean],
                "memory": [row.peak_memory_gb], "setting": [_setting(row)],
            }  # fmt: skip
            size = 8 + 10 * math.sqrt(row.peak_memory_gb / largest)
            hover.append(_points(plot, columns, table, row.arm, size=size))
        middle = math.sqrt(min(seconds) * max(seconds)) if scale == "log" else (min(seconds) + max(seconds)) / 2
        for row in steps:
            # The front rises to the right, so a name covers none of its points below it on the right and above it on the left.
            across, upright = ("right", -9), ("bottom", -5)
            if fit_seconds(row) <= middle:
                across, upright = ("left", 9), ("top", 5)
            label = Text(x="x", y="y", text="name", text_color=INK, tags=["ink"])
            (label.text_align, label.x_offset), (label.text_baseline, label.y_offset) = across, upright
            label.text_font, label.text_font_size = value(FONT), value("12px")
            name = {"x": [fit_seconds(row)], "y": [row.cells[metric].mean], "name": [_plain(short(row.arm, 26))]}
            plot.add_glyph(_source(name), label, name=table.style_id(row.arm))
        _hover(plot, hover, ("model", "@arm"), (metric, "@y{0.0000}"), ("fit", "@x{0.00} s"), ("peak", "@memory{0.0} GB"),
               ("setting", "@setting"))  # fmt: skip
        charts.append(_chart(plot, dataset))
    return charts


def effect_charts(table: Table, records: Sequence[RunRecord], metric: str) -> list[Chart]:
    """Return one chart per dataset and searched parameter: `metric` on validation of each setting, a marker per model."""
    members: dict[tuple[str, str], dict[str, list[RunRecord]]] = {}
    for (arm, name), runs in searched(records, metric).items():
        for run in runs:
            members.setdefault((run.dataset.name, name), {}).setdefault(arm, []).append(run)
    charts = []
    for (dataset, name), by_arm in sorted(members.items()):
        settings = [run.params.get(name) for runs in by_arm.values() for run in runs]
        values = in_order(settings)
        strip = is_strip(values, len(settings))
        axis: dict[str, Any] = {"x_axis_type": "log" if not strip and is_logarithmic(values) else "linear"}
        if strip:
            axis = {"x_range": [_value(value) for value in values]}
        plot = _plot(name, f"{metric}, valid", high=SMALL, **axis)
        hover = []
        for arm in _arms(table, [run for runs in by_arm.values() for run in runs]):
            runs = by_arm[arm]
            columns: Columns = {
                "arm": [_plain(arm)] * len(runs),
                "x": [_value(run.params.get(name)) if strip else run.params[name] for run in runs],
                "y": [run.metrics[metric].mean for run in runs],
                "setting": [_plain(setting_text(_varied(run, by_arm[arm]))) for run in runs],
            }
            hover.append(_points(plot, columns, table, arm, size=6))
        _hover(plot, hover, ("model", "@arm"), (metric, "@y{0.0000}"), ("setting", "@setting"))
        charts.append(_chart(plot, f"{dataset}, {name}"))
    return charts


def _plot(x_label: str, y_label: str = "", high: int = HIGH, **options: Any) -> figure:
    """Return an empty plot in the style of all charts. The page sets the colours of its axes and ground."""
    from bokeh.models import BasicTicker, BasicTickFormatter, DataRange1d, LinearAxis, LogAxis
    from bokeh.plotting import figure

    plot = figure(
        height=high, sizing_mode="stretch_width", tools="box_zoom,pan,wheel_zoom,reset", active_drag="box_zoom",
        toolbar_location="above", min_border_right=14, outline_line_color=None, background_fill_color=None,
        border_fill_color=None, **options,
    )  # fmt: skip
    plot.toolbar.logo = None
    plot.toolbar.stylesheets = [TOOLS]
    for axis, label in ((plot.xaxis, x_label), (plot.yaxis, y_label)):
        axis.axis_label = _plain(label) or None
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size, axis.major_label_text_font_size = "13px", "12px"
        axis.minor_tick_line_color = None
    for kind, scale in ((plot.xaxis, plot.x_range), (plot.yaxis, plot.y_range)):
        if isinstance(scale, DataRange1d):
            scale.range_padding = 0.12
        if isinstance(kind[0], LinearAxis):
            kind.ticker = BasicTicker(desired_num_ticks=5)
        elif isinstance(kind[0], LogAxis):
            kind.formatter = BasicTickFormatter(use_scientific=False)
    return plot


def _points(
    plot: figure,
    columns: Any,
    table: Table,
    arm: str,
    x: str = "x",
    y: str = "y",
    size: float = 9,
    marker: str = "",
    hollow: bool = False,
) -> Any:
    """Add the markers of a method; returns their renderer, for the hover."""
    from bokeh.models import Scatter

    style = table.styles[arm]
    inside = {"fill_color": None} if hollow else {"fill_color": style.colour}
    line = {"line_color": style.colour, "line_width": 1.5}
    glyph = Scatter(x=x, y=y, size=size, marker=marker or style.marker, **inside, **line)
    if marker:
        glyph.marker, glyph.angle = "triangle", math.pi / 2 if marker == "triangle_left" else -math.pi / 2
    return plot.add_glyph(_source(columns), glyph, name=table.style_id(arm))


def _interval(plot: figure, source: Any, table: Table, arm: str) -> None:
    from bokeh.models import Segment

    glyph = Segment(x0="low", y0="y", x1="high", y1="y", line_color=table.styles[arm].colour, line_width=2)
    plot.add_glyph(source, glyph, name=table.style_id(arm))


def _marks(plot: figure, columns: Columns, marker: str, size: float) -> Any:
    """Add hollow markers of what belongs to no method of its own."""
    from bokeh.models import Scatter

    glyph = Scatter(x="x", y="y", size=size, marker=marker, fill_color=None, line_color=INK, line_width=1.5, tags=["ink"])
    return plot.add_glyph(_source(columns), glyph)


def _hover(plot: figure, renderers: list[Any], *lines: tuple[str, str]) -> None:
    from bokeh.models import HoverTool

    plot.add_tools(HoverTool(renderers=renderers, tooltips=list(lines)))


def _source(columns: Any) -> Any:
    from bokeh.models import ColumnDataSource

    return columns if isinstance(columns, ColumnDataSource) else ColumnDataSource(data=dict(columns))


def _chart(plot: figure, title: str) -> Chart:
    from bokeh.embed import json_item

    return Chart(title, json.dumps(json_item(plot), separators=(",", ":"), allow_nan=False), plot.height)


def _curve(records: Sequence[RunRecord], column: str) -> dict[str, np.ndarray]:
    """Return the points of several runs one after the other, with a gap between two runs so that no line joins them."""
    parts: dict[str, list[float]] = {"iteration": [], "seconds": [], "value": [], "seed": []}
    for record in records:
        for row in record.curve:
            if column in row:
                values = (row["iteration"], row["seconds"], row[column], record.seed)
                for name, value in zip(parts, values, strict=True):
                    parts[name].append(value)
        for name in parts:
            parts[name].append(math.nan)
    return {name: np.array(values[:-1], np.float32) for name, values in parts.items()}


def _arms(table: Table, records: Iterable[RunRecord]) -> list[str]:
    """Return the arms of the records in the order of the table."""
    present = {record.arm or record.method for record in records}
    return [arm for arm in table.styles if arm in present]


def _around(pairs: Sequence[Comparison], edge: float) -> tuple[float, float]:
    """Return the range of an axis with 0 and all intervals within `edge`."""
    ends = [end for pair in pairs for end in (pair.low, pair.high)]
    low, high = max(-edge, min([0.0, *ends])), min(edge, max([0.0, *ends]))
    margin = 0.06 * (high - low) or 1e-6
    return low - margin, high + margin


def _by_dataset(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.dataset, []).append(row)
    return list(groups.items())


def _high(lines: int) -> int:
    """Return the height in pixels of a chart with this number of lines."""
    return 110 + 24 * max(2, lines)


def _lines(plot: figure, names: Sequence[str]) -> None:
    """Give each name a line of the chart, the first one at the top."""
    from bokeh.models import FixedTicker, Range1d

    plot.y_range = Range1d(len(names) - 0.4, -0.6)
    plot.yaxis.ticker = FixedTicker(ticks=[*range(len(names))])
    plot.yaxis.major_label_overrides = {y: _plain(short(name, 26)) for y, name in enumerate(names)}


def _plain(text: str) -> str:
    """Return a text without the signs that would make Bokeh read it as a formula."""
    return text.replace("$$", "$ $").replace("\\(", "\\ (").replace("\\[", "\\ [")


def _value(value: Any) -> str:
    return _plain(f"{value:g}" if isinstance(value, float) else str(value))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _setting(row: Row) -> str:
    return _plain(setting_text({name: value for name, value in row.params.items() if name in row.stated}))


def _varied(run: RunRecord, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the parameters of `run` that differ among `runs`."""
    return {name: value for name, value in run.params.items() if len({str(other.params.get(name)) for other in runs}) > 1}


def _shares(pair: Comparison) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in (pair.better, pair.equal, pair.worse)) + " %"


def _p(pair: Comparison) -> str:
    return f"Wilcoxon {p_text(pair.p_wilcoxon_holm)}, bootstrap {p_text(pair.p_bootstrap_holm)}"
