"""RayMap on real clusters of several nodes: the answers of ThreadMap, whatever dies, hangs or joins meanwhile.

Each scenario is a process of its own (Ray reads its settings when it is imported) and prints what it saw as JSON.
"""

import os
import signal
import time

import pytest
from programs import answer, running_nodes, start

pytestmark = pytest.mark.cluster

COMMON = """
import json, os, signal, time
from pathlib import Path
import numpy as np
from threadpoolctl import threadpool_limits
from rankbench.core.errors import ClusterError, NumericalError, StorageError
from rankbench.fitting.executors import ThreadMap

def factors(block, shared, seconds):
    time.sleep(seconds)
    # Sums of many terms: another order of additions would show in the bits. Large enough to lie in the object store.
    return np.random.default_rng(block).normal(size=(200, 300)) @ shared

def checked(where, n_blocks, shared, seconds=0.0, event=lambda: None, at=4):
    # Whether all is as ThreadMap has it, and the longest silence.
    answers, last, silence = {}, None, 0.0
    for index, answer in where.map(factors, range(n_blocks), shared, seconds):
        now = time.monotonic()
        silence, last = max(silence, now - (last or now)), now
        assert index not in answers
        answers[index] = np.array(answer)
        if len(answers) == at:
            event()
    with threadpool_limits(1):
        expected = dict(ThreadMap(1).map(factors, range(n_blocks), SHARED, 0))
    same = answers.keys() == expected.keys() and all((answers[i] == expected[i]).all() for i in expected)
    return {"same": bool(same), "silence": silence}

def error_of(work):
    try:
        work()
    except Exception as error:
        return [type(error).__name__, str(error)]

SHARED = np.random.default_rng(99).normal(size=(300, 100))
"""

FAULTS = """
class Fetched(list):
    fetched = 0
    def __getitem__(self, index):
        self.fetched += 1
        return super().__getitem__(index)

def most_in_flight(where):
    blocks, most, answered = Fetched(range(40)), 0, 0
    for _ in where.map(abs, blocks):
        most, answered = max(most, blocks.fetched - answered), answered + 1
    return most, answered

def slow_at_first(block, folder):
    first = not (Path(folder) / f"{block}").exists()
    (Path(folder) / f"{block}").touch()
    time.sleep(20 if first and block == 0 else 0)
    return "first" if first else "again"

def singular(block):
    if block == 3:
        raise NumericalError("block 3 is not positive definite")
    return block

def threads(block):
    from threadpoolctl import threadpool_info
    import numba
    np.ones((9, 9)) @ np.ones((9, 9))
    return sorted({pool["num_threads"] for pool in threadpool_info()} | {numba.get_num_threads()})

def trace(block, folder):
    (Path(folder) / f"{block}").touch()
    time.sleep(0.2)

import nodes, tempfile
from rankbench.cluster.session import _ENVIRONMENT, session

# On a busy machine Ray would find a frozen node dead before RayMap is sure that its block is late.
_ENVIRONMENT |= {"RAY_health_check_failure_threshold": "20", "RAY_grpc_client_keepalive_timeout_ms": "20000"}
seen = {}
with nodes.cluster(3) as cluster, session(cluster.address), tempfile.TemporaryDirectory() as folder:
    import ray
    from rankbench.cluster.ray_map import RayMap

    where = RayMap()
    seen["calm"] = checked(where, 20, where.put(SHARED))
    seen["in_flight"] = [where.workers, *most_in_flight(where)]

    seen["numerical"] = error_of(lambda: list(where.map(singular, range(9))))
    seen["threads"] = [answer for _, answer in where.map(threads, range(3))]
    seen["too_large"] = error_of(lambda: where.put(np.zeros(50 << 20)))

    half = where.map(trace, range(40), folder)
    next(half)
    half.close()
    time.sleep(0.5)
    seen["after_close"] = len(list(Path(folder).iterdir()))
    for _ in range(60):
        closed = where.map(abs, range(12))
        next(closed)
        closed.close()
    seen["closed_early"] = [answer for _, answer in sorted(where.map(abs, range(-3, 0)))]

    cluster.add_node()
    seen["in_flight_joined"] = [where.workers, *most_in_flight(where)]

    early = RayMap(patience=0.4)
    early._typical[slow_at_first] = 0.01
    with tempfile.TemporaryDirectory() as marks:
        seen["duplicate"] = sorted(early.map(slow_at_first, range(3), marks))
    seen["duplicate_again"] = early.resubmitted

    seen["worker"] = checked(where, 16, SHARED, 1.0, lambda: cluster.kill_worker(cluster.busy_node()))
    frozen = []
    # Before Ray itself finds the node dead, which takes it five seconds at least.
    prompt = RayMap(patience=2)
    seen["freeze"] = checked(prompt, 16, SHARED, 1.0, lambda: frozen.extend(cluster.freeze_node(cluster.busy_node())))
    seen["frozen_again"] = prompt.resubmitted
    cluster.thaw(frozen)
    seen["thaw"] = checked(where, 20, SHARED, 0.1)
    seen["node"] = checked(where, 16, SHARED, 1.0, lambda: cluster.kill_node(cluster.busy_node()))
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen():
    """What happened in FAULTS: one cluster for all of it. Ray has no word on stdout, whatever died."""
    return answer("-c", COMMON + FAULTS, timeout=300)


def test_calls_are_those_of_threads_with_at_most_two_blocks_for_a_processor(seen):
    assert seen["calm"]["same"]
    assert seen["numerical"] == ["NumericalError", "block 3 is not positive definite"]
    assert seen["threads"] == [[1]] * 3
    # A node that joins is used from the next call on.
    for (workers, most, answered), expected in ((seen["in_flight"], 3), (seen["in_flight_joined"], 4)):
        assert (workers, answered) == (expected, 40) and 2 * expected - 3 < most <= 2 * expected


@pytest.mark.fault("F6")
def test_what_is_larger_than_all_object_stores_is_refused(seen, figure):
    kind, message = seen["too_large"]
    assert kind == "StorageError" and "400 MiB" in message and "240 MiB in total" in message
    figure("400 MiB for stores of 240 MiB: refused before any work, with both numbers")


def test_a_closed_generator_begins_no_more_and_leaves_the_driver_alive(seen):
    assert 1 <= seen["after_close"] <= 6
    assert seen["closed_early"] == [3, 2, 1]


def test_of_a_late_block_the_first_answer_counts_once(seen):
    assert seen["duplicate"][0] == [0, "again"] and len(seen["duplicate"]) == 3
    assert seen["duplicate_again"] >= 1


@pytest.mark.fault("F2")
def test_a_killed_worker_changes_nothing(seen, figure):
    assert seen["worker"]["same"]
    figure(f"16 blocks, a worker killed: the same bits, longest silence {seen['worker']['silence']:.1f} s")


@pytest.mark.fault("F1")
def test_a_killed_node_changes_nothing(seen, figure):
    assert seen["node"]["same"]
    figure(f"16 blocks, a node killed: the same bits, longest silence {seen['node']['silence']:.1f} s")


@pytest.mark.fault("F3")
def test_a_frozen_node_holds_the_call_up_for_seconds_and_may_come_back(seen, figure):
    assert seen["freeze"]["same"] and seen["freeze"]["silence"] < 15
    assert seen["frozen_again"] >= 1
    assert seen["thaw"]["same"]
    figure(f"16 blocks, a node frozen: the same bits, longest silence {seen['freeze']['silence']:.1f} s")


DRIVER = """
import sys
from rankbench.cluster.session import session

