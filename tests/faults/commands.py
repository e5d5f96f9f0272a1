"""Commands of the product, each in a process of its own that can be killed in the middle of its work.

Where a process dies is counted in touches: opening, making, renaming and removing below a watched folder. That is where
something can be left half done, and it does not depend on how fast the machine is. A process may also die some milliseconds
after a touch, so that not all deaths fall on one. Processes are forked from a server that has the imports done.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rankbench.core.files import ABANDONED, SCRATCH
from rankbench.tracking.record import read_per_user, read_record

TOUCHES_OF_A_LINE = 4  # open and write, open again and sync, rename, remove what is not there any more
TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "shutil.rmtree"}
MARK = "FAULTS_MARK"  # in the environment of a command and of everything that it starts
GONE_WITHIN = 60  # seconds from a death until nothing that the process started is left

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "rankbench.cli",
        "rankbench.api",
        "rankbench.training.methods",
        "rankbench.solvers.newton.newton_cg",
        "rankbench.tracking.mlflow_sink",
    ]
)


@dataclass(frozen=True)
class Death:
    """At a touch, counted from 1, or `later` seconds after it. With `lines`, only touches of the scratch files of a store are
    counted, whose names end so: each line that is stored touches one TOUCHES_OF_A_LINE times.
    """

    touch: int
    later: float = 0.0
    lines: str = ""

    @classmethod
    def drawn(cls, rng: random.Random, touches: int) -> Death:
        return cls(rng.randint(1, touches), rng.choice([0.0, rng.uniform(0, 0.05)]))


@dataclass(frozen=True)
class Ended:
    """How a command ended. `touches` is known of those that were not killed."""

    code: int
    out: str
    err: str
    touches: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@dataclass
class Home:
    """A user's folder with its own cache and results; `environment` beside that of this process."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "out").mkdir(exist_ok=True)
        self.environment = {
            "RANKBENCH_DATA": str(self.data),
            "RANKBENCH_RESULTS": str(self.results),
            "RANKBENCH_OFFLINE": "1",
            MARK: self.mark,
            **self.environment,
        }

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def run(self, *words: str, death: Death | None = None, timeout: float = 300) -> Ended:
        outputs = self.folder / "out" / uuid.uuid4().hex
        process = _SERVER.Process(target=_command, args=(words, self.environment, self.folder, outputs, death))
        process.start()
        process.join(timeout)
        assert process.exitcode is not None, f"{' '.join(words)}: still runs after {timeout} s"
        texts = {name: outputs.with_suffix(f".{name}") for name in ("out", "err", "touches")}
        out, err, touches = (path.read_text() if path.exists() else "" for path in texts.values())
        return Ended(process.exitcode, out, err, int(touches or 0))

    def records(self) -> dict[Path, bytes]:
        """The contents of all finished records, each of which can be read with its per-user values."""
        found = {}
        for path in self.results.rglob("record.json"):
            others = any(part.startswith(".") or part == "mlartifacts" for part in path.relative_to(self.results).parts)
            if not others and read_record(path.parent).finished:
                read_per_user(path.parent)
                found[path] = path.read_bytes()
        return found

    def age(self) -> None:
        """As if an hour had gone by since everything that now lies here as scratch was written."""
        then = time.time() - ABANDONED - 60
        for path in self.folder.rglob("*"):
            with suppress(FileNotFoundError):
                os.utime(path, (then, then))

    def leftovers(self) -> list[Path]:
        """Scratch, and what a fit keeps for --resume."""
        scratch = [path for path in self.folder.rglob(".tmp-*")]
        kept = [*self.results.glob("checkpoints/*"), *self.results.glob("spill/*"), *self.results.glob("sweeps/*/checkpoints")]
        beside = [*self.folder.rglob("*.checkpoints"), *self.folder.rglob("*.tiles")]  # a model folder
        return scratch + kept + beside

    def processes(self) -> list[psutil.Process]:
        """What commands of this home have started and what is still there."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def require_no_processes(self) -> None:
        until = time.monotonic() + GONE_WITHIN
        while left := self.processes():
            assert time.monotonic() < until, [process.cmdline() for process in left]
            time.sleep(0.2)


def _command(words: tuple[str, ...], environment: dict[str, str], folder: Path, outputs: Path, death: Death | None) -> None:
    for name in [name for name in os.environ if name.startswith(("RANKBENCH_", "RAY_A"))]:
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(outputs.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    counted, watched, die = [0], (str(folder), f"{folder}/out/"), lambda: os.kill(os.getpid(), signal.SIGKILL)

    def touched(event: str, arguments: tuple) -> None:
        if event not in TOUCHES or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.fsdecode(arguments[0])
        if death and death.lines and not (SCRATCH in path and path.endswith(death.lines)):
            return
        # Names without a folder are those of a folder that is being removed.
        if (path.startswith(watched[0]) and not path.startswith(watched[1])) or (event == "os.remove" and "/" not in path):
            counted[0] += 1
            if death and counted[0] == death.touch:
                if death.later:
                    threading.Timer(death.later, die).start()
                else:
                    die()

    sys.addaudithook(touched)
    sys.argv = ["rankbench", *words]
    from rankbench.cli import main

    try:
        main()
    finally:
        sys.stdout.flush()
        outputs.with_suffix(".touches").write_text(str(counted[0]))
