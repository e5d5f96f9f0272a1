"""A PostgreSQL of a test's own, on a free port of loopback, in a folder that goes with it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin")


def why_not() -> str:
    """What this machine lacks for one; empty when it can run."""
    if find_spec("psycopg2") is None:
        return "psycopg2 is not installed"
    return "" if _programs() else "no initdb and postgres are found"


def _programs() -> Path | None:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted((folder for place in PLACES for folder in Path("/").glob(place[1:])), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


@contextmanager
def postgres():
    """Yields make(name), which makes an empty database and returns its address; the server ends with the block."""
    import psycopg2

    # PostgreSQL refuses to be run by root.
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    password = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="rb-pg-", ignore_cleanup_errors=True) as name:
        folder, programs = Path(name), _programs()
        (folder / "password").write_text(password)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, user["user"])
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "rankbench", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync",
             f"--pwfile={folder / 'password'}"], cwd=folder, check=True, stdout=subprocess.DEVNULL, **user,
        )  # fmt: skip
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", "unix_socket_directories=", "-c", "fsync=off"], cwd=folder, stdout=log, stderr=log, **user,
        )  # fmt: skip

        def connect():
            line = psycopg2.connect(host="127.0.0.1", port=port, user="rankbench", password=password, dbname="postgres")
            line.autocommit = True
            return line

        def make(database):
            line = connect()
            line.cursor().execute(f"CREATE DATABASE {database}")
            line.close()
            return f"postgresql+psycopg2://rankbench:{password}@127.0.0.1:{port}/{database}"

        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    connect().close()
                    break
                except psycopg2.OperationalError:
                    assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                    time.sleep(0.1)
            yield make
        finally:
            process.send_signal(signal.SIGINT)  # disconnects whoever is left, and ends
            process.wait(timeout=30)
            log.close()
