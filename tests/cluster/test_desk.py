"""Calls to the workers of a fit reach each of them, in their order, however late it asks."""

import asyncio

from rankbench.cluster.train_crew import KEPT, _Desk


def test_a_worker_that_is_late_gets_every_call_once():
    """The first worker alone answers, so that calls without a common sum come faster than others may fetch them."""
    methods = ["restore", "scheduled_epoch", "arrays", "model"]

    async def late():
        desk = _Desk()
        assert await desk.join() == 1
        for number, method in enumerate(methods, start=1):
            call = asyncio.create_task(desk.call(1, method, [number]))
            assert await desk.next(1, number) == (method, [number])
            await desk.reply(1, "answer", method)
            assert await call == ("answer", method)
        return [await desk.next(1, number) for number in range(1, len(methods) + 1)]

    assert asyncio.run(late()) == [(method, [number]) for number, method in enumerate(methods, start=1)]


def test_few_calls_are_kept_and_none_of_an_earlier_round():
    async def many():
        desk = _Desk()
        await desk.join()
        for number in range(1, 3 * KEPT):
            call = asyncio.create_task(desk.call(1, "scheduled_epoch", [number]))
            await desk.next(1, number)
            await desk.reply(1, "answer", number)
            await call
        kept = len(desk.orders)
        await desk.join()
        return kept, desk.orders, await desk.next(1, 1)

    assert asyncio.run(many()) == (KEPT, {}, None)
