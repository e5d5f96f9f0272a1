"""`--dry-run --nodes`: what is read, what is refused, and in which words."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import configure
from rankbench.experiment.tile_plan import hardware_of, plan, require_tiles


def size(items, interactions=10**7):
    return Size(users=10**6, items=items, interactions=interactions, pairs=1e9, ranked=1000)


def test_a_plan_names_seconds_bytes_and_memory():
    hardware = hardware_of("4x16x128GB@2.5", "float32")
    assert (hardware.nodes, hardware.cores, hardware.memory, hardware.gigabits) == (4, 16, 128e9, 2.5) and hardware.rate > 0
    found = plan(size(20_000), "float32", hardware)
    assert found.seconds > found.arithmetic > 0 and found.sent > 0
    assert 4 * 20_000**2 / 2 / 4 < found.held < 0.3 * 128e9
    require_tiles(configure("ease", {}))
    with pytest.raises(ConfigError, match="--nodes: only closed forms are planned on nodes, and ials is none"):
        require_tiles(configure("ials", {}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("64", "--nodes: expected NODESxCORESxMEMORY@GIGABITS such as 16x16x128GB@10, got '64'"),
        ("4x16x128@10", "--nodes: expected a size such as 4GB or 500MB, got '128'"),
        ("0x16x128GB@10", "--nodes: from 1 to 1,024 nodes can be simulated, got 0"),
        ("5000x16x128GB@10", "--nodes: from 1 to 1,024 nodes can be simulated, got 5,000"),
        ("4x0x128GB@10", "--nodes: each node needs a processor"),
        ("4x16x128GB@0", "faster than 0 Gbit/s"),
    ],
)
def test_other_nodes_are_refused(text, message):
    with pytest.raises(ConfigError) as refused:
        hardware_of(text, "float32")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("items", "interactions", "nodes", "message"),
    [
        (1_000_000, 10**8, "16x16x128GB@10", "the tiles take 125 GB on each node, whose object store has 38.4 GB"),
        (1_000, 10**10, "16x16x128GB@10", "the interactions take 80.0 GB on each node"),
        (3_000_000, 10**8, "256x16x128GB@10", "at most 2,000,000 items can be simulated"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(items, interactions, nodes, message):
    with pytest.raises(ConfigError) as refused:
        plan(size(items, interactions), "float32", hardware_of(nodes, "float32"))
    assert message in str(refused.value) and "\n" not in str(refused.value)
