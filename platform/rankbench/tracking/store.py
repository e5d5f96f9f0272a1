"""Create the tables of an MLflow store once, connect to it, and bring an older store up to date."""

from __future__ import annotations

import logging
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rankbench.core.errors import StorageError
from rankbench.core.files import atomic_file
from rankbench.core.redaction import reason, without_password
from rankbench.tracking.address import is_server, sqlite_file, sqlite_uri
from rankbench.tracking.mlflow_internals import create_tables, known_schemas, newest_schema, upgrade_tables

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

LOCK_SECONDS = 30.0  # creating the tables takes about a second
ADVISORY_LOCK = 7_265_066_225  # any number that others are unlikely to lock in the same PostgreSQL database


def connect(uri: str, artifacts: Path) -> Any:
    """Return an MlflowClient for `uri` after creating the tables of a new database. Raises StorageError or database errors."""
    quiet()
    from mlflow.tracking import MlflowClient

    if not is_server(uri):
        make_tables(uri, artifacts)
    return MlflowClient(tracking_uri=uri)


def make_tables(uri: str, artifacts: Path) -> None:
    """Create the tables of a new store once, even if several processes try, and refuse the schema of another MLflow version.

    MLflow would create the tables in place, where two processes break each other's tables and a killed one leaves them
    incomplete; and it would upgrade an older schema without asking. Raises StorageError for an older or newer schema, and
    database errors.
    """
    quiet()
    path = sqlite_file(uri)
    if path is not None and is_new(uri):
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(uri):
            if is_new(uri):
                for file in path.parent.glob(f".tmp-*-{escape(path.name)}*"):
                    file.unlink()  # left by a killed process, perhaps with a journal; no other process is in this block
                with atomic_file(path) as scratch:
                    create_tables(sqlite_uri(scratch), artifacts)
    elif path is None and schema(uri) is None:
        with locked(uri):
            if schema(uri) is None:
                create_tables(uri, artifacts)
    _check_schema(uri)


@contextmanager
def locked(uri: str) -> Iterator[None]:
    """Lock the tables of the store at `uri` against other rankbench processes: by a file beside SQLite's, a lock in PostgreSQL.

    Raises StorageError if another process holds the lock for LOCK_SECONDS.
    """
    path = sqlite_file(uri)
    busy = f"{without_password(uri)}: another process has been creating its tables for {LOCK_SECONDS:.0f} s; try again"
    if path is not None:
        try:
            with FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise StorageError(busy) from None
    elif uri.startswith("postgresql"):
        from sqlalchemy import text
        from sqlalchemy.exc import OperationalError

        # The lock ends with the connection, also of a killed process. Autocommit avoids a long transaction.
        with engine_of(uri) as engine, engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"SET lock_timeout = '{LOCK_SECONDS:.0f}s'"))
            try:
                connection.execute(text(f"SELECT pg_advisory_lock({ADVISORY_LOCK})"))
            except OperationalError:
                raise StorageError(busy) from None
            yield
    else:
        yield


@contextmanager
def engine_of(uri: str) -> Iterator[Any]:
    """Yield a SQLAlchemy engine for the database at `uri`, and close its connections afterwards."""
    from sqlalchemy import create_engine

    engine = create_engine(uri)
    try:
        yield engine
    finally:
        engine.dispose()


def is_new(uri: str) -> bool:
    """Whether this is a SQLite store without tables."""
    path = sqlite_file(uri)
    # Opening a database creates an empty file.
    return path is not None and (not path.exists() or path.stat().st_size == 0)


def schema(uri: str) -> str | None:
    """Return the schema revision of the tables at `uri`, None if there are no MLflow tables."""
    from alembic.migration import MigrationContext

    with engine_of(uri) as engine, engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _check_schema(uri: str) -> None:
    revision, expected, shown = schema(uri), newest_schema(), without_password(uri)
    if revision is None and sqlite_file(uri) is not None:
        raise StorageError(f"{shown} is not an MLflow store; move the file away, and a new store is created")
    if revision not in (None, expected):
        raise StorageError(
            f"{shown} has the schema {revision} of another MLflow version, this one needs {expected}; "
            "back it up, then start `rankbench tracking serve`, which upgrades it"
        )


def upgrade(uri: str) -> str:
    """Upgrade the store at `uri` if needed. Returns a sentence about the upgrade, empty if there was none.

    A SQLite file is first copied to FILE.REVISION beside it; other databases are not backed up. Raises StorageError for a
    store of a newer MLflow version, and if the upgrade fails.
    """
    quiet()
    newest = newest_schema()
    if is_new(uri) or schema(uri) in (None, newest):
        return ""
    shown, path = without_password(uri), sqlite_file(uri)
    with locked(uri):
        revision = schema(uri)
        if revision == newest:
            return ""
        if revision not in known_schemas():
            raise StorageError(f"{shown} has the schema {revision} of a newer MLflow version; install that version")
        copy = _copy(path, path.with_name(f"{path.name}.{revision}")) if path is not None else None
        hint = f"; a copy of the old store is {copy}" if copy else ""
        try:
            with engine_of(uri) as engine:
                upgrade_tables(engine)
        except Exception as error:
            raise StorageError(f"{shown}: the upgrade from {revision} failed ({reason(error, uri)}){hint}") from None
    return f"{shown} upgraded from schema {revision} to {newest}{hint}"


def _copy(path: Path, target: Path) -> Path:
    """Make a consistent copy of a database that other processes may be writing to."""
    with atomic_file(target) as scratch, closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(scratch)) as new:
        old.backup(new)
    return target


@contextmanager
def clear_errors(uri: str) -> Iterator[None]:
    """Turn errors of a database or of MLflow about the store at `uri` into a StorageError of one line."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"{without_password(uri)}: {reason(error, uri)}") from None


def quiet() -> None:
    """Make MLflow and Alembic log only errors."""
    warnings.filterwarnings("ignore", module="mlflow")
    import mlflow  # noqa: F401

    # After the import, which sets its own levels.
    for name in ("mlflow", "mlflow.store.db.utils", "alembic", "alembic.runtime.migration"):
        logging.getLogger(name).setLevel(logging.ERROR)
