"""`fitting.crew.Crew` by Ray Train: it places the workers, watches them, and starts all of them anew if one is lost.

The members wait for calls at a desk, an actor beside the driver, and the first one leaves its answers there. Ray Train's own
checkpoints are not used, because a fit saves its state in a format that needs no pickle.

Import this inside `cluster.session.session`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import FailureConfig, RunConfig, ScalingConfig

from rankbench.cluster.private_folder import private_folder
from rankbench.cluster.ray_internals import data_parallel_trainer
from rankbench.core.errors import ClusterError, first_line
from rankbench.core.plugins import Shipment
from rankbench.core.threads import pinned
from rankbench.fitting.crew import Place
from rankbench.fitting.flow import Lost

FAILURES = 20  # how often workers may be lost in a fit
STARTS = 4  # how often Ray Train waits a minute for processors
_TICK = 1.0  # seconds between checks of the workers
_GONE = 60.0  # seconds that the workers have to end: Ray ends a process whose threads use it after its shutdown


@dataclass(frozen=True)
class TrainCrew:
    """`resources` of each worker, in Ray's names. With `reserved`, the process that starts the crew has reserved a processor
    of its node for each of them, and they run there.
    """

    workers: int
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    reserved: bool = False

    @property
    def scaling(self) -> ScalingConfig:
        if not self.reserved:
            return ScalingConfig(num_workers=self.workers, resources_per_worker=self.resources)
        # A placement group must ask for something, and has a byte of memory.
        return ScalingConfig(num_workers=self.workers, resources_per_worker={"memory": 1}, label_selector=_here())

    def start(self, member: Callable[..., Any], *arguments: Any) -> TrainTeam:
        return TrainTeam(self, member, arguments)


class TrainTeam:
    """The workers of one fit."""

    def __init__(self, crew: TrainCrew, member: Callable[..., Any], arguments: tuple[Any, ...]):
        self._crew, self._round = crew, 0
        self._failure: BaseException | None = None
        # In a trial of Tune, actors would otherwise take part in its placement group.
        desk = ray.remote(num_cpus=0, scheduling_strategy="DEFAULT", label_selector=_here())
        self._desk = desk(_Desk).remote()
        # The plugins come first, because they are loaded as they are unpickled.
        self._config = {
            "plugins": Shipment.of_this_process(),
            "desk": self._desk,
            "member": member,
            "arguments": [ray.put(each) for each in arguments],
        }
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def call(self, method: str, *arguments: Any) -> Any:
        shared = [ray.put(each) for each in arguments]
        kind, answer = self._reply(self._desk.call.remote(self._round, method, shared))
        if kind == "lost":
            first, self._round = not self._round, answer
            if first:
                return self.call(method, *arguments)
            raise Lost("a worker was lost")
        if kind == "error":
            raise answer
        try:
            return ray.get(answer[0], timeout=_GONE) if answer else None
        except RayError as error:
            raise Lost(first_line(error)) from None

    def close(self) -> None:
        self._desk.close.remote()
        self._thread.join(_GONE)  # the desk ends with the last worker that knows it

    def _reply(self, reply: ray.ObjectRef) -> Any:
        while not ray.wait([reply], timeout=_TICK)[0]:
            if not self._thread.is_alive():
                reason = first_line(self._failure) if self._failure else "they ended"
                raise ClusterError(f"the {self._crew.workers} workers of a fit cannot go on: {reason}; --resume continues")
        return ray.get(reply)

    def _train(self) -> None:
        failures = FailureConfig(max_failures=FAILURES, controller_failure_limit=STARTS)
        # Lost workers are reported in one line by those who wait for them.
        logging.getLogger("ray.train").setLevel(logging.CRITICAL)
        try:
            with private_folder() as folder:
                run = RunConfig(name="fit", storage_path=str(folder), failure_config=failures)
                data_parallel_trainer()(
                    _work, train_loop_config=self._config, scaling_config=self._crew.scaling, run_config=run
                ).fit()
        except Exception as error:
            self._failure = error


def _here() -> dict[str, str]:
    """A label that only this node has."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


