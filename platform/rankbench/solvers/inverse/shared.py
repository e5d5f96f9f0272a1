"""Fit closed forms of the Gram matrix: one inverse, and then only two vectors for every configuration that shares it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rankbench.core.errors import NumericalError, require
from rankbench.data.blocks import Gram
from rankbench.fitting.method import ClosedForm, Shift
from rankbench.fitting.recommenders import LinearRecommender
from rankbench.solvers.inverse.linalg import spd_inverse_

Invert = Callable[[np.ndarray, Callable[[int, int], None]], np.ndarray]  # inverts a matrix in its own memory


def fit_shared(
    gram: Gram, members: Sequence[tuple[ClosedForm, Any]], progress=lambda done, total: None, invert: Invert = spd_inverse_
) -> list[LinearRecommender]:
    """Fit one LinearRecommender per member (method, parameters). All members must have the same shift.

    This takes O(n_items³) time and one (n_items, n_items) matrix in all, because C overwrites the Gram. By definition, an item
    without training interactions gets a column of zeros, so its score is 0 for everyone.
    Raises NumericalError if the shifted Gram is not positive definite.
    """
    C = inverse(gram, common_shift(members), progress, invert)
    diag_C = np.diagonal(C).astype(np.float64)
    return [LinearRecommender(C, *scales(method, p, diag_C, gram.counts)) for method, p in members]


def common_shift(members: Sequence[tuple[ClosedForm, Any]]) -> Shift:
    """The shift that all members have."""
    shifts = {method.shift(p) for method, p in members}
    require(len(shifts) == 1, f"configurations with {len(shifts)} different systems cannot share an inverse")
    return shifts.pop()


def scales(method: ClosedForm, p: Any, diag_C: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute beta, alpha (n_items,), float64, of W = C diag(beta) + diag(alpha), with zeros for items without interactions.

    Raises NumericalError if a value is not finite.
    """
    given = diag_C.view(), counts.view()  # of all settings that share the inverse: a method must not change them
    for each in given:
        each.flags.writeable = False
    with np.errstate(all="ignore"):
        beta, alpha = (np.where(counts == 0, 0.0, vector) for vector in method.columns(*given, p))
    if not (np.isfinite(beta).all() and np.isfinite(alpha).all()):
        item = int(np.flatnonzero(~np.isfinite(beta + alpha))[0])
        advice = "lower lam" if method.shift(p).ridge > float(np.finfo(np.float32).max) else "raise lam"
        raise NumericalError(f"{method.name}: column {item} is not finite with {p}; {advice}, or use dtype float64")
    return beta, alpha


def inverse(gram: Gram, shift: Shift, progress=lambda done, total: None, invert: Invert = spd_inverse_) -> np.ndarray:
    """C = (G + odds · diag(G) + ridge · I)^-1 in the memory of the Gram, by `invert`."""
    C = gram.take()
    np.fill_diagonal(C, shifted_diagonal(gram.counts, shift, C.dtype))
    return invert(C, progress)


def shifted_diagonal(counts: np.ndarray, shift: Shift, dtype: np.dtype) -> np.ndarray:
    """The diagonal (n_items,) of G + odds · diag(G) + ridge · I, for items with `counts` interactions.

    Without a ridge, an empty row and column would be singular; 1 on its diagonal avoids that and affects no other item.
    """
    with np.errstate(over="ignore"):  # `scales` refuses what becomes of an infinite diagonal
        return (counts * (1.0 + shift.odds) + shift.ridge + (counts == 0)).astype(dtype)
