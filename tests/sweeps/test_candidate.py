"""A candidate says which iteration its model is of."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit_stepwise
from rankbench.experiment.job import configure
from rankbench.fitting.drive import Validation
from rankbench.sweeps.search.candidate import Candidate


@pytest.mark.parametrize("method", ["rg2-newton", "ials"])
def test_the_model_of_a_fit_that_converges_between_two_evaluations_is_its_last_one(method):
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.random((60, 40)) < 0.2).astype(np.float32))
    values = {"embedding_dim": 4, "iterations": 400, "tolerance": 1e-4, "patience": 100, "eval_every": 1000}
    config, later = configure(method, values), itertools.count(1)  # each evaluation is better than those before it
    ended = {}

    def begin(measure, folder):
        fit = yield from fit_stepwise((config,), X, "float64", 0, Execution(1), validation=Validation(measure, config.stopping))
        ended["at"] = fit.iterations
        return fit

    candidate = Candidate(config, begin, lambda model, metric: next(later), "ndcg@20", clock=itertools.count().__next__)
    while not candidate.ended:
        candidate.step()
    assert 1 < ended["at"] < 400 and candidate.best.iterations == ended["at"] and candidate.best.seconds == candidate.seconds
