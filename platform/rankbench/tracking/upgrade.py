"""Upgrade an older store to the schema of the installed MLflow, after copying it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rankbench.core.errors import StorageError
from rankbench.core.files import atomic_file
from rankbench.core.redaction import reason, without_password
from rankbench.tracking.address import sqlite_file
from rankbench.tracking.mlflow_internals import known_schemas, newest_schema, upgrade_tables
from rankbench.tracking.store import engine_of, is_new, locked, quiet, schema


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
