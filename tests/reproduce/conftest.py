"""A paper with two tables on built-in data, in a folder of the user's own."""

from dataclasses import replace

import pytest

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
