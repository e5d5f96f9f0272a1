"""Checks of this machine, its folders, datasets, tracking store and cluster, each with advice on what to do."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Literal

import psutil
import requests

from rankbench.cli.version import described_version
from rankbench.core.environment import Environment
from rankbench.core.errors import RankbenchError
from rankbench.core.extras import EXTRAS, PURPOSES, install_command, installed
from rankbench.core.files import ABANDONED
from rankbench.core.memory import available_memory
from rankbench.core.redaction import reason, without_password
from rankbench.core.threads import available_cpus
from rankbench.data.cache import entries
from rankbench.data.cards import card_names, load_card
from rankbench.tracking.address import artifacts_folder, is_server, sqlite_file, tracking_uri
from rankbench.tracking.delivery import check as tracking_problem
from rankbench.tracking.spool import Spool
from rankbench.tracking.store import is_new

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "lustre", "beegfs", "ceph"}
SERVER_TIMEOUT = 3.0  # seconds that a tracking server has to answer
LOW_DISK = 5e9  # bytes; roughly what a large dataset with its cache needs


@dataclass(frozen=True)
class Check:
    """The result of one check.

    `status` is ok, warn (works, with a limitation) or fail (will not work); `advice` says what to do about it.
    """

    status: Literal["ok", "warn", "fail"]
    what: str
    detail: str
    advice: str = ""

    @classmethod
    def of(cls, what: str, detail: str, advice: str = "") -> Check:
        """A check that warns if there is something to advise."""
        return cls("warn" if advice else "ok", what, detail, advice)


def checks(environment: Environment) -> Iterator[Check]:
    """All checks that need no cluster; they take a few seconds."""
    yield from versions()
    yield from machine()
    yield blas()
    yield from folder("RANKBENCH_DATA", environment.data)
    yield from folder("RANKBENCH_RESULTS", environment.results)
    for check in (stores, cache, leftovers, mirror, tracking):
        try:
            yield from check(environment)
        except OSError as error:
            yield Check(
                "fail", check.__name__, f"{error.filename}: {error.strerror}", "give this user read and write permission"
            )


def versions() -> Iterator[Check]:
    """Check the versions of Python and of every package that rankbench requires."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python, needed = ".".join(map(str, sys.version_info[:3])), metadata("rankbench")["Requires-Python"]
    wrong = [] if SpecifierSet(needed).contains(python) else [f"Python {python}, but {needed} is required"]
    there = [extra for extra in EXTRAS if installed(extra)]
    for text in requires("rankbench") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *there)):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            found = ""
        if not found or not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found or 'is missing'}, but {requirement.specifier} is required")
    if wrong:
        yield Check("fail", "packages", "; ".join(wrong), "reinstall: pip install -c constraints.txt -e '.[all]'")
    else:
        yield Check("ok", "packages", f"Python {python}, rankbench {described_version()}, and all required packages")
    for extra, what in PURPOSES.items():
        if extra not in there:
            yield Check.of(f"extra {extra}", f"not installed: {what}", install_command(extra))


def machine() -> Iterator[Check]:
    """Check processors, memory, and the shared memory that holds Ray's objects."""
    free = available_memory()
    detail = f"{available_cpus()} processors, {free / 1e9:.1f} GB of memory free"
    # The largest n for which an n × n float32 matrix and a tenth more fit.
    items = int((free / 4.4) ** 0.5)
    detail += f": item-item models up to about {items:,} items"
    advice = "stop other programs, or use a larger machine" if free < 4e9 else ""
    yield Check.of("machine", detail, advice)
    shared = Path("/dev/shm")
    if shared.is_dir():
        room = shutil.disk_usage(shared).free
        advice = "start the container with --shm-size=2g" if room < 1e9 else ""
        yield Check.of("shared memory", f"{room / 1e9:.1f} GB in {shared}", advice)


