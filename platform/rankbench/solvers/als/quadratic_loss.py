"""The loss that alternating least squares minimises: one form for every model of this family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.errors import require


@dataclass(frozen=True)
class QuadraticLoss:
    """A quadratic function of the scores y_ui = p_u · q_i, over all pairs of a user and an item and over the interactions R:

        Σ_ui (all_weight_u y² − 2 all_target_u y) + Σ_R (weight_u y² − 2 target_u y)
        + Σ_u reg_users_u ‖p_u‖² + Σ_i reg_items_i ‖q_i‖² + constant

    Every squared loss whose weights depend on the user and on whether there is an interaction has this form. The arrays are
    float64, of shape (n_users,), but reg_items is (n_items,). `item_all_target` replaces all_target when solving for items, to
    reproduce an update of its authors that belongs to no single objective; it is None otherwise.
    """

    all_weight: np.ndarray
    all_target: np.ndarray
    weight: np.ndarray
    target: np.ndarray
    reg_users: np.ndarray
    reg_items: np.ndarray
    constant: float = 0.0
    item_all_target: np.ndarray | None = None

    def __post_init__(self) -> None:
        least = min(self.all_weight.min(), self.weight.min(), self.reg_users.min(), self.reg_items.min())
        require(
            bool(least >= 0), f"a weight or a regulariser of the loss is negative ({least:.3g}), so the loss has no minimum"
        )
