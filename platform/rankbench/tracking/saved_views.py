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
from rankbench.tracking.run_fields import metric_key

TAG = "mlflow.sharedViewState."
PRIMARY_METRIC = "mlflow.experiment.primaryMetric.name"
SECONDS = "curve/seconds"  # training seconds at each step, the x-axis of convergence curves


@dataclass(frozen=True)
class View:
    """A list of runs that match `filter`, sorted by the metric `order_by`, best first. `charts` are grouped by section."""

    id: str
    name: str
    filter: str
    order_by: str
    columns: tuple[str, ...]
    charts: tuple[tuple[str, tuple[dict[str, Any], ...]], ...]

    def tag(self, time: int) -> tuple[str, str]:
        """Return the key and value of the experiment's tag. `time`: ms since 1970."""
        state = json.dumps(self._state(), separators=(",", ":"))
        packed = "deflate;" + base64.b64encode(zlib.compress(state.encode())).decode()
        return TAG + self.id, json.dumps({"name": self.name, "createdAt": time, "updatedAt": time, "state": packed})

    def _state(self) -> dict[str, Any]:
        sections, charts = [], []
        for number, (section, members) in enumerate(self.charts):
            uuid = f"{self.id}-{number}"
            # The section of metrics named test/... is called test; one that MLflow made itself would be called the same.
            sections.append(
                {"uuid": uuid, "name": section, "display": True, "isReordered": False, "deleted": False, "isGenerated": False}
            )
            for position, chart in enumerate(members):
                own = {"uuid": f"{uuid}-{position}", "metricSectionId": uuid, "deleted": False, "isGenerated": False}
                charts.append(own | chart)
        return {
            "searchFilter": self.filter,
            "orderByKey": column("metrics", self.order_by),
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": list(self.columns),
            "columnOrder": list(self.columns),
            "columnWidths": dict.fromkeys(self.columns, 130),
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


def sweep_views(name: str, sweep: str, metric: str, reported: Sequence[str], searched: Sequence[Sequence[str]]) -> list[View]:
    """Return the views of a sweep: its final runs on test, and its search on valid.

    `name` is that of the experiment, `metric` the one that settings are chosen by, `reported` those of the table, and
    `searched` the parameters that the search varies, for each arm.
    """
    tests = tuple(dict.fromkeys(metric_key("test", each) for each in (metric, *reported)))
    curve, best = metric_key("curve", metric), metric_key("valid", metric)
    about = tuple(column("params", each) for each in ("dataset", "method"))
    shown = tuple(column("metrics", each) for each in (*tests, "seconds/fit", "peak_memory_gb"))
    finals = View(
        id=f"{name}-final",
        name=f"{name}: final runs",
        filter=_of_stage("final", sweep),
        order_by=tests[0],
        columns=(*shown, *about, column("params", "seed")),
        charts=(
            ("Convergence", (line(curve, True), line(curve, False), line("curve/loss", False))),
            ("Result", tuple(bar(each) for each in (*tests, "seconds/fit"))),
        ),
    )
    # Only runs that have all parameters of a plot are shown in it.
    drawn = list(dict.fromkeys(tuple(names) for names in searched if names))
    if not drawn:
        return [finals]
    params = tuple(column("params", each) for each in dict.fromkeys(name for names in drawn for name in names))
    search = View(
        id=f"{name}-search",
        name=f"{name}: search",
        filter=_of_stage("search", sweep),
        order_by=best,
        columns=(column("metrics", best), *params, column("metrics", "seconds/fit"), *about),
        charts=(("Search", (*(parallel(names, best) for names in drawn), bar(best))),),
    )
    return [finals, search]


def _of_stage(stage: str, sweep: str) -> str:
    return f"tags.`rankbench.stage` = '{stage}' and tags.`rankbench.of_sweep` = '{sweep}'"


def column(kind: str, name: str) -> str:
    """Return a column of the table: `kind` is attributes, params, metrics or tags."""
    return f"{kind}.`{name}`"


def bar(metric: str) -> dict[str, Any]:
    """Return a chart with one bar per run."""
    return {"type": "BAR", "metricKey": metric, "displayName": metric, "runsCountToCompare": 100}


def line(metric: str, by_seconds: bool) -> dict[str, Any]:
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


def parallel(params: Sequence[str], metric: str) -> dict[str, Any]:
    """Return a plot with parallel coordinates of numeric parameters and a metric."""
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
        if key.startswith(TAG):
            name, address = json.loads(value)["name"], f"#/experiments/{experiment}/runs?viewStateShareKey={key[len(TAG) :]}"
            links.append(f"{without_tags(name)}: [table]({address}), [charts]({address}&compareRunsMode=CHART)")
    return "; ".join(links)