KEPT = 8  # calls that a worker can still fetch


class _Desk:
    """Hands each call to all members, and its answer to the driver. A round begins whenever all workers are new."""

    def __init__(self) -> None:
        self.round, self.number, self.closed = 0, 0, False
        # The newest calls by number. The first worker alone answers, so that the next call may come before others have fetched
        # the last one; how far they fall behind is bounded, because the workers wait for each other in every epoch.
        self.orders: dict[int, tuple[str, list[Any]]] = {}
        self.answer: tuple[str, Any] | None = None
        self.notes: dict[tuple[int, str], bytes] = {}
        self.changed = asyncio.Condition()

    async def join(self) -> int:
        """Begin a round, for the first worker. Returns its number, counted from 1."""
        return await self._change(round=self.round + 1, number=0, orders={})

    async def call(self, round: int, method: str, arguments: list[Any]) -> tuple[str, Any]:
        """Return ("answer", [reference] or nothing), ("error", exception), or ("lost", number of the new round)."""
        await self._until(lambda: self.round > 0)
        if round == self.round:
            number = self.number + 1
            newest = {each: order for each, order in self.orders.items() if each > number - KEPT}
            await self._change(orders=newest | {number: (method, arguments)}, number=number, answer=None)
            await self._until(lambda: self.answer is not None or self.round != round)
        return self.answer if round == self.round and self.answer else ("lost", self.round)

    async def next(self, round: int, number: int) -> tuple[str, list[Any]] | None:
        """Return the method and arguments of a call, once it is made, or None at the end."""
        await self._until(lambda: self.closed or self.round != round or self.number >= number)
        return None if self.closed or self.round != round else self.orders[number]

    async def reply(self, round: int, kind: str, answer: Any) -> None:
        if round == self.round and self.answer is None:
            await self._change(answer=(kind, answer))

    async def close(self) -> None:
        await self._change(closed=True, orders={})

    async def set_note(self, round: int, key: str, value: bytes) -> None:
        await self._change(notes=self.notes | {(round, key): value})

    async def note(self, round: int, key: str) -> bytes:
        await self._until(lambda: (round, key) in self.notes or self.round != round)
        return self.notes[round, key]

    async def add(self, round: int, key: str, amount: int) -> int:
        total = int(self.notes.get((round, key), b"0")) + amount
        await self.set_note(round, key, str(total).encode())
        return total

    async def _change(self, **values: Any) -> int:
        async with self.changed:
            vars(self).update(values)
            self.changed.notify_all()
        return self.round

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(condition)


@dataclass(frozen=True)
class _Board:
    """The notes of one round at the desk."""

    desk: Any
    round: int

    def set(self, key: str, value: bytes) -> None:
        ray.get(self.desk.set_note.remote(self.round, key, value))

    def get(self, key: str) -> bytes:
        return ray.get(self.desk.note.remote(self.round, key))

    def add(self, key: str, amount: int) -> int:
        return ray.get(self.desk.add.remote(self.round, key, amount))


def _work(config: dict[str, Any]) -> None:
    """The loop of a worker: make the member, then answer calls until the end."""
    from ray.train import get_context
    from ray.train.collective import broadcast_from_rank_zero

    context, desk = get_context(), config["desk"]
    rank = context.get_world_rank()
    round = broadcast_from_rank_zero(ray.get(desk.join.remote()) if rank == 0 else None)
    place = Place(rank, context.get_world_size(), ray.util.get_node_ip_address(), _Board(desk, round))
    number, member = 1, None
    with pinned(1):
        while (order := ray.get(desk.next.remote(round, number))) is not None:
            method, arguments = order
            try:
                member = member or config["member"](place, *ray.get(config["arguments"]))
                answer = getattr(member, method)(*ray.get(arguments))
            except (Lost, RayError):
                raise
            except (Exception, SystemExit) as error:
                ray.get(desk.reply.remote(round, "error", error))
                raise  # ends the workers that wait for this one
            if rank == 0:
                ray.get(desk.reply.remote(round, "answer", [ray.put(answer)]))
            number += 1
