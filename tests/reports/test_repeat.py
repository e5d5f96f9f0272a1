"""The commands in a report repeat what it says: the words of each, and one sweep whose rows are really run again."""

import json
import shlex
import subprocess
import sys

import pytest
import yaml

from rankbench.core.config import assignments
from rankbench.reports.repeat import row_command


@pytest.fixture
def command(make_run, make_sweep):
    """command(params, stated, dataset entry, searched=None, **fields of the record) → the words of the row's command."""

    def make(params, stated, entry="x", searched=None, final=None, columns=("ndcg@20",), **fields):
        run = make_run("final", "A", 0.3, params=params, **fields)
        changed = {"datasets": [entry], "final": {"fit_on": "auto"} | (final or {})}
        about = make_sweep([run], {"A": {}}, params=stated, experiment=changed).about
        search = make_run("search", "A", 0.3, params=searched) if searched else None
        return shlex.split(row_command(about, run, search, columns))

    return make


def test_a_row_is_run_with_what_the_experiment_states_and_no_defaults(command):
    params = {"lam": 1e-05, "form": "true", "deep": [1, 2], "on": True, "solver": "exact", "none": None, "text": "a b's"}
    words = command(params, {name: value for name, value in params.items() if name != "solver"})
    assert words[:4] == ["rankbench", "run", "x", "ease"] and not any(word.startswith("solver=") for word in words)
    # What the command line reads is what the record holds, with its type.
    assert assignments(words[4:]) == {name: value for name, value in params.items() if name != "solver"}


def test_data_seed_and_measurement_are_those_of_the_run(command):
    entry = {"name": "x", "file": "/cards/x.yaml", "split": {"seed": 3, "test": 0.2}}
    words = command({"lam": 1}, {"lam": 1}, entry, seed=4, dtype="float64", device="cuda:0", columns=("ndcg@20", "ndcg@7"))
    assert words[2:5] == ["/cards/x.yaml", "ease", "lam=1"]
    assert words[5:] == [
        "data.split.seed=3", "data.split.test=0.2", "--seed", "4", "--dtype", "float64", "--device", "cuda",
        "--metrics", "ndcg@20,ndcg@7",
    ]  # fmt: skip
    split = command({}, {}, entry, final={"split_seeds": [7]}, data={"split_seed": 7})
    assert [word for word in split if "split" in word] == ["data.split.test=0.2", "data.split.seed=7"]


def test_the_plugins_of_a_sweep_come_along(make_run, make_sweep):
    run = make_run("final", "A", 0.3)
    about = make_sweep([run], {"A": {}}).about
    experiment = about.experiment.model_copy(update={"plugins": ("losses.py", "a_module")})
    given = "rankbench sweep mine/e.yaml --plugin other.py"
    words = shlex.split(row_command(about.model_copy(update={"experiment": experiment, "command": given}), run, None, ()))
    assert words[4:] == ["--plugin", "other.py", "--plugin", "mine/losses.py", "--plugin", "a_module"]


def test_what_one_command_cannot_do_has_none(command):
    assert command({}, {}, {"name": "x", "card": {"name": "x"}}) == []
    assert command({}, {}, final={"fit_on": "train"}) == []


@pytest.mark.slow
def test_a_row_of_a_real_sweep_run_again_has_the_same_numbers(tmp_path, monkeypatch):
    data = {"name": "synthetic", "source": {"generator": {"users": 300, "items": 120}}}
    experiment = {
        "name": "again", "datasets": [data], "search": {"trials": 2},
        "arms": [
            {"method": "ease", "params": {"lam": {"grid": [10, 100]}}},
            {"name": "SL", "method": "sl", "params": {"epochs": 4, "patience": 2, "tau": {"uniform": [0.1, 0.3]}}},
        ],
        "final": {"seeds": [3]},
    }  # fmt: skip
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(experiment))
    for name in ("DATA", "RESULTS"):
        monkeypatch.setenv(f"RANKBENCH_{name}", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)

    def answer(*words):
        # In processes of their own: another test may have imported Ray, which reads its environment then.
        return json.loads(
            subprocess.run([sys.executable, "-m", "rankbench", *words, "--json"], check=True, stdout=subprocess.PIPE).stdout
        )

    content = answer("sweep", "again.yaml", "resources.concurrent=1")
    assert content["command"] == "rankbench sweep again.yaml resources.concurrent=1"
    assert len(content["rows"]) == 2
    for row in content["rows"]:
        program, *words = shlex.split(row["command"])
        assert program == "rankbench"
        measured = answer(*words, "--no-track")["metrics"]
        for metric, cell in row["metrics"].items():
            assert measured[metric]["mean"] == cell["mean"], (row["model"], metric)
