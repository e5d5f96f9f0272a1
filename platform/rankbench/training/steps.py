"""The epochs of a fit by gradient steps, in this process or by several workers."""

from __future__ import annotations

import math
import time
from functools import cache

import scipy.sparse as sp

from rankbench.fitting.checkpoints import State
from rankbench.fitting.context import Context
from rankbench.fitting.step import Step, Steps
from rankbench.losses.spec import Loss
from rankbench.training.crewed_trainer import CrewedTrainer
from rankbench.training.params import TrainedParams
from rankbench.training.schedule import Schedule, require_finite
from rankbench.training.trainer import Trainer


def steps(
    loss: Loss, X: sp.csr_array, p: TrainedParams, seed: int, dtype: type, context: Context, start: State | None
) -> Steps:
    """Fit X by `loss` with `p`, one step per epoch, by the workers of a crew if the context has one.

    Raises NumericalError if the loss is not finite, and with a crew the errors of `Crew`.
    """
    given = X, p, loss, seed, dtype, context.device
    trainer = Trainer(*given) if context.crew is None else CrewedTrainer(context.crew, *given)
    training = p.training
    schedule = Schedule(training.schedule, training.learning_rate, training.epochs, training.warmup)
    number, mean, seconds = 0, math.nan, 0.0
    if start:
        trainer.restore(start.arrays)
        schedule.restore(start.values["schedule"])
        number, mean, seconds = start.number, start.values["loss"], start.values["seconds"]

    def state() -> State:
        return State(number, trainer.arrays(), {"loss": mean, "seconds": seconds, "schedule": schedule.values()})

    try:
        while True:
            model = cache(trainer.model)
            valid = yield Step(number, mean, seconds, model, state)
            if number and number % max(1, training.eval_every) == 0:
                schedule.observe(-mean if valid is None else valid)
                if schedule.ended:
                    model()  # the driver may read it after the end, when the workers are gone
                    return
            number += 1
            began = time.perf_counter()
            mean = trainer.scheduled_epoch(number, schedule)
            seconds += time.perf_counter() - began
            require_finite(mean, number, training.learning_rate, dtype)
    finally:
        trainer.close()
