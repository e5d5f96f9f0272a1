"""The command on a real local cluster: methods that are late, fail or die, what is run again, and what is not."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare
from rankbench.judge.compare import compare
from rankbench.leaderboard.agenda import Stores
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.options import ShowOptions
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.leaderboard.stored import board as stored_board

from ..sweeps.commands import output, start
from .entries import entry

PLUGIN = r'''
"""Methods that misbehave."""

import os
import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from rankbench.core.params import Choice, Params, param
from rankbench.core.errors import ConfigError
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import FactorRecommender
from rankbench.solvers.baselines import popularity


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
    raise ConfigError("these data are not to my taste")


@direct("broken", Nothing, title="Cannot import what it needs", source="here")
def broken(X, p, seed):
    if X.shape[0] > 100:
        raise ImportError("\x1b[36m(pid=7)\x1b[39m no module named none")
    return popularity(X, p, seed)


@direct("copy", Nothing, title="Popularity under another name", source="here")
def copy(X, p, seed):
    return popularity(X, p, seed)


@dataclass(frozen=True)
class Rank(Params):
    rank: int = param(8, "number of singular vectors", Choice(4, 8, 16, 32), gt=0)


def svd(X, p, seed):
    U, s, Vt = svds(X.astype(np.float32), k=p.rank, random_state=seed)
    return FactorRecommender(U * s, np.ascontiguousarray(Vt.T))


def noise(X, p, seed):
    shuffled = np.random.default_rng(seed).integers(X.shape[1], size=X.nnz)
    return svd(sp.csr_array((np.ones(X.nnz, np.float32), shuffled, X.indptr), X.shape), p, seed)


for name, fit in {"svd": svd, "svd-copy": svd, "svd-noise": noise}.items():
    direct(name, Rank, title="Truncated singular value decomposition", source="here")(fit)
'''


@pytest.fixture
def cluster_board(tmp_path):
    """Runs the command in a process of its own, because Ray reads its settings when it is imported; returns its JSON."""
    (tmp_path / "mine.py").write_text(PLUGIN)

    def command(*words, mirror=None, code=0):
        source = {"RANKBENCH_MIRROR": str(mirror)} if mirror else {}
        process = start(tmp_path, "leaderboard", *words, "--json", "--store", "results/leaderboard", **source)
        return json.loads(output(process, code)[0])

    return command


@pytest.fixture
def board(home, capsys):
    """Runs the command, and returns its JSON, or what it said about a wrong word."""

    def command(*words, code=0, skipped=0):
        assert _main(["leaderboard", *words, "--json", "--store", "results/leaderboard"]) == code
        output, errors = capsys.readouterr()
        assert not skipped or f"lines skipped: {skipped}" in errors
        return errors if code else json.loads(output)

    return command


def test_every_entry_ends_whatever_its_method_does(cluster_board, tmp_path):
    words = ["--datasets", "synthetic", "--budget", "2s", "--plugin", "mine.py", "--no-track"]
    methods = "popularity,copy,too-slow,dies,refuses,broken"
    first = cluster_board("--methods", methods, *words, code=4)
    results = {each["entrant"]: each for each in first["done"]}
    assert {name: each["status"] for name, each in results.items()} == {
        "popularity": "finished", "copy": "finished", "too-slow": "over budget", "dies": "failed", "refuses": "not applicable",
        "broken": "failed",
    }  # fmt: skip
    assert results["refuses"]["reason"] == "no fit had a result: these data are not to my taste"
    assert results["broken"]["reason"] == "ImportError: (pid=7) no module named none"
    assert results["copy"]["metrics"] == results["popularity"]["metrics"]
    assert all(each["seconds"]["all"] <= 1.1 * each["budget"] for each in results.values() if each["status"] == "finished")
    lines = (tmp_path / "results" / "leaderboard" / "synthetic.entries.jsonl").read_text().splitlines()
    assert [json.loads(line)["entrant"] for line in lines] == sorted(results)
    # What failed is tried again, and what is new is run.
    again = cluster_board("--methods", f"{methods},random", *words, "--dry-run")
    (left,) = again["left"]
    assert left["methods"] == ["dies", "broken", "random"]


@pytest.mark.slow
@pytest.mark.mirror
@pytest.mark.timeout(300)
def test_copies_tie_and_a_method_that_learns_from_noise_is_last(cluster_board, tmp_path, mirror_environment):
    words = ["--datasets", "movielens-100k,lastfm,steam-purchases", "--budget", "2s", "--plugin", "mine.py"]
    done = cluster_board("--methods", "svd,svd-copy,svd-noise,popularity", *words, mirror=mirror_environment.mirror)["done"]
    assert len(done) == 12 and all(each["status"] == "finished" for each in done)
    assert max(each["seconds"]["all"] / each["budget"] for each in done) <= 1.1
    facts = cluster_board("show", "--rope", "0.01", "--plugin", "mine.py")
    first, second, *others = facts["methods"]
    assert {first["method"], second["method"]} == {"svd", "svd-copy"}
    assert second["against_first"]["equal"] > 0.9
    assert others[-1]["method"] == "svd-noise" and others[-1]["mean_rank"] == 4.0
    # On each dataset, users do not tell the copies apart either, and tell both from noise.
    results = Leaderboard(tmp_path / "results" / "leaderboard")
    for dataset in results.datasets(Result):
        entries = results.lines(Result, dataset)
        users = {each.entrant: results.users_of(each, "ndcg@20") for each in entries}
        verdicts = {pair.model: pair.verdict for pair in compare(users, baseline="svd").pairs if pair.against == "svd"}
        assert verdicts["svd-copy"] not in ("better", "worse") and verdicts["svd-noise"] == "worse"


def test_a_dry_run_downloads_and_writes_nothing(board, home, monkeypatch):
    """What is prepared is measured, what is made up or described has the counts of its card, and the rest is not known."""
    monkeypatch.setenv("RANKBENCH_OFFLINE", "0")
    (home / "datasets").mkdir()
    (home / "datasets" / "unknown.yaml").write_text("name: unknown\nsource: {files: {all: {url: https://example.org/a.csv}}}\n")
    monkeypatch.setattr("rankbench.data.fetch.download", lambda *asked: pytest.fail(f"{asked[0]} was downloaded"))
    before = sorted(home.rglob("*"))
    left = board("--methods", "ease", "--datasets", "synthetic,movielens-1m,unknown", "--budget", "20s", "--dry-run")
    assert left["hours"] == 60 / 3600
    small_first = [("synthetic", 10.0), ("movielens-1m", 10.0), ("unknown", 10.0)]
    assert [(each["dataset"], each["budget"]) for each in left["left"]] == [
        *small_first,
        *((name, 20.0) for name, _ in small_first),
    ]
    assert sorted(home.rglob("*")) == before
    prepare(load_card("synthetic", Environment.from_env()), Environment.from_env())
    before = sorted(home.rglob("*"))
    (left,) = board("--methods", "ease", "--datasets", "synthetic", "--budget", "10s", "--dry-run")["left"]
    assert left == {"budget": 10.0, "dataset": "synthetic", "methods": ["ease"]}
    assert sorted(home.rglob("*")) == before


def test_results_of_own_datasets_and_methods_stay_out_of_a_checkout(home):
    """Git tracks the checkout's folder. Whoever names a folder has all of the results there."""
    (home / "datasets").mkdir()
    (home / "datasets" / "mine.yaml").write_text("name: mine\nsource: {generator: {users: 80}}\n")
    environment = Environment.from_env()
    synthetic, mine = (load_card(name, environment) for name in ("synthetic", "mine"))
    popularity, plugin = entrants("ndcg@20")["popularity"], SimpleNamespace(code="plugin with a checksum")
    stores, private = Stores(environment), home / "results" / "leaderboard"
    assert stores.of(synthetic, popularity).folder == Path(__file__).parents[2] / "experiments" / "leaderboard"
    assert {stores.of(*each).folder for each in ((mine, popularity), (synthetic, plugin), (mine, plugin))} == {private}
    assert Stores(environment, home / "all").of(mine, plugin).folder == home / "all"


