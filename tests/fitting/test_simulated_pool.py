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


def make(name, node, flops=0.0, **work):
    return lambda flow: flow.make([name], Work(flops, **work), node=node)


def change(name, flops, *reads):
    return lambda flow: flow.change(name, Work(flops), [*reads])


def computed(hardware, *calls):
    """The pool after these calls and a use of each array."""
    pool = SimulatedPool(hardware)
    flow = Flow(pool)
    for call in calls:
        call(flow)
    flow.wait([flow.use(name, Work()) for name in list(flow._arrays)])
    return pool


SLOW = {"dispatch": 0.5, "latency": 0.25, "overhead": 2.0, "copied": 0.1, "speed": 0.5}
TIMES = {
    "tasks of a node follow each other and nodes work at once": (
        {}, [make("a", 0, 3.0), make("b", 0, 3.0), make("c", 1, 3.0)], 6
    ),
    "an array goes over the wire once before the task that reads it": (
        {},
        [make("a", 0, 3.0, array=5.0), make("b", 1, 1.0), make("c", 1, 1.0), change("b", 2.0, "a"), change("c", 2.0, "a")],
        3 + 5 + 2 + 2,
    ),
    "a line is shared by what leaves it": (
        {"nodes": 3},
        [make("a", 0, array=5.0), make("b", 1), change("b", 1.0, "a"), make("c", 2), change("c", 1.0, "a")],
        5 + 5 + 1,
    ),
    # Node 3 is busy until node 1 has a, and then the line of node 0 is taken by x.
    "a copy is sent on by who has it": (
        {"nodes": 4},
        [make("a", 0, array=5.0), make("x", 0, array=50.0), make("b", 1), change("b", 1.0, "a"),
         make("d", 3, 6.0), make("c", 2), change("c", 1.0, "x"), change("d", 1.0, "a")],
        5 + 50 + 1,
    ),
    # Of the make: to the node, twice 2 + 10 · 0.1 + 4, and back. Of the use: the same without work and copy.
    "overheads add up": (SLOW, [make("a", 0, 4.0, array=10.0)], (0.75 + 14 + 0.25) + (0.75 + 4 + 0.25)),
    "five parts take four threads as long as eight": ({"cores": 8}, [make("a", 0, 10.0, parts=5)], 10 * 2 / 5),
    "files share the line of their node": (
        {"cores": 2, "disk_on_wire": True}, [make("a", 0, disk=6.0), make("b", 0, disk=6.0)], 6 + 6
    ),
}  # fmt: skip


@pytest.mark.parametrize("hardware, calls, seconds", TIMES.values(), ids=TIMES)
def test_the_seconds_are_those_on_paper(hardware, calls, seconds):
    assert computed(replace(PLAIN, **hardware), *calls).now == pytest.approx(seconds)


def test_operations_and_bytes_are_counted():
    pool = computed(PLAIN, make("a", 0, 3.0, array=5.0), make("b", 1, 1.0), change("b", 2.0, "a"))
    assert (pool.flops, pool.sent) == (6, 5)


def test_what_a_node_cannot_hold_is_refused_after_its_copies_have_gone():
    copies = [make(number, 0, array=30.0) for number in range(5)]
    copies += [make("b", 1), *(change("b", 1.0, number) for number in range(5))]
    small = replace(PLAIN, nodes=2, memory=170.0)
    assert computed(small, *copies).nodes[1].peak <= 170
    with pytest.raises(StorageError, match=r"a node needs more than 0\.0 GB for tiles"):
        computed(replace(small, memory=80.0), *(make(number, number % 2, array=30.0) for number in range(5)))
