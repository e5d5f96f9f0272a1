"""The MLflow store: which addresses are taken, who makes its tables, and the server that shows it."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from rankbench.errors import StorageError, require
from rankbench.files import atomic_file
from rankbench.settings import Settings

# What SQLAlchemy 2.1 loads for an address: plain postgresql:// means psycopg 3, no longer psycopg2.
DRIVERS = {"postgresql": "psycopg", "postgresql+psycopg2": "psycopg2", "mysql+pymysql": "pymysql"}

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

LOCK_SECONDS = 30.0  # tables are made in about a second


def tracking_uri(settings: Settings) -> str:
    """RANKBENCH_TRACKING_URI, or the SQLite store under the results folder. Raises ConfigError for one that cannot work."""
    uri = settings.tracking_uri
    if uri is None:
        return f"sqlite:///{settings.results / 'mlflow.db'}"
    where = f"RANKBENCH_TRACKING_URI={without_password(uri)}"
    scheme, colon, rest = uri.partition("://")
    known = "expected http(s)://HOST:PORT, sqlite:///FILE or postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE"
    require(bool(colon) and scheme != "file", f"{where}: MLflow no longer takes a folder; {known}")
    require(scheme != "sqlite" or rest.strip("/") not in ("", ":memory:"), f"{where}: name a file, as in sqlite:///FILE")
    # The name of the days before SQLAlchemy 1.4.
    require(scheme != "postgres", f"{where}: write postgresql+psycopg2:// instead of postgres://")
    if scheme == "postgresql":
        require(
            find_spec("psycopg") is not None,
            f"{where}: postgresql:// means psycopg 3 here, which is not installed; write postgresql+psycopg2://",
        )
    driver = DRIVERS.get(scheme)
    require(driver is None or find_spec(driver) is not None, f"{where}: its driver {driver} is not installed")
    return uri


def without_password(uri: str) -> str:
    """The address as it may be shown."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", uri)


def is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def sqlite_file(uri: str) -> Path | None:
    """The database file of a SQLite address, None for any other."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0])


def connect(uri: str, artifacts: Path) -> Any:
    """An MlflowClient on `uri`; a database gets its tables first. Raises StorageError, or what the database says."""
    _quiet()
    from mlflow.tracking import MlflowClient

    if not is_server(uri):
        make_tables(uri, artifacts)
    return MlflowClient(tracking_uri=uri)


def make_tables(uri: str, artifacts: Path) -> None:
    """Make a new SQLite store once, whatever process comes first, and refuse a store of another MLflow's schema.

    MLflow would make the tables in place, where two processes at once break each other's and a killed one leaves a half;
    and it would change an older schema without asking. Raises StorageError for the latter.
    """
    _quiet()
    path = sqlite_file(uri)
    if path is not None and is_new(uri):
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_SECONDS):
            if is_new(uri):
                with atomic_file(path) as scratch:
                    store = SqlAlchemyStore(f"sqlite:///{scratch}", artifacts.resolve().as_uri())
                    store.engine.dispose()
    _check_schema(uri)


def is_new(uri: str) -> bool:
    """True for a SQLite store whose tables are not made yet."""
    path = sqlite_file(uri)
    # Opening a database makes an empty file of its name.
    return path is not None and (not path.exists() or path.stat().st_size == 0)


def _check_schema(uri: str) -> None:
    from alembic.migration import MigrationContext
    from mlflow.store.db.utils import _get_latest_schema_revision
    from sqlalchemy import create_engine

    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()
    expected, shown = _get_latest_schema_revision(), without_password(uri)
    if found is None and sqlite_file(uri) is not None:
        raise StorageError(f"{shown} is no MLflow store; move the file away, and a new one is made")
    if found not in (None, expected):
        raise StorageError(
            f"{shown} has the schema {found} of another MLflow, this one needs {expected}; "
            f"back it up, then run `mlflow db upgrade {shown}`"
        )


def _quiet() -> None:
    warnings.filterwarnings("ignore", module="mlflow")
    import mlflow  # noqa: F401

    # After the import, which sets levels of its own.
    for name in ("mlflow", "mlflow.store.db.utils", "alembic", "alembic.runtime.migration"):
        logging.getLogger(name).setLevel(logging.ERROR)


def reason(error: BaseException, uri: str) -> str:
    """Why the store failed, in a few words and without the password in `uri`."""
    seen, causes = error, []
    while seen is not None and len(causes) < 20:
        causes.append(seen)
        # urllib3 carries the cause in an attribute of its own, requests in its first argument.
        inner = getattr(seen, "reason", None) or next(iter(seen.args), None)
        seen = seen.__cause__ or (inner if isinstance(inner, BaseException) else seen.__context__)
    for each in causes:
        if isinstance(each, TimeoutError) or "timeout" in type(each).__name__.lower():
            return "no answer in time"
    for each in causes:
        if isinstance(each, OSError) and each.strerror:
            return each.strerror + (f": {each.filename}" if each.filename else "")
    # The innermost says it shortest: "database is locked", "too many 500 error responses".
    inmost = next((each for each in reversed(causes) if str(each).strip()), error)
    line = (str(inmost).strip().splitlines() or [type(error).__name__])[0]
    return line.replace(uri, without_password(uri))[:200]


def serve_command(uri: str, artifacts: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command and environment of an MLflow server on loopback that shows the store at `uri`."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning", "--default-artifact-root", artifacts.resolve().as_uri()]
    # Not an argument: the address may hold a password, and a command line is seen by every user of the machine.
    return command, os.environ | QUIET | {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
