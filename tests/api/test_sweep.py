"""rb.sweep and rb.report: from data in memory to tables, and what is refused before any work starts."""

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import psutil
import pytest
from mlflow.tracking import MlflowClient

import rankbench.api as rb
from rankbench.api.fit_from import winner
from rankbench.cli import _main
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import configure
from rankbench.experiment.run import run
from rankbench.fitting.recommenders import score
from rankbench.schema.stored_sweep import read_sweep
from rankbench.sweeps.plan import plan
from rankbench.sweeps.sweep import choose, final_settings
from rankbench.sweeps.units import units
from rankbench.tracking.record import read_per_user

from ..pictures import size_of

RNG = np.random.default_rng(3)
TASTE = RNG.integers(0, 4, 80)
USER = RNG.integers(0, 80, 4000)
FRAME = pd.DataFrame({"user": USER, "item": TASTE[USER] * 10 + RNG.integers(0, 20, 4000)})


PROGRAM = """
import sys
import pandas as pd
import beside
import rankbench.api as rb
from rankbench.tracking import mlflow_sink

mlflow_sink.PATIENCE = mlflow_sink.LIMIT = 240.0
frame = pd.read_parquet(sys.argv[1])
shop = rb.dataset(frame, name="my-shop")
other = rb.dataset("synthetic", changes={"source.generator.users": 60, "split.seed": 4})
made = rb.sweep(
    datasets=[shop, other],
    methods={"popularity": {}, "EASE": {"method": "ease", "lam": {"grid": [1, 100]}}, "ials": {"iterations": 3},
             "early": {"method": "sl", "epochs": 30, "patience": 1, "n_negatives": 8, "learning_rate": 0.1}},
    params={"embedding_dim": 8}, metric="ndcg@5", seeds=[0, 1], search="none",
    changes={"resources.concurrent": 1},  # one worker, since each takes longer to start than all that it fits
)
print(made.folder)
none = rb.sweep(datasets=frame, methods=["popul*", "ease", beside.NAME], metric="ndcg@5", name="none", search="none",
                changes={"resources.concurrent": 1})
print(none.folder)
"""


