"""An older store brought to the schema of the installed MLflow, with a copy of what it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rankbench.core.errors import StorageError
from rankbench.core.files import atomic_file
from rankbench.tracking.address import sqlite_file
from rankbench.tracking.redaction import reason, without_password
from rankbench.tracking.store import alone, is_new, quiet, schema


def upgrade(uri: str) -> str:
    """What was done, as a sentence; empty where the store is new or has the schema of this MLflow.

    A SQLite file is copied first, to FILE.REVISION beside it; of another database its owner keeps the backups. Raises
    StorageError for a store of a newer MLflow, and for an upgrade that fails.
    """
    quiet()
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config, _get_latest_schema_revision, _upgrade_db
    from sqlalchemy import create_engine

    newest = _get_latest_schema_revision()
    if is_new(uri) or schema(uri) in (None, newest):
        return ""
    shown, path = without_password(uri), sqlite_file(uri)
    with alone(uri):
        found = schema(uri)
        if found == newest:
            return ""
        known = {script.revision for script in ScriptDirectory.from_config(_get_alembic_config("")).walk_revisions()}
        if found not in known:
            raise StorageError(f"{shown} has the schema {found} of a newer MLflow; install that one")
        copy = _copy(path, path.with_name(f"{path.name}.{found}")) if path is not None else None
        engine = create_engine(uri)
        try:
            _upgrade_db(engine)
        except Exception as error:
            hint = f"; the store as it was is {copy}" if copy else ""
            raise StorageError(f"{shown}: the upgrade from {found} failed ({reason(error, uri)}){hint}") from None
        finally:
            engine.dispose()
    return f"{shown} upgraded from schema {found} to {newest}" + (f"; as it was: {copy}" if copy else "")


def _copy(path: Path, target: Path) -> Path:
    """A consistent copy of a database that others may be writing to."""
    with atomic_file(target) as scratch, closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(scratch)) as new:
        old.backup(new)
    return target
