"""Views: the tag is what MLflow's pages read, and shows what belongs together."""

import base64
import json
import zlib
from pathlib import Path

import mlflow

from rankbench.tracking.mlflow_internals import COLOUR, KIND, PRIMARY_METRIC, TRAINING, VIEW
from rankbench.tracking.saved_views import sweep_views, view_links


def state_of(value):
    """What MLflow's pages make of a tag: an envelope with a name and times, around compressed JSON."""
    envelope = json.loads(value)
    assert isinstance(envelope["name"], str) and isinstance(envelope["createdAt"], int)
    header, _, packed = envelope["state"].partition(";")
    assert header == "deflate"
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def views(searched, curves=True):
    made = sweep_views("demo-1", "2026-11-28 demo", "ndcg@20", ("recall@20", "ndcg@20"), searched, curves)
    return dict(view.tag(1700000000000) for view in made)


def charts_of(state, title):
    """The charts of a section, and whether it is open."""
    (section,) = [each for each in state["compareRunSections"] if each["name"] == title]
    return [each for each in state["compareRunCharts"] if each["metricSectionId"] == section["uuid"]], section["display"]


def test_arms_are_listed_first_then_their_seeds_then_the_search():
    tags = views([["lam"]])
    assert list(tags) == [f"{VIEW}demo-1-arms", f"{VIEW}demo-1-seeds", f"{VIEW}demo-1-search"]
    names = [json.loads(value)["name"] for value in tags.values()]
    assert names == ["arms 2026-11-28 demo", "seeds 2026-11-28 demo", "search 2026-11-28 demo"]
    for tag, stage in zip(tags.values(), ("arm", "final", "search"), strict=True):
        assert state_of(tag)["searchFilter"] == f"tags.`rankbench.stage` = '{stage}' and tags.`rankbench.of_sweep` = 'demo-1'"


def test_runs_are_sorted_and_have_their_metrics_as_columns():
    arms, seeds, _ = map(state_of, views([["lam"]]).values())
    assert (arms["orderByKey"], arms["orderByAsc"]) == ("metrics.`test/ndcg_at_20`", False) == (
        seeds["orderByKey"], seeds["orderByAsc"]
    )  # fmt: skip
    ends = [f"metrics.`test/ndcg_at_20{end}`" for end in ("", "_low", "_high", "_p_value")]
    assert arms["selectedColumns"][:6] == ["tags.`rankbench.verdict`", *ends, "metrics.`test/recall_at_20`"]
    assert "params.`lam`" in arms["selectedColumns"]
    assert seeds["selectedColumns"][:2] == ["metrics.`test/ndcg_at_20`", "metrics.`test/recall_at_20`"]
    assert "params.`seed`" in seeds["selectedColumns"] and seeds["columnOrder"] == seeds["selectedColumns"]
    assert seeds["runsHiddenMode"] == "SHOW_ALL"  # by default, charts have ten runs


def test_curves_are_drawn_over_seconds_and_over_steps_under_a_title_in_words():
    by_seconds_and_steps = [("metric", "curve/seconds"), ("step", "")]
    arms, _, search = map(state_of, views([["lam"]]).values())
    for state, title, metric in (
        (arms, "Test sample: nDCG@20 over seconds and steps", "curve/ndcg_at_20"),
        (arms, "Training loss over seconds and steps", "curve/loss"),
        (search, "Validation nDCG@20 over seconds and steps", "curve/valid"),
    ):
        charts, is_open = charts_of(state, title)
        assert is_open and len(title) <= 43 and {each["metricKey"] for each in charts} == {metric}
        assert [(each["xAxisKey"], each["selectedXAxisMetricKey"]) for each in charts] == by_seconds_and_steps
    charts, _ = charts_of(arms, "Result on test")
    assert [each["metricKey"] for each in charts] == ["test/ndcg_at_20", "test/recall_at_20"]
    assert len({each["uuid"] for each in arms["compareRunCharts"]}) == len(arms["compareRunCharts"])


def test_no_open_section_is_empty_and_without_an_iterative_method_there_are_no_curves():
    for curves in (True, False):
        for tag in views([["lam"]], curves).values():
            state = state_of(tag)
            full = {each["metricSectionId"] for each in state["compareRunCharts"]}
            assert full == {each["uuid"] for each in state["compareRunSections"] if each["display"]}
            drawn = any(each["type"] == "LINE" for each in state["compareRunCharts"])
            assert drawn == curves == any(each["name"] == "curve" for each in state["compareRunSections"])


def test_each_set_of_searched_parameters_has_a_plot_because_a_run_needs_all_of_them():
    state = state_of(views([["lam"], ["learning_rate", "tau"], [], ["lam"]])[f"{VIEW}demo-1-search"])
    plots = [each["selectedParams"] for each in state["compareRunCharts"] if each["type"] == "PARALLEL"]
    assert plots == [["method", "lam"], ["method", "learning_rate", "tau"]]
    assert {"params.`lam`", "params.`learning_rate`", "params.`tau`"} <= set(state["selectedColumns"])


def test_without_a_search_there_is_no_view_of_one():
    assert list(views([[], []])) == [f"{VIEW}demo-1-arms", f"{VIEW}demo-1-seeds"]


def test_links_open_the_views():
    links = view_links("7", views([["lam"]]) | {"other": "tag"})
    assert links.count("](") == 6 and "[table](#/experiments/7/runs?viewStateShareKey=demo-1-arms)" in links
    assert "[charts](#/experiments/7/runs?viewStateShareKey=demo-1-search&compareRunsMode=CHART)" in links


def test_the_pages_of_the_installed_mlflow_read_these_tags_and_fields():
    pages = [path.read_text(encoding="utf-8") for path in (Path(mlflow.__file__).parent / "server/js/build").rglob("*.js")]

    def read(word):
        return any(word in page for page in pages)

    state = state_of(views([["lam"]])[f"{VIEW}demo-1-arms"])
    fields = {name for each in (state, *state["compareRunCharts"], *state["compareRunSections"]) for name in each}
    assert [
        name for name in sorted({*fields, VIEW.rstrip("."), PRIMARY_METRIC, KIND, TRAINING, COLOUR}) if not read(name)
    ] == []
