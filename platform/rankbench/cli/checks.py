"""What is right and wrong with this machine, its folders, data, tracking and cluster: one check a line, with what to do."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Literal

import requests

from rankbench.core.environment import Environment
from rankbench.core.errors import RankbenchError
from rankbench.core.memory import available_memory
from rankbench.core.threads import available_cpus
from rankbench.data.cache import STALE_AFTER, entries
from rankbench.data.cards import card_names, load_card
from rankbench.tracking.address import is_server, sqlite_file, tracking_uri
from rankbench.tracking.delivery import check as tracking_problem
from rankbench.tracking.redaction import reason, without_password
from rankbench.tracking.spool import Spool
from rankbench.tracking.store import is_new

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "lustre", "beegfs", "ceph"}
WIDE_KERNELS = {"skylakex", "cooperlake", "sapphirerapids"}  # those of OpenBLAS that use AVX-512
KNOCK = 3.0  # seconds; a server that hangs is not asked any further
LOW_DISK = 5e9  # bytes; a large dataset with its cache


@dataclass(frozen=True)
class Check:
    """`status`: ok, warn (works, but), fail (will not work); `advice`: what to do about it."""

    status: Literal["ok", "warn", "fail"]
    what: str
    detail: str
    advice: str = ""


def checks(environment: Environment) -> Iterator[Check]:
    """Everything that needs no cluster, in a few seconds."""
    yield from versions()
    yield from machine()
    yield blas()
    yield from folder("RANKBENCH_DATA", environment.data)
    yield from folder("RANKBENCH_RESULTS", environment.results)
    for check in (cache, leftovers, mirror, tracking):
        try:
            yield from check(environment)
        except OSError as error:
            yield Check("fail", check.__name__, f"{error.filename}: {error.strerror}", "let this user read and write it")


def versions() -> Iterator[Check]:
    """Python and every package that rankbench requires, as far as the installed ones can be told from what it asks for."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python, needed = ".".join(map(str, sys.version_info[:3])), metadata("rankbench")["Requires-Python"]
    wrong = [] if SpecifierSet(needed).contains(python) else [f"Python {python}, needed {needed}"]
    for text in requires("rankbench") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            found = ""
        if not found or not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found or 'missing'}, needed {requirement.specifier}")
    if wrong:
        yield Check("fail", "packages", "; ".join(wrong), "install again: pip install -c constraints.txt -e .")
    else:
        yield Check("ok", "packages", f"Python {python}, rankbench {version('rankbench')}, all that it requires")


def machine() -> Iterator[Check]:
    """Processors and memory, and the shared memory that Ray puts its objects into."""
    free = available_memory()
    detail = f"{available_cpus()} processors, {free / 1e9:.1f} GB of memory free"
    # The largest n with n² float32 and a tenth beside it.
    items = int((free / 4.4) ** 0.5)
    detail += f": item-item models up to about {items:,} items"
    advice = "end what else runs here, or take a larger machine" if free < 4e9 else ""
    yield Check("warn" if advice else "ok", "machine", detail, advice)
    shared = Path("/dev/shm")
    if shared.is_dir():
        room = shutil.disk_usage(shared).free
        advice = "in a container, give it --shm-size=2g" if room < 1e9 else ""
        yield Check("warn" if advice else "ok", "shared memory", f"{room / 1e9:.1f} GB in {shared}", advice)


def blas() -> Check:
    """Which kernels the BLAS took, and how fast they are: two matrices of 1,000, float32."""
    import numpy as np
    from threadpoolctl import threadpool_info

    A = np.ones((1000, 1000), np.float32)
    A @ A
    start = time.perf_counter()
    for _ in range(3):
        A @ A
    speed = 3 * 2 * 1000**3 / (time.perf_counter() - start) / 1e9
    kernels = sorted({pool.get("architecture", "?") for pool in threadpool_info() if pool["user_api"] == "blas"})
    detail = f"{', '.join(kernels)}, {speed:.0f} GFLOP/s in float32"
    wide = "avx512f" in _processor_flags() and not WIDE_KERNELS & {name.lower() for name in kernels}
    if wide and os.environ.get("OPENBLAS_CORETYPE"):
        named = f"OPENBLAS_CORETYPE={os.environ['OPENBLAS_CORETYPE']}"
        return Check(
            "warn", "BLAS", f"{detail}; {named} keeps it from AVX-512", "try OPENBLAS_CORETYPE=SKYLAKEX: up to twice as fast"
        )
    return Check("ok", "BLAS", detail)


def _processor_flags() -> set[str]:
    try:
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return set()
    return set(found[1].split()) if found else set()


def folder(name: str, path: Path) -> Iterator[Check]:
    """Whether a file can be written there, how much fits, and on what file system it lies."""
    try:
        place = _probe(path)
    except OSError as error:
        yield Check("fail", name, f"{path}: cannot be written ({error.strerror})", f"set {name} to a folder of your own")
        return
    free, kind = shutil.disk_usage(place).free, _file_system(place)
    detail = f"{path}: {free / 1e9:.0f} GB free, {kind or 'unknown file system'}"
    if free < LOW_DISK:
        yield Check("warn", name, detail, "free some space: rankbench data clean")
    else:
        yield Check("ok", name, detail)


