"""Fixtures of every room: settings that touch neither the network nor the user's own folders."""

import logging
import os
import secrets
import urllib.request
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

# Numba reads it once, when it is imported. Tests compare results of four threads, however few processors there are.
os.environ.setdefault("NUMBA_NUM_THREADS", str(max(4, os.cpu_count() or 1)))

# Ray's workers would have niceness 15, so that a test that waits for one waits until no other process of the tests computes.
os.environ.setdefault("RAY_worker_niceness", "0")

import hypothesis
import pytest

from rankbench.core.environment import Environment

from .fault_figures import figure, give_rows, pytest_terminal_summary
from .pictures import drawn

__all__ = ["drawn", "figure", "pytest_terminal_summary"]

# Folders with the longest tests come first, so that no process is left alone with one of them at the end.
LONGEST = tuple(f"tests/{name}/" for name in ("reproduce", "sweeps", "leaderboard", "api", "cluster", "tracking", "faults"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    give_rows(items)
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


# A time limit per example would fail on a busy machine, and where a kernel is compiled at its first call. The examples are
# the same in each run; `pytest --hypothesis-profile=explore` draws others, and more of them.
hypothesis.settings.register_profile("rankbench", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("rankbench")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Everything under tmp_path, without a mirror, offline."""
    return Environment(
        data=tmp_path / "cache",
        mirror=None,
        offline=True,
        results=tmp_path / "results",
        tracking_uri=None,
        home=None,
    )


@pytest.fixture(scope="session")
def s3_server():
    """The address of an S3 server on loopback, which keeps its objects in this process."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(address, timeout=300) as answer:  # the first request imports the server's store
        answer.read()
    yield address
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch) -> str:
    """The address of a new bucket; the AWS variables lead to its server."""
    from pyarrow.fs import S3FileSystem

    variables = {"AWS_ENDPOINT_URL": s3_server, "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"}
    for name, value in (variables | {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{secrets.token_hex(4)}"
    S3FileSystem(endpoint_override=s3_server, region="us-east-1", allow_bucket_creation=True).create_dir(bucket)
    return f"s3://{bucket}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a command: it writes below it, does not reach the network, and no setting of the caller counts."""
    for name in [name for name in os.environ if name.startswith(("RANKBENCH_", "RAY_ADDRESS", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RANKBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("RANKBENCH_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mirror_environment(environment: Environment) -> Environment:
    """The same with the mirror of RANKBENCH_MIRROR, for tests marked `mirror`."""
    folder = os.environ.get("RANKBENCH_MIRROR")
    if not folder:
        pytest.skip("RANKBENCH_MIRROR is not set: the real datasets are not on this machine")
    return replace(environment, mirror=Path(folder))


@pytest.fixture
def at_once(monkeypatch):
    """The units of a sweep are fitted in this process, one after another, without Ray; nothing is sent to MLflow."""
    from rankbench.cluster.machine import Machine
    from rankbench.experiment.run import run

    machines = (Machine(2, 2 << 30),)

    def run_units(units, environment, store, session, resources, on_done, *rest):
        records = []
        for unit in units:
            writer, outcomes = store.trial(unit.run_id, unit.ids), run(unit.job, environment)
            for outcome in outcomes:
                writer.write(outcome.record, outcome.per_user)
            found = [outcome.record for outcome in outcomes]
            on_done(unit, found, False)
            records += found
        return records

    monkeypatch.setattr("rankbench.tracking.mlflow_sink.MlflowSink.open", lambda sink: True)
    monkeypatch.setattr("rankbench.sweeps.run_units.run_units", run_units)
    monkeypatch.setattr(
        "rankbench.cluster.session.session", lambda *_, **__: nullcontext(SimpleNamespace(cpus=2, machines=machines))
    )
