"""The memory of a local node is divided between objects and tasks, and what cannot work is refused with the numbers."""

import psutil
import pytest
from programs import answer

from rankbench.cluster.machine import BLOCK_BYTES
from rankbench.cluster.node_memory import LEAST_OBJECTS, OBJECTS, NodeMemory
from rankbench.core.errors import ConfigError
from rankbench.sweeps.placement import node_memory


@pytest.mark.parametrize("total", [BLOCK_BYTES + LEAST_OBJECTS, 600_000_000, 1_000_000_000, 2_000_000_000])
def test_objects_and_tasks_add_up_to_the_bound(total):
    memory = NodeMemory.of(total, "--memory")
    assert memory.objects + memory.tasks == total and memory.tasks >= BLOCK_BYTES
    assert LEAST_OBJECTS <= memory.objects <= OBJECTS


HOST = psutil.virtual_memory().total / 1e9
CLUSTER = "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("size", "address", "message"),
    [
        (
            "500MB",
            None,
            "^500 MB are too little: shared objects take 84 MB, .* at least 450 MB; give at least 534MB$",
        ),
        (f"{HOST + 1000:.3f}GB", None, rf"^{HOST + 1000:.1f} GB are more than the {HOST:.1f} GB of this"),
        ("1GB", CLUSTER, r"`ray start --memory=900000000 --object-store-memory=100000000`$"),
        ("much", None, "^expected a size such as 4GB"),
    ],
)
def test_a_bound_that_cannot_work_is_refused_with_the_numbers(size, address, message):
    with pytest.raises(ConfigError, match=message.replace("^", "^--memory: ")):
        node_memory(size, address, "--memory")


def test_the_least_bound_is_taken_and_a_cluster_needs_none():
    assert node_memory("534MB", None, "--memory") and node_memory(None, CLUSTER, "--memory") is None


SCRIPT = """
import json
from rankbench.cluster.machine import BLOCK_BYTES
from rankbench.cluster.node_memory import NodeMemory
from rankbench.cluster.session import session
memory = NodeMemory.of(1_000_000_000, "here")
with session(None, 1, memory=memory) as cluster:
    import ray
    print(json.dumps({name: int(ray.cluster_resources()[name]) for name in ("memory", "object_store_memory")}))
"""


@pytest.mark.slow
def test_ray_has_both_shares():
    assert answer("-c", SCRIPT) == {"memory": 900_000_000, "object_store_memory": 100_000_000}
