"""rb.sweep and rb.report: from data in memory to tables, and what is refused before any work starts."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import rankbench.api as rb
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.schema.stored_sweep import read_sweep

RNG = np.random.default_rng(3)
TASTE = RNG.integers(0, 4, 80)
USER = RNG.integers(0, 80, 4000)
FRAME = pd.DataFrame({"user": USER, "item": TASTE[USER] * 10 + RNG.integers(0, 20, 4000)})


PROGRAM = """
import sys
import pandas as pd
import beside
import rankbench.api as rb

frame = pd.read_parquet(sys.argv[1])
shop = rb.dataset(frame, name="my-shop")
other = rb.dataset("synthetic", changes={"source.generator.users": 60, "split.seed": 4})
made = rb.sweep(
    datasets=[shop, other],
    methods={"popularity": {}, "EASE": {"method": "ease", "lam": {"grid": [1, 100]}}, "ials": {"iterations": 3}},
    params={"embedding_dim": 8}, metric="ndcg@5", seeds=[0, 1], name="three",
)
print(made.folder)
print(rb.sweep(datasets=frame, methods=["popul*", "ease", beside.NAME], metric="ndcg@5", name="nothing-to-choose").folder)
"""


BESIDE = """
from dataclasses import dataclass
from rankbench.fitting.method import direct
from rankbench.solvers.baselines.popularity import popularity

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
    once: three methods on a table and on a built-in dataset, and three methods without anything to choose, one of which is
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
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or "Ray has not started" in done.stderr  # where nobody looks, nothing is shown
    assert not (folder / "imported").exists()
    return done.stdout.split(), environment


@pytest.fixture
def results(swept):
    """The results of the first sweep, and their environment."""
    (folder, _), environment = swept
    return rb.report(folder, environment=environment), environment


@pytest.mark.timeout(300)
def test_the_table_has_a_row_per_dataset_and_method_with_intervals(results):
    made, _ = results
    table = made.table.set_index(["dataset", "model"])
    assert set(table.index) == {(d, m) for d in ("my-shop", "synthetic") for m in ("popularity", "EASE", "ials")}
    assert (table["ndcg@5 low"] < table["ndcg@5"]).all() and (table["ndcg@5"] < table["ndcg@5 high"]).all()
    assert table.loc[("my-shop", "EASE"), "ndcg@5"] > 2 * table.loc[("my-shop", "popularity"), "ndcg@5"]
    assert table.loc[("my-shop", "ials"), "setting"]["embedding_dim"] == 8  # a common parameter goes to those that have it
    assert set(table["state"]) == {"measured"} and not any("published" in name for name in table)
    best = table.groupby(level="dataset")["ndcg@5"].idxmax()
    assert not table.loc[best, "ndcg@5 tied"].any()


def test_the_other_tables_hold_the_tests_the_runs_and_the_curves(results):
    made, _ = results
    assert set(made.comparisons["verdict"]) <= {"better", "worse", "not distinguishable", "identical"} or len(made.comparisons)
    assert set(made.runs["stage"]) == {"search", "final"} and {"ndcg@5", "seconds"} <= set(made.runs)
    curve = made.curves.query("model == 'ials' and dataset == 'my-shop' and seed == 0")
    assert list(curve["iteration"]) == [1, 2, 3] and curve["seconds"].is_monotonic_increasing


def test_changes_of_a_dataset_reach_the_sweep(results):
    made, _ = results
    records = [record for record in made.stored.records.values() if record.dataset.name == "synthetic"]
    assert {record.dataset.split_seed for record in records} == {4} and {r.dataset.counts["users"] for r in records} == {60}


def test_a_chart_and_a_report_are_written_where_they_are_asked_for(results, tmp_path):
    made, _ = results
    assert made.chart(tmp_path / "new" / "chart.png").read_bytes().startswith(b"\x89PNG")
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give an experiment, or datasets and methods"),
        ({"datasets": FRAME}, "give an experiment, or datasets and methods"),
        ({"datasets": FRAME, "methods": []}, "methods: give at least one"),
        ({"datasets": FRAME, "methods": "eas"}, r"unknown method 'eas'; did you mean ease\?"),
        ({"datasets": FRAME, "methods": {"ease": 3}}, "methods: ease: expected a mapping of parameters, got 3"),
        (
            {"datasets": FRAME, "methods": "ease", "params": {"lamm": 1}},
            r"lamm: none of the methods has this parameter; did you mean lam\?",
        ),
        ({"datasets": FRAME, "methods": {"ease": {"lam": -1}}}, "lam"),
        ({"datasets": [7], "methods": "ease"}, "got int"),
        ({"datasets": FRAME, "methods": 5}, "methods: expected names or a mapping, got 5"),
        ({"datasets": FRAME, "methods": "ease", "params": [1]}, r"params: expected a mapping with names as keys, got \[1\]"),
        ({"datasets": FRAME, "methods": "ease", "seeds": 1.5}, "seeds: expected a whole number from 0, got 1.5"),
        ({"datasets": FRAME, "methods": "ease", "metric": "ndgc@5"}, r"ndgc.*did you mean ndcg"),
        ({"experiment": "demo", "datasets": FRAME}, "datasets: the experiment file says this"),
        ({"experiment": "dmo"}, r"did you mean demo\.yaml\?"),
    ],
)
def test_what_cannot_be_a_sweep_is_refused_before_any_work(environment, arguments, message):
    with pytest.raises(ConfigError, match=message):
        rb.sweep(**arguments, progress=False, environment=environment)
    assert not (environment.results / "sweeps").exists() or not list((environment.results / "sweeps").iterdir())
