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


class Server:
    """A running PostgreSQL. Called with a name, it makes an empty database and returns its address."""

    def __init__(self, words, connect, address, log, **options):
        self._words, self._connect, self._address, self._log, self._options = words, connect, address, log, options
        self.start()

    def __call__(self, database):
        line = self._connect()
        line.cursor().execute(f"CREATE DATABASE {database}")
        line.close()
        return f"{self._address}/{database}"

    def start(self):
        """Start it, and wait until it answers."""
        import psycopg2

        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log, **self._options)
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._connect().close()
            except psycopg2.OperationalError:
                assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.1)

    def end(self, number=signal.SIGINT):
        """SIGINT disconnects whoever is there; SIGQUIT is a crash, after which the next start recovers what was committed."""
        self._process.send_signal(number)
        self._process.wait(timeout=30)


@contextmanager
def postgres():
    """Yields a `Server`, which ends with the block."""
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
        words = [programs / "postgres", "-D", folder / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        words += ["-c", "unix_socket_directories=", "-c", "fsync=off"]

        def connect():
            line = psycopg2.connect(host="127.0.0.1", port=port, user="rankbench", password=password, dbname="postgres")
            line.autocommit = True
            return line

        address = f"postgresql+psycopg2://rankbench:{password}@127.0.0.1:{port}"
        server = Server(words, connect, address, folder / "log", cwd=folder, **user)
        try:
            yield server
        finally:
            server.end()
