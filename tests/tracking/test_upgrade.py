"""A store that an older MLflow left is brought to today's schema by `tracking serve`, with its runs and a copy of before."""

import sqlite3
from importlib.metadata import version

import pytest
from alembic import command
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
from packaging.version import Version
from sqlalchemy import create_engine

from rankbench.core.errors import StorageError
from rankbench.tracking.mlflow_internals import newest_schema
from rankbench.tracking.store import make_tables, schema, upgrade

OLDER = "0584bdc529eb"  # that of MLflow 2.11 to 2.13


@pytest.fixture
def old(tmp_path):
    """A store as MLflow's own migrations made it then, with a run in it."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    engine = create_engine(uri)
    Base.metadata.create_all(engine)
    config = _get_alembic_config(uri)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLDER)
    engine.dispose()
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("INSERT INTO experiments (experiment_id, name, lifecycle_stage) VALUES (7, 'old', 'active')")
        connection.execute("INSERT INTO runs (run_uuid, experiment_id, lifecycle_stage) VALUES ('r', 7, 'active')")
        connection.execute(
            "INSERT INTO metrics (run_uuid, key, value, timestamp, step, is_nan) VALUES ('r', 'm', 0.5, 1, 0, 0)"
        )
    return uri


def metrics(path):
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT run_uuid, key, value FROM metrics").fetchall()


def test_an_older_store_is_brought_up_with_a_copy_of_before(old, tmp_path):
    before = (tmp_path / "mlflow.db").read_bytes()
    # Other commands change no schema.
    with pytest.raises(StorageError, match=rf"{OLDER}.*back it up, then start `rankbench tracking serve`"):
        make_tables(old, tmp_path)
    assert (tmp_path / "mlflow.db").read_bytes() == before
    said = upgrade(old)
    copy = tmp_path / f"mlflow.db.{OLDER}"
    assert OLDER in said and str(copy) in said
    assert schema(old) == newest_schema() and schema(f"sqlite:///{copy}") == OLDER
    assert metrics(tmp_path / "mlflow.db") == metrics(copy) == [("r", "m", 0.5)]
    make_tables(old, tmp_path)
    assert upgrade(old) == ""


@pytest.mark.skipif(Version(version("mlflow")) < Version("3.17"), reason="none of its migrations reads this table")
def test_an_upgrade_that_fails_names_the_copy(old, tmp_path):
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("DROP TABLE metrics")
    with pytest.raises(StorageError, match=rf"failed.*a copy of the old store is {tmp_path}/mlflow\.db\.{OLDER}"):
        upgrade(old)


def test_a_store_of_a_newer_mlflow_is_left_as_it_is(tmp_path):
    uri, path = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlflow.db"
    assert upgrade(uri) == "" and not path.exists()
    make_tables(uri, tmp_path / "artifacts")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="ffffffffffff of a newer MLflow"):
        upgrade(uri)
    assert path.read_bytes() == before
