"""Every socket of a started product: a sweep with its Ray cluster, MLflow's server and its pages listen on loopback alone."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from commands import Home

pytestmark = pytest.mark.cluster

SWEEP = ["sweep", "--datasets", "synthetic", "--methods", "bpr", "epochs=100000", "patience=0", "--search", "none", "--yes"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def listening(home):
    """(program, address, port) of every socket of the home's processes that others can reach."""
    found = set()
    for process in home.processes():
        with suppress(psutil.Error):
            for each in process.net_connections("inet"):
                # A datagram socket listens once it has an address and no peer.
                if each.status == psutil.CONN_LISTEN or (each.type == socket.SOCK_DGRAM and each.laddr and not each.raddr):
                    found.add((process.name(), each.laddr.ip, each.laddr.port))
    return found


@pytest.mark.timeout(300)
@pytest.mark.fault("F14")
def test_nothing_listens_off_loopback(tmp_path, figure):
    home, server = Home(tmp_path / "home"), free_port()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
    commands = (["tracking", "serve", "--port", str(server)], SWEEP)
    started = []
    try:
        for words in commands:
            with (home.folder / f"{words[0]}.log").open("w") as log:
                command = [sys.executable, "-m", "rankbench", *words]
                where = {"cwd": home.folder, "env": plain | home.environment}
                started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **where))
        deadline, found = time.monotonic() + 200, set()
        # Until trials train and the server answers; what listens for a moment on the way counts, too.
        while not (any(home.results.glob("sweeps/*/checkpoints/*/*")) and any(port == server for *_, port in found)):
            assert all(each.poll() is None for each in started), [path.read_text() for path in home.folder.glob("*.log")]
            assert time.monotonic() < deadline, found
            found |= listening(home)
            time.sleep(0.2)
        found |= listening(home)
    finally:
        for each in started:
            each.send_signal(signal.SIGTERM)
        for each in started:
            each.wait(60)
    home.require_no_processes()
    outside = {each for each in found if each[1] not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")}
    assert {"gcs_server", "raylet"} <= {name for name, *_ in found}, found
    assert not outside, outside
    figure(f"a sweep and MLflow's server: {len(found)} sockets seen, 0 of them off loopback, 0 processes left")
