"""The command on a real local cluster: methods that are late, fail or die, what is run again, and what is not."""

import json
import os
import subprocess
import sys

import pytest

PLUGIN = '''
"""Methods that misbehave."""

import os
import time
from dataclasses import dataclass

from rankbench.core.config import Params
from rankbench.fitting.method import direct
from rankbench.solvers.baselines.popularity import popularity


@dataclass(frozen=True)
class Nothing(Params):
    pass


@direct("too-slow", Nothing, title="Never ends on real data", source="here")
def too_slow(X, p, seed):
    if X.shape[0] > 100:
        time.sleep(1000)
    return popularity(X, p, seed)


@direct("dies", Nothing, title="Ends its process on real data", source="here")
def dies(X, p, seed):
    if X.shape[0] > 100:
        os._exit(7)
    return popularity(X, p, seed)


@direct("refuses", Nothing, title="Raises an error of its own", source="here")
def refuses(X, p, seed):
    raise ArithmeticError("these data are not to my taste")


@direct("copy", Nothing, title="Popularity under another name", source="here")
def copy(X, p, seed):
    return popularity(X, p, seed)
'''


@pytest.fixture
def board(tmp_path):
    """Runs the command, and returns what it printed as JSON."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
    folders = {"RANKBENCH_DATA": str(tmp_path / "data"), "RANKBENCH_RESULTS": str(tmp_path / "results")}

    def command(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "rankbench", "leaderboard", *words, "--json"],
            cwd=tmp_path, env=kept | folders | {"RANKBENCH_OFFLINE": "1"}, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    return command


@pytest.mark.timeout(300)
def test_every_entry_ends_whatever_its_method_does(board, tmp_path):
    words = ["--datasets", "synthetic", "--budget", "1s", "--seeds", "1", "--plugin", "mine.py"]
    methods = "popularity,copy,too-slow,dies,refuses"
    first = board("--methods", methods, *words)
    results = {each["entrant"]: each for each in first["done"]}
    assert {name: each["status"] for name, each in results.items()} == {
        "popularity": "finished", "copy": "finished", "too-slow": "over budget", "dies": "failed", "refuses": "not applicable",
    }  # fmt: skip
    assert results["refuses"]["reason"] == "these data are not to my taste"
    assert results["copy"]["metrics"] == results["popularity"]["metrics"]
    assert all(each["seconds"]["all"] <= 1.1 * each["budget"] for each in results.values() if each["status"] == "finished")
    lines = (tmp_path / "results" / "leaderboard" / "synthetic.jsonl").read_text().splitlines()
    assert [json.loads(line)["entrant"] for line in lines] == sorted(results)
    # What failed is tried again, and what is new is run.
    again = board("--methods", f"{methods},random", *words, "--dry-run")
    (left,) = again["left"]
    assert left["methods"] == ["dies", "random"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--budget", "fast"), "--budget: expected a time such as 90s, 10m or 2h, got 'fast'"),
        (("--budget", "0.5s"), "--budget: 0.5s is too short; give at least 1s"),
        (("--methods", "eease"), "--methods: unknown name 'eease'; did you mean ease?"),
        (("--datasets", "movielens-1000k"), "--datasets: unknown name 'movielens-1000k'; did you mean movielens-100k"),
        (("--metric", "ndgc@20"), "unknown metric 'ndgc@20'; did you mean ndcg"),
        (("--metric", "coverage@20"), "--metric: coverage@20 is not a mean over users of hits"),
        (("--threads", "1000"), "--threads: 1000 threads are too many"),
    ],
)
def test_a_wrong_word_is_one_line(board, words, told):
    output = board(*words, code=2)
    assert output.startswith(f"error: {told}") and output.count("\n") == 1
