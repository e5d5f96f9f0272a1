"""Tables that a study measures: the cells that are read in its findings are those of the paper."""

import pytest

from rankbench.core.params import parameters
from rankbench.reproduce.simulations import SIMULATIONS
from rankbench.studies.spec import registered

CARD = """
name: toy
source: {generator: {users: 60, items: 50, interactions_per_user: 12}}
split: {protocol: random-per-user, test: 0.2, valid: 0.2}
"""
SMALL = {
    "metric-inconsistency": {"list_lengths": "25", "trials": 200},
    "threshold-error": {"epochs": 1, "T_beta": 1, "n_negatives": 8, "K": 5, "samples": "4", "passes": 1, "embedding_dim": 4},
    "epoch-time": {"epochs": 1, "n_negatives": 4, "embedding_dim": 4},
}


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda each: each.table)
def test_every_published_cell_is_found_in_what_the_study_measures(simulation, environment, tmp_path):
    (tmp_path / "toy.yaml").write_text(CARD)
    dataset = simulation.datasets[0]
    given = simulation.params(dataset) | SMALL[simulation.study]
    name = "datasets" if "datasets" in given else "dataset"
    study = registered().get(simulation.study)
    p = parameters(study.params, given | {name: str(tmp_path / "toy.yaml")}, study.name)
    cells = simulation.read(study.measure(p, 0, environment, lambda *progress: None).rows)
    assert cells.keys() >= simulation.published(dataset).keys()