with session(sys.argv[1]):
    from rankbench.cluster.ray_map import RayMap

    held = []
    def long(block, shared, seconds):
        return factors(block, shared, seconds if block > 1 else 0)
    for index, answer in RayMap().map(long, range(2000), SHARED, 20.0):
        held.append(answer)
        print(index, flush=True)
"""


@pytest.fixture
def two_nodes():
    with running_nodes(2) as about:
        yield about


@pytest.mark.fault("F5")
def test_the_death_of_the_drivers_own_node_is_one_line_and_code_4(two_nodes, figure):
    driver = start("-c", COMMON + DRIVER, two_nodes["address"], **two_nodes["environment"])
    # In the middle of two long blocks: at the moment of a block's arrival Ray may be the first to see the death. Ray may begin
    # two long blocks before the second short one, which then comes after 20 s.
    for _ in range(2):
        assert driver.stdout.readline(), driver.communicate(timeout=60)
    time.sleep(2)
    os.kill(two_nodes["raylets"][0], signal.SIGKILL)
    _, errors = driver.communicate(timeout=60)
    assert (driver.returncode, errors) == (4, "error: this host's Ray node died; restart it, and --resume continues\n")
    figure("the driver's own node killed: one line and exit 4")


@pytest.mark.slow
@pytest.mark.fault("F5")
def test_the_death_of_the_head_is_one_line_and_code_4_within_a_minute(two_nodes, figure):
    driver = start("-c", COMMON + DRIVER, two_nodes["address"], **two_nodes["environment"])
    assert driver.stdout.readline()
    os.kill(two_nodes["state"], signal.SIGKILL)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 4
    assert errors.splitlines()[-1].startswith("error: the head of the Ray cluster at 127.0.0.1:")
    figure("the head killed: one line and exit 4 within 60 s")


POISON = """
import sys
def poison(block):
    if block == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return block

def silent(block):
    time.sleep(0.01 if block < 4 else 600)

from rankbench.cluster.session import session
with session(cpus=2):
    from rankbench.cluster.ray_map import RayMap

    print(json.dumps([
        error_of(lambda: list(RayMap().map(poison, range(8)))),
        error_of(lambda: list(RayMap(patience=0.5, give_up=3).map(silent, range(8)))),
    ]))
"""


@pytest.mark.slow
@pytest.mark.fault("F2")
def test_a_block_that_kills_its_workers_is_named_and_a_silent_cluster_given_up(figure):
    (kind, message), (silent_kind, silent) = answer("-c", COMMON + POISON, timeout=200)
    assert kind == "ClusterError" and message.startswith("block 3 of 8 was lost") and "\n" not in message
    assert silent_kind == "ClusterError" and "4 of 8 are in flight" in silent and "--resume" in silent
    figure(f"poison: {message.partition(' (')[0]}")
