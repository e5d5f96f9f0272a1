"""A fit that waits at each look at valid until it is told to go on, so that Ray Tune sees it step by step."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from rankbench.experiment import OnLook


class Abandoned(BaseException):
    """Raised within the fit at the look where it was given up. No Exception: nobody on the way may take it for a failure."""


class Held:
    """Runs `work(on_look)` in a thread of its own, one look at a time."""

    def __init__(self, work: Callable[[OnLook], None]):
        self._looks: queue.Queue[list[dict[str, float]] | BaseException | None] = queue.Queue(maxsize=1)
        self._go = threading.Semaphore(0)
        self._given_up = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def next(self) -> list[dict[str, float]] | None:
        """The curve up to the next look, or None when the work has ended. Raises what the work raised."""
        self._go.release()
        found = self._looks.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def give_up(self) -> None:
        """End the work at the look where it waits. Returns when it has ended; at once where it had."""
        self._given_up = True
        self._go.release()
        self._thread.join()

    def _run(self, work: Callable[[OnLook], None]) -> None:
        outcome: BaseException | None = None
        try:
            self._wait()
            work(self._at_look)
        except Abandoned:
            return
        except BaseException as error:
            outcome = error
        self._looks.put(outcome)

    def _at_look(self, curve: list[dict[str, float]]) -> None:
        self._looks.put(curve)
        self._wait()

    def _wait(self) -> None:
        self._go.acquire()
        if self._given_up:
            raise Abandoned
