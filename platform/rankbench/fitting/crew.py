"""Processes that compute the iterations of one fit together, started and replaced by an engine such as Ray Train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


class Board(Protocol):
    """Short notes that the processes leave for each other before they are connected."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Return the value of a key, once it is there."""

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which begins as 0, and return it."""


@dataclass(frozen=True)
class Place:
    """The place of a process among `size`: its `rank`, counted from 0, and the IP `address` at which the others reach it."""

    rank: int
    size: int
    address: str
    board: Board


class Team(Protocol):
    """The running processes of a crew. Each has a member, the object that its `start` describes."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the method of every member with `arguments`, all together, and return the answer of the first one.

        Raises Lost if a process was lost: all are new then, and so are their members. It is also raised if the answer was lost
        on its way, and then all are as they were, after the call. Raises ClusterError if they cannot be replaced, and what a
        method raises.
        """

    def close(self) -> None:
        """End the processes."""


@runtime_checkable
class Crew(Protocol):
    """`workers`: number of processes."""

    @property
    def workers(self) -> int: ...

    def start(self, member: Callable[..., Any], *arguments: Any) -> Team:
        """Start the processes, each of which makes its member by member(place, *arguments)."""