def blas() -> Check:
    """Check which kernels the BLAS library chose, and measure a product of two 1,000 × 1,000 float32 matrices."""
    import numpy as np
    from threadpoolctl import threadpool_info

    A = np.ones((1000, 1000), np.float32)
    A @ A
    start = time.perf_counter()
    for _ in range(3):
        A @ A
    speed = 3 * 2 * 1000**3 / (time.perf_counter() - start) / 1e9
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    kernels = sorted({f"{pool['internal_api']} {pool.get('architecture', '')}".strip() for pool in pools})
    unknown = "a library whose threads cannot be set, so that bits may depend on their number"
    return Check("ok", "BLAS", f"{', '.join(kernels) or unknown}, {speed:.0f} GFLOP/s in float32")


def folder(name: str, path: Path) -> Iterator[Check]:
    """Check that `path` can be written, its free space, and its file system."""
    try:
        existing = _probe(path)
    except OSError as error:
        yield Check("fail", name, f"{path}: not writable ({error.strerror})", f"set {name} to a folder that you can write")
        return
    free, kind = shutil.disk_usage(existing).free, _file_system(existing)
    detail = f"{path}: {free / 1e9:.0f} GB free, {kind or 'unknown file system'}"
    yield Check.of(name, detail, "free some space, for example with rankbench data clean" if free < LOW_DISK else "")


def _probe(path: Path) -> Path:
    """Write and delete a file in `path` or its nearest existing parent, and return that folder. Raises OSError."""
    folder = path
    while True:
        try:
            folder.stat()
            break
        except (FileNotFoundError, NotADirectoryError):
            folder = folder.parent
    probe = folder / f".rankbench-probe-{secrets.token_hex(4)}"
    probe.write_bytes(b"probe")
    probe.unlink()
    return folder


def _file_system(path: Path) -> str:
    """Type of the file system that holds `path`; empty if it is unknown."""
    folders = (path.resolve(), *path.resolve().parents)
    above = [mount for mount in psutil.disk_partitions(all=True) if Path(mount.mountpoint) in folders]
    return max(above, key=lambda mount: len(mount.mountpoint)).fstype if above else ""


def stores(environment: Environment) -> Iterator[Check]:
    """Check that objects can be written to the stores of data and results, if there are any."""
    for name, store in (("data store", environment.data_store), ("results store", environment.results_store)):
        if store is None:
            continue
        try:
            store.require_writable()
            yield Check("ok", name, f"{store}: objects are written, read and removed")
        except RankbenchError as error:
            yield Check("fail", name, str(error), "see docs/cluster.md for the variables of a store")


def cache(environment: Environment) -> Iterator[Check]:
    """Check the size of the cache, and how much of it is stale or unfinished."""
    cached = entries(environment)
    idle = sum(entry.n_bytes for entry in cached if entry.kind in ("stale", "unfinished"))
    detail = f"{sum(entry.n_bytes for entry in cached) / 1e6:,.0f} MB, {idle / 1e6:,.0f} MB of it stale or unfinished"
    yield Check.of("cache", detail, "run rankbench data clean --yes" if idle > 1e9 else "")


def leftovers(environment: Environment) -> Iterator[Check]:
    """Find unfinished files that killed processes left in the results folder."""
    scratch = [*environment.results.glob(".tmp-*"), *environment.results.glob("*/.tmp-*")]
    old = [path for path in scratch if _age(path) > ABANDONED]
    if old:
        detail = f"{len(old)} unfinished files or folders, such as {old[0]}"
        yield Check.of("leftovers", detail, "delete them; no run needs them")


