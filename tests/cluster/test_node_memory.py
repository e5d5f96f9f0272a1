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
    memory = NodeMemory.of(total, BLOCK_BYTES, "--memory")
    assert memory.objects + memory.tasks == total and memory.tasks >= BLOCK_BYTES
    assert LEAST_OBJECTS <= memory.objects <= OBJECTS


def test_a_bound_that_is_too_small_is_refused_with_the_numbers():
    with pytest.raises(ConfigError) as error:
        node_memory("500MB", None, "--memory")
    assert str(error.value) == (
        "--memory: 500 MB are too little: shared objects take 84 MB, and a fit takes at least 450 MB; give at least 534MB"
    )
    assert node_memory("534MB", None, "--memory") and node_memory(None, "10.0.0.1:6379", "--memory") is None


def test_a_bound_above_the_machine_and_one_for_a_cluster_are_refused():
    host = psutil.virtual_memory().total
    with pytest.raises(
        ConfigError, match=rf"^memory: {host / 1e9 + 1000:.1f} GB are more than the {host / 1e9:.1f} GB of this"
    ):
        node_memory(f"{host / 1e9 + 1000:.3f}GB", None, "memory")
    with pytest.raises(ConfigError, match=r"ray start --memory=900000000 --object-store-memory=100000000$"):
        node_memory("1GB", "10.0.0.1:6379", "--memory")
    with pytest.raises(ConfigError, match="--memory: expected a size such as 4GB"):
        node_memory("much", None, "--memory")


SCRIPT = """
import json
from rankbench.cluster.machine import BLOCK_BYTES
from rankbench.cluster.node_memory import NodeMemory
from rankbench.cluster.session import session
memory = NodeMemory.of(1_000_000_000, 450_000_000, "here")
with session(None, 1, memory=memory) as cluster:
    import ray
    print(json.dumps({name: int(ray.cluster_resources()[name]) for name in ("memory", "object_store_memory")}))
"""


@pytest.mark.slow
def test_ray_has_both_shares():
    assert answer("-c", SCRIPT) == {"memory": 900_000_000, "object_store_memory": 100_000_000}
