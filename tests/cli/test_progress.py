"""What a fit and a sweep say on the way: progress in a log, causes of failures first, and where a resumed fit goes on."""

import json
from contextlib import contextmanager

import pytest

from rankbench.cli import _main
from rankbench.cli.console import clock, phase_progress
from rankbench.core.errors import StorageError
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.experiment.outcome import failure
from rankbench.sweeps.heartbeat import Progress
from rankbench.sweeps.units import Unit
from rankbench.sweeps.views import phases
from rankbench.sweeps.views.sweep_view import SweepView

pytestmark = pytest.mark.usefixtures("home")

TINY = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]


def test_a_log_gets_a_line_from_time_to_time(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(phases.time, "monotonic", lambda: now[0])
    with phase_progress() as progress:
        for second in range(100):
            now[0] = 100.0 + second
            progress("fit", second, 200 if second < 90 else None)
    assert capsys.readouterr().err.splitlines() == ["fit 15% after 0:30", "fit 30% after 1:00", "fit 90 after 1:30"]


def test_a_short_run_says_nothing_on_the_way(capsys):
    assert _main(["run", "synthetic", "bpr", *TINY, "epochs=3", "--no-track"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words",
    [
        ["data", "describe", "toy.yaml"],
        ["data", "export", "toy.yaml"],
        ["run", "toy.yaml", "popularity", "--cutoffs", "99", "--no-track"],  # refused once the data are there
        ["evaluate", "toy.yaml", "lists.csv", "--no-track"],
        ["run", "toy.yaml", "ease", "--dry-run", "--nodes", "4x16x128GB@10"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_the_preparation_of_data_shows_its_progress(words, home, monkeypatch, capsys):
    pairs = [(user, item) for user in range(8) for item in range(9) if (user + item) % 3]
    (home / "raw.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs), encoding="utf-8")
    (home / "toy.yaml").write_text("{name: toy, source: {file: raw.csv}}", encoding="utf-8")
    monkeypatch.setattr(phases, "LINE_EVERY", 0.0)
    _main(words)
    assert capsys.readouterr().err.startswith(f"read {len(pairs)} after 0:0")


def test_a_failed_trial_begins_with_its_cause(environment, capsys):
    config = configure("bpr", {}, arm="BPR, 64")
    job = Job(load_card("synthetic", environment), (config,), stage="search")
    view = SweepView("ndcg@20")
    view.stage(Progress("search", 5, 5.0))
    view.done(Unit(job, 1, 1, 1.0), [failure(job, config, StorageError("no space left on the device"))])
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "failed: no space left on the device (BPR, 64 on synthetic)"


def test_a_resumed_fit_says_where_it_goes_on(home, capsys, monkeypatch):
    words = ["run", "synthetic", "ials", *TINY, "iterations=6", "--no-track"]
    assert _main([*words, "--resume"]) == 0
    assert capsys.readouterr().err == "no checkpoint; this fit restarts from the beginning\n"

    def measured():
        (path,) = (home / "results" / "runs").glob("*/record.json")
        record = json.loads(path.read_text(encoding="utf-8"))
        return record["metrics"], [row["iteration"] for row in record["curve"]]

    whole = measured()
    assert whole[1] == [1, 2, 3, 4, 5, 6]

    def stop_at(phase, done, total):
        if phase == "fit" and done == 4:
            raise KeyboardInterrupt

    @contextmanager
    def stopping():
        yield stop_at

    with monkeypatch.context() as stops:
        stops.setattr("rankbench.api.record_run.phase_progress", stopping)
        assert _main([*words, "--fresh"]) == 130
    capsys.readouterr()
    assert _main([*words, "--fresh", "--resume"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "continuing after iteration 3"
    assert measured() == whole


def test_a_clock():
    assert [clock(each) for each in (0, 59.6, 3661)] == ["0:00", "1:00", "1:01:01"]
