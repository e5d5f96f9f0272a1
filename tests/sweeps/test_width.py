"""How many nodes a trial gets: those that are given, or by the estimates, and why."""

from dataclasses import replace

import pytest

from rankbench.cluster.machine import Machine, Needs, capacity
from rankbench.schema.experiment import Resources
from rankbench.sweeps.width import EFFICIENCY, widths

from .planned import plan_of

GB = 10**9
FOUR = [Machine(2, 8 * GB)] * 4


@pytest.fixture
def units(environment):
    """A closed form, alternating least squares and training by gradient steps, each of 100 seconds on one processor."""
    planned = plan_of(environment, *({"method": name} for name in ("ease", "ials", "bpr")), cpus=None)
    return [replace(unit, cost=100.0, cpus=1) for unit in planned.search]


def nodes(members, machines=FOUR, **resources):
    sized = widths(members, machines, Resources(**resources))
    return [unit.nodes for unit, _ in sized], [why for _, why in sized]


def test_the_given_number_of_nodes_goes_to_methods_that_divide_their_work(units):
    found, reasons = nodes([(unit, 1) for unit in units], nodes=3)
    assert found == [3, 3, 1]
    assert "synthetic: ials: 3 nodes of 2 CPUs: resources.nodes: 3" in reasons
    assert nodes([(unit, 1) for unit in units], nodes=1)[0] == [1, 1, 1]


def test_more_nodes_than_the_cluster_has_are_all_it_can_give_and_one_machine_gives_one(units):
    found, reasons = nodes([(units[1], 1)], nodes=9)
    assert found == [4] and reasons[0].endswith("of which the cluster can give 4")
    assert nodes([(units[1], 1)], [Machine(8, 64 * GB)], nodes=9) == ([1], [None])
    found, reasons = nodes([(units[1], 1)], [Machine(2, 8 * GB), Machine(2, GB // 2)], nodes=2)
    told = "synthetic: ials: a single node, although resources.nodes: 2: no two nodes have what it needs"
    assert (found, reasons) == ([1], [told])


def test_auto_widens_the_fit_that_would_outlast_all_others(units):
    closed_form, als, trained = units
    assert nodes([(als, 1)])[0] == [4]
    assert nodes([(als, 1), (trained, 1), (closed_form, 1)])[0] == [2, 1, 1]
    # As many fits as processors keep all of them busy.
    assert nodes([(als, 8)])[0] == [1]
    assert nodes([(replace(als, cost=15.0), 1)])[0] == [1]


def test_a_matrix_that_fits_on_no_node_is_spread_over_all(units):
    found, reasons = nodes([(replace(units[0], tiled=True), 40)])
    assert found == [4] and "its matrix fits on no node" in reasons[0]


def test_a_wide_unit_fits_the_cluster_and_its_estimate_is_of_all_its_processors(units):
    ((wide, _),) = widths([(units[1], 1)], FOUR, Resources(nodes=4))
    assert wide.needs == Needs(2, units[1].memory_bytes, nodes=4) and capacity(wide.needs, FOUR) == 1
    assert wide.cost == pytest.approx(100 / (8 * EFFICIENCY))
    ((given, _),) = widths([(units[1], 1)], FOUR, Resources(nodes=4, cpus=1))
    assert given.needs.all_cpus == 4
