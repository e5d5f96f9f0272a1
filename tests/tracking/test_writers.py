"""Eight sweeps at once on one store, each a process with a spool of its own: nothing is lost and nothing comes twice."""

import dataclasses
import secrets
import signal
import subprocess
import sys
import time

import pytest
import sqlalchemy

from rankbench.core.errors import StorageError
from rankbench.tracking import store
from rankbench.tracking.delivery import check
from rankbench.tracking.record import write_record
from rankbench.tracking.store import locked, make_tables, schema

from .postgres import postgres, why_not
from .stores import deliver, records, sink_on, spooled, stored, told, with_curves

pytestmark = pytest.mark.slow

WRITERS, RUNS, POINTS = 8, 12, 30

WRITER = """
import sys
from pathlib import Path
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import read_records
uri, home = sys.argv[1], Path(sys.argv[2])
sink = MlflowSink(uri, "crowd", home / "artifacts", lambda line: print(line, flush=True))
sink.open()
sink.start_sweep(home.name, {"fits": 3}, {})
for record in read_records(home / "records"):
    sink.send(record, home / "records" / record.id)
sink.finish_sweep([], ok=True)
"""


@pytest.fixture(scope="module")
def database():
    if why := why_not():
        pytest.skip(why)
    with postgres() as make:
        yield make


@pytest.fixture(params=["sqlite", "postgresql"])
def uri(request, tmp_path):
    """A store that nobody has used yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store/mlflow.db"
    return request.getfixturevalue("database")(f"db_{secrets.token_hex(4)}")


@pytest.mark.fault("F10")
def test_eight_writers_lose_nothing_and_write_nothing_twice(uri, tmp_path, figure):
    expected, processes = {}, []
    for writer in range(WRITERS):
        home = tmp_path / f"sweep-{writer}"
        for record in with_curves(records(RUNS), POINTS):
            record = dataclasses.replace(record, id=f"{record.id}-{writer}")
            write_record(home / "records", record, None)
            expected[record.id] = ("FINISHED", told(record))
        command = [sys.executable, "-c", WRITER, uri, home]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=300) for process in processes]
    assert [(errors, process.returncode) for (_, errors), process in zip(said, processes, strict=True)] == [("", 0)] * WRITERS
    for writer, (lines, _) in enumerate(said):
        home = tmp_path / f"sweep-{writer}"
        # A machine that is busy enough does not take all in the 30 s that a sweep waits; then it says so, and keeps it.
        assert bool(spooled(home)) == ("messages wait" in lines)
        assert deliver(home, uri) == (0, "")
    assert stored(uri, "crowd") == expected
    engine = sqlalchemy.create_engine(uri)
    with engine.connect() as connection:
        parents = connection.execute(sqlalchemy.text(
            "SELECT tags.value, status FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid"
            " WHERE tags.key = 'rankbench.sweep' AND lifecycle_stage = 'active' ORDER BY 1"
        )).all()  # fmt: skip
    engine.dispose()
    assert [tuple(row) for row in parents] == [(f"sweep-{writer}", "FINISHED") for writer in range(WRITERS)]
    kind = uri.partition(":")[0]
    figure(f"{WRITERS} writers on a new store ({kind}): {len(expected)} of {len(expected)} runs of {POINTS} points, none twice")


@pytest.mark.fault("F9")
def test_a_database_that_crashes_in_mid_sweep_loses_nothing(database, tmp_path, figure):
    """PostgreSQL ends as in a crash while curves are sent, and comes back some runs later."""
    uri = database(f"db_{secrets.token_hex(4)}")
    runs = [dataclasses.replace(record, id=f"crash-{record.id}") for record in with_curves(records(18), 200)]
    sink = sink_on(tmp_path, "crash", lines := [], uri)
    sink.open()
    sink.start_sweep("crash-1", {"fits": len(runs)}, {})
    deadline = time.monotonic() + 100
    for position, record in enumerate(runs):
        if position == 9:
            # Some are there, and one is under way.
            while len(waiting := spooled(tmp_path)) > 7:
                assert time.monotonic() < deadline, waiting
                time.sleep(0.01)
            database.end(signal.SIGQUIT)
            left = len(spooled(tmp_path))
        if position == 14:
            time.sleep(2)
            database.start()
        sink.send(record, write_record(tmp_path / "records", record, None))
    sink.finish_sweep([], ok=True)
    assert left > 0 and (lines == [] or "messages wait" in lines[0])
    assert deliver(tmp_path, uri) == (0, "")
    assert stored(uri, "crash") == {record.id: ("FINISHED", told(record)) for record in runs}
    figure(f"PostgreSQL crashes in mid-sweep and comes back: {len(runs)} of {len(runs)} runs of 200 points, none twice")


MAKE = """
import sys
from pathlib import Path
from rankbench.tracking.store import make_tables
make_tables(sys.argv[1], Path(sys.argv[2]))
"""


def test_one_at_a_time_changes_tables(uri, tmp_path, monkeypatch):
    (tmp_path / "store").mkdir(exist_ok=True)
    monkeypatch.setattr(store, "LOCK_SECONDS", 1.0)
    with locked(uri), pytest.raises(StorageError, match="another process"), locked(uri):
        pytest.fail("two hold the lock")
    with locked(uri):
        pass


@pytest.mark.fault("F10")
def test_eight_processes_make_the_tables_of_one_empty_database(database, tmp_path, figure):
    uri = database("fresh")
    assert schema(uri) is None
    makers = [subprocess.Popen([sys.executable, "-c", MAKE, uri, tmp_path], stderr=subprocess.PIPE) for _ in range(8)]
    assert [(maker.communicate(timeout=300)[1], maker.returncode) for maker in makers] == [(b"", 0)] * 8
    before = schema(uri)
    make_tables(uri, tmp_path)
    assert schema(uri) == before and check(uri, tmp_path, seconds=60) == ""
    figure("8 processes make the tables of one empty PostgreSQL: 0 errors")
