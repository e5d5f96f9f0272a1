"""Why a worker was lost, in words of a user, from the messages that Ray writes."""

import pytest

from rankbench.sweeps.trials.ends import cause


@pytest.mark.parametrize(
    ("message", "begins"),
    [
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: "
            "10.0.0.1) was 30.1GB / 31.0GB (0.97)",
            "out of memory: Ray ended its worker",
        ),
        (
            "Traceback (most recent call last):\n  File x\nray.exceptions.ActorDiedError: The actor died unexpectedly before "
            "finishing this task.\n\tclass_name: UnitTrainable\nWorker exit type: SYSTEM_ERROR Worker exit detail: ...",
            "its worker process died",
        ),
        ("The actor died because its node was terminated", "its node was lost"),
        ("ray.exceptions.RaySystemError: broken pipe", "broken pipe"),
        ("", "it ended, but its record does not appear here"),
    ],
)
def test_the_cause_comes_first(message, begins):
    told = cause(message.splitlines())
    assert told.startswith(begins) and "ray.exceptions" not in told and "\n" not in told
