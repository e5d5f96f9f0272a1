"""The store: addresses that cannot work are refused; a new SQLite store is made whole, once, by whoever comes first."""

import dataclasses
import os
import sqlite3
import subprocess
import sys
from importlib.metadata import version

import pytest

from rankbench.core.errors import ConfigError, StorageError
from rankbench.tracking.address import sqlite_file, tracking_uri
from rankbench.tracking.record import write_record
from rankbench.tracking.store import make_tables

from .stores import content, deliver, records, run_tags

# SQLAlchemy 2.0, which MLflow 3.5 needs, takes postgresql:// for psycopg2, and cannot name a file whose path contains a ?.
ON_NEW_SQLALCHEMY = pytest.mark.skipif(version("sqlalchemy") < "2.1", reason="SQLAlchemy 2.0 reads addresses differently")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        pytest.param("postgresql://me:secret@host/db", r"write postgresql\+psycopg2://", marks=ON_NEW_SQLALCHEMY),
        ("postgres://me:secret@host/db", r"write postgresql\+psycopg2://"),
        ("./mlruns", "no longer takes a folder"),
        ("file:///tmp/mlruns", "no longer takes a folder"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite://mlflow.db", "name a file"),
        ("sqlite:///file:mlflow.db?uri=true", "name a file"),
        ("htpp://me:secret@host:5000", "unknown scheme; did you mean http"),
        ("HTTP://host:5000", "unknown scheme; did you mean http"),
        ("postgressql://me:secret@host/db", "unknown scheme; did you mean postgresql"),
        ("postgresql+psycopgg://me:secret@host/db", "unknown driver"),
        ("mssql+pymssql://me:secret@host/db", "pip install pymssql"),
        ("postgresql+psycopg2://me:secret@x@host/db", r"://\*\*\*: the address cannot be read; write characters such as @"),
        ("postgresql+psycopg2://me:secret@host:port/db", "the address cannot be read"),
        ("http://me:12/secret@host:5000", "the address cannot be read"),
        ("http://host:99999", "the address cannot be read"),
        ("http://[::1", "the address cannot be read"),
        ("http://", "the address cannot be read"),
        ("me:secret@host", r"=\*\*\*: MLflow no longer takes a folder"),
    ],
)
def test_an_address_that_cannot_work_is_refused_in_one_line(environment, uri, says):
    with pytest.raises(ConfigError, match=says) as caught:
        tracking_uri(dataclasses.replace(environment, tracking_uri=uri))
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://host:5000", "https://me:pw@host", "sqlite:////a/b.db"])
def test_other_addresses_are_taken_as_they_are(environment, uri):
    assert tracking_uri(dataclasses.replace(environment, tracking_uri=uri)) == uri


@pytest.mark.parametrize("name", ["a@b c#d:e", pytest.param("a%41b?c", marks=ON_NEW_SQLALCHEMY)])
def test_a_results_folder_of_any_name_has_a_store(environment, tmp_path, name):
    results = tmp_path / name
    uri = tracking_uri(dataclasses.replace(environment, results=results))
    make_tables(uri, results / "mlartifacts")
    assert sqlite_file(uri) == results / "mlflow.db"
    with sqlite3.connect(results / "mlflow.db") as connection:
        assert connection.execute("SELECT name FROM experiments").fetchall() == [("Default",)]


OPEN = """
import sys
from pathlib import Path
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import read_record
database, home, record, lines = *map(Path, sys.argv[1:]), []
sink = MlflowSink(f"sqlite:///{database}", "first", home / "artifacts", lines.append)
sink.open()
sink.send(read_record(record), record)
sink.close()
print(*lines)
"""


@pytest.mark.parametrize(
    "homes",
    [list("abc"), *(pytest.param(homes, marks=pytest.mark.slow) for homes in (list("abcdefgh"), ["one"] * 8))],
    ids=["three spools", "eight spools", "one spool"],
)
@pytest.mark.fault("F10")
def test_processes_at_once_make_one_store(tmp_path, homes, figure):
    """The processes all find an empty folder for the store; their spools lie in `homes`."""
    database, ids = tmp_path / "db" / "mlflow.db", []
    processes = []
    for record, home in zip(records(len(homes)), homes, strict=True):
        folder = write_record(tmp_path / home / "runs", record, None)
        command = [sys.executable, "-c", OPEN, database, tmp_path / home, folder]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        ids.append(record.id)
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in processes] == [("", 0)] * len(homes)
    # On a machine that is busy enough a process gives up its wait: its message then still lies in its spool.
    for home in set(homes):
        assert deliver(tmp_path / home, f"sqlite:///{database}") == (0, "")
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM experiments WHERE name = 'first'").fetchone() == (1,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert run_tags(database, "rankbench.run") == sorted(ids)
    figure(f"{len(homes)} processes make one SQLite store: 0 errors")


@pytest.mark.slow
def test_the_lock_lies_beside_the_database_and_a_killed_maker_leaves_no_half(tmp_path):
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "import mlflow.store.tracking.sqlalchemy_store as room\n"
        "from rankbench.tracking.store import make_tables\n"
        "room.SqlAlchemyStore._initialize_store_state = lambda self: os.kill(os.getpid(), 9)\n"  # with its tables just made
        "make_tables(sys.argv[1], Path(sys.argv[2]))\n"
    )
    uri = f"sqlite:///{tmp_path}/db/mlflow.db"
    killed = subprocess.run([sys.executable, "-c", code, uri, tmp_path / "artifacts"], check=False, stderr=subprocess.DEVNULL)
    assert killed.returncode == -9
    assert not (tmp_path / "db" / "mlflow.db").exists() and (tmp_path / "db" / "mlflow.db.lock").exists()
    make_tables(uri, tmp_path / "artifacts")
    assert content(tmp_path / "db" / "mlflow.db")["runs"] == []


def test_another_database_is_not_turned_into_a_store(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id)")
    with pytest.raises(StorageError, match="not an MLflow store"):
        make_tables(f"sqlite:///{path}", tmp_path / "artifacts")
    assert os.listdir(tmp_path) == ["shop.db"]  # noqa: PTH208


def test_what_a_killed_maker_left_is_removed_by_the_next_one(tmp_path):
    for name in (".tmp-34d7e6fc-mlflow.db", ".tmp-34d7e6fc-mlflow.db-journal"):
        (tmp_path / name).touch()
    make_tables(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlartifacts")
    assert not [*tmp_path.glob(".tmp-*")]
