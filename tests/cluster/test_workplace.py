"""What a cluster must have in common with the driver, and what a local cluster gives back."""

import os
from contextlib import contextmanager

import pytest

from rankbench.cluster import session
from rankbench.cluster.probe import Node
from rankbench.cluster.workplace import require_shared
from rankbench.core.code import package_fingerprint
from rankbench.core.errors import ConfigError


@pytest.mark.parametrize(
    ("code", "unseen", "message"),
    [
        ("0" * 16, (), r"node b at 10\.0\.0\.2 has other source files of rankbench \(0\.1\.0\) than this host"),
        (package_fingerprint(), ("/mnt/results",), r"node b at 10\.0\.0\.2 does not see /mnt/results"),
    ],
)
def test_nodes_must_have_the_same_code_and_folders(environment, monkeypatch, code, unseen, message):
    nodes = [Node("a at 10.0.0.1", "0.1.0", package_fingerprint(), ())]
    monkeypatch.setattr("rankbench.cluster.probe.probe_nodes", lambda folders, stores: nodes)
    require_shared(environment)
    nodes.append(Node("b at 10.0.0.2", "0.1.0", code, unseen))
    with pytest.raises(ConfigError, match=message):
        require_shared(environment)


def test_a_local_cluster_gives_the_token_of_another_one_back(tmp_path, monkeypatch):
    @contextmanager
    def node(folder, **options):
        assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
        yield "127.0.0.1:6379"

    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "mine")
    monkeypatch.setattr(session, "local_node", node)
    monkeypatch.setattr(session, "_running", lambda *arguments, **options: iter(["joined"]))
    assert [*session._local(tmp_path, 1, {}, False)] == ["joined"]
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == "mine"
