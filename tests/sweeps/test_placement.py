"""Which trials one machine can run, how others are adapted, and the errors for those that fit on no machine.

The resources of all machines together do not matter, since a trial runs on one of them.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine, Needs, described
from rankbench.core.errors import ConfigError, StorageError
from rankbench.schema.experiment import Resources
from rankbench.sweeps.placement import adapted, require_machine, shared_needs
from rankbench.sweeps.trials import callbacks
from rankbench.sweeps.trials.dispatch import Dispatch

from .commands import output, start
from .planned import plan_of

GB = 10**9
AUTO, FOUR, CUDA = Resources(), Resources(cpus=4), Resources(device="cuda")


@pytest.fixture
def fits(environment):
    """One closed form, and one method without a matrix to solve by tiles."""
    closed, iterative = plan_of(environment, {"method": "ease"}, {"method": "ials"}).search
    assert closed.memory_bytes == iterative.memory_bytes == GB
    return closed, iterative


def test_a_closed_form_goes_by_tiles_where_the_largest_machine_has_not_its_memory(fits):
    closed, iterative = fits
    two = [Machine(1, 4 * GB // 10), Machine(2, 8 * GB // 10)]
    tiled = adapted(closed, two, AUTO)
    assert tiled.tiled and tiled.memory_bytes == 72 * GB // 100
    assert sum(machine.capacity(tiled.needs) for machine in two) == 1
    assert adapted(closed, [Machine(1, GB)], AUTO) == closed
    # Python alone would not fit.
    assert adapted(closed, [Machine(1, 4 * GB // 10)], AUTO) == closed
    assert adapted(iterative, two, AUTO) == iterative


def test_a_number_of_processors_that_nobody_asked_for_is_lowered_to_what_a_machine_has(fits):
    four = replace(fits[1], cpus=4)
    # The one with most processors has not the memory.
    machines = [Machine(2, 2 * GB), Machine(3, 2 * GB), Machine(8, GB // 2)]
    assert adapted(four, machines, AUTO).cpus == 3 and adapted(four, machines, AUTO).cost == four.cost * 4 / 3
    assert adapted(four, machines, FOUR) == four
    assert adapted(replace(fits[0], cpus=4), [Machine(2, 8 * GB // 10)], AUTO).needs == Needs(2, 72 * GB // 100)


def test_trials_whose_number_processors_limit_share_the_memory_of_the_largest():
    small, middle, large, wide = Needs(1, GB), Needs(1, 3 * GB), Needs(1, 9 * GB), Needs(2, 4 * GB)
    shared = shared_needs({small, middle, large, wide}, [Machine(2, 12 * GB)])
    # Two small or middle ones run at once, and one large one.
    assert shared == {small: middle, middle: middle, large: large, wide: wide}
    # With another node, four small ones would run at once, and three middle ones.
    assert shared_needs({small, middle}, [Machine(2, 12 * GB), Machine(2, 3 * GB)])[small] == small
    # Needs that no machine has stay as they are, since errors name them.
    huge = {Needs(1, 98 * GB), Needs(1, 99 * GB)}
    assert shared_needs(huge, [Machine(2, 12 * GB)]) == {each: each for each in huge}


@pytest.mark.parametrize(
    ("needs", "machines", "resources", "error", "message"),
    [
        (
            {}, [Machine(1, 4 * GB // 10)] * 2, AUTO, StorageError,
            "ials: a fit needs 1 CPU and 1.0 GB, and here has 2 nodes of 1 CPU and 0.4 GB",
        ),
        (
            {"cpus": 4}, [Machine(2, 9 * GB)] * 3, FOUR, ConfigError,
            "needs 4 CPUs and 1.0 GB, and here has 3 nodes of 2 CPUs and 9.0 GB",
        ),
        (
            {"device": "cuda"}, [Machine(2, 9 * GB)], CUDA, ConfigError,
            "resources.device: cuda: synthetic: ials: a fit needs 1 CPU, 1 GPU and 1.0 GB",
        ),
        (
            {"device": "cuda"}, [Machine(2, 9 * GB), Machine(2, GB // 2, 1)], CUDA, ConfigError,
            "1 node of 2 CPUs and 9.0 GB, 1 node of 2 CPUs, 1 GPU and 0.5 GB",
        ),
        ({}, [], AUTO, StorageError, "here has no nodes"),
    ],
)  # fmt: skip
def test_what_fits_nowhere_is_refused_with_what_it_asks_for_and_what_there_is(fits, needs, machines, resources, error, message):
    unit = replace(fits[1], **needs)
    assert adapted(unit, machines, resources) == unit
    with pytest.raises(error) as refused:
        require_machine(unit, machines, resources, "here")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_trial_that_one_machine_takes_is_not_refused(fits):
    for unit in fits:
        require_machine(unit, [Machine(1, GB // 2), Machine(1, GB)], AUTO, "here")


@pytest.mark.parametrize("share, trials", [(1.0, 2), (0.5, 4), (0.25, 8), (0.1, 20), (0.3, 6), (0.4, 4)])
def test_several_trials_share_a_gpu(share, trials, fits):
    unit = replace(fits[1], device="cuda", gpu_share=share)
    assert unit.needs.gpus == share
    assert Machine(64, 900 * GB, 2).capacity(unit.needs) == trials
    assert replace(unit, device="cpu").needs.gpus == 0


def test_a_share_of_a_gpu_is_asked_for_with_the_device():
    assert Resources(device="cuda", gpus=0.25).gpus == 0.25
    for wrong in ({"gpus": 0.25}, {"device": "cuda", "gpus": 0}, {"device": "cuda", "gpus": 2}):
        with pytest.raises(ValueError, match="gpus"):
            Resources(**wrong)


def test_machines_are_described_with_equal_ones_counted():
    assert described([Machine(1, GB), Machine(8, 20 * GB, 2), Machine(1, GB)]) == (
        "2 nodes of 1 CPU and 1.0 GB, 1 node of 8 CPUs, 2 GPUs and 20.0 GB"
    )


@pytest.mark.parametrize("local", [True, False])
def test_what_may_be_wrong_with_this_machine_is_not_said_of_a_cluster_that_was_joined(local, monkeypatch):
    for name, value in {
        "PATIENCE": -1.0,
        "alive_machines": lambda: [],
        "log_folder": lambda: "logs",
        "advice": lambda n: "stop Ray",
    }.items():
        monkeypatch.setattr(callbacks, name, value)
    said = []
    group = SimpleNamespace(needs=lambda unit: Needs(1, GB), unit_of=lambda trial: None, dispatch=Dispatch([]))
    callback = callbacks.Waiting(group, said.append, local)
    for _ in range(2):
        callback.on_step_end(1, [SimpleNamespace(status="PENDING", trial_id="a")])
    (line,) = said
    assert line.startswith("no worker for a trial") and ("stop Ray" in line) == local
    group.dispatch.unable = Needs(8, GB)  # of a trial that waits while others run
    waits = callbacks.Waiting(group, said.append, local)
    waits.on_step_end(1, [])
    assert "it needs 8 CPUs" in said[1]


# The only processor is taken until the sweep says that it waits for it.
WAITS = """
import json, sys
from pathlib import Path
from rankbench.cluster.session import session
from rankbench.core.config import validate
from rankbench.core.environment import Environment
from rankbench.sweeps.plan import plan
from rankbench.sweeps.store import SweepStore
from rankbench.schema.experiment import ExperimentSpec

