"""Registered models: loaded and served by MLflow without pickle, with the answers of the model itself."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.scoring_server import infer_and_parse_data
from mlflow.tracking import MlflowClient

from rankbench.api.register import register
from rankbench.cli import _main
from rankbench.core.errors import DataError, StorageError
from rankbench.experiment.fitted_model import load
from rankbench.tracking.labels import Labels

from .stores import free_port

FIT = ["fit", "synthetic", "ease", "lam=50", "data.source.generator.users=80", "data.source.generator.items=40",
       "data.source.generator.interactions_per_user=10"]  # fmt: skip


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """A model that the command fitted and registered: its folder, the environment, and the address of the store."""
    root = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{root}/results/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("DATA", root / "data"), ("RESULTS", root / "results"), ("OFFLINE", 1)):
            patch.setenv(f"RANKBENCH_{name}", str(value))
        for name in ("RANKBENCH_MIRROR", "RANKBENCH_TRACKING_URI", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        assert _main([*FIT, "--out", str(root / "model"), "--register", "shop"]) == 0
        assert "MLFLOW_TRACKING_URI" not in os.environ  # which MLflow's own functions set
        yield root, uri


def test_the_registered_model_recommends_by_raw_ids(registered, monkeypatch):
    root, uri = registered
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    loaded, model = mlflow.pyfunc.load_model("models:/shop/1"), load(root / "model")
    users = model.users.slice(3, 2).to_pylist()
    request = loaded.input_example.iloc[[0, 0]].assign(user=users)
    answer = loaded.predict(request, params={"k": 4})
    assert answer.to_dict("list") == model.recommend(users, 4).to_dict("list")
    seen = loaded.predict(request, params={"k": 4, "filter_seen": False})
    assert seen.to_dict("list") == model.recommend(users, 4, filter_seen=False).to_dict("list")
    assert len(loaded.predict(request.iloc[:1])) == 10
    with pytest.raises(MlflowException, match="unknown user id 987654"):
        loaded.predict(request.assign(user=987654))


def test_a_batch_does_not_fail_for_one_user_and_histories_fold_in(registered, monkeypatch, caplog):
    root, uri = registered
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    loaded, model = mlflow.pyfunc.load_model("models:/shop/1"), load(root / "model")
    user, items = model.users[3].as_py(), model.items.slice(4, 3).to_pylist()
    new = model.recommend_new(pd.DataFrame({"user": ["x"] * 3, "item": items}), 4)["item"].tolist()
    request = pd.DataFrame({"user": [user, 987654, 7], "history": [None, [], [*items, 10**9]]})
    answer = loaded.predict(request, params={"k": 4})
    assert answer["user"].tolist() == [user] * 4 + [7] * 4
    assert answer["item"].tolist() == model.recommend([user], 4)["item"].tolist() + new
    assert "unknown user id 987654 (1 such of 2 users)" in caplog.text and "1 of 4 interactions are with items" in caplog.text
    popular = loaded.predict(request, params={"k": 4, "unknown": "popularity"})
    assert popular["user"].tolist() == [user] * 4 + [987654] * 4 + [7] * 4
    for params, message in (({"unknown": "error"}, "unknown user id 987654"), ({"unknown": "x"}, "unknown: expected skip")):
        with pytest.raises(MlflowException, match=message):
            loaded.predict(request, params=params)
    with pytest.raises(MlflowException, match="history: expected a list of item ids, got 'a'"):
        loaded.predict(request.assign(history=[None, None, "a"]))
    for histories in ([[each] for each in items[:2]], [None, items], [items, []]):
        with pytest.raises(MlflowException, match="user: 7 has two rows; beside histories, give each row an id of its own"):
            loaded.predict(pd.DataFrame({"user": [7, 7], "history": histories}))


def test_lists_are_in_the_order_of_the_request(registered, monkeypatch):
    root, uri = registered
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    loaded, model = mlflow.pyfunc.load_model("models:/shop/1"), load(root / "model")
    (first, second), items = model.users.slice(3, 2).to_pylist(), model.items.slice(4, 3).to_pylist()
    request = pd.DataFrame({"user": [900001, second, 900002, first], "history": [items, None, items[:1], []]})
    for sent in (request, request.astype({"user": float})):
        answer = loaded.predict(sent, params={"k": 2})
        assert answer["user"].tolist() == [each for each in request["user"] for _ in range(2)]
        assert answer["rank"].tolist() == [1, 2] * 4
        both = answer[answer["user"].isin([first, second])]["item"].tolist()
        assert both == model.recommend([second, first], 2)["item"].tolist()
    again = loaded.predict(pd.DataFrame({"user": [first, second, first]}), params={"k": 2})
    assert again["user"].tolist() == [first] * 2 + [second] * 2 + [first] * 2


@pytest.mark.parametrize("sent", [1.5, 2.0**53 + 2])
def test_a_request_for_user_1_5_is_not_answered_for_user_1(registered, monkeypatch, sent):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registered[1])
    loaded = mlflow.pyfunc.load_model("models:/shop/1")
    # As MLflow's server reads a request, with the types of the signature.
    body = {"dataframe_split": {"columns": ["user"], "data": [[1], [sent]]}}
    parsed = infer_and_parse_data(body, loaded.metadata.get_input_schema())
    assert set(loaded.predict(parsed, params={"k": 2})["user"].astype(int)) == {1}
    body = {"dataframe_split": {"columns": ["user"], "data": [[sent]]}}
    with pytest.raises(MlflowException, match="unknown user id"):
        loaded.predict(infer_and_parse_data(body, loaded.metadata.get_input_schema()))


def test_it_is_data_with_a_signature_an_example_and_pinned_requirements(registered):
    root, uri = registered
    client = MlflowClient(uri)
    version = client.get_model_version("shop", "1")
    (files,) = (root / "results" / "mlartifacts" / "models").rglob("MLmodel")
    names = {path.suffix for path in files.parent.rglob("*") if path.is_file()}
    assert not names & {".pkl", ".pickle", ".joblib", ".pt"}
    signature = mlflow.models.Model.load(str(files.parent)).signature
    assert [(each.name, each.required) for each in signature.inputs] == [("user", True), ("history", False)]
    assert [each.name for each in signature.params] == ["k", "filter_seen", "unknown"]
    lines = (files.parent / "requirements.txt").read_text().split()
    assert all("==" in line for line in lines) and {"rankbench", "mlflow", "safetensors"} <= {
        line.split("==")[0] for line in lines
    }
    assert not any(line.startswith("torch") for line in lines)  # EASE needs none
    assert version.tags["rankbench.method"] == "ease"
    run = client.get_run(version.run_id)
    assert run.info.status == "FINISHED" and run.data.params["lam"] == "50.0"


def test_a_second_registration_is_the_next_version_in_the_users_experiment(registered, capsys, monkeypatch):
    root, uri = registered
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "releases")
    assert _main(["tracking", "register", str(root / "model"), "--name", "shop", "--tag", "team=search", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"name": "shop", "version": 2, "uri": "models:/shop/2"} and printed.err == ""
    client = MlflowClient(uri)
    run = client.get_run(client.get_model_version("shop", "2").run_id)
    assert run.info.experiment_id == client.get_experiment_by_name("releases").experiment_id
    assert run.data.tags["team"] == "search"


@pytest.mark.parametrize("words", [["--name", "a/b"], ["--name", " "], ["--name", "shop", "--tag", "team"]])
def test_a_wrong_name_or_tag_is_one_line_before_anything_is_read(registered, words, capsys):
    assert _main(["tracking", "register", "no-such-folder", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no-such-folder" not in error


def test_what_cannot_be_registered_is_named(registered, environment, tmp_path):
    root, _ = registered
    with pytest.raises(DataError, match=r"not a saved model"):
        register(tmp_path, "shop", environment, Labels())
    environment.results.mkdir()
    (environment.results / "mlflow.db").write_text("not a database, long enough to be read as one" * 20)
    with pytest.raises(StorageError, match="not a database"):
        register(root / "model", "shop", environment, Labels())


@pytest.mark.slow
def test_mlflow_serves_it(registered):
    root, uri = registered
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/shop/1", "--env-manager", "local"]
    process = subprocess.Popen(
        [*command, "--port", str(port)], env=os.environ | {"MLFLOW_TRACKING_URI": uri}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def post(user):
        body = {"dataframe_split": {"columns": ["user"], "data": [[user]]}, "params": {"k": 3}}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request, timeout=30))["predictions"]

    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.5)
        expected = load(root / "model").recommend([5], 3)
        assert [row["item"] for row in post(5)] == expected["item"].tolist()
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(987654)
        assert refused.value.code == 400 and "unknown user id 987654" in refused.value.read().decode()
    finally:
        os.killpg(process.pid, 9)  # the group that this test started
        process.wait()
