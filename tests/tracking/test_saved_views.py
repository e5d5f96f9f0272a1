"""Views: the tag is what MLflow's pages read, and shows what belongs together."""

import base64
import json
import zlib

from rankbench.tracking.saved_views import TAG, sweep_views, view_links


def state_of(value):
    """What MLflow's pages make of a tag: an envelope with a name and times, around compressed JSON."""
    envelope = json.loads(value)
    assert isinstance(envelope["name"], str) and isinstance(envelope["createdAt"], int)
    header, _, packed = envelope["state"].partition(";")
    assert header == "deflate"
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def views(searched):
    return dict(
        view.tag(1700000000000) for view in sweep_views("demo", "demo-1", "ndcg@20", ("recall@20", "ndcg@20"), searched)
    )


def test_the_final_runs_are_sorted_and_have_their_metrics_as_columns():
    state = state_of(views([["lam"]])[f"{TAG}demo-final"])
    assert state["searchFilter"] == "tags.`rankbench.stage` = 'final' and tags.`rankbench.of_sweep` = 'demo-1'"
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`test/ndcg_at_20`", False)
    assert state["selectedColumns"][:2] == ["metrics.`test/ndcg_at_20`", "metrics.`test/recall_at_20`"]
    assert "params.`seed`" in state["selectedColumns"] and state["columnOrder"] == state["selectedColumns"]
    assert state["runsHiddenMode"] == "SHOW_ALL"  # by default, charts have ten runs


def test_curves_are_drawn_over_seconds_and_over_steps():
    state = state_of(views([["lam"]])[f"{TAG}demo-final"])
    charts = state["compareRunCharts"]
    curves = [each for each in charts if each["type"] == "LINE" and each["metricKey"] == "curve/ndcg_at_20"]
    assert [(each["xAxisKey"], each["selectedXAxisMetricKey"]) for each in curves] == [
        ("metric", "curve/seconds"),
        ("step", ""),
    ]
    assert "test/ndcg_at_20" in [each["metricKey"] for each in charts if each["type"] == "BAR"]
    sections = {each["uuid"] for each in state["compareRunSections"]}
    assert {each["metricSectionId"] for each in charts} == sections
    assert len({each["uuid"] for each in charts}) == len(charts)


def test_each_set_of_searched_parameters_has_a_plot_because_a_run_needs_all_of_them():
    state = state_of(views([["lam"], ["learning_rate", "tau"], [], ["lam"]])[f"{TAG}demo-search"])
    plots = [each["selectedParams"] for each in state["compareRunCharts"] if each["type"] == "PARALLEL"]
    assert plots == [["lam"], ["learning_rate", "tau"]]
    assert {"params.`lam`", "params.`learning_rate`", "params.`tau`"} <= set(state["selectedColumns"])


def test_without_a_search_there_is_no_view_of_one():
    assert list(views([[], []])) == [f"{TAG}demo-final"]


def test_links_open_the_views():
    links = view_links("7", views([["lam"]]) | {"other": "tag"})
    assert links.count("](") == 4 and "[table](#/experiments/7/runs?viewStateShareKey=demo-final)" in links
    assert "[charts](#/experiments/7/runs?viewStateShareKey=demo-search&compareRunsMode=CHART)" in links