data = {"name": "synthetic", "source": {"generator": {"users": 60, "items": 30, "interactions_per_user": 8}}}
spec = validate(ExperimentSpec, {"name": "small", "datasets": [data], "arms": [{"method": "popularity"}]}, "here")
environment = Environment.from_env()
planned = plan(spec, environment, 1, "here")
with session(None, 1) as cluster:
    import ray
    from rankbench.sweeps.trials import callbacks
    from rankbench.sweeps.run_units import run_units

    class Holder:
        def hold(self):
            return True

    holder = ray.remote(num_cpus=1)(Holder).remote()
    assert ray.get(holder.hold.remote())
    callbacks.PATIENCE = 0.5
    warnings = []

    def warn(line):
        warnings.append(line)
        ray.kill(holder)

    store = SweepStore(Path(sys.argv[1]))
    records = run_units(planned.search, environment, store, cluster, spec.resources, lambda *_: None, warn=warn)
print(json.dumps({"warnings": warnings, "finished": [record.finished for record in records]}))
"""


@pytest.mark.timeout(300)
def test_a_trial_that_waits_for_a_place_is_said_once_and_runs_when_there_is_one(tmp_path):
    out, _ = output(start(tmp_path, str(tmp_path), program=WAITS))
    told = json.loads(out.splitlines()[-1])
    assert told["finished"] == [True]
    (line,) = told["warnings"]
    assert "it needs 1 CPU and 1.0 GB, the cluster has 1 node of 1 CPU and " in line
