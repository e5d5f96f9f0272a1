"""A sweep on hosts that share no folder: results and data are in an object store on their network; a host dies, one joins."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hosts import hosts, unavailable
from object_store import object_store

from rankbench.tracking.record import read_per_user, read_record

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXPERIMENT = """
name: apart
datasets:
  - {name: synthetic, source: {generator: {users: 1500, items: 400, interactions_per_user: 15}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [10, 100]}}}
  - {method: ials, params: {embedding_dim: {grid: [16, 32]}, iterations: 10}}
  - method: bpr
    params: {embedding_dim: 16, epochs: 100, patience: 100, n_negatives: 20, learning_rate: {grid: [0.001, 0.01, 0.03, 0.1]}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1}
"""
HOSTS = 3
DEADLINE = 300  # seconds


def sweep(cluster, host, places, *words):
    """A sweep from a host, which has the experiment's file in its own /tmp."""
    (cluster.folders[host] / "apart.yaml").write_text(EXPERIMENT)
    command = [sys.executable, "-m", "rankbench", "sweep", "apart.yaml", "--json", *words]
    environment = places | {"RANKBENCH_CACHE": "/tmp/cache", "RANKBENCH_OFFLINE": "1"}
    return cluster.start(command, host, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process):
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    return json.loads(out)


def records_in(folder):
    """Id → record without what differs from fit to fit, and the rows of its users."""
    folders = [path.parent for path in folder.glob("records/[!.]*/record.json")]
    records = {record.id: (record, folder) for folder in folders for record in [read_record(folder)]}
    return {
        name: (record.status, record.params, record.stage, record.metrics, read_per_user(path).to_pydict())
        for name, (record, path) in records.items()
    }


def rows_of(printed):
    """The rows of the table, without the links to runs in the MLflow of the host."""
    return [{name: value for name, value in row.items() if name != "mlflow"} for row in printed["rows"]]


def trials_of(keys):
    """Id of each trial that was begun, of the keys of a store → how often."""
    return Counter(key.split("/")[-2] for key in keys if "/attempts/" in key and "/attempts/sweep/" not in key)


def records_of(keys):
    """Ids of the records that are there, of the keys of a store."""
    return {key.split("/")[-3] for key in keys if "/records/" in key and key.endswith("/checksums.json")}


@pytest.mark.timeout(900)
@pytest.mark.fault("F1")
def test_a_host_that_dies_changes_nothing_although_no_folder_is_shared(monkeypatch, figure):
    if reason := unavailable():
        pytest.skip(reason)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")  # of each host
    with hosts(HOSTS, private=True) as cluster, object_store(cluster) as store:
        spread = sweep(cluster, 0, store.environment, "--address", cluster.address)
        until = time.monotonic() + DEADLINE
        while True:  # until some records are there, and each host, of one processor, has a trial in hand
            keys = store.keys()
            if len(records_of(keys)) >= 2 and len(trials_of(keys).keys() - records_of(keys)) >= HOSTS:
                break
            assert spread.poll() is None and time.monotonic() < until, spread.communicate()
            time.sleep(0.02)
        cluster.kill(2)
        cluster.add()  # it takes its share of what is left
        spread = ended(spread)
        there = records_in(cluster.folders[0] / Path(spread["folder"]).relative_to("/tmp"))
        for folder in cluster.folders:  # each has its own copy of the data, and of nothing that belongs to another host
            assert [*folder.glob("cache/prepared/synthetic-*/manifest.json")]
        assert not [*cluster.folders[1].glob("cache/results/**/record.json")]

        before = store.keys()
        again = ended(sweep(cluster, 1, store.environment, "--address", cluster.address, "--resume"))
        assert rows_of(again) == rows_of(spread)
        assert (trials_of(store.keys()), records_of(store.keys())) == (trials_of(before), records_of(before))
        assert records_in(cluster.folders[1] / Path(again["folder"]).relative_to("/tmp")) == there

        folders = {"RANKBENCH_RESULTS": "/tmp/alone/results", "RANKBENCH_DATA": "/tmp/alone/data"}
        alone = ended(sweep(cluster, 1, folders))
        here = records_in(cluster.folders[1] / Path(alone["folder"]).relative_to("/tmp"))
    assert there == here and len(here) == 13
    assert all(status == "finished" for status, *_ in there.values())
    assert max(trials_of(before).values()) == 2  # that which the killed host had in hand
    figure(
        f"a sweep on {HOSTS} hosts without a shared folder, results and data in an object store, a host killed: {len(here)} of "
        f"{len(here)} records equal to those of one machine, --resume runs nothing"
    )
