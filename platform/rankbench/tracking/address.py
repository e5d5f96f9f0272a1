"""The address of an MLflow store: its default, the check of a given one, and the file of a SQLite store."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, RankbenchError, require
from rankbench.core.extras import installed, require_extra
from rankbench.core.files import write_text
from rankbench.core.redaction import without_password
from rankbench.core.registry import nearest

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")  # that MLflow supports
PACKAGES = {"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}  # module → package, where the names differ

EXPECTED = "expected http(s)://HOST:PORT, sqlite:///FILE or postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE"
_PLAIN = re.compile(r"[\w./-]+")  # paths that an address contains unchanged
ENCODE = "write characters such as @ : / ? # % in a user name or password as %40 %3A %2F %3F %23 %25"


def tracking_uri(environment: Environment) -> str:
    """Return RANKBENCH_TRACKING_URI, else MLFLOW_TRACKING_URI, else a SQLite store in the results folder.

    Raises ConfigError if the address cannot work.
    """
    given = environment.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    return checked_uri(given, variable(environment)) if given else sqlite_uri(environment.results / "mlflow.db")


def artifacts_folder(environment: Environment) -> Path:
    """Return the folder of the files of MLflow's runs, which the spool lies beside."""
    return environment.results / "mlartifacts"


def origin(environment: Environment) -> str:
    """Return what the results of an environment are known by in an MLflow store that others use, too: a word in the results
    folder, made at the first call, or a hash of the address of their store. Empty if the folder cannot be written.
    """
    if store := environment.results_store:
        return sha256(f"{store.endpoint} {store.uri}".encode()).hexdigest()[:16]
    file = environment.results / ".origin"
    with suppress(OSError, RankbenchError, ValueError):
        if not file.is_file():
            whole = write_text(file.with_name(f"{file.name}-{token_hex(4)}"), token_hex(8))
            try:
                os.link(whole, file)
            except FileExistsError:  # of two commands at once, the first one names them
                pass
            finally:
                whole.unlink()
        return file.read_text(encoding="ascii").strip()
    return ""


def variable(environment: Environment) -> str:
    """Return the variable that `tracking_uri` takes the address from, if one is set."""
    return "RANKBENCH_TRACKING_URI" if environment.tracking_uri else "MLFLOW_TRACKING_URI"


def checked_uri(uri: str, name: str) -> str:
    """Return `uri`, the value of the variable or option `name`. Raises ConfigError if it cannot work."""
    shown = f"{name}={without_password(uri)}"
    scheme, separator, _ = uri.partition("://")
    dialect = scheme.partition("+")[0]
    require(bool(separator) and scheme != "file", f"{shown}: MLflow no longer takes a folder; {EXPECTED}")
    # SQLAlchemy dropped this name in version 1.4.
    require(scheme != "postgres", f"{shown}: write postgresql+psycopg2:// instead of postgres://")
    known = dialect in DATABASES or scheme in SERVERS
    require(known, f"{shown}: unknown scheme{nearest(dialect.lower(), (*SERVERS, *DATABASES))}; {EXPECTED}")
    require(not shown.endswith("://***"), f"{shown}: the address cannot be read; {ENCODE}; {EXPECTED}")
    if dialect == "sqlite":
        file = sqlite_file(uri)
        usable = file is not None and file.name not in ("", ":memory:") and not str(file).startswith("file:")
        require(usable and "\0" not in str(file), f"{shown}: name a file, as in sqlite:///FILE")
    if dialect in DATABASES:
        _require_driver(uri, shown)
    return uri


def _require_driver(uri: str, shown: str) -> None:
    require_extra("tracking", shown)
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import NoSuchModuleError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except NoSuchModuleError:
        raise ConfigError(f"{shown}: unknown driver in the scheme; {EXPECTED}") from None
    except ImportError as error:
        if uri.startswith("postgresql://"):
            advice = "postgresql:// means psycopg 3 here, which is not installed; write postgresql+psycopg2://"
        else:
            advice = f"its driver is not installed: pip install {PACKAGES.get(error.name, error.name)}"
        raise ConfigError(f"{shown}: {advice}") from None


def is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def sqlite_uri(file: Path) -> str:
    """Return the address of the SQLite store in `file`, whatever characters its path contains."""
    plain = f"sqlite:///{file}"
    if _PLAIN.fullmatch(str(file)) or not installed("tracking"):  # without MLflow, the store is not opened
        return plain
    from sqlalchemy.engine import make_url

    # Some versions of SQLAlchemy read %41 as A, and for all of them a ? ends the file name.
    return plain if make_url(plain).database == str(file) else f"sqlite:///{quote(str(file), safe='/ @:')}"


def sqlite_file(uri: str) -> Path | None:
    """Return the database file of a SQLite address, None for any other address."""
    if not uri.startswith(("sqlite:///", "sqlite+pysqlite:///")):
        return None
    if _PLAIN.fullmatch(file := uri.partition(":///")[2]):
        return Path(file)
    from sqlalchemy.engine import make_url

    return Path(make_url(uri).database or "")
