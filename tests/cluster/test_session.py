"""Local Ray: on loopback, behind a private token, gone when the block ends, and startable twice in a process."""

import json
import os
import subprocess
import sys

import pytest

from rankbench.cluster.session import host_and_port, session
from rankbench.core.errors import ClusterError, ConfigError

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


# In a process of its own: Ray reads its settings when it is imported, and other tests have imported it.
TWO_CLUSTERS = """
import json, os, stat, psutil
from pathlib import Path
from rankbench.cluster.session import session

found = []
for _ in range(2):
    with session(cpus=1) as offer:
        import ray
        below = psutil.Process().children(recursive=True)
        listening = [c for child in below for c in child.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        found.append({
            "offer": [offer.local, offer.cpus, offer.memory_bytes > 1 << 30],
            "answer": ray.get(ray.remote(lambda: 6 * 7).remote(), timeout=60),
            "addresses": sorted({c.laddr.ip for c in listening}),
            "token_mode": stat.S_IMODE(token.stat().st_mode),
            "folder_mode": stat.S_IMODE(token.parent.stat().st_mode),
            "ray_inside": Path(ray._private.worker._global_node.get_session_dir_path()).is_relative_to(token.parent),
        })
    found[-1]["token_left"] = token.exists()
    found[-1]["raylets_left"] = sum("raylet" in child.name() for child in psutil.Process().children(recursive=True))
print(json.dumps(found))
"""


@pytest.mark.fault("F14")
def test_a_local_cluster_is_private_and_ends_with_its_block(figure):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", TWO_CLUSTERS], capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    clusters = json.loads(done.stdout.splitlines()[-1])
    assert len(clusters) == 2
    for cluster in clusters:
        assert cluster["offer"] == [True, 1, True] and cluster["answer"] == 42
        assert cluster["addresses"] and set(cluster["addresses"]) <= LOOPBACK
        assert cluster["token_mode"] == 0o600 and not cluster["token_left"]
        # Ray's own folders are open to every user: only the one around them keeps others out.
        assert cluster["folder_mode"] == 0o700 and cluster["ray_inside"]
        assert cluster["raylets_left"] == 0
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


def test_an_address_where_no_cluster_is_says_so_at_once():
    with pytest.raises(ClusterError, match=r"cannot join the Ray cluster at 127\.0\.0\.1:1"), session("127.0.0.1:1"):
        pass


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("head", "expected HOST:PORT or auto, got 'head'"),
        ("head:²", "expected HOST:PORT or auto, got 'head:²'"),
        ("http://127.0.0.1:8265", "expected HOST:PORT or auto"),
        ("127.0.0.1:65536", "expected a port between 1 and 65535, got '127.0.0.1:65536'"),
        ("127.0.0.1:0", "expected a port between 1 and 65535"),
    ],
)
def test_an_address_without_a_port_that_can_be_is_bad_input(address, message):
    with pytest.raises(ConfigError, match=message), session(address):
        pass


def test_auto_is_the_cluster_that_was_started_on_this_host(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ConfigError, match="--address auto: no Ray cluster was started on this host"):
        host_and_port("auto")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.5:6379\n", encoding="utf-8")
    assert host_and_port("auto") == ("10.0.0.5", 6379)


def test_the_last_port_is_one():
    assert host_and_port("head:65535") == ("head", 65535)
