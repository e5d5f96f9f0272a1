"""iALS against `implicit`: the same objective, the same start, the same vectors."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als.fit import Counts
from rankbench.solvers.als.half_step import HalfStep, of_items, of_users
from rankbench.solvers.factorisation.wrmf import WRMF, wrmf

implicit = pytest.importorskip("implicit.cpu.als")


@pytest.mark.parametrize("dim", [8, 33])
def test_wrmf_is_implicits_als(dim):
    rng = np.random.default_rng(0)
    R = sp.csr_array((rng.random((120, 70)) < 0.15).astype(np.float32))
    lam, alpha, rounds = 0.5, 6.0, 4
    P, Q = (rng.normal(scale=0.1, size=(n, dim)).astype(np.float32) for n in R.shape)
    peer = implicit.AlternatingLeastSquares(
        factors=dim, regularization=lam, alpha=1 + alpha, iterations=rounds, use_cg=False, use_native=True, num_threads=1
    )
    peer.user_factors, peer.item_factors = P.copy(), Q.copy()
    peer.fit(sp.csr_matrix(R), show_progress=False)

    loss = wrmf(Counts(np.diff(R.indptr).astype(float), R.sum(0)), WRMF(lam=lam, alpha=alpha))
    by_item = sp.csr_array(R.T)
    users = HalfStep(R, of_users(loss), dim, np.float32, "exact", ThreadMap(2))
    items = HalfStep(by_item, of_items(loss), dim, np.float32, "exact", ThreadMap(2))
    for _ in range(rounds):
        P = users.solve(Q)
        Q = items.solve(P)
    scores = P @ Q.T
    assert_allclose(peer.user_factors @ peer.item_factors.T, scores, atol=1e-3)
    assert_allclose(peer.item_factors, Q, atol=1e-3 * np.abs(Q).max())
    assert np.abs(scores).max() > 0.5
