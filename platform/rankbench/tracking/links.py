"""Web addresses: of the MLflow runs of a sweep, for reports, and where the pages of a SQLite store are served, which the server
that was last started on it keeps in a file beside it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from rankbench.core.errors import StorageError, first_line
from rankbench.core.files import write_text
from rankbench.tracking.address import is_server, sqlite_file

log = logging.getLogger(__name__)

QUICK = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}  # a report does not wait for a dead server
MOST = 10_000  # final runs of an experiment that are looked at
DEFAULT = "http://127.0.0.1:5000"  # where `rankbench ui` listens if nothing else is said
_ADDRESS = re.compile(r"http://[\w.:\[\]-]{1,255}")  # a results folder may be another person's


@dataclass(frozen=True)
class RunLinks:
    """`runs`: id of a record → address of its page. `needs`: the command that must run for the addresses to answer, if any."""

    runs: dict[str, str] = field(default_factory=dict)
    needs: str = ""


def run_links(uri: str, artifacts: Path, sweep: str, records: Iterable[str]) -> RunLinks:
    """Return the addresses of the runs with these record ids under the sweep, as far as the store at `uri` has them.

    Without a store, or if it does not answer, there are none: a report is complete without them.
    """
    local = not is_server(uri)
    file = sqlite_file(uri)
    if local and (file is None or not file.is_file()):
        return RunLinks()
    added = {name: value for name, value in QUICK.items() if name not in os.environ}
    os.environ |= added
    try:
        from rankbench.tracking.store import connect

        base = web_address(uri)
        return RunLinks(_addresses(connect(uri, artifacts), base, sweep, list(records)), _command(base) if local else "")
    except Exception as error:  # of MLflow, SQLAlchemy or the network
        log.info("no links to MLflow: %s", first_line(error))
        return RunLinks()
    finally:
        for name in added:
            os.environ.pop(name, None)


def web_address(uri: str) -> str:
    """Return the address of the pages of a store, without user name and password: of a file, the one where it was served last,
    DEFAULT if it never was.
    """
    if is_server(uri):
        parts = urlsplit(uri)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    file = sqlite_file(uri)
    with suppress(OSError, ValueError):
        if file and (path := _beside(file)).is_file() and _ADDRESS.fullmatch(text := path.read_text("utf-8")[:300].strip()):
            return text
    return DEFAULT


def remember(uri: str, address: str) -> None:
    """Keep the address of a server that now serves the store, if there is a place for it."""
    if file := sqlite_file(uri):
        with suppress(StorageError, OSError):
            write_text(_beside(file), f"{address}\n")


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.address")


def _command(address: str) -> str:
    """Return the command that serves a local store at an address of this machine."""
    return "rankbench ui" if address == DEFAULT else f"rankbench ui --port {urlsplit(address).port}"


def _addresses(client: Any, base: str, sweep: str, records: list[str]) -> dict[str, str]:
    from rankbench.tracking.mlflow_runs import OF_SWEEP, PARENT, SWEEP  # imports MLflow

    # All experiments are searched, since a sweep may have been sent to one of another name.
    everywhere = [each.experiment_id for each in client.search_experiments(max_results=1000)]
    parents = client.search_runs(everywhere, filter_string=f"tags.`{SWEEP}` = '{sweep}'")
    if not parents:
        return {}
    own = {run.info.run_id for run in parents}
    experiments = list(dict.fromkeys(run.info.experiment_id for run in parents))
    runs = client.search_runs(experiments, filter_string="tags.`rankbench.stage` = 'final'", max_results=MOST)

    # Sweeps that repeat a run have it under the same id; those of version 0.1 were children of their sweep's run.
    def is_own(run: Any) -> bool:
        return run.data.tags.get(OF_SWEEP) == sweep or run.data.tags.get(PARENT) in own

    runs = sorted(runs, key=lambda run: (is_own(run), run.info.start_time))
    where = f"{base}/#/experiments"
    pages = {run.data.tags.get("rankbench.run"): f"{where}/{run.info.experiment_id}/runs/{run.info.run_id}" for run in runs}
    return {record: pages[record] for record in records if record in pages}
