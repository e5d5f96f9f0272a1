"""Times on paper that can be computed by hand."""

from dataclasses import dataclass, replace

import pytest

from rankbench.core.errors import StorageError
from rankbench.fitting.flow import Flow
from rankbench.fitting.simulated_pool import Cost, Hardware, SimulatedPool

# One operation takes a second, one byte a second on the wire; nothing else takes any time.
PLAIN = Hardware(
    2, 1, 1e9, 8e-9, 1.0, background=0.0, dispatch=0.0, latency=0.0, overhead=0.0, copied=0.0, wire=1e-9, disk_on_wire=False,
    store=1.0,
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    flops: float = 0.0
    array: float = 1.0
    disk: float = 0.0
    parts: int = 1

    def cost(self, *arguments):
        return Cost(self.flops, self.flops, self.parts, disk=self.disk, array=self.array)


def seconds(hardware, calls):
    pool = SimulatedPool(hardware)
    flow = Flow(pool)
    calls(flow)
    flow.wait([flow.use(name, Work()) for name in list(flow._arrays)])
    return pool


def test_tasks_of_a_node_follow_each_other_and_nodes_work_at_once():
    def calls(flow):
        for name, node in (("a", 0), ("b", 0), ("c", 1)):
            flow.make([name], Work(3.0), node=node)

    pool = seconds(PLAIN, calls)
    assert pool.now == pytest.approx(6) and pool.flops == 9 and pool.sent == 0


def test_an_array_goes_over_the_wire_once_before_the_task_that_reads_it():
    def calls(flow):
        flow.make(["a"], Work(3.0, array=5.0), node=0)
        flow.make(["b"], Work(1.0), node=1)
        flow.make(["c"], Work(1.0), node=1)
        flow.change("b", Work(2.0), ["a"])
        flow.change("c", Work(2.0), ["a"])

    pool = seconds(PLAIN, calls)
    assert pool.now == pytest.approx(3 + 5 + 2 + 2) and pool.sent == 5


def test_a_line_is_shared_by_what_leaves_it():
    def calls(flow):
        flow.make(["a"], Work(0.0, array=5.0), node=0)
        for node in (1, 2):
            flow.make([node], Work(0.0), node=node)
            flow.change(node, Work(1.0), ["a"])

    assert seconds(replace(PLAIN, nodes=3), calls).now == pytest.approx(5 + 5 + 1)


def test_a_copy_is_sent_on_by_who_has_it():
    def calls(flow):
        flow.make(["a"], Work(0.0, array=5.0), node=0)
        flow.make(["x"], Work(0.0, array=50.0), node=0)
        flow.make([1], Work(0.0), node=1)
        flow.change(1, Work(1.0), ["a"])
        flow.make([3], Work(6.0), node=3)  # busy until node 1 has a, and the line of node 0 is taken by x
        flow.make([2], Work(0.0), node=2)
        flow.change(2, Work(1.0), ["x"])
        flow.change(3, Work(1.0), ["a"])

    assert seconds(replace(PLAIN, nodes=4), calls).now == pytest.approx(5 + 50 + 1)


def test_overheads_add_up():
    def calls(flow):
        flow.make(["a"], Work(4.0, array=10.0), node=0)

    slow = replace(PLAIN, dispatch=0.5, latency=0.25, overhead=2.0, copied=0.1, speed=0.5)
    # Of the make: to the node, twice 2 + 10 · 0.1 + 4, and back. Of the use: the same without work and copy.
    assert seconds(slow, calls).now == pytest.approx((0.75 + 14 + 0.25) + (0.75 + 4 + 0.25))


def test_five_parts_take_four_threads_as_long_as_eight():
    def calls(flow):
        flow.make(["a"], Work(10.0, parts=5))

    assert seconds(replace(PLAIN, cores=8), calls).now == pytest.approx(10 * 2 / 5)


def test_all_nodes_share_the_disk():
    def calls(flow):
        for node in range(2):
            flow.make([node], Work(disk=6.0), node=node)

    assert seconds(replace(PLAIN, disk=2.0), calls).now == pytest.approx(6)


def test_what_a_node_cannot_hold_is_refused_after_its_copies_have_gone():
    def copies(flow):
        for number in range(5):
            flow.make([number], Work(array=30.0), node=0)
        flow.make(["b"], Work(), node=1)
        for number in range(5):
            flow.change("b", Work(1.0), [number])

    def own(flow):
        for number in range(5):
            flow.make([number], Work(array=30.0), node=number % 2)

    small = replace(PLAIN, nodes=2, memory=170.0)
    assert seconds(small, copies).nodes[1].peak <= 170
    with pytest.raises(StorageError, match=r"a node needs more than 0\.0 GB for tiles"):
        seconds(replace(small, memory=80.0), own)