BESIDE = """
from dataclasses import dataclass
from rankbench.fitting.method import direct
from rankbench.solvers.baselines import popularity

NAME = "beside-the-script"

@dataclass(frozen=True)
class Beside:
    pass

@direct(NAME, Beside, title="Popularity again", source="me")
def again(X, p, seed):
    return popularity(X, p, seed)
"""
HOSTILE = "open('imported', 'a').write(__name__)"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folders of two sweeps, and their environment. They run in a process of their own, because Ray reads its settings
    once: four methods on a table and on a built-in dataset, and three methods without anything to choose, one of which is
    registered by a module beside the script. The working folder has files with the names of packages.
    """
    folder = tmp_path_factory.mktemp("sweep")
    environment = Environment(folder / "cache", None, True, folder / "results", None, None)
    FRAME.to_parquet(folder / "frame.parquet")
    (folder / "scripts").mkdir()
    files = {"scripts/run.py": PROGRAM, "scripts/beside.py": BESIDE, "numpy.py": HOSTILE, "safetensors.py": HOSTILE}
    for name, text in files.items():
        (folder / name).write_text(text)
    own = {"RANKBENCH_DATA": str(environment.data), "RANKBENCH_RESULTS": str(environment.results)}
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RANKBENCH_")} | own
    command = [sys.executable, "scripts/run.py", str(folder / "frame.parquet")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=550, cwd=folder)
    assert done.returncode == 0, done.stderr
    slow = re.compile("Ray has not (started|answered)|no worker for a trial after")  # a busy machine
    assert not [line for line in done.stderr.splitlines() if not slow.search(line)]  # where nobody looks, nothing is shown
    assert not (folder / "imported").exists()
    return done.stdout.split(), environment


@pytest.fixture
def results(swept):
    """The results of the first sweep, and their environment."""
    (folder, _), environment = swept
    return rb.report(folder, environment=environment), environment


def test_the_table_has_a_row_per_dataset_and_method_with_intervals(results):
    made, _ = results
    table = made.table.set_index(["dataset", "model"])
    assert set(table.index) == {(d, m) for d in ("my-shop", "synthetic") for m in ("popularity", "EASE", "ials", "early")}
    assert (table["ndcg@5 low"] < table["ndcg@5"]).all() and (table["ndcg@5"] < table["ndcg@5 high"]).all()
    assert table.loc[("my-shop", "EASE"), "ndcg@5"] > 2 * table.loc[("my-shop", "popularity"), "ndcg@5"]
    assert table.loc[("my-shop", "ials"), "setting"]["embedding_dim"] == 8  # a common parameter goes to those that have it
    assert set(table["state"]) == {"measured"} and not any("published" in name for name in table)
    best = table.groupby(level="dataset")["ndcg@5"].idxmax()
    assert not table.loc[best, "ndcg@5 tied"].any()


def test_the_other_tables_hold_the_tests_the_runs_and_the_curves(results):
    made, _ = results
    assert len(made.comparisons) == 12 and set(made.comparisons["verdict"]) <= {
        "better",
        "worse",
        "not distinguishable at 0.05",
    }
    assert set(made.runs["stage"]) == {"search", "final"} and {"ndcg@5", "seconds"} <= set(made.runs)
    curve = made.curves.query("model == 'ials' and dataset == 'my-shop' and seed == 0")
    assert list(curve["iteration"]) == [1, 2, 3] and curve["seconds"].is_monotonic_increasing


def test_in_mlflow_a_sweep_that_nobody_named_has_the_name_of_its_datasets_and_its_question(results):
    made, environment = results
    client = MlflowClient(f"sqlite:///{environment.results}/mlflow.db")
    experiment = client.get_experiment_by_name("my-shop and synthetic")
    question = "Which of popularity, EASE, ials and early is best on my-shop and synthetic?"
    assert experiment.tags["mlflow.note.content"].startswith(f"{question}\n")
    assert made.stored.about.experiment.question == question
    runs = client.search_runs([experiment.experiment_id], "tags.`rankbench.stage` = 'arm'")
    rows = made.table.set_index(["dataset", "model"])
    assert {run.info.run_name for run in runs} == {f"{dataset} {arm}" for dataset, arm in rows.index}
    for each in runs:
        tags = each.data.tags
        assert each.data.metrics["test/ndcg_at_5"] == rows.loc[(tags["rankbench.dataset"], tags["rankbench.arm"]), "ndcg@5"]
        assert [value for value in tags.values() if value[:1] in ("[", "{", "(") or value in ("None", "True", "False")] == []


def test_changes_of_a_dataset_reach_the_sweep(results):
    made, _ = results
    records = [record for record in made.stored.records.values() if record.dataset.name == "synthetic"]
    assert {record.dataset.split_seed for record in records} == {4} and {r.dataset.counts["users"] for r in records} == {60}


def test_a_chart_and_a_report_are_written_where_they_are_asked_for(results, tmp_path, drawn):
    made, _ = results
    path = made.chart(tmp_path / "new" / "chart.png")
    (panels,) = drawn
    for panel, (_, rows) in zip(panels, made.table.groupby("dataset", sort=False), strict=True):
        assert {*rows["ndcg@5"], *rows["ndcg@5 low"], *rows["ndcg@5 high"]} == {*panel[:, 0]}
    size_of(path)
    assert {path.name for path in made.write(tmp_path / "report")} >= {"report.html", "report.md", "table.csv"}
    with pytest.raises(ConfigError, match=r"no metric 'ndcg@50'; did you mean ndcg@5\?"):
        made.chart(tmp_path / "chart.png", "ndcg@50")
    with pytest.raises(ConfigError, match=r"expected a name that ends in \.png"):
        made.chart(tmp_path / "chart.gif")


def test_a_result_shows_its_table_and_is_found_again_by_name(results):
    made, environment = results
    assert "my-shop" in repr(made) and "<table" in made._repr_html_() and str(made.folder) in repr(made)
    for what in (made.folder.name, made.folder.name[:8], str(made.folder)):
        again = rb.report(what, environment=environment)
        pd.testing.assert_frame_equal(again.table, made.table)


def test_a_sweep_without_anything_to_choose_has_no_search(swept):
    (_, folder), environment = swept
    made = rb.report(folder, environment=environment)
    assert rb.report(environment=environment).folder == made.folder  # the newest
    assert set(made.runs["stage"]) == {"final"} and list(made.table["state"]) == ["measured"] * 3
    assert read_sweep(made.folder).chosen.rows[0].search is None


def test_what_was_not_searched_and_what_ended_at_the_end_of_its_range_is_said(swept, results):
    made, _ = results
    assert "ials and early: settings as given, nothing searched." in made.conclusions
    assert any("EASE: lam is at the end of its range (1 to 100)" in sentence for sentence in made.conclusions)
    untuned = rb.report(swept[0][1], environment=swept[1])
    assert "ease: defaults, nothing searched." in untuned.conclusions


def final_unit(made, environment, arm):
    """The unit of the sweep that a worker fitted for the first final run of `arm` on my-shop."""
    spec = made.stored.about.experiment
    planned = plan(spec, environment, 2, "sweep")
    best = choose([each for each in made.stored.records.values() if each.stage == "search"], spec)
    card = next(card for card in planned.final_cards if card.name == "my-shop")
    settings = final_settings(best, card, spec)
    finals = units(card, Size.of(prepare(card, environment)), settings, spec, planned.metrics, "final", 2)
    return next(unit for unit in finals if unit.arm[1] == arm)


@pytest.mark.parametrize("arm", ["EASE", "early"])
def test_a_model_of_the_winning_row_has_the_scores_of_the_final_run_to_the_bit(results, arm):
    made, environment = results
    unit = final_unit(made, environment, arm)
    record = made.stored.records[unit.run_id]
    (outcome,) = run(unit.job, environment)
    model = rb.fit_from(made.folder.name, arm, dataset="my-shop", environment=environment, progress=False)
    users = np.arange(len(model.users))
    one, other = (score(each, users, model.history, slice(None)) for each in (model.recommender, outcome.model))
    assert one.dtype == np.float32 and one.tobytes() == other.tobytes()
    assert (model.fit_on, model.seed) == ("train+valid", 0)
    read, final = (configure(record.method, params) for params in (model.params, record.params))
    assert read.used == final.used and all(read.flat[name] == final.flat[name] for name in read.used)
    # What the worker of the sweep measured, user by user.
    measured = read_per_user(made.folder / "records" / record.id).to_pandas()
    again = model.evaluate(metrics=["ndcg@5", "recall@10"], environment=environment).per_user
    assert measured["user"].tolist() == again["user"].tolist()
    for name in ("ndcg@5", "recall@10"):
        assert (measured[name] == again[name].astype(np.float32)).all()


def test_a_model_of_the_winning_row_can_know_all_parts_or_another_seed(results):
    made, environment = results
    made_from = partial(rb.fit_from, made, "early", dataset="my-shop", environment=environment, progress=False)
    whole, kept = made_from(fit_on="all"), made_from(seed=1)
    assert whole.params == kept.params and whole.params["patience"] == 0 and 0 < whole.params["epochs"] < 30
    assert whole.history.nnz == len(FRAME.drop_duplicates()) > kept.history.nnz and kept.seed == 1 and whole.seed == 0
    with pytest.raises(ConfigError, match="a model fitted on train, valid and test cannot be measured on test"):
        whole.evaluate(environment=environment)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep", "EASE"), "name one of its datasets: my-shop, synthetic"),
        (("sweep", "ease", "my-shop"), r"no row 'ease'; did you mean EASE\?; its rows: .*ials"),
        (("sweep", "EASE", "my-shp"), r"no dataset 'my-shp'; did you mean my-shop\?"),
        (("demo", "EASE"), "demo: was never run; run it first"),
        (("sweeps", "EASE"), "no sweep sweeps"),
    ],
)
def test_a_row_that_is_not_there_is_refused(results, words, message):
    with pytest.raises(ConfigError, match=message):
        winner(*words[:2], *(words[2:] or (None,)), results[1])


def test_why_a_model_may_be_another_one_than_that_of_the_final_run_is_said(results):
    won = winner(results[0], "EASE", "my-shop", results[1])
    assert replace(won, changed=()).warnings(None, "cpu") == []
    params = configure("bpr", {"epochs": 30, "patience": 3, "schedule": "cosine"}).flat
    record = replace(won.record, method="bpr", params=params, fit_on="train", iterations=12, device="cuda:0")
    other = replace(won, record=record, changed=("mine.py",))
    code, device = other.warnings("train", "cpu")
    assert code.startswith("mine.py has changed since the sweep")
    assert device == "the final run was fitted on cuda:0; on cpu, the last digits may differ"
    said = other.warnings("all", "cuda")
    assert "valid chose iteration 12 of the final run; a fit of so many is not its beginning" in said[1]
    constant = replace(record, params=params | {"schedule": "constant"})
    assert replace(other, record=constant).warnings("all", "cuda") == said[:1]


def test_a_row_without_a_finished_final_run_or_with_other_data_is_refused(results):
    made, environment = results
    unit = final_unit(made, environment, "EASE")
    record = made.stored.records[unit.run_id]
    other = replace(record, dataset=replace(record.dataset, fingerprint="another"))
    failed = replace(record, status="failed", error="singular")
    for instead, message in ((other, "the data of my-shop have changed since"), (failed, "no finished final run .*singular")):
        stored = replace(made.stored, records=made.stored.records | {record.id: instead})
        with pytest.raises(ConfigError, match=message):
            winner(rb.Results(made.folder, stored), "EASE", "my-shop", environment)
    with pytest.raises(ConfigError, match="is not finished; resume the sweep first"):
        winner(rb.Results(made.folder, replace(made.stored, chosen=None)), "EASE", "my-shop", environment)


def test_the_data_of_a_row_are_prepared_with_progress(results, monkeypatch):
    made, environment = results

    def prepare_anew(card, environment, progress):
        progress("read", 1, None)
        return prepare(card, environment)

    monkeypatch.setattr(sys.modules[winner.__module__], "prepare", prepare_anew)  # rb.fit_from is the function
    phases = set()
    rb.fit_from(made, "EASE", dataset="my-shop", environment=environment, progress=lambda phase, done, total: phases.add(phase))
    assert "read" in phases


def test_the_command_fits_the_winning_row_and_says_on_what(results, monkeypatch, tmp_path, capsys):
    made, environment = results
    monkeypatch.setenv("RANKBENCH_DATA", str(environment.data))
    words = ["fit", "my-shop", "--from", str(made.folder), "EASE", "--out", str(tmp_path / "best")]
    assert _main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fit_on"] == "train+valid" and said["why"] == "as the final run was" and said["params"]["lam"] >= 1
    assert rb.load(tmp_path / "best").params == said["params"]
    for more in (["lam=3"], ["ease"], ["--dtype", "float64"], ["--nodes", "2x2x8GB@10", "--dry-run"]):
        assert _main([*words, *more, "--out", str(tmp_path / "more")]) == 2
        assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"datasets": FRAME, "methods": "ease", "search": "all"}, "search: expected 'registry' or 'none', got 'all'"),
        ({}, "give an experiment, or datasets and methods"),
        ({"datasets": FRAME}, "give an experiment, or datasets and methods"),
        ({"datasets": FRAME, "methods": []}, "methods: give at least one"),
        ({"datasets": FRAME, "methods": {"ease": 3}}, "methods: expected .* a mapping from names to mappings, got {'ease': 3}"),
        ({"datasets": [7], "methods": "ease"}, "got int"),
        ({"experiment": "demo", "datasets": FRAME}, "datasets: the experiment file says this"),
        ({"experiment": "demo", "seeds": [0, 1]}, "seeds: the experiment file says this"),
        ({"datasets": FRAME, "methods": "ease", "take_over": True}, "^take_over=True continues .*; give resume=True, too"),
        ({"datasets": FRAME, "methods": "ease", "search": "none", "extend": True}, "^extend=True: no parameter has a range"),
        ({"experiment": "demo", "chosen": True, "search": "registry"}, "^search: chosen=True skips the search"),
        (
            {"experiment": "demo", "search": "none", "changes": {"search.ranges": "none"}},
            "^search: search.ranges is given, too",
        ),
        (
            {"datasets": FRAME, "methods": "ease", "seeds": 1, "changes": {"final.seeds": [2]}},
            "^seeds: final.seeds is given, too",
        ),
        ({"datasets": FRAME, "methods": "ease", "seeds": 1, "changes": {"final": {"seeds": [2]}}}, "^seeds: final"),
    ],
)
def test_what_cannot_be_a_sweep_is_refused_before_any_work(environment, arguments, message):
    with pytest.raises(ConfigError, match=message):
        rb.sweep(**arguments, progress=False, environment=environment)
    assert not (environment.results / "sweeps").exists() or not list((environment.results / "sweeps").iterdir())


def test_a_dataset_with_a_part_that_was_replaced_as_a_whole_is_no_other_data_in_a_sweep(environment, tmp_path):
    card = tmp_path / "tiny.yaml"
    generator = "{users: 60, items: 40, interactions_per_user: 10}"
    card.write_text(f"{{name: tiny, source: {{generator: {generator}}}}}")
    data = rb.dataset(str(card), changes={"source": {"generator": {"users": 70}}}, environment=environment)
    with pytest.raises(ConfigError, match=r"^tiny: a sweep changes its card key by key; change it by dotted keys"):
        rb.sweep(datasets=data, methods="ease", progress=False, environment=environment)


def test_an_interrupted_sweep_leaves_no_process_and_no_thread(environment, tmp_path, monkeypatch):
    """In a notebook the program goes on after Ctrl-C."""
    monkeypatch.delenv("RANKBENCH_TRACKING_URI", raising=False)
    seen = []

    def interrupted(request, listener):
        planned = plan(request.spec, environment, 1, request.source)
        listener.planned(planned, tmp_path / "results" / "sweeps" / "small")
        seen.extend(psutil.Process().children())
        raise KeyboardInterrupt

    monkeypatch.setattr("rankbench.api.run_sweep.run_sweep", interrupted)
    before = psutil.Process().children(), set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        rb.sweep(datasets=FRAME, methods=["ease"], environment=environment, progress=False)
    assert len(seen) > len(before[0])  # the uploader
    assert psutil.Process().children() == before[0] and not set(threading.enumerate()) - before[1]
