"""Commands on a cluster whose hosts have networks of their own: nothing may rest on loopback, and a cable may be pulled."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import GROUPS, hosts, unavailable
from programs import assert_same_metrics, printed, run_command

pytestmark = pytest.mark.cluster

SIZE = ["data.source.generator.users=3000", "data.source.generator.items=4000"]


@pytest.fixture
def cluster():
    if reason := unavailable():
        pytest.skip(reason)
    with hosts(3) as made:
        yield made


def run(made, folder, *words):
    return run_command(folder, *words, begin=made.start)


@pytest.mark.timeout(400)
def test_every_host_answers_and_takes_its_share_of_the_blocks(cluster, tmp_path):
    doctor = [sys.executable, "-m", "rankbench", "doctor", "--address", cluster.address, "--json"]
    places = {"RANKBENCH_DATA": str(tmp_path / "data"), "RANKBENCH_RESULTS": str(tmp_path / "doctor")}
    said = printed(cluster.start(doctor, env=places, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    nodes = [each["what"] for each in said["checks"] if each["what"].startswith("node")]
    assert len(nodes) == 3 and all(any(f"10.77.0.{host}" in node for node in nodes) for host in (1, 2, 3)), said
    words = ("ials", "iterations=3", "embedding_dim=32", *SIZE)
    alone = printed(run(cluster, tmp_path / "alone", *words))
    before = [cluster.received(host) for host in range(3)]
    joined = printed(run(cluster, tmp_path / "joined", *words, "--address", cluster.address))
    assert_same_metrics(joined, alone)
    # More than words: the factors themselves came to every host.
    assert all(cluster.received(host) - before[host] > 3000 * 32 * 4 for host in (1, 2))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.fault("F3")
def test_a_pulled_cable_changes_nothing_in_tiles(cluster, tmp_path, figure):
    words = ("deql-l2", "p=0.5", "b=2.0", "lam_prime=3.0", *SIZE)
    alone = printed(run(cluster, tmp_path / "alone", *words))
    joined = run(cluster, tmp_path / "joined", *words, "--address", cluster.address)
    while not finished(tmp_path / "joined") and joined.poll() is None:
        time.sleep(0.05)
    assert joined.poll() is None, "the run was over before the cable was pulled"
    cluster.unplug(2)
    joined = printed(joined)
    assert_same_metrics(joined, alone)
    assert json.loads((Path(joined["folder"]) / "record.json").read_text())["tiles"]
    figure("a closed form by tiles on 3 hosts, a cable pulled: the metrics of one host")


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.fault("F3")
def test_a_host_that_is_cut_off_for_a_while_changes_no_number(cluster, tmp_path, figure):
    """A partition: the host goes on computing, hears nothing for 30 s, and then is there again."""
    words = ("ials", "iterations=60", "embedding_dim=128", *SIZE)
    alone = printed(run(cluster, tmp_path / "alone", *words))
    joined = run(cluster, tmp_path / "joined", *words, "--address", cluster.address)
    checkpoints = tmp_path / "joined" / "checkpoints"
    while not list(checkpoints.glob("*/00000[3-9]")) and joined.poll() is None:
        time.sleep(0.05)
    assert joined.poll() is None, "the run was over before the cable was pulled"
    cluster.unplug(2)
    time.sleep(30)
    cluster.plug_in_again(2)
    in_the_run = joined.poll() is None
    joined = printed(joined)
    assert joined["metrics"] == alone["metrics"]
    again = run(cluster, tmp_path / "again", *words[:1], *words[2:], "iterations=3", "--address", cluster.address)
    assert printed(again)["metrics"]
    when = "during" if in_the_run else "after"
    figure(f"iALS on 3 hosts, one cut off for 30 s and back {when} the run: the metrics of one host to the last bit")


def finished(folder):
    """Panels of the factorisation."""
    return max((json.loads(path.read_text())["finished"] for path in folder.glob("spill/*/panel.json")), default=0) >= 2


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_tiles_on_hosts_with_slow_lines_and_little_processor(tmp_path):
    if reason := unavailable():
        pytest.skip(reason)
    if not os.access(GROUPS / "cpu.cfs_period_us", os.R_OK) or not os.access(GROUPS, os.W_OK):
        pytest.skip(f"control groups of version 1 cannot be made in {GROUPS}")
    with hosts(2, gigabits=1.0, grouped=True) as made:
        words = ("deql-l2", "p=0.5", "b=2.0", "lam_prime=3.0", *SIZE)
        alone = printed(run(made, tmp_path / "alone", *words))
        made.limit(0.8)
        before = [made.used(host) for host in range(2)]
        joined = printed(run(made, tmp_path / "joined", *words, "--address", made.address))
        assert_same_metrics(joined, alone)
        assert all(made.used(host) > before[host] for host in range(2))
