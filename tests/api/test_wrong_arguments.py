"""Arguments of the Python interface: NumPy's numbers are numbers, and a wrong one is one line that names it."""

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rankbench.api as rb
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError
from rankbench.data.own import arrow_table
from rankbench.evaluation.metrics import METRICS, registered

PAIRS = pd.DataFrame({"user": np.repeat(np.arange(30), 8), "item": [(7 * u + 3 * i) % 25 for u in range(30) for i in range(8)]})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    environment = Environment(home / "data", None, True, home / "results", None, None)
    data = rb.dataset(PAIRS, environment=environment)
    return [rb.fit(data, name, environment=environment) for name in ("ease", "popularity")], environment


def test_numbers_of_numpy_are_numbers(environment, tmp_path):
    split = {"protocol": "random-per-user", "seed": np.int64(3), "test": np.float64(0.3)}
    data = rb.dataset(PAIRS, split=split, prepare=[{"duplicates": "last"}, {"k_core": np.int64(2)}], environment=environment)
    assert data.card.split.seed == 3
    steps = (step for step in ({"duplicates": "last"}, {"k_core": 2}))
    assert rb.dataset(PAIRS, split=split, prepare=steps, environment=environment).fingerprint == data.fingerprint
    model = rb.fit(data, "ials", seed=np.int64(3), embedding_dim=np.int64(4), lam=np.float32(0.5), environment=environment)
    loaded = rb.load(model.save(tmp_path / "kept"))
    assert (loaded.seed, loaded.params["embedding_dim"], loaded.params["lam"]) == (3, 4, 0.5)
    changed = rb.fit("synthetic", "random", changes={"split.seed": np.int64(3)}, environment=environment)
    assert changed.save(tmp_path / "changed").is_dir()


def test_metrics_of_whole_lists_are_measured_alone(models):
    (ease, popularity), environment = models
    found = ease.evaluate(metrics="coverage@10", environment=environment).metrics["coverage@10"]
    assert 0 < found.mean <= 1 and found.low is None
    with pytest.raises(ConfigError, match="has no per-user values of 'coverage@10'"):
        rb.compare([ease, popularity], metric="coverage@10", environment=environment)


def test_categories_of_polars_are_taken():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b"], pa.string_view()))
    table = arrow_table(pa.table({"user": column, "n": [1, 2, 3]}), "dataset", "a table")
    assert table.schema.field("user").type == pa.dictionary(pa.int64(), pa.string()) and table.take([2, 1]).to_pydict() == {
        "user": ["a", "b"], "n": [3, 2]
    }  # fmt: skip


def test_a_generator_of_models_and_an_arrow_table_of_interactions_are_taken(models):
    (ease, popularity), environment = models
    assert len(rb.compare((each for each in (ease, popularity)), metric="ndcg@5", environment=environment)) == 1
    new = pd.DataFrame({"user": ["x"] * 3, "item": [1, 2, 3]})
    pd.testing.assert_frame_equal(ease.recommend_new(pa.table(new), 3), ease.recommend_new(new, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, e: m.recommend(0, k=True), "k: expected a whole number, got True"),
        (lambda m, e: m.recommend(np.zeros((2, 2), int)), "expected an id or several, got a matrix"),
        (lambda m, e: m.recommend(PAIRS), "expected an id or several, got a table; give its column"),
        (lambda m, e: m.recommend(None), "expected an id or several, got None"),
        (lambda m, e: m.recommend_new(None), "interactions: expected a table, got None"),
        (lambda m, e: m.recommend_new({"user": [1]}), "interactions: expected a table, got {'user'"),
        (lambda m, e: m.recommend_new(pd.DataFrame([[1, 2]])), "interactions: no column 'user'; columns: 0, 1"),
        (
            lambda m, e: m.recommend_new(pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"])),
            "interactions: 2 columns are called 'item'",
        ),
        (lambda m, e: m.recommend([[1]]), "user ids: expected ids, got lists of them"),
        (lambda m, e: m.evaluate(metrics=[], environment=e), "metrics: give at least one"),
        (lambda m, e: rb.load("x" * 300), "File name too long"),
        (lambda m, e: rb.fit("synthetic", "ease", seed=True, environment=e), "seed: expected a whole number, got True"),
        (lambda m, e: rb.dataset(PAIRS["user"], environment=e), r"dataset: expected a pandas, .* got Series"),
        (lambda m, e: rb.dataset(PAIRS, user=None, environment=e), "user: give the name of the column"),
        (lambda m, e: rb.dataset("synthetic", value=0, environment=e), "value: the card of synthetic says this"),
        (lambda m, e: rb.dataset("synthetic", name="", environment=e), "name: expected a name of at most 64"),
        (lambda m, e: rb.dataset(PAIRS, name="a" * 300, environment=e), "dataset: name: expected a name of at most 64"),
        (
            lambda m, e: rb.dataset(pd.DataFrame({"user": [2**70, 1], "item": [1, 2]}), environment=e),
            r"dataset: .*; convert the ids with \.astype",
        ),
        (
            lambda m, e: rb.dataset(PAIRS.assign(item=PAIRS["item"] + 0.5), environment=e),
            r"dataset: the column 'item': ids are whole numbers below 2\^63 or text .*; convert them with \.astype",
        ),
        (lambda m, e: rb.compare([m, m], seed=-1, environment=e), "seed: expected a whole number from 0, got -1"),
        (lambda m, e: rb.compare([m, m], metric="ndcg", environment=e), "metric: write ndcg with a cutoff, as in ndcg@20"),
        (lambda m, e: rb.leaderboard(datasets=[], environment=e), "datasets: give at least one"),
        (lambda m, e: rb.leaderboard(address="here", environment=e), r"^address \(or RAY_ADDRESS\): expected HOST:PORT"),
        (lambda m, e: rb.Execution(n_threads=-1), "Execution.n_threads: expected a whole number from 1, got -1"),
        (lambda m, e: rb.Execution(n_threads=float("nan")), "Execution.n_threads: expected a whole number, got nan"),
        (lambda m, e: rb.Execution(executor=5), "Execution.executor: expected a BlockMap, got 5"),
        (lambda m, e: rb.Execution(device="gpu"), "Execution.device: expected cpu, cuda or cuda:N, got 'gpu'"),
        (lambda m, e: rb.fit(PAIRS, "ease", execution=rb.Execution(device="cuda:99"), environment=e), "^device cuda:99: "),
        (lambda m, e: rb.Spill(Path("here"), -1), "Spill.memory: expected a whole number from 0, got -1"),
        (lambda m, e: rb.Spill("here", 10**9), "Spill.folder: expected a Path, got 'here'"),
        (lambda m, e: rb.Spill(Path("here"), 10**9, resume="no"), "Spill.resume: expected True or False, got 'no'"),
        (lambda m, e: rb.leaderboard(threads=0, environment=e), "threads: expected a whole number from 1, got 0"),
    ],
)
def test_a_wrong_argument_is_one_line(models, call, message):
    (ease, _), environment = models
    with pytest.raises((ConfigError, DataError), match=message) as refused:
        call(ease, environment)
    assert "\n" not in str(refused.value)


