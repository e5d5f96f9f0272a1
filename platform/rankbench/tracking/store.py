"""The MLflow store: which addresses are taken, who makes its tables, and the server that shows it."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rankbench.errors import StorageError, require
from rankbench.files import atomic_file
from rankbench.settings import Settings

# What SQLAlchemy 2.1 loads for an address: plain postgresql:// means psycopg 3, no longer psycopg2.
DRIVERS = {"postgresql": "psycopg", "postgresql+psycopg2": "psycopg2", "mysql+pymysql": "pymysql"}

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

LOCK_SECONDS = 30.0  # tables are made in about a second
ADVISORY_LOCK = 7_265_066_225  # any number that others are unlikely to lock in the same PostgreSQL database


def tracking_uri(settings: Settings) -> str:
    """RANKBENCH_TRACKING_URI, or the SQLite store under the results folder. Raises ConfigError for one that cannot work."""
    if settings.tracking_uri is None:
        return f"sqlite:///{settings.results / 'mlflow.db'}"
    return checked_uri(settings.tracking_uri, "RANKBENCH_TRACKING_URI")


def checked_uri(uri: str, name: str) -> str:
    """`uri` as it was given by the setting or option `name`. Raises ConfigError for one that cannot work."""
    where = f"{name}={without_password(uri)}"
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
    package = "psycopg2-binary" if driver == "psycopg2" else driver
    require(driver is None or find_spec(driver) is not None, f"{where}: its driver is not installed: pip install {package}")
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
                with atomic_file(path) as scratch:
                    _new_store(f"sqlite:///{scratch}", artifacts)
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


def quiet() -> None:
    """MLflow and Alembic tell of what they do at warnings alone."""
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


def serve_command(
    uri: str, artifacts: Path, port: int, host: str = "127.0.0.1", names: tuple[str, ...] = (), proxied: bool = False
) -> tuple[list[str], dict[str, str]]:
    """The command and environment of an MLflow server that shows the store at `uri`.

    With `names` it answers only to those host names, each with and without the port; without them as MLflow does: to
    localhost and private addresses. `proxied`: files come and go through the server and lie under `artifacts`; else every
    client reads and writes them there itself.
    """
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    # A browser tab left open would hold the server for ever.
    command += ["--uvicorn-opts", "--log-level warning --timeout-graceful-shutdown 5"]
    command += ["--artifacts-destination" if proxied else "--default-artifact-root", artifacts.resolve().as_uri()]
    if names:
        hosts = [f"{name}{suffix}" for name in names for suffix in ("", f":{port}")]
        command += ["--allowed-hosts", ",".join(hosts)]
        # The web page asks with POST, whose Origin MLflow holds against a list of its own.
        command += ["--cors-allowed-origins", ",".join(f"{scheme}://{each}" for each in hosts for scheme in ("http", "https"))]
    # Not an argument: the address may hold a password, and a command line is seen by every user of the machine.
    stores = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_REGISTRY_STORE_URI": uri}
    calm = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    return command, os.environ | QUIET | stores | calm
