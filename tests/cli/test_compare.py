"""rankbench compare: runs found by folder, id or start, on the same data or not at all."""

import dataclasses
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from rankbench.cli import _main, compare
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.outcome import failure
from rankbench.experiment.run import run as run_job
from rankbench.tracking.record import read_per_user, read_record, write_record

TINY = {"users": 80, "items": 60, "interactions_per_user": 10}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A results folder, and name → id: three of ease, three of random, one of them on another split and one on valid, and two
    without results.
    """
    home = tmp_path_factory.mktemp("compare")
    environment = Environment(home / "data", None, True, home / "results", None, None)
    changes = {f"source.generator.{name}": value for name, value in TINY.items()}
    card, other = (load_card("synthetic", environment, changes | {"split.seed": seed}) for seed in (0, 1))
    ease, weak, random = (configure(*each) for each in (("ease", {"lam": 50}), ("ease", {"lam": 500}), ("random", {})))
    jobs = {
        "ease": Job(card, (ease,)),
        "weak": Job(card, (weak,)),
        "less": Job(card, (ease,), "train"),
        "random": Job(card, (random,)),
        "other split": Job(other, (random,)),
        "valid": Job(card, (random,), "train", "valid"),
    }
    ids = {}
    for name, job in jobs.items():
        (outcome,) = run_job(job, environment, Execution(1))
        ids[name] = write_record(environment.results / "runs", outcome.record, outcome.per_user).name
    failed = failure(Job(card, (ease,), seed=9), ease, "no memory")
    stopped = dataclasses.replace(failed, id="stopped-run", status="stopped", error="it fell behind")
    ids |= {each.status: write_record(environment.results / "runs", each, None).name for each in (failed, stopped)}
    # One of them in a sweep's folder, where it is found as well.
    (home / "results" / "sweeps" / "s" / "records").mkdir(parents=True)
    shutil.move(environment.results / "runs" / ids["weak"], home / "results" / "sweeps" / "s" / "records" / ids["weak"])
    return home / "results", ids


@pytest.fixture(autouse=True)
def variables(shop, monkeypatch):
    monkeypatch.setenv("RANKBENCH_RESULTS", str(shop[0]))
    monkeypatch.delenv("RANKBENCH_TRACKING_URI", raising=False)


def test_runs_whose_users_have_other_names_are_refused(shop, capsys, tmp_path):
    """Of data with ids from 0 and from 1, the interactions and their fingerprint are the same."""
    results, ids = shop
    folder = results / "runs" / ids["random"]
    table = read_per_user(folder)
    for place, changed in enumerate((lambda user: user + 1, str)):
        ids_of_file = pa.array([changed(user) for user in table["user"].to_pylist()])
        renamed = table.set_column(table.schema.get_field_index("user"), "user", ids_of_file)
        other = write_record(tmp_path / str(place), read_record(folder), renamed)
        assert _main(["compare", ids["ease"], str(other)]) == 2
        error = capsys.readouterr().err
        assert "each have users that the other one lacks, as if the files of their data named users differently; fit" in error


def test_a_run_that_knows_fewer_users_is_compared_on_those(shop, capsys, tmp_path):
    """As one that was fitted on train alone, where `cold_users: drop` leaves out who has nothing there."""
    results, ids = shop
    folder = results / "runs" / ids["random"]
    fewer = write_record(tmp_path, read_record(folder), read_per_user(folder).slice(3))
    assert _main(["compare", ids["ease"], str(fewer), "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert pair["users"] == read_per_user(folder).num_rows - 3


def test_runs_are_compared_user_by_user(shop, capsys):
    results, ids = shop
    words = [ids["random"], str(results / "runs" / ids["ease"]), ids["weak"][:-2], "--metric", "recall@10", "--json"]
    assert _main(["compare", *words]) == 0
    content = json.loads(capsys.readouterr().out)
    folders = {
        "random": results / "runs" / ids["random"],
        "ease lam=50": results / "runs" / ids["ease"],
        "ease lam=500": results / "sweeps" / "s" / "records" / ids["weak"],
    }
    assert [row["id"] for row in content["models"]] == [folder.name for folder in folders.values()]
    values = {name: read_per_user(folder)["recall@10"].to_numpy().astype(float) for name, folder in folders.items()}
    assert {row["model"]: row["mean"] for row in content["models"]} == pytest.approx({n: v.mean() for n, v in values.items()})
    assert content["best"] == max(values, key=lambda name: values[name].mean())
    for pair in content["comparisons"]:
        d = values[pair["model"]] - values[pair["against"]]
        assert pair["difference"] == pytest.approx(d.mean())
        assert pair["p_wilcoxon"] == pytest.approx(stats.wilcoxon(np.round(d, 6), zero_method="pratt").pvalue)


def test_a_person_reads_the_verdict_and_a_baseline_is_compared_too(shop, capsys):
    _, ids = shop
    assert _main(["compare", ids["random"], ids["ease"], ids["weak"], "--metric", "ndcg@20", "--baseline", ids["random"]]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"ndcg@20 on test of synthetic, {_measured(shop)} users\n")
    # Two against the best, of which random is worse, and two against random, of which both are better.
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert sum(" better random +" in line for line in lines) == 2
    assert sum(line.startswith("random worse ease lam=50 -") for line in lines) == 1
    assert "corrected for 3 pairs by Holm" in text


def test_runs_fitted_on_different_parts_say_so(shop, capsys):
    _, ids = shop
    assert _main(["compare", ids["ease"], ids["less"]]) == 0
    text = capsys.readouterr().out
    assert "the runs were fitted on different parts of the data" in text
    assert "ease lam=50 (fitted on train+valid)" in text and "ease lam=50 (fitted on train) " in text
    assert _main(["compare", ids["ease"], ids["less"], "--json"]) == 0
    assert [row["fit_on"] for row in json.loads(capsys.readouterr().out)["models"]] == ["train+valid", "train"]


def test_a_label_has_what_is_not_a_default_or_differs(shop):
    results, ids = shop
    ease = read_record(results / "runs" / ids["ease"])
    bpr = dataclasses.replace(ease, method="bpr", params=configure("bpr", {"model": "lightgcn", "n_layers": 2}).flat)
    mf = dataclasses.replace(ease, method="bpr", params=configure("bpr", {}).flat)
    assert compare._labels([ease, bpr]) == ["ease lam=50", "bpr model=lightgcn n_layers=2"]
    learned = [
        dataclasses.replace(mf, params=mf.params | {"learning_rate": rate}) for rate in (mf.params["learning_rate"], 0.5)
    ]
    default, other = compare._labels(learned)
    assert default == f"bpr learning_rate={mf.params['learning_rate']:.4g}" and other == "bpr learning_rate=0.5"
    unknown = dataclasses.replace(ease, method="of-a-plugin")
    assert compare._labels([unknown, ease])[0] == "of-a-plugin lam=50"


def _measured(shop):
    results, ids = shop
    return read_record(results / "runs" / ids["ease"]).users["measured"]


def test_the_same_method_and_setting_twice_is_told_apart_by_id(shop, capsys):
    results, ids = shop
    twin = dataclasses.replace(read_record(results / "runs" / ids["ease"]), id="twin", seed=1)
    from_disk = read_per_user(results / "runs" / ids["ease"])
    write_record(results / "runs", twin, from_disk)
    assert _main(["compare", ids["ease"], "twin", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["comparisons"]
    shutil.rmtree(results / "runs" / "twin")
    assert (pair["model"], pair["against"]) == ("ease lam=50 (twin)", f"ease lam=50 ({ids['ease']})")
    assert pair["identical"] and pair["verdict"] == "identical for every user" and pair["p_wilcoxon"] == 1


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (["ease"], "compare needs at least two runs, got 1"),
        (["ease", "ease"], "given more than once; give each run once"),
        (["ease", "run-synthetic-esae"], "unknown run 'run-synthetic-esae'"),
        (["ease", "run-synthetic-random"], "'run-synthetic-random' matches 3 runs"),
        (["ease", "other split"], "only runs on the same data can be compared"),
        (["random", "valid"], "was measured on valid"),
        (["ease", "failed"], "failed: no memory"),
        (["ease", "stopped"], "stopped-run was stopped: it fell behind"),
        (["ease", "random", "--metric", "ndgc@20"], "no per-user values of 'ndgc@20'; did you mean ndcg@20?"),
        (["ease", "random", "--metric", "coverage@20"], "no per-user values of 'coverage@20'"),
        (["ease", "random", "--baseline", "weak"], "is not one of the compared runs"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_2(shop, capsys, runs, message):
    _, ids = shop
    assert _main(["compare", *(ids.get(word, word) for word in runs)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert message in printed.err
