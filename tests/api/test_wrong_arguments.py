"""Arguments of the Python interface: NumPy's numbers are numbers, and a wrong one is one line that names it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rankbench.api as rb
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError
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


def test_a_generator_of_models_and_an_arrow_table_of_interactions_are_taken(models):
    (ease, popularity), environment = models
    assert len(rb.compare((each for each in (ease, popularity)), metric="ndcg@5", environment=environment)) == 1
    new = pd.DataFrame({"user": ["x"] * 3, "item": [1, 2, 3]})
    pd.testing.assert_frame_equal(ease.recommend_new(pa.table(new), 3), ease.recommend_new(new, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, e: m.recommend(0, k=True), "k: expected a whole number from 1, got True"),
        (lambda m, e: m.recommend(np.zeros((2, 2), int)), "expected an id or several, got a matrix"),
        (lambda m, e: m.recommend(PAIRS), "expected an id or several, got a table; give its column"),
        (lambda m, e: m.recommend_new(None), "interactions: expected a table, got None"),
        (lambda m, e: m.recommend_new({"user": [1]}), "interactions: expected a table, got {'user'"),
        (lambda m, e: m.recommend_new(pd.DataFrame([[1, 2]])), "interactions: no column 'user'; columns: 0, 1"),
        (
            lambda m, e: m.recommend_new(pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"])),
            "interactions: 2 columns are called 'item'",
        ),
        (lambda m, e: m.evaluate(dataset=PAIRS), "dataset: expected the name of a dataset or what rb.dataset returns"),
        (lambda m, e: m.save(None), "folder: expected the path of a folder, got None"),
        (lambda m, e: rb.load(None), "folder: expected the path of a folder, got None"),
        (lambda m, e: rb.report(5, environment=e), "report: expected the name, id or folder of a sweep, got 5"),
        (lambda m, e: rb.sweep(5, environment=e), "experiment: expected a name or a path, got 5"),
        (lambda m, e: rb.sweep("demo", memory=5, environment=e), "memory: expected a text, got 5"),
        (lambda m, e: rb.sweep("demo", changes=5, environment=e), "changes: expected a mapping with names as keys, got 5"),
        (lambda m, e: rb.fit("synthetic", "ease", seed=True, environment=e), "seed: expected a whole number from 0, got True"),
        (lambda m, e: rb.fit("synthetic", "ease", execution=5, environment=e), "execution: expected an Execution, got 5"),
        (lambda m, e: rb.fit("synthetic", "ease", environment=5), r"environment: expected an Environment, .* got 5"),
        (lambda m, e: rb.dataset("synthetic", changes={5: 5}, environment=e), "changes: expected a mapping with names as keys"),
        (lambda m, e: rb.dataset(PAIRS["user"], environment=e), r"dataset: expected a pandas, .* got Series"),
        (lambda m, e: rb.dataset(PAIRS, user=None, environment=e), "user: give the name of the column"),
        (lambda m, e: rb.dataset(PAIRS, split=5, environment=e), r"split: expected the name of a protocol .* got 5"),
        (lambda m, e: rb.dataset(PAIRS, prepare=5, environment=e), r"prepare: expected a list of steps .* got 5"),
        (
            lambda m, e: rb.dataset(PAIRS, prepare={"k_core": 2}, environment=e),
            "prepare: expected a list of steps .* got {'k_core",
        ),
        (lambda m, e: rb.dataset(PAIRS, prepare=[5], environment=e), r"prepare: expected a list of steps .* got \[5\]"),
        (lambda m, e: rb.dataset(PAIRS, name="a" * 300, environment=e), "dataset: name: expected a name of at most 64"),
        (
            lambda m, e: rb.dataset(pd.DataFrame({"user": [2**70, 1], "item": [1, 2]}), environment=e),
            r"dataset: .*; convert the ids with \.astype",
        ),
        (
            lambda m, e: rb.dataset(PAIRS.assign(item=PAIRS["item"] + 0.5), environment=e),
            r"dataset: the column 'item': ids are whole numbers below 2\^63 or text .*; convert them with \.astype",
        ),
        (lambda m, e: rb.compare({1: m, 2: m}, environment=e), "compare: names of models are text, got 1"),
        (lambda m, e: rb.compare(None, environment=e), "compare: expected models or evaluations, got None"),
        (lambda m, e: rb.compare([m, m], baseline=m, environment=e), "baseline: expected the name of a model"),
        (lambda m, e: rb.compare([m, m], seed=-1, environment=e), "seed: expected a whole number from 0, got -1"),
        (lambda m, e: rb.compare([m, m], metric="ndcg", environment=e), "metric: write ndcg with a cutoff, as in ndcg@20"),
        (
            lambda m, e: rb.leaderboard(datasets=[PAIRS], environment=e),
            "datasets: expected names or patterns, got DataFrame; write",
        ),
        (lambda m, e: rb.leaderboard(datasets=5, environment=e), "datasets: expected names or patterns, got int; write a card"),
        (lambda m, e: rb.leaderboard(datasets=[], environment=e), "datasets: give at least one, or leave it out for all"),
        (lambda m, e: m.evaluate(metrics="mrr", environment=e), "^the default of cutoffs: 50 is more than the 25 items"),
        (lambda m, e: rb.leaderboard("esae", environment=e), "^methods: unknown name 'esae'; did you mean ease"),
        (lambda m, e: rb.leaderboard(metric="ndcg", environment=e), "^metric: write ndcg with a cutoff"),
        (lambda m, e: rb.leaderboard(budget=3, environment=e), "budget: expected a time such as 30s or 2m, got 3"),
        (lambda m, e: rb.leaderboard(threads=0, environment=e), "threads: expected a whole number from 1, got 0"),
        (lambda m, e: rb.leaderboard(store=5, environment=e), "store: expected a folder, got 5"),
    ],
)
def test_a_wrong_argument_is_one_line(models, call, message):
    (ease, _), environment = models
    with pytest.raises((ConfigError, DataError), match=message) as refused:
        call(ease, environment)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda hits, n_targets: n_targets / 0, "is not finite"),
        (lambda hits, n_targets: 1 // 0, r"metric strange@5: ZeroDivisionError: .*; rankbench check FILE tests it"),
        (lambda hits, n_targets: 0.5, r"expected one number for each of \d+ users, got float64 of shape \(\)"),
        (lambda hits, n_targets: hits * 1.0, r"expected one number for each of \d+ users, got float64 of shape \(\d+, 5\)"),
        (
            lambda hits, n_targets: n_targets.__setitem__(0, 1),
            "metric strange@5: ValueError: assignment destination is",
        ),
        (
            lambda hits, n_targets: hits.__setitem__(0, True),
            "metric strange@5: ValueError: assignment destination is",
        ),
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
