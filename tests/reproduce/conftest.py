"""A paper with two tables on built-in data, in a folder of the user's own."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import yaml

from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.required_fits import rows_of
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord, write_record

from .stored import stored

TABLE_1 = """\
name: toy-table1
published: {paper: Toy, table: 1, recall: recall}
unprinted: {patience: 2}
protocol: {params: {lam: 10}}
datasets: [synthetic]
arms:
  - name: EASE
    method: ease
    params: {lam: {grid: [1, 10, 100]}}
    printed: {synthetic: {lam: 10}}
    as_published: {synthetic: {lam: 3}}
    account: Its cause is the scale of lam.
    published: {synthetic: {recall@20: 0.2, ndcg@20: 0.2}}
  - name: EDLAE
    method: edlae
    params: {p: 0.5, lam: {choice: [1, 10, 100]}}
    published: {synthetic: {recall@20: 0.2}}
  - name: Popularity
    method: popularity
    published: {synthetic: {recall@20: 0.1}}
not_run: [{name: Magic, why: not built, published: {synthetic: {recall@20: 0.9}}}]
claims: [{text: EASE is above popularity, better: [EASE], than: [Popularity], metric: recall@20}]
metrics: [recall, ndcg]
cutoffs: [20]
search: {trials: 3, choose: {metric: ndcg@20}}
"""
TABLE_2 = """\
name: toy-table2
published: {paper: Toy, table: 2, recall: recall}
base: toy_table1.yaml
arms:
  - {name: EASE, published: {synthetic: {precision@50: 0.1}}}
"""


@pytest.fixture
def home(environment, tmp_path, monkeypatch):
    """An environment whose only experiments are the two tables, and whose evidence is beside them."""
    folder = tmp_path / "home" / "experiments"
    (folder / "evidence").mkdir(parents=True)
    (folder / "toy_table1.yaml").write_text(TABLE_1)
    (folder / "toy_table2.yaml").write_text(TABLE_2)
    monkeypatch.setattr("rankbench.reproduce.catalogue.experiment_files", lambda environment: sorted(folder.glob("*.yaml")))
    return replace(environment, home=tmp_path / "home")


@pytest.fixture
def evidence(home):
    """What has been measured: nothing yet."""
    return Evidence(home.home / "experiments" / "evidence")


@pytest.fixture
def toy(home):
    """toy(text, **fields) → the tables of an experiment file, on built-in data if it does not say otherwise, that comes in
    place of the second table.
    """
    plain = {"name": "toy-table2", "published": {"paper": "Toy", "table": 2}, "datasets": ["synthetic"]}

    def tables(text, **fields):
        whole = yaml.safe_dump(plain | yaml.safe_load(text) | fields, sort_keys=False)
        (home.home / "experiments" / "toy_table2.yaml").write_text(whole)
        return [table for table in paper_tables(home) if table.spec.name == "toy-table2"]

    return tables


@pytest.fixture
def tables(toy, request):
    """The tables of the file TABLE of the module."""
    return toy(request.module.TABLE)


@pytest.fixture
def rows(tables):
    """Their rows."""
    return list(rows_of(tables))


TABLE_WITH_CLAIMS = """\
arms:
  - {name: A, method: random, params: {}, published: {synthetic: {recall@20: 0.5}}}
  - {name: B, method: ials, params: {iterations: 2}, published: {synthetic: {recall@20: 0.3}}}
  - {name: C, method: ials, params: {iterations: 3}, published: {synthetic: {recall@20: 0.1}}}
claims:
  - {text: A is first, better: [A], than: [B, C], metric: recall@20}
  - {text: B is above A, better: [B], than: [A], metric: recall@20}
  - {text: B is above C, better: [B], than: [C], metric: recall@20}
final: {seeds: [0, 1]}
"""


@pytest.fixture
def measured(home, toy):
    """A is far above B and C, which differ by chance alone."""
    (table,) = toy(TABLE_WITH_CLAIMS)
    evidence = Evidence(home.results / "evidence")
    rng = np.random.default_rng(0)
    for row, mean in zip(rows_of([table]), (0.5, 0.3, 0.3), strict=True):
        config = row.setting("printed", evidence)
        for seed in (0, 1):
            values = mean + 0.1 * rng.standard_normal(400)
            run, part = f"final-{row.arm.label}-{seed}", row.part(config)
            record = RunRecord(
                run, config.method, config.flat, DatasetInfo("synthetic", "f"), part, "test", seed, "float32",
                metrics={"recall@20": Measured(values.mean(), values.mean() - 0.01, values.mean() + 0.01)},
            )  # fmt: skip
            users = pa.table({"user": [f"u{i}" for i in range(400)], "recall@20": values.astype(np.float32)})
            write_record(home.results / "reproduce" / "records", record, users)
            cells = {"recall@20": (float(values.mean()), float(values.mean() - 0.01), float(values.mean() + 0.01))}
            evidence.add(stored(row, config, cells, seed))
    return table, evidence