def _probe(path: Path) -> Path:
    """Write a file into `path`, or into the folder that it would be made in, and return that. Raises OSError."""
    place = path
    while True:
        try:
            place.stat()
            break
        except (FileNotFoundError, NotADirectoryError):
            place = place.parent
    probe = place / f".rankbench-probe-{secrets.token_hex(4)}"
    probe.write_bytes(b"probe")
    probe.unlink()
    return place


def _file_system(path: Path) -> str:
    """The kind of the mount that `path` lies on; empty where that cannot be told."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    above = [words for words in mounts if Path(words[1]) in (path.resolve(), *path.resolve().parents)]
    return max(above, key=lambda words: len(words[1]))[2] if above else ""


def cache(environment: Environment) -> Iterator[Check]:
    """How much lies there, and how much of it for nothing."""
    found = entries(environment)
    idle = sum(entry.n_bytes for entry in found if entry.kind in ("stale", "unfinished"))
    detail = f"{sum(entry.n_bytes for entry in found) / 1e6:,.0f} MB, {idle / 1e6:,.0f} MB of it stale or unfinished"
    yield Check("warn", "cache", detail, "rankbench data clean --yes") if idle > 1e9 else Check("ok", "cache", detail)


def leftovers(environment: Environment) -> Iterator[Check]:
    """What killed processes left among the results."""
    found = [*environment.results.glob(".tmp-*"), *environment.results.glob("*/.tmp-*")]
    old = [path for path in found if _age(path) > STALE_AFTER]
    if old:
        yield Check("warn", "leftovers", f"{len(old)} unfinished, the first: {old[0]}", "delete them: no run needs them")


def _age(path: Path) -> float:
    """Seconds since the last change; 0 for what is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def mirror(environment: Environment) -> Iterator[Check]:
    """How many of the datasets can be had without the internet."""
    cards, broken = [], []
    for path in card_names(environment).values():
        try:
            cards.append(load_card(str(path), environment))
        except RankbenchError as error:
            broken.append(str(error))
    if broken:
        yield Check("fail", "cards", broken[0], "mend the card")
        return
    if environment.mirror is None:
        where = "offline is set: only what is in the cache" if environment.offline else "downloads go to the internet"
        yield Check("warn" if environment.offline else "ok", "mirror", f"none; {len(cards)} datasets; {where}")
        return
    here = [card for card in cards if any((environment.mirror / card.mirror_folder).glob("*"))]
    advice = "" if here else f"expected {environment.mirror}/<dataset>/{{train,valid,test,all}}.parquet"
    yield Check("ok" if here else "warn", "mirror", f"{environment.mirror}: {len(here)} of {len(cards)} datasets", advice)


def tracking(environment: Environment) -> Iterator[Check]:
    """Whether the MLflow store answers, and what it has not got yet."""
    try:
        uri = tracking_uri(environment)
    except RankbenchError as error:
        yield Check("fail", "tracking", str(error), "correct it, or unset it for SQLite under the results")
        return
    yield _store(environment, uri)
    file = sqlite_file(uri)
    if file is not None and (kind := _file_system(file)) in NETWORK_FILE_SYSTEMS:
        advice = "set RANKBENCH_TRACKING_URI to a server, or to a file on a local disk"
        yield Check("warn", "tracking file", f"{file} lies on {kind}, where SQLite breaks", advice)
    waiting = len(Spool(environment.results / "spool").waiting())
    if waiting:
        yield Check("warn", "tracking spool", f"{waiting} messages wait", "rankbench tracking sync")


def _store(environment: Environment, uri: str) -> Check:
    shown, advice = without_password(uri), "records are kept without it; later: rankbench tracking sync"
    try:
        if is_server(uri):
            requests.get(f"{uri.rstrip('/')}/health", timeout=KNOCK, stream=True).close()
        # Asked, it would be made; a check leaves nothing behind.
        if is_new(uri):
            _probe(sqlite_file(uri).parent)
            return Check("ok", "tracking", f"{shown}: the first run makes it")
    except requests.RequestException as error:
        return Check("warn", "tracking", f"{shown}: {reason(error, uri)}", advice)
    except OSError as error:
        return Check("warn", "tracking", f"{shown}: cannot be made ({error.strerror})", advice)
    problem = tracking_problem(uri, environment.results / "mlartifacts", seconds=15.0)
    return Check("warn", "tracking", f"{shown}: {problem}", advice) if problem else Check("ok", "tracking", f"{shown} answers")


def cluster(environment: Environment, address: str | None) -> Iterator[Check]:
    """A local cluster, or the one at `address`: it runs a task, and every node sees the shared folders and this version."""
    from rankbench.cluster.session import session

    try:
        with session(address, available_cpus()) as joined:
            from rankbench.cluster.probe import probe_nodes

            offered = f"{joined.cpus} processors, {joined.memory_bytes / 1e9:.1f} GB"
            yield Check("ok", "cluster", f"{address or 'local'}: {offered}")
            for node in probe_nodes([environment.data, environment.results]):
                wrong = []
                if node.version != version("rankbench"):
                    wrong.append(f"rankbench {node.version} there, {version('rankbench')} here")
                wrong += [f"cannot see or write {path}" for path in node.unseen]
                advice = "install the same version on every node, and let them share RANKBENCH_DATA and RANKBENCH_RESULTS"
                if wrong:
                    yield Check("fail", f"node {node.name}", "; ".join(wrong), advice)
                else:
                    yield Check("ok", f"node {node.name}", "the same version, sees and writes both folders")
    except RankbenchError as error:
        yield Check("fail", "cluster", str(error), "ray status on its head; see cluster.yaml")
