"""A loss in a file outside the package, swept on two nodes that have no copy of the file."""

import pytest

from ..cli.test_plugins import LOSS, METRIC
from .commands import nodes, output, records_of, start

pytestmark = pytest.mark.cluster

EXPERIMENT = """
name: outside
plugins: [my_loss.py, my_metric.py]
datasets:
  - {name: synthetic, source: {generator: {users: 200, items: 80, interactions_per_user: 15}}}
arms:
  - {method: my-hinge, params: {embedding_dim: 8, epochs: 4, patience: 0, margin: {grid: [0.3, 0.6, 1.0, 1.5]}}}
  - {method: bpr, params: {embedding_dim: 8, epochs: 4, patience: 0}}
metrics: [hits_2, ndcg]
cutoffs: [10]
search: {choose: {metric: hits_2@10}}
resources: {cpus: 1}
"""


@pytest.mark.timeout(500)
def test_a_loss_from_a_file_is_swept(tmp_path):
    home, plugins = tmp_path / "home", tmp_path / "plugins"
    plugins.mkdir()
    for name, text in (("my_loss.py", LOSS), ("my_metric.py", METRIC), ("outside.yaml", EXPERIMENT)):
        (plugins / name).write_text(text)
    with nodes("--nodes", "2") as about:
        sweep = start(home, "sweep", str(plugins / "outside.yaml"), "--address", about["address"], **about["environment"])
        assert "5 fits of the search stage" in sweep.stderr.readline()  # the price, before the start
        assert "settings in" in sweep.stderr.readline()
        # The plan is made and no worker has started: what a worker knows of the files, the sweep has sent.
        for name in ("my_loss.py", "my_metric.py"):
            (plugins / name).unlink()
        output(sweep)

    (folder,) = home.glob("results/sweeps/*")
    records = records_of(folder).values()
    assert sorted((record.stage, record.method) for record in records) == [
        ("final", "bpr"), ("final", "my-hinge"), ("search", "bpr"), *[("search", "my-hinge")] * 4,
    ]  # fmt: skip
    assert all(record.finished and record.metrics["hits_2@10"].mean > 0 for record in records)
    # A record names the plugins that it uses: bpr is fitted without the loss beside it.
    used = {"bpr": ["my_metric.py"], "my-hinge": ["my_loss.py", "my_metric.py"]}
    assert all([plugin["name"] for plugin in record.environment["plugins"]] == used[record.method] for record in records)
    assert "my-hinge" in (folder / "report" / "report.md").read_text()
