"""A loss of twelve lines in a file outside the package: checked, run, and swept on two nodes that have no copy of the file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankbench.tracking.record import read_record

pytestmark = pytest.mark.cluster

NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"
EPOCHS = 4
LOSS = """from dataclasses import dataclass
from torch import Tensor
from rankbench.core.params import Params, Range, param
from rankbench.losses.spec import Scores, loss

@dataclass(frozen=True)
class Mine(Params):
    margin: float = param(1.0, "difference that costs nothing", Range(0.1, 2), gt=0)

@loss("my-hinge", Mine, similarity="dot", title="My hinge", source="me")
def my_hinge(s: Scores, p: Mine) -> Tensor:
    return (p.margin - s.pos[:, None] + s.neg).clamp(min=0).square().mean(dim=1)
"""
METRIC = """from rankbench.evaluation.metrics import metric
@metric
def hits_2(hits, n_targets):
    return 2.0 * hits.sum(axis=1)
"""
EXPERIMENT = f"""
name: outside
plugins: [my_loss.py, my_metric.py]
datasets:
  - {{name: synthetic, source: {{generator: {{users: 200, items: 80, interactions_per_user: 15}}}}}}
arms:
  - {{method: my-hinge, params: {{embedding_dim: 8, epochs: {EPOCHS}, patience: 0, margin: {{grid: [0.3, 0.6, 1.0, 1.5]}}}}}}
  - {{method: bpr, params: {{embedding_dim: 8, epochs: {EPOCHS}, patience: 0}}}}
metrics: [hits_2, ndcg]
cutoffs: [10]
search: {{choose: {{metric: hits_2@10}}}}
resources: {{cpus: 1}}
"""


@pytest.mark.timeout(500)
def test_a_loss_from_a_file_is_checked_run_and_swept(tmp_path):
    assert len(LOSS.splitlines()) == 12
    home, plugins = tmp_path / "home", tmp_path / "plugins"
    home.mkdir()
    plugins.mkdir()
    for name, text in (("my_loss.py", LOSS), ("my_metric.py", METRIC), ("outside.yaml", EXPERIMENT)):
        (plugins / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "RANKBENCH_TRACKING_URI"}
    environment |= {"RANKBENCH_DATA": str(tmp_path / "data"), "RANKBENCH_RESULTS": str(home / "results")}

    def rankbench(*words: str) -> str:
        command = [sys.executable, "-m", "rankbench", *words]
        done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    loss = str(plugins / "my_loss.py")
    assert json.loads(rankbench("check", loss, "--json"))["ok"]
    small = ["data.source.generator.users=200", "epochs=2", "patience=0"]
    rankbench("run", "synthetic", "my-hinge", *small, "--plugin", loss)
    nodes = [sys.executable, str(NODES), "--nodes", "2"]
    process = subprocess.Popen(nodes, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        about = json.loads(process.stdout.readline())
        command = [sys.executable, "-m", "rankbench", "sweep", str(plugins / "outside.yaml"), "--address", about["address"]]
        sweep = subprocess.Popen(command, env=environment | about["environment"], cwd=home, text=True, stderr=subprocess.PIPE)
        assert "5 fits of the search stage" in sweep.stderr.readline()  # the price, before the start
        assert "settings in" in sweep.stderr.readline()
        # The plan is made and no worker has started: what a worker knows of the files, the sweep has sent.
        for name in ("my_loss.py", "my_metric.py"):
            (plugins / name).unlink()
        _, errors = sweep.communicate(timeout=300)
        assert sweep.returncode == 0, errors
    finally:
        process.stdin.close()
        process.wait(timeout=60)

    (folder,) = home.glob("results/sweeps/*")
    records = [read_record(path.parent) for path in folder.glob("records/*/record.json")]
    assert sorted((record.stage, record.method) for record in records) == [
        ("final", "bpr"), ("final", "my-hinge"), ("search", "bpr"), *[("search", "my-hinge")] * 4,
    ]  # fmt: skip
    assert all(record.finished and record.metrics["hits_2@10"].mean > 0 for record in records)
    # A record names the plugins that it uses: bpr is fitted without the loss beside it.
    used = {"bpr": ["my_metric.py"], "my-hinge": ["my_loss.py", "my_metric.py"]}
    assert all([plugin["name"] for plugin in record.environment["plugins"]] == used[record.method] for record in records)
    assert "my-hinge" in (folder / "report" / "report.md").read_text()
    require_curves(home)


def require_curves(home: Path) -> None:
    """The final run of the loss has its curve in MLflow, as those of the package have, and so has the single run."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home / 'results' / 'mlflow.db'}")
    lengths = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            stage = run.data.tags.get("rankbench.stage"), run.data.tags.get("rankbench.method")
            names = [name for name in run.data.metrics if "ndcg_at_10" in name]
            lengths[stage] = max((len(client.get_metric_history(run.info.run_id, name)) for name in names), default=0)
    assert lengths["final", "my-hinge"] >= EPOCHS and lengths["final", "bpr"] >= EPOCHS
    assert lengths["run", "my-hinge"] >= 2
