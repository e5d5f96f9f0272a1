"""Standard output and standard error whose failures have one meaning each.

Messages on stderr are help for a person: if they cannot be written, the command goes on. The result on stdout is what was asked
for: a full disk is an error of storage, and a reader who has seen enough, as `| head -1`, ends the command without one.
Libraries in between take a closed pipe as their own affair and end the process, so neither is an OSError here.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from rankbench.core.errors import StorageError


class ReaderGone(BaseException):
    """The reader of stdout has closed the pipe: no error, so that no command takes it for one."""


class _Sink(io.FileIO):
    """The file of a stream. After its first failure it takes whatever is left in buffers, and writes nothing."""

    def __init__(self, descriptor: int, needed: bool):
        super().__init__(descriptor, "w", closefd=False)
        self.needed, self.failed = needed, False

    def write(self, data: object) -> int:
        try:
            if not self.failed:
                return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            self.failed = True
            if self.needed:
                raise ReaderGone from None
        except OSError as error:
            self.failed = True
            if self.needed:
                raise StorageError(f"standard output: {os.strerror(error.errno or 0).lower()}") from None
        return memoryview(data).nbytes  # type: ignore[arg-type]


def guard() -> None:
    """Put such streams in place of sys.stdout and sys.stderr; one that was closed from the beginning stays so."""
    sys.stdout = _guarded(sys.stdout, needed=True)
    sys.stderr = _guarded(sys.stderr, needed=False)


def _guarded(stream: TextIO | None, needed: bool) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # type: ignore[return-value]
    return io.TextIOWrapper(
        io.BufferedWriter(_Sink(stream.fileno(), needed)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def ended(command: Callable[[], int]) -> int:
    """Run a command, write what is left of its output, and return the code to exit with."""
    code = 0
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()
    except ReaderGone:
        pass
    except StorageError as error:
        print(f"error: {error}", file=sys.stderr)
        code = code or error.exit_code
    return code
