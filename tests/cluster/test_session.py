"""Local Ray: on loopback, behind a private token, gone when the block ends, and startable twice in a process; plugins on its
workers, also on one that has run tasks before the plugin was loaded, changed or removed from the disk.
"""

import ast
from pathlib import Path

import pytest
from programs import answer

from rankbench.cluster import ray_internals
from rankbench.cluster.session import host_and_port, session
from rankbench.core.errors import ClusterError, ConfigError

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
PLUGIN = """
import os
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Block:
    number: int

def solve(block, shared):
    return FACTOR * block.number + shared.number, os.getpid(), type(block) is Block

def make(n):
    return [np.full(n, 1.0)]

def change(array):
    array += FACTOR

def require(array):
    assert (array == 1 + FACTOR).all(), array
"""
TWO_CLUSTERS = """
import json, os, stat, sys, psutil
from pathlib import Path
from rankbench.cluster.session import session
from rankbench.core import plugins

def asked(question, *words):
    try:
        return question(*words)
    except psutil.Error:  # the process has ended meanwhile
        return []

def loaded(factor):
    path = Path(sys.argv[1]) / "mine.py"
    path.write_text(sys.argv[2].replace("FACTOR", str(factor)))
    plugin = plugins.load(path)
    path.unlink()
    return sys.modules[plugin.module]

def answers(where, mine):
    found = dict(where.map(mine.solve, [mine.Block(n) for n in range(4)], mine.Block(100)))
    return [found[n][0] for n in range(4)], {pid for _, pid, _ in found.values()}, all(same for _, _, same in found.values())

def with_plugins():
    from rankbench.cluster.ray_map import RayMap
    where = RayMap()
    dict(where.map(abs, [1, 2]))
    first, pids, same = answers(where, loaded(2))
    second, others, again = answers(where, loaded(3))
    mine, flow = loaded(5), where.flow()
    flow.make(["a"], mine.make, 3)
    flow.change("a", mine.change, [])
    flow.wait([flow.use("a", mine.require)])
    one = pids == others and len(pids) == 1
    return {"first": first, "second": second, "one_worker": one, "same": same and again, "tasks": flow.n_tasks}

found = []
for _ in range(2):
    with session(cpus=1) as offer:
        import ray
        below = psutil.Process().children(recursive=True)
        listening = [c for child in below for c in asked(child.net_connections, "inet") if c.status == psutil.CONN_LISTEN]
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        found.append({
            "offer": [offer.local, offer.cpus, offer.memory_bytes > 1 << 30],
            "answer": ray.get(ray.remote(lambda: 6 * 7).remote(), timeout=60),
            "addresses": sorted({c.laddr.ip for c in listening}),
            "monitors": sum("monitor.py" in " ".join(asked(child.cmdline)) for child in below),
            "token_mode": stat.S_IMODE(token.stat().st_mode),
            "folder_mode": stat.S_IMODE(token.parent.stat().st_mode),
            "ray_inside": Path(ray._private.worker._global_node.get_session_dir_path()).is_relative_to(token.parent),
        })
        if len(found) == 2:
            found[-1]["plugins"] = with_plugins()
    found[-1]["token_left"] = token.exists()
    found[-1]["raylets_left"] = sum("raylet" in child.name() for child in psutil.Process().children(recursive=True))
print(json.dumps(found))
"""


@pytest.mark.fault("F14")
def test_a_local_cluster_is_private_and_ends_with_its_block(tmp_path, figure):
    clusters = answer("-c", TWO_CLUSTERS, tmp_path, PLUGIN)
    assert len(clusters) == 2
    for cluster in clusters:
        assert cluster["offer"] == [True, 1, True] and cluster["answer"] == 42
        assert cluster["addresses"] and set(cluster["addresses"]) <= LOOPBACK
        assert cluster["token_mode"] == 0o600 and not cluster["token_left"]
        assert cluster["monitors"] == 0  # of processes that nothing here uses
        # Ray's own folders are open to every user: only the one around them keeps others out.
        assert cluster["folder_mode"] == 0o700 and cluster["ray_inside"]
        assert cluster["raylets_left"] == 0
    assert clusters[1]["plugins"] == {
        "first": [100, 102, 104, 106], "second": [100, 103, 106, 109], "one_worker": True, "same": True, "tasks": 3
    }  # fmt: skip
    figure("a local cluster: all sockets on loopback, token 0600 in a folder 0700, both gone afterwards")


def test_ray_imported_too_early_is_said_and_not_waited_for(monkeypatch):
    import ray  # noqa: F401

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(ClusterError, match="ray was imported before rankbench set its environment"), session():
        pass


@pytest.mark.fault("F14")
def test_a_cluster_without_authentication_is_refused(monkeypatch, figure):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE=disabled"), session():
        pass
    figure("RAY_AUTH_MODE=disabled: refused")


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("127.0.0.1:1", ClusterError, r"cannot join the Ray cluster at 127\.0\.0\.1:1"),
        ("head", ConfigError, "expected HOST:PORT or auto, got 'head'"),
        ("head:²", ConfigError, "expected HOST:PORT or auto, got 'head:²'"),
        ("http://127.0.0.1:8265", ConfigError, "expected HOST:PORT or auto"),
        ("ray://head:10001", ConfigError, "expected HOST:PORT or auto, got 'ray://head:10001'"),
        ("127.0.0.1:65536", ConfigError, "expected a port between 1 and 65535, got '127.0.0.1:65536'"),
        ("127.0.0.1:0", ConfigError, "expected a port between 1 and 65535"),
    ],
)
def test_an_address_where_no_cluster_is_or_can_be_is_said_at_once(address, error, message):
    with pytest.raises(error, match=message), session(address):
        pass
    assert host_and_port("head:65535") == ("head", 65535)


def test_auto_is_the_cluster_that_was_started_on_this_host(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ConfigError, match="--address auto: no Ray cluster was started on this host"):
        host_and_port("auto")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.5:6379\n", encoding="utf-8")
    assert host_and_port("auto") == ("10.0.0.5", 6379)


def test_what_ray_does_not_promise_is_used_in_one_file_alone():
    """Its docstring names the versions that the constraints have."""
    here = Path(ray_internals.__file__)
    private = [path.name for path in here.parents[1].rglob("*.py") if path != here and _uses_private_ray(path)]
    assert private == [] and _uses_private_ray(here)
    root = Path(__file__).parents[2]
    for name in ("constraints.txt", "constraints-oldest.txt"):
        (version,) = [line for line in (root / name).read_text().splitlines() if line.startswith("ray==")]
        assert version.removeprefix("ray==").rpartition(".")[0] in ray_internals.__doc__


def _uses_private_ray(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = node.module if isinstance(node, ast.ImportFrom) else ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if (name or "").startswith("ray.") and ("._" in name or ".v2." in name):
            return True
    return False
