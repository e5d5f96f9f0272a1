"""What alternating least squares minimises: one form for every model of this family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.errors import require


@dataclass(frozen=True)
class Problem:
    """With y_ui = p_u · q_i, over all pairs of a user and an item, and again over the interactions R:

        Σ_ui (all_weight_u y² − 2 all_target_u y) + Σ_R (weight_u y² − 2 target_u y)
        + Σ_u reg_users_u ‖p_u‖² + Σ_i reg_items_i ‖q_i‖² + constant

    Every square loss whose weights depend on the user and on whether there is an interaction is of this form. The first
    four and reg_users: (n_users,); reg_items: (n_items,); all float64. `item_all_target`: what the item step takes for
    all_target where its authors' update is not that of one objective; None elsewhere.
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
        require(bool(least >= 0), f"a weight or a regulariser of the loss is negative ({least:.3g}): it has no minimum")

    @property
    def consistent(self) -> bool:
        """Whether both half steps minimise one objective."""
        return self.item_all_target is None


def per_user(n_users: int, value: float | np.ndarray) -> np.ndarray:
    """One value for all, or one each, as an array (n_users,) float64."""
    return np.broadcast_to(np.asarray(value, np.float64), (n_users,)).copy()
