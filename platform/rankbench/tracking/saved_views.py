"""Views of an experiment in MLflow's pages: which runs are listed, with which columns, in which order, and which charts.

MLflow shows no metric in its table until somebody chooses columns. A saved view makes the choice: it is a tag of the experiment
(MLflow 3.15 and newer list it under *Views*), and a link can open it. The names of the fields are those of MLflow's pages.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankbench.core.markdown import without_tags
from rankbench.tracking.mlflow_internals import VIEW
from rankbench.tracking.run_fields import VERDICT, metric_key

SECONDS = "curve/seconds"  # training seconds at each step, the x-axis of convergence curves
NEWEST = "attributes.start_time"  # the order of runs by their start
WORDS = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR", "auc": "AUC"}  # metrics that are not written as their names

Chart = dict[str, Any]
Section = tuple[str, tuple[Chart, ...]]  # a title, and charts under it


@dataclass(frozen=True)
class View:
    """A list of runs that match `filter`, sorted by their main `metric`, or with the newest first.

    `sections`: titles and their charts. Without charts, a section has the title of a prefix of metrics: there MLflow puts
    charts of the other metrics with this prefix, and the section is closed at first.
    """

    id: str
    name: str
    filter: str
    metric: str
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    newest_first: bool = False

    def tag(self, time: int) -> tuple[str, str]:
        """Return the key and value of the experiment's tag. `time`: ms since 1970."""
        state = json.dumps(self._state(), separators=(",", ":"))
        packed = "deflate;" + base64.b64encode(zlib.compress(state.encode())).decode()
        return VIEW + self.id, json.dumps({"name": self.name, "createdAt": time, "updatedAt": time, "state": packed})

    def _state(self) -> dict[str, Any]:
        sections, charts = [], []
        for number, (title, members) in enumerate(self.sections):
            uuid = f"{self.id}-{number}"
            wide = 2 if len(members) in (1, 2, 4) else 3
            about = {"uuid": uuid, "name": title, "display": bool(members), "columns": wide}
            sections.append(about | {"isReordered": False, "deleted": False, "isGenerated": False})
            for position, chart in enumerate(members):
                own = {"uuid": f"{uuid}-{position}", "metricSectionId": uuid, "deleted": False, "isGenerated": False}
                charts.append(own | chart)
        return {
            "searchFilter": self.filter,
            "orderByKey": NEWEST if self.newest_first else column("metrics", self.metric),
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": list(self.columns),
            "columnOrder": list(self.columns),
            "columnWidths": {each: 300 if VERDICT in each else max(130, 8 * len(each)) for each in self.columns},
            "runsHidden": [],
            "runsHiddenMode": "SHOW_ALL",
            "compareRunCharts": charts,
            "compareRunSections": sections,
            "viewMaximized": False,
            "runListHidden": False,
            "isAccordionReordered": True,
            "groupBy": None,
            "groupsExpanded": {},
            "useGroupedValuesInCharts": True,
            "hideEmptyCharts": True,
            "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        }


def sweep_views(
    sweep: str, name: str, metric: str, reported: Sequence[str], searched: Sequence[Sequence[str]], curves: bool
) -> list[View]:
    """Return the views of a sweep: its arms, each with the means over its seeds, its final runs, and its search on valid.

    `sweep` is the id of the sweep, `name` ends the names of its views, `metric` is the one that settings are chosen by,
    `reported` are those of the table, and `searched` are the parameters that the search varies, for each arm. `curves`:
    whether an arm is iterative.
    """
    tests, best = _tests(metric, reported), metric_key("valid", metric)
    params = tuple(dict.fromkeys(name for names in searched for name in names))
    about, varied = _columns("params", ("dataset", "method")), _columns("params", params)
    cost = _columns("metrics", ("seconds/fit", "peak_memory_gb"))
    bounds = (f"{tests[0]}_{end}" for end in ("low", "high", "p_value"))
    arms = View(
        id=f"{sweep}-arms",
        name=f"arms {name}",
        filter=_of_stage("arm", sweep),
        metric=tests[0],
        columns=(column("tags", VERDICT), *_columns("metrics", (tests[0], *bounds, *tests[1:])), *cost, *about, *varied),
        sections=_final_sections(metric, tests, curves),
    )
    views = [arms, seeds_view(sweep, name, metric, reported, curves)]
    # Only runs that have all parameters of a plot are shown in it.
    drawn = list(dict.fromkeys(tuple(names) for names in searched if names))
    axes = ("method",) if len(searched) > 1 else ()
    if drawn:
        validation = f"Validation {in_words(metric)}"
        plots = (*(parallel((*axes, *names), best) for names in drawn), bar(best))
        search = View(
            id=f"{sweep}-search",
            name=f"search {name}",
            filter=_of_stage("search", sweep),
            metric=best,
            columns=(column("metrics", best), *varied, cost[0], *about),
            sections=(
                (f"{validation} by searched parameters", plots),
                *([_curves("curve/valid", validation), LOSS] if curves else []),
                ("Cost of the fit", (bar("seconds/fit"), bar("peak_memory_gb"))),
                *_others("valid", curves),
            ),
        )
        views.append(search)
    return views


def seeds_view(sweep: str, name: str, metric: str, reported: Sequence[str], curves: bool) -> View:
    """Return the view of the final runs of a sweep, one per arm and seed."""
    tests = _tests(metric, reported)
    about = _columns("params", ("dataset", "method", "seed"))
    return View(
        id=f"{sweep}-seeds",
        name=f"seeds {name}",
        filter=_of_stage("final", sweep),
        metric=tests[0],
        columns=(*_columns("metrics", (*tests, "seconds/fit", "peak_memory_gb")), *about),
        sections=_final_sections(metric, tests, curves, curves_first=True),
    )


def standing_view(name: str, filter: str, curves: bool) -> View:
    """Return a view of runs that belong to no sweep, of any method on any dataset."""
    metric, tests = "ndcg@20", _tests("ndcg@20", ("recall@20",))
    about = _columns("params", ("dataset", "method"))
    by_method = f"Test {in_words(metric)} by dataset and method", (parallel(("dataset", "method"), tests[0]),)
    return View(
        id=name,
        name=name,
        filter=filter,
        metric=tests[0],
        columns=(*about, *_columns("metrics", (*tests, "seconds/fit", "peak_memory_gb"))),
        sections=(by_method, *_final_sections(metric, tests, curves)),
        newest_first=True,
    )


def in_words(metric: str) -> str:
    """Return a metric as it is written in text: nDCG@20 for ndcg@20."""
    name, at, k = metric.partition("@")
    return WORDS.get(name, name.replace("_", " ")) + at + k


def _tests(metric: str, reported: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(metric_key("test", each) for each in (metric, *reported)))


def _columns(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(column(kind, name) for name in names)


def _final_sections(metric: str, tests: Sequence[str], curves: bool, curves_first: bool = False) -> tuple[Section, ...]:
    """Return the sections of runs that were measured on test; with `curves_first`, of runs that may not have ended yet."""
    words, curve = in_words(metric), metric_key("curve", metric)
    result: tuple[Section, ...] = (("Result on test", tuple(map(bar, tests))),)
    drawn = (_curves(curve, f"Test sample: {words}"), LOSS) if curves else ()
    return (
        *(drawn + result if curves_first else result + drawn),
        ("Cost of the fit", (bar("seconds/fit"), scatter("seconds/fit", tests[0]), bar("peak_memory_gb"))),
        *_others("test", curves),
    )


def _others(part: str, curves: bool) -> tuple[Section, ...]:
    """Return closed sections, for metrics that have no chart of their own in a view."""
    return (part, ()), ("seconds", ()), *([("curve", ())] if curves else [])


def _of_stage(stage: str, sweep: str) -> str:
    return f"tags.`rankbench.stage` = '{stage}' and tags.`rankbench.of_sweep` = '{sweep}'"


def column(kind: str, name: str) -> str:
    """Return a column of the table: `kind` is attributes, params, metrics or tags."""
    return f"{kind}.`{name}`"


def bar(metric: str) -> Chart:
    """Return a chart with one bar per run."""
    return {"type": "BAR", "metricKey": metric, "displayName": metric, "runsCountToCompare": 100}


def line(metric: str, by_seconds: bool) -> Chart:
    """Return a chart with one curve per run, over training seconds or over steps."""
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "displayName": f"{metric} by {'training seconds' if by_seconds else 'step'}",
        "runsCountToCompare": 100,
        "xAxisKey": "metric" if by_seconds else "step",
        "selectedXAxisMetricKey": SECONDS if by_seconds else "",
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": True,
        "lineSmoothness": 0,
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
    }


def _curves(metric: str, words: str) -> Section:
    # MLflow heads a chart with the name of its metric, so that the section says what the charts show, in 43 characters.
    return f"{words} over seconds and steps", (line(metric, True), line(metric, False))


LOSS = _curves("curve/loss", "Training loss")


def scatter(x: str, y: str) -> Chart:
    """Return a chart with one point per run at two metrics."""
    return {
        "type": "SCATTER",
        "displayName": f"{y} over {x}",
        "runsCountToCompare": 100,
        "xaxis": {"key": x, "type": "METRIC"},
        "yaxis": {"key": y, "type": "METRIC"},
    }


def parallel(params: Sequence[str], metric: str) -> Chart:
    """Return a plot with parallel coordinates of parameters, numbers or names, and a metric."""
    return {
        "type": "PARALLEL",
        "displayName": f"{metric} by {', '.join(params)}",
        "runsCountToCompare": 500,
        "selectedParams": list(params),
        "selectedMetrics": [metric],
        "showAllRuns": True,
    }


def view_links(experiment: str, tags: Mapping[str, str]) -> str:
    """Return links, in Markdown, to the views in the `tags` of an experiment (an id), as a table and as charts."""
    links = []
    for key, value in tags.items():
        if key.startswith(VIEW):
            name, address = json.loads(value)["name"], f"#/experiments/{experiment}/runs?viewStateShareKey={key[len(VIEW) :]}"
            links.append(f"{without_tags(name)}: [table]({address}), [charts]({address}&compareRunsMode=CHART)")
    return "; ".join(links)
