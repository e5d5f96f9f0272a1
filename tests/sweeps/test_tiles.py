"""A trial whose matrix does not fit into the machine's memory is solved by tiles, of which nothing is left."""

import json

from .commands import output, start

SCENARIO = """
import json, sys
from dataclasses import replace
from pathlib import Path
from rankbench.cluster.machine import Machine
from rankbench.cluster.session import session
from rankbench.core.config import validate
from rankbench.core.environment import Environment
from rankbench.sweeps.plan import plan
from rankbench.sweeps.store import SweepStore
from rankbench.schema.experiment import ExperimentSpec

sizes = {"users": 400, "items": 8000, "interactions_per_user": 30}
spec = validate(ExperimentSpec, {
    "name": "large",
    "datasets": [{"name": "synthetic", "source": {"generator": sizes}}],
    "arms": [{"method": "ease"}],
}, "here")
environment = Environment.from_env()
planned = plan(spec, environment, 1, "here")
records = Path(sys.argv[1]) / "sweep" / "records"
with session(None, 1) as cluster:
    from rankbench.sweeps.run_units import run_units
    rest = cluster, spec.resources, lambda *_: None
    dense = run_units(planned.search, environment, SweepStore(records.parent.parent / "dense"), *rest)
    (records.parent / "spill" / "of another command").mkdir(parents=True)
    small = replace(cluster, machines=(Machine(1, 505_000_000),))  # the matrix alone takes 320
    tiled = run_units(planned.search, environment, SweepStore(records.parent), small, *rest[1:])
left = [path.relative_to(records.parent).as_posix() for path in records.parent.glob("*") if path.name != "spill"]
left += [path.relative_to(records.parent).as_posix() for path in records.parent.glob("spill/*")]
results = [[each.tiles, each.error, {name: value.mean for name, value in each.metrics.items()}] for each in (*dense, *tiled)]
print(json.dumps({"results": results, "left": left}))
"""


def test_it_has_the_metrics_of_the_dense_one(tmp_path):
    out, _ = output(start(tmp_path, str(tmp_path), program=SCENARIO))
    told = json.loads(out.splitlines()[-1])
    dense, tiled = told["results"]
    assert [dense[1], tiled[1]] == [None, None]
    assert dense[0] is None and 0 < tiled[0] < 8000
    for name in ("recall@20", "ndcg@20"):  # two scores that tie but for rounding make another item the last of a list
        assert abs(tiled[2][name] - dense[2][name]) <= 1e-4, name
    assert sorted(told["left"]) == ["attempts", "records", "spill/of another command"]
