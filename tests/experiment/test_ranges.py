"""What a parameter says of its usual values, as something to draw from."""

from dataclasses import dataclass, fields

import pytest

from rankbench.core.config import param
from rankbench.experiment.ranges import range_of


@dataclass(frozen=True)
class Params:
    tau: float = param(0.1, "", "0.05 to 0.3")
    lam: float = param(10.0, "", "10 to 500, log scale")
    alpha: float = param(0.5, "", "0.01 to 1; not published")
    lam_prime: float | None = param(None, "", "1 to 500")
    weight_decay: float = param(0.0, "", "0 to 0.001, log scale")
    margin: float = param(0.4, "", "0 to 0.9")
    n_layers: int = param(3, "", "1 to 4")
    n_walks: int = param(50, "", "10 to 100")
    surrogate: str = param("tanh", "", "tanh, atan, relu")
    clipped: bool = param(False, "", "false, true")
    a: float = param(0.0, "", "0, 0.5, 1, 2")
    dropout: float = param(0.5, "", "0.5")
    omega: float = param(1.0, "", "not published")
    contrast_layer: int = param(1, "", "1 to n_layers")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tau", {"uniform": [0.05, 0.3]}),
        ("lam", {"loguniform": [10, 500]}),
        ("alpha", {"loguniform": [0.01, 1]}),
        ("lam_prime", {"loguniform": [1, 500]}),
        ("weight_decay", {"loguniform": [1e-6, 1e-3]}),
        ("margin", {"uniform": [0, 0.9]}),
        ("n_layers", {"choice": [1, 2, 3, 4]}),
        ("n_walks", {"choice": [10, 20, 40, 80, 100]}),
        ("surrogate", {"choice": ["tanh", "atan", "relu"]}),
        ("clipped", {"choice": [False, True]}),
        ("a", {"choice": [0, 0.5, 1, 2]}),
        ("dropout", None),
        ("omega", None),
        ("contrast_layer", None),
    ],
)
def test_a_text_is_read(name, expected):
    (field,) = (field for field in fields(Params) if field.name == name)
    assert range_of(field) == expected
