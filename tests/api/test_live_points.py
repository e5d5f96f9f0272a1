"""`rankbench run` sends the points of its fit while it runs, those before a checkpoint too, and its record at the end."""

import pytest

from rankbench.api.record_run import plan_run, record_run
from rankbench.core.environment import Environment
from rankbench.experiment.options import RunOptions
from rankbench.fitting import drive
from rankbench.tracking import live_fits
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.spool import CurveMessage, RunMessage, Spool

from ..sweeps.commands import wait_until

pytestmark = pytest.mark.usefixtures("home")


def test_each_attempt_at_a_fit_sends_all_its_points_and_the_last_one_its_record(environment: Environment, monkeypatch):
    for name, value in (("BEGIN", 0.0), ("YOUNG", 0.0), ("EVERY", 0.0), ("LOOK", 0.001)):
        monkeypatch.setattr(live_fits, name, value)
    monkeypatch.setattr(MlflowSink, "open", lambda sink: True)
    sent, put, dies = [], Spool.put, [True]

    def deliver(spool, message):
        path = put(spool, message)
        path.unlink()
        if isinstance(message, CurveMessage | RunMessage):
            sent.append(message)
        return path

    def checkpoint(self, state):
        save(self, state)
        wait_until(lambda: sent and sent[-1].rows and sent[-1].rows[-1]["iteration"] == state.number)
        if dies[0] and state.number == 3:
            raise KeyboardInterrupt

    save = drive.Checkpoints.save
    monkeypatch.setattr(Spool, "put", deliver)
    monkeypatch.setattr(drive.Checkpoints, "save", checkpoint)
    monkeypatch.setattr(drive.Checkpoints, "due", lambda self: True)
    words = ["embedding_dim=8", "iterations=6"]
    options = RunOptions(dataset="synthetic", method="ials", params=words, threads=1)
    with pytest.raises(KeyboardInterrupt):
        record_run(options, plan_run(options, environment), environment, Labels())
    first, dies[0] = [*sent], False
    assert first[-1].ended and all(isinstance(message, CurveMessage) for message in first)
    assert [row["iteration"] for message in first for row in message.rows] == [1, 2, 3]
    again = RunOptions(dataset="synthetic", method="ials", params=words, threads=1, resume=True)
    made = record_run(again, plan_run(again, environment), environment, Labels())
    *points, last = sent[len(first) :]
    assert isinstance(last, RunMessage) and made.record.id == points[0].id == first[0].id
    rows = [row for message in points for row in message.rows]
    assert rows == made.record.curve[: len(rows)] and rows[:3] == made.record.curve[:3]
