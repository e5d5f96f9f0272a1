"""One half step of the quadratic loss in plain NumPy: the method without what makes it fast.

It is what the fast code is compared with. Setting the gradient of the row's loss, which the docstring of
`half_step.py` states, to zero gives one dim x dim system per row:

    (w0_r G + reg_r I + w1_r Σ_c v_c y_c y_cᵀ) x = t0_r h + t1_r Σ_c τ_c y_c,    G = Σ_c g_c y_c y_cᵀ,  h = Σ_c η_c y_c

The sums of the first equation run over the row's interactions, G and h run over all columns.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from rankbench.solvers.als.half_step import Coefficients


def half_step(X: sp.csr_array, on: Coefficients, Y: np.ndarray) -> np.ndarray:
    """The rows' vectors (n_rows, dim) for interactions X (n_rows, n_cols) and the columns' vectors Y (n_cols, dim)."""
    ones = np.ones(len(Y))
    g, v, eta, tau = (ones if each is None else each for each in (on.col_w0, on.col_w1, on.col_t0, on.col_t1))
    G, h = Y.T @ (g[:, None] * Y), Y.T @ eta
    x = np.empty((X.shape[0], Y.shape[1]))
    for r in range(len(x)):
        c = X.indices[X.indptr[r] : X.indptr[r + 1]]
        A = on.w0[r] * G + on.reg[r] * np.eye(Y.shape[1]) + on.w1[r] * Y[c].T @ (v[c, None] * Y[c])
        b = on.t0[r] * h + on.t1[r] * Y[c].T @ tau[c]
        # If A is singular, as for a user of RG² without interactions, the shortest solution is taken.
        x[r] = np.linalg.lstsq(A, b, rcond=1e-12)[0]
    return x