REQUIRED = {
    "compare": [[]],
    "dataset": ["synthetic"],
    "evaluate": ["synthetic", "lists.csv"],
    "fit": ["synthetic", "ease"],
    "fit_from": ["demo", "ease"],
    "load": ["model"],
    "plugin": ["mine.py"],
    "chart": ["self"],
    "recommend": ["self", 0],
    "recommend_new": ["self", 0],
    "save": ["self", "model"],
    "similar": ["self", 0],
    "write": ["self", "report"],
}
FUNCTIONS = [getattr(rb, name) for name in rb.__all__ if not isinstance(getattr(rb, name), type)]
METHODS = [
    each for cls in (rb.Model, rb.Results) for name, each in vars(cls).items() if inspect.isfunction(each) and name[0] != "_"
]
CHECKED = [
    (function, name)
    for function in (*FUNCTIONS, *METHODS)
    for name, hint in get_type_hints(function).items()
    if name != "return" and hint is not Any
]


@pytest.mark.parametrize(("function", "argument"), CHECKED, ids=[f"{each.__name__}-{name}" for each, name in CHECKED])
def test_every_argument_is_checked_by_its_annotation(function, argument):
    given = dict(zip(inspect.signature(function).parameters, REQUIRED.get(function.__name__, []), strict=False))
    for wrong in (object, object(), [object()], {1: object()}, PAIRS, np.zeros((2, 2)), float("nan"), b"no"):
        if argument in ("user", "item", "value", "time") and not isinstance(wrong, list | dict):  # a column may have any name
            continue
        if argument in ("progress", "warn") and callable(wrong):
            continue
        with pytest.raises(ConfigError, match=f"^{argument}: (expected|give) ") as refused:
            function(**given | {argument: wrong})
        assert "\n" not in str(refused.value)


def test_a_text_is_no_switch(models):
    (ease, _), _ = models
    for word in ("False", "no", "", "true", 1):
        with pytest.raises(ConfigError, match=r"^filter_seen: expected True or False, got"):
            ease.recommend(0, filter_seen=word)
    assert len(ease.recommend(0, 3, filter_seen=np.True_)) == 3


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda hits, n_targets: n_targets / 0, "is not finite"),
        (lambda hits, n_targets: 1 // 0, r"metric strange@5: ZeroDivisionError: .*; rankbench check FILE tests it"),
        (lambda hits, n_targets: 0.5, r"expected one number for each of \d+ users, got float64 of shape \(\)"),
        (lambda hits, n_targets: hits * 1.0, r"expected one number for each of \d+ users, got float64 of shape \(\d+, 5\)"),
        (lambda hits, n_targets: n_targets.__setitem__(0, 1), "metric strange@5: ValueError: assignment destination is"),
        (lambda hits, n_targets: hits.__setitem__(0, True), "metric strange@5: ValueError: assignment destination is"),
    ],
)
def test_a_metric_that_fails_or_changes_what_all_metrics_read_is_named(models, metric, message, monkeypatch):
    (ease, _), environment = models
    registered()
    monkeypatch.setitem(METRICS._specs, "strange", metric)
    with np.errstate(divide="ignore"), pytest.raises(ConfigError, match=message):
        ease.evaluate(metrics=["strange@5", "recall@5"], environment=environment)


def test_a_model_of_a_method_that_is_not_known_here_names_the_plugin(models, tmp_path):
    (ease, _), _ = models
    folder = ease.save(tmp_path / "kept")
    about = folder / "model.json"
    about.write_text(about.read_text().replace('"method": "ease"', '"method": "of-a-plugin"'))
    with pytest.raises(DataError, match=r"kept: unknown method 'of-a-plugin'.*if a plugin has it, load the plugin first"):
        rb.load(folder)


def test_data_that_changed_since_they_were_read_are_refused(environment, tmp_path):
    path = tmp_path / "mine.csv"

    def write(n):
        path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user in range(n) for item in range(8)))

    write(20)
    data = rb.dataset(path, environment=environment)
    assert rb.fit(data, "popularity", progress=False, environment=environment)
    write(30)
    with pytest.raises(ConfigError, match="mine: the data have changed since"):
        rb.fit(data, "popularity", progress=False, environment=environment)