def _age(path: Path) -> float:
    """Seconds since the last change; 0 if the path no longer exists."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def mirror(environment: Environment) -> Iterator[Check]:
    """Check the dataset cards, and how many datasets the mirror holds."""
    cards, broken = [], []
    for path in card_names(environment).values():
        try:
            cards.append(load_card(str(path), environment))
        except RankbenchError as error:
            broken.append(str(error))
    if broken:
        yield Check("fail", "cards", broken[0], "correct the card")
        return
    if environment.mirror is None:
        access = "offline: only cached data" if environment.offline else "data are downloaded from the internet"
        yield Check("warn" if environment.offline else "ok", "mirror", f"none; {len(cards)} datasets; {access}")
        return
    mirrored = [card for card in cards if any((environment.mirror / card.mirror_folder).glob("*"))]
    advice = "" if mirrored else f"expected {environment.mirror}/<dataset>/{{train,valid,test,all}}.parquet"
    yield Check.of("mirror", f"{environment.mirror}: {len(mirrored)} of {len(cards)} datasets", advice)


def tracking(environment: Environment) -> Iterator[Check]:
    """Check that the MLflow store answers, and how many messages wait for it."""
    try:
        uri = tracking_uri(environment)
    except RankbenchError as error:
        yield Check("fail", "tracking", str(error), "correct it, or unset it to use SQLite in the results folder")
        return
    if not installed("tracking"):
        return
    yield _store(environment, uri)
    file = sqlite_file(uri)
    if file is not None and (kind := _file_system(file)) in NETWORK_FILE_SYSTEMS:
        advice = "set RANKBENCH_TRACKING_URI to a server, or to a file on a local disk"
        yield Check.of("tracking file", f"{file} is on {kind}, where SQLite is not reliable", advice)
    waiting = len(Spool.beside(artifacts_folder(environment)).waiting())
    if waiting:
        yield Check.of("tracking spool", f"{waiting} messages wait for MLflow", "run rankbench tracking sync")


def _store(environment: Environment, uri: str) -> Check:
    shown, advice = without_password(uri), "records are kept; once it answers, run rankbench tracking sync"
    try:
        if is_server(uri):
            requests.get(f"{uri.rstrip('/')}/health", timeout=SERVER_TIMEOUT, stream=True).close()
        # A query would create the store; a check must not leave anything behind.
        if (file := sqlite_file(uri)) and is_new(uri):
            _probe(file.parent)
            return Check.of("tracking", f"{shown}: the first run creates it")
    except requests.RequestException as error:
        return Check.of("tracking", f"{shown}: {reason(error, uri)}", advice)
    except OSError as error:
        return Check.of("tracking", f"{shown}: cannot be created ({error.strerror})", advice)
    problem = tracking_problem(uri, artifacts_folder(environment), seconds=15.0)
    return Check.of("tracking", f"{shown}: {problem}", advice) if problem else Check.of("tracking", f"{shown} answers")


def cluster(environment: Environment, address: str | None) -> Iterator[Check]:
    """Check that a cluster runs a task, and that every node has this version and the shared folders.

    The cluster is a local one if `address` is None.
    """
    from rankbench.cluster.session import session

    try:
        with session(address, available_cpus()) as joined:
            from rankbench.cluster.probe import probe_nodes
            from rankbench.cluster.workplace import shared_places
            from rankbench.core.code import package_fingerprint

            offered = f"{joined.cpus} processors, {joined.memory_bytes / 1e9:.1f} GB"
            yield Check("ok", "cluster", f"{address or 'local'}: {offered}")
            for node in probe_nodes(*shared_places(environment)):
                wrong = []
                if node.version != version("rankbench"):
                    wrong.append(f"rankbench {node.version} on the node, {version('rankbench')} here")
                elif node.code != package_fingerprint():
                    wrong.append(f"other source files of rankbench {node.version} on the node than here")
                wrong += [f"cannot see or write {path}" for path in node.unseen]
                advice = "install the same version on every node, and let them share RANKBENCH_DATA and RANKBENCH_RESULTS"
                if wrong:
                    yield Check("fail", f"node {node.name}", "; ".join(wrong), advice)
                else:
                    yield Check("ok", f"node {node.name}", "same version; reads and writes data and results")
    except RankbenchError as error:
        yield Check("fail", "cluster", str(error), "run `ray status` on the head node; see cluster.yaml")