def measured(dataset, entrant, value, allowed="10s", **other):
    metrics = {"ndcg@20": (value, value / 2, value * 2), "recall@20": (1 - value, None, None)} if value else {}
    status = "finished" if value else "over budget"
    return entry(dataset, entrant, allowed=allowed, status=status, metrics=metrics, **other)


@pytest.fixture
def stored(tmp_path):
    """A store in which `sl` is best, `copy` equals `bpr`, and `ease` was not run everywhere."""
    results = Leaderboard(tmp_path / "results" / "leaderboard")
    for number, dataset in enumerate("abcdef"):
        base = 0.1 + number / 20
        for entrant, value in {"sl": base + 0.3, "bpr": base, "copy": base, "random": 0.01 if number else None}.items():
            results.add(measured(dataset, entrant, value))
        if number:
            results.add(measured(dataset, "ease", base))
    results.add(measured("a", "sl", 0.9, "60s"))
    return results


def test_the_board_says_what_can_be_told(board, stored):
    facts = board("show")
    assert facts["budget"] == "10s" and facts["datasets"] == list("abcdef") and facts["left_out"] == {"ease": 5}
    ranks = {each["method"]: each["mean_rank"] for each in facts["methods"]}
    assert ranks == {"sl": 1.0, "bpr": 2.5, "copy": 2.5, "random": 4.0}
    assert facts["friedman_p"] == pytest.approx(12**-5)  # six times the same one of 4! / 2! orders
    assert facts["methods"][-1] == {"method": "random", "mean_rank": 4.0, "copeland": -3, "without_result": 1} | {
        "over_datasets": {
            "mean_rank": {"mean": 4.0, "low": 4.0, "high": 4.0}, "leads": 0.0,
            "first": {"mean": 0.0, "low": 0.0, "high": 0.0}, "share": facts["methods"][-1]["over_datasets"]["share"],
        }
    }  # fmt: skip
    pairs = {(each["method"], each["against"]): each["p_holm"] for each in facts["comparisons"]["wilcoxon_holm"]}
    assert len(pairs) == 6 and pairs["bpr", "copy"] == 1.0
    assert pairs["bpr", "sl"] == pytest.approx(6 * 2 / 2**6)  # the first of six, and all six differences have one sign
    (stored.folder / "comparisons.yaml").write_text("fixed: 2026-11-28\npairs: [[sl, bpr]]", encoding="utf-8")
    alone = board("show")["comparisons"]
    assert (alone["fixed"], alone["wilcoxon_holm"][0]["p_holm"]) == ("2026-11-28", pytest.approx(2 / 2**6))
    # Recall is 1 − nDCG here, so each of the 5 pairs of methods that differ has the other order. bpr equals copy in both.
    assert facts["metrics_tau"] == pytest.approx({"recall@20": -1.0})
    part = board("show", "--methods", "sl,random", "--datasets", "!a")
    assert [each["method"] for each in part["methods"]] == ["sl", "random"] and part["friedman_p"] is None
    assert board("show", "--budget", "1m")["datasets"] == ["a"]
    shown = board("show", "--rope", "0.01")["methods"]
    assert "against_first" not in shown[0] and all(each["against_first"]["worse"] > 0.9 for each in shown[1:])


