"""Local Ray: on loopback, behind a private token, gone when the block ends, and startable twice in a process."""

import os
import stat
from pathlib import Path

import psutil
import pytest

from rankbench.cluster.session import session
from rankbench.errors import ClusterError, ConfigError

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listening_addresses() -> set[str]:
    """Addresses on which a process below this one accepts connections."""
    return {
        connection.laddr.ip
        for child in psutil.Process().children(recursive=True)
        for connection in child.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_local_cluster_is_private_and_ends_with_its_block():
    for _ in range(2):
        with session(cpus=1) as offer:
            import ray

            assert (offer.local, offer.cpus) == (True, 1)
            assert offer.memory_bytes > 1 << 30
            assert ray.get(ray.remote(lambda: 6 * 7).remote(), timeout=60) == 42
            found = listening_addresses()
            assert found and found <= LOOPBACK
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert not token.exists()
        assert not [child for child in psutil.Process().children(recursive=True) if "raylet" in child.name()]


def test_a_cluster_without_authentication_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE=disabled"), session():
        pass


def test_an_address_where_no_cluster_is_says_so_at_once():
    with pytest.raises(ClusterError, match=r"cannot join the Ray cluster at 127\.0\.0\.1:1"), session("127.0.0.1:1"):
        pass


def test_an_address_without_a_port_is_bad_input():
    with pytest.raises(ConfigError, match="expected HOST:PORT, got 'head'"), session("head"):
        pass
