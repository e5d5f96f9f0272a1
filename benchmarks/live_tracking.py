"""Points of a running fit in MLflow: how soon they can be read there, and what they cost the fit.

    python benchmarks/live_tracking.py --seconds 40 --rounds 6

Both in a temporary results folder with a SQLite store. (a) A method whose loss is the time at which a point was made is fitted
by `rankbench run` and by a trial of a sweep, and another thread asks MLflow for points ten times a second. The iterations take
equally long, so that longer ones show how long a trial waits for the driver after a report. (b) SL on MovieLens-100K is fitted
in pairs, with points sent and without, in alternating order: seconds, and processor seconds of the thread that trains.
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CLOCK = """
import time
from dataclasses import dataclass
import numpy as np
from rankbench.core.params import param
from rankbench.fitting.checkpoints import State
from rankbench.fitting.method import iterative
from rankbench.fitting.recommenders import LowRankRecommender
from rankbench.fitting.step import Step
from rankbench.fitting.stopping import Stopping

@dataclass(frozen=True)
class Clock(Stopping):
    iterations: int = param(100, "tenths of a second", gt=0)

@iterative("clock", Clock, title="the time as its loss", source="none")
def clock(X, p, seed, dtype, context, start):
    V = np.ones((X.shape[1], 1), dtype)
    model = lambda: LowRankRecommender(V, V, np.zeros(len(V)))
    number, began = 0, time.perf_counter()
    while True:
        yield Step(number, time.time(), time.perf_counter() - began, model, lambda: State(number, {"V": V}, {}))
        time.sleep(0.1)
        number += 1
"""
SWEEP = """
name: clock
question: How soon?
datasets: [synthetic]
arms: [{{method: clock, params: {{iterations: {n}, patience: 0}}}}]
final: {{seeds: [0]}}
"""
PLACES = {"run": "runs/*/record.json", "sweep": "sweeps/*/records/final-*/record.json"}


def arrivals(database: Path, over: threading.Event, found: dict[tuple[str, int], float]) -> None:
    """Note how many seconds after it was made each point can first be read."""
    from mlflow.tracking import MlflowClient

    while not over.wait(0.1):
        if not database.exists():
            continue
        client = MlflowClient(f"sqlite:///{database}")
        experiments = [each.experiment_id for each in client.search_experiments()]
        for run in client.search_runs(experiments):
            if run.info.status == "RUNNING" and "curve/loss" in run.data.metrics:
                points = client.get_metric_history(run.info.run_id, "curve/loss")
                seen = time.time()
                for point in points:
                    found.setdefault((run.info.run_id, point.step), seen - point.value)


def latency(folder: Path, seconds: float) -> None:
    from rankbench.tracking.store import make_tables

    plugin, experiment = folder / "clock.py", folder / "clock.yaml"
    plugin.write_text(CLOCK)
    experiment.write_text(SWEEP.format(n=int(10 * seconds)))
    runs = {
        "run": ["run", "synthetic", "clock", f"iterations={int(10 * seconds)}", "patience=0", "--curve", "0"],
        "sweep": ["sweep", str(experiment), "--yes"],
    }
    for name, words in runs.items():
        results = folder / name
        make_tables(f"sqlite:///{results}/mlflow.db", results / "mlartifacts")
        found: dict[tuple[str, int], float] = {}
        over = threading.Event()
        poll = threading.Thread(target=arrivals, args=(results / "mlflow.db", over, found))
        poll.start()
        environ = os.environ | {"RANKBENCH_RESULTS": str(results)}
        command = [sys.executable, "-m", "rankbench", *words, "--plugin", str(plugin)]
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        over.set()
        poll.join()
        late = sorted(found.values())
        (record,) = (json.loads(path.read_text()) for path in results.glob(PLACES[name]))
        made = [row["loss"] for row in record["curve"]]
        gaps = [after - before for before, after in itertools.pairwise(made)]
        held_up = sum(gap - statistics.median(gaps) for gap in gaps if gap > statistics.median(gaps))
        late_by = f"median {statistics.median(late):.2f}, largest {late[-1]:.2f}"
        print(f"{name}: {len(late)} points read while it ran; seconds from made to readable: {late_by}")
        share = held_up / (made[-1] - made[0])
        print(f"{name}: iterations were held up for {share:.2%} of the time; load {os.getloadavg()[0]:.1f}")


def slowdown(folder: Path, epochs: int, rounds: int) -> None:
    from rankbench.core.environment import Environment
    from rankbench.data.cards import load_card
    from rankbench.experiment.execution import Execution
    from rankbench.experiment.job import Job, configure
    from rankbench.experiment.run import run
    from rankbench.tracking.mlflow_sink import MlflowSink

    environment = dataclasses.replace(Environment.from_env(), results=folder / "paired")
    config = configure("sl", {"epochs": epochs, "patience": 0, "n_negatives": 64})
    job = Job(load_card("movielens-100k", environment), (config,), "train", curve=1)

    def fitted(sink: MlflowSink | None) -> tuple[float, float]:
        """Return seconds and processor seconds of the thread that trains."""
        takes, sent = [], 0

        def begin(record) -> None:
            if sink:
                takes.append(sink.follow(record, folder, "paired"))

        def curve(rows) -> None:
            nonlocal sent
            for take in takes:
                take(rows[sent:])
            sent = len(rows)

        busy, begun = time.thread_time(), time.perf_counter()
        run(job, environment, Execution(1), on_begin=begin, on_curve=curve)
        return time.perf_counter() - begun, time.thread_time() - busy

    fitted(None)  # compiles
    ratios = []
    for number in range(rounds):
        pair: dict[bool, tuple[float, float]] = {}
        for live in (True, False) if number % 2 else (False, True):
            if live:
                with MlflowSink(f"sqlite:///{folder}/paired.db", "paired", folder / "paired" / "mlartifacts") as sink:
                    pair[live] = fitted(sink)
            else:
                pair[live] = fitted(None)
        ratios.append([on / off - 1 for on, off in zip(pair[True], pair[False], strict=True)])
        print(json.dumps({"off": pair[False], "live": pair[True], "load": os.getloadavg()[0]}))
    for name, values in zip(("seconds", "processor seconds of the thread that trains"), zip(*ratios, strict=True), strict=True):
        print(f"{name}, live over off: median {statistics.median(values):+.2%}, from {min(values):+.2%} to {max(values):+.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        latency(Path(folder), given.seconds)
        slowdown(Path(folder), given.epochs, given.rounds)


if __name__ == "__main__":
    main()