def test_entries_of_other_threads_and_metrics_are_not_mixed(board, stored):
    """One entry with two threads, one chosen by another metric and one on earlier data change no place."""
    before = board("show")
    others = [measured("a", "random", 0.99, threads=2), replace(measured("a", "bpr", 0.98), metric="recall@20")]
    for each in [*others, measured("a", "copy", 0.97, fingerprint="earlier")]:
        stored.add(each)
    stored.add(measured("a", "popularity", 0.05, fingerprint="now", started_at="2026"))
    for dataset in "bcdef":
        stored.add(measured(dataset, "popularity", 0.05))
    after = board("show", "--methods", "!popularity", "--datasets", "!a")
    assert after["methods"] == board("show", "--datasets", "!a", "--methods", "!popularity", "--threads", "1")["methods"]
    notes = board("show")["notes"]
    assert "left out are 1 by recall@20 (the option metric shows these)" in notes[0]
    assert "Shown are entries of 1 thread; left out are 1 with 2" in notes[1]
    assert notes[2] == "Left out are 1 entries on earlier data, or by earlier ranges or code of the method."
    assert before["notes"] == notes[3:] == ["Shown are entries to 10s; the option budget shows others: 1 to 60s."]
    assert board("show", "--threads", "2")["datasets"] == ["a"]
    assert "no results with 3 threads" in board("show", "--threads", "3", code=2)
    (only,) = board("show", "--metric", "recall@20", "--datasets", "a")["methods"]
    assert only["method"] == "bpr"


