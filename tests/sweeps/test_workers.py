"""Trials whose gradient steps are made by several workers: the plan reserves them, and the records are those of one worker."""

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.errors import ConfigError
from rankbench.schema.experiment import Resources
from rankbench.sweeps.dry_run import dry_run
from rankbench.sweeps.placement import adapted

from .commands import output, records_of, start
from .planned import plan_of


def test_trials_of_gradient_steps_reserve_a_processor_for_each_worker(environment):
    planned = plan_of(environment, {"method": "bpr"}, {"method": "ease"}, {"method": "ials"}, resources={"workers": 4}, cpus=4)
    units = {unit.job.configs[0].method: unit for unit in planned.search}
    assert {name: (unit.workers, unit.needs.cpus) for name, unit in units.items()} == {
        "bpr": (4, 4), "ease": (1, 1), "ials": (1, 1),
    }  # fmt: skip
    (alone,) = plan_of(environment, {"method": "bpr"}).search
    assert units["bpr"].memory_bytes > 3 * alone.memory_bytes
    assert units["bpr"].run_id == alone.run_id


def test_workers_change_neither_the_key_of_a_sweep_nor_what_is_planned(environment):
    arm = {"method": "bpr", "params": {"learning_rate": {"grid": [0.1, 0.01]}}}
    alone, together = plan_of(environment, arm), plan_of(environment, arm, resources={"workers": 2})
    assert alone.key == together.key
    assert [unit.run_id for unit in alone.search] == [unit.run_id for unit in together.search]


def test_the_dry_run_names_the_workers(environment):
    planned = plan_of(environment, {"method": "bpr"}, {"method": "ease"}, resources={"workers": 2})
    preview = dry_run(planned, environment, [Machine(2, 64 << 30)])
    assert [(row.cpus, row.as_dict()["workers"]) for row in preview.rows[:2]] == [(2, 2), (1, 1)]


def test_a_draw_of_an_adaptive_search_keeps_its_workers(environment):
    arm = {"method": "bpr", "params": {"learning_rate": {"loguniform": [0.01, 0.1]}}}
    planned = plan_of(environment, arm, resources={"workers": 2}, search={"by": "tpe", "trials": 3})
    (search,) = planned.adaptive
    assert search.unit({"learning_rate": 0.02}).workers == 2


def test_a_smaller_machine_does_not_reduce_the_workers(environment):
    (unit,) = plan_of(environment, {"method": "bpr"}, resources={"workers": 4}, cpus=4).search
    assert adapted(unit, [Machine(2, 64 << 30)], Resources(workers=4)) == unit


@pytest.mark.parametrize(
    ("arm", "resources", "message"),
    [
        ({"method": "bpr"}, {"workers": 0}, r"x\.yaml: resources\.workers"),
        ({"method": "bpr"}, {"workers": 5}, r"x\.yaml: resources\.workers: a trial of 5 workers needs as many processors"),
        ({"method": "bpr"}, {"workers": 2, "device": "cuda"}, "leave out device: cuda"),
        ({"method": "bpr"}, {"workers": 2, "cpus": 1}, "a trial of 2 workers has as many processors; leave out cpus"),
        (
            {"method": "bpr", "params": {"model": "neumf", "hidden_dropout": 0.1}},
            {"workers": 2},
            r"resources\.workers: 2: bpr is fitted by one worker only, because hidden_dropout draws numbers",
        ),
    ],
)
def test_what_several_workers_cannot_do_is_refused_before_anything_runs(environment, arm, resources, message):
    with pytest.raises(ConfigError, match=message) as caught:
        plan_of(environment, arm, resources=resources, cpus=4)
    assert "\n" not in str(caught.value)


EXPERIMENT = """
name: together
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 100, interactions_per_user: 15}}}
arms:
  - {method: ease}
  - {method: bpr, params: {embedding_dim: 8, epochs: 3, n_negatives: 5, learning_rate: {grid: [0.01, 0.1]}}}
search: {choose: {metric: ndcg@10, on: valid}}
cutoffs: [10]
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_a_sweep_by_two_workers_has_the_results_of_one(tmp_path):
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    losses = {}
    for workers in (1, 2):
        home = tmp_path / str(workers)
        output(start(home, "sweep", str(tmp_path / "x.yaml"), f"resources.workers={workers}"))
        records = records_of(home).values()
        assert {record.workers for record in records if record.method == "bpr"} == {workers}
        assert {record.workers for record in records if record.method == "ease"} == {1}
        losses[workers] = {record.id: [row["loss"] for row in record.curve] for record in records if record.method == "bpr"}
    assert losses[1].keys() == losses[2].keys()
    for name, curve in losses[1].items():
        assert losses[2][name] == pytest.approx(curve, rel=1e-5)
