"""The MLflow store: who makes its tables, once, and the client that writes to it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rankbench.core.errors import StorageError
from rankbench.core.files import atomic_file
from rankbench.tracking.address import is_server, sqlite_file, sqlite_uri
from rankbench.tracking.redaction import reason, without_password

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

LOCK_SECONDS = 30.0  # tables are made in about a second
ADVISORY_LOCK = 7_265_066_225  # any number that others are unlikely to lock in the same PostgreSQL database


def connect(uri: str, artifacts: Path) -> Any:
    """An MlflowClient on `uri`; a database gets its tables first. Raises StorageError, or what the database says."""
    quiet()
    from mlflow.tracking import MlflowClient

    if not is_server(uri):
        make_tables(uri, artifacts)
    return MlflowClient(tracking_uri=uri)


def make_tables(uri: str, artifacts: Path) -> None:
    """Make a new store once, whatever process comes first, and refuse a store of another MLflow's schema.

    MLflow would make the tables in place, where two processes at once break each other's and a killed one leaves a half;
    and it would change an older schema without asking. Raises StorageError for the latter, else as the database.
    """
    quiet()
    path = sqlite_file(uri)
    if path is not None and is_new(uri):
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(uri):
            if is_new(uri):
                for left in path.parent.glob(f".tmp-*-{escape(path.name)}*"):
                    left.unlink()  # by a process that was killed, perhaps with its journal; no other one is here meanwhile
                with atomic_file(path) as scratch:
                    _new_store(sqlite_uri(scratch), artifacts)
    elif path is None and schema(uri) is None:
        with alone(uri):
            if schema(uri) is None:
                _new_store(uri, artifacts)
    _check_schema(uri)


def _new_store(uri: str, artifacts: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(uri, artifacts.resolve().as_uri()).engine.dispose()


@contextmanager
def alone(uri: str) -> Iterator[None]:
    """No other rankbench makes or changes tables of the store at `uri` meanwhile: a file beside SQLite's, a lock in PostgreSQL.

    Raises StorageError when another one holds it for LOCK_SECONDS.
    """
    path = sqlite_file(uri)
    busy = f"{without_password(uri)}: another process has been making its tables for {LOCK_SECONDS:.0f} s; try again"
    if path is not None:
        try:
            with FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise StorageError(busy) from None
    elif uri.startswith("postgresql"):
        from sqlalchemy import text
        from sqlalchemy.exc import OperationalError

        # It is the connection's, so it ends with a killed process; autocommit, or it would be an open transaction.
        with _engine(uri) as engine, engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"SET lock_timeout = '{LOCK_SECONDS:.0f}s'"))
            try:
                connection.execute(text(f"SELECT pg_advisory_lock({ADVISORY_LOCK})"))
            except OperationalError:
                raise StorageError(busy) from None
            yield
    else:
        yield


@contextmanager
def _engine(uri: str) -> Iterator[Any]:
    from sqlalchemy import create_engine

    engine = create_engine(uri)
    try:
        yield engine
    finally:
        engine.dispose()


def is_new(uri: str) -> bool:
    """True for a SQLite store whose tables are not made yet."""
    path = sqlite_file(uri)
    # Opening a database makes an empty file of its name.
    return path is not None and (not path.exists() or path.stat().st_size == 0)


def schema(uri: str) -> str | None:
    """The revision of the tables at `uri`; None where there are none of MLflow's."""
    from alembic.migration import MigrationContext

    with _engine(uri) as engine, engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _check_schema(uri: str) -> None:
    from mlflow.store.db.utils import _get_latest_schema_revision

    found, expected, shown = schema(uri), _get_latest_schema_revision(), without_password(uri)
    if found is None and sqlite_file(uri) is not None:
        raise StorageError(f"{shown} is no MLflow store; move the file away, and a new one is made")
    if found not in (None, expected):
        raise StorageError(
            f"{shown} has the schema {found} of another MLflow, this one needs {expected}; "
            "back it up, then start `rankbench tracking serve`, which upgrades it"
        )


@contextmanager
def clear_errors(uri: str) -> Iterator[None]:
    """Turn whatever a database or MLflow raises about the store at `uri` into a StorageError of one line."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"{without_password(uri)}: {reason(error, uri)}") from None


def quiet() -> None:
    """Let MLflow and Alembic log errors only."""
    warnings.filterwarnings("ignore", module="mlflow")
    import mlflow  # noqa: F401

    # After the import, which sets levels of its own.
    for name in ("mlflow", "mlflow.store.db.utils", "alembic", "alembic.runtime.migration"):
        logging.getLogger(name).setLevel(logging.ERROR)