def test_a_damaged_store_is_one_line_and_the_rest_is_shown_on_request(board, stored):
    path = stored.folder / "c.entries.jsonl"
    ease, *others = path.read_text().splitlines()[::-1]
    content = "\n".join(["<<<<<<< ours", *others, "=======", *others[:1], ">>>>>>> theirs", ease]) + "\n"
    path.write_text(content)
    for words in ([], ["page", "--out", "site"], ["show"]):
        output = board(*words, code=2)
        assert output.count("\n") == 1 and f"{path.name}:1: is a conflict marker" in output
    facts = board("show", "--skip-bad", skipped=5)
    assert facts["left_out"] == {"ease": 5, "random": 5}
    assert board("page", "--out", "site", "--skip-bad", skipped=5)["files"]
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no results; `rankbench leaderboard --budget 30s` measures some"),
        (("--budget", "7s"), "no results with a budget of 7s"),
        (("--budget", "60s", "--methods", "bpr"), "no results of these methods on these datasets with a budget of 60s"),
        (("--methods", "slope"), "--methods: unknown name 'slope'"),
        (("--metric", "map@20"), "--metric: map@20 was not measured"),
        (("--rope", "1.5"), "--rope: 1.5 is not between 0 and 1"),
    ],
)
def test_a_board_that_cannot_be_shown_says_why(board, tmp_path, words, told, request):
    if words:
        request.getfixturevalue("stored")
    output = board("show", *words, code=2)
    assert told in output and output.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--budget", "fast"), "--budget: expected a time such as 90s, 10m or 2h, got 'fast'"),
        (("--budget", "0.5s"), "--budget: 0.5s is too short; give at least 1s"),
        (("--methods", "eease"), "--methods: unknown name 'eease'; did you mean ease?"),
        (("--metric", "coverage@20"), "--metric: coverage@20 is not a mean over users of hits"),
        (("--threads", "1000"), "--threads: 1000 threads are too many"),
        (("--no-track", "--tag", "a=b"), "--no-track: no MLflow run is made"),
    ],
)
def test_a_wrong_word_is_one_line(board, words, told):
    output = board(*words, code=2)
    assert output.startswith(f"error: {told}") and output.count("\n") == 1


def test_a_call_in_python_that_measured_nothing_shows_no_other_methods(home, monkeypatch):
    """As when other commands run all of its entries."""
    monkeypatch.setattr(importlib.import_module("rankbench.api.leaderboard"), "compete", lambda *given: None)
    Leaderboard(home / "store").add(measured("synthetic", "bpr", 0.4))
    with pytest.raises(ConfigError, match="store: no results"):
        rb.leaderboard("popularity", "synthetic", budget="10s", store=home / "store")


def test_the_table_has_the_methods_in_their_order(board, stored):
    table = stored_board(ShowOptions(store=Path("results/leaderboard")), Environment.from_env()).table
    assert table["method"].tolist() == ["sl", "bpr", "copy", "random"] and table["best"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert table["mean rank"].tolist() == [1.0, 2.5, 2.5, 4.0] and table["no result"].tolist() == [0, 0, 0, 1]


def test_methods_without_a_common_dataset_have_pages_and_no_ranking(board, home):
    results = Leaderboard(home / "results" / "leaderboard")
    results.add(measured("a", "sl", 0.5))
    results.add(measured("b", "bpr", 0.4))
    assert board("show", "--rope", "0.01")["methods"] == []
    assert any(path.endswith("dataset-b.html") for path in board("page", "--out", "site")["files"])


def test_a_site_is_written(board, stored, tmp_path):
    files = [Path(path) for path in board("page", "--out", str(tmp_path / "site"), "--datasets", "a,b,c")["files"]]
    assert {"index.html", "dataset-a.html", "method-ease.html", "entries.csv"} <= {path.name for path in files}
    assert all(path.is_file() for path in files)
    (page, *_) = board("page", "--out", str(tmp_path / "board.md"))["files"]
    assert Path(page) == tmp_path / "board.md" and "| sl " in Path(page).read_text()
