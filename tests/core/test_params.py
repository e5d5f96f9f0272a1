"""What a parameter says of the values that papers search: how a value is drawn, and the text that pages show."""

from dataclasses import dataclass, fields

import pytest

from rankbench.core.errors import ConfigError
from rankbench.core.params import Choice, Fixed, Range, param, space_of


@dataclass(frozen=True)
class Shown:
    tau: float = param(0.1, "", Range(0.05, 0.3))
    lam: float = param(10.0, "", Range(10, 500, log=True))
    alpha: float = param(0.5, "", Range(0.01, 1, published=False))
    lam_prime: float | None = param(None, "", Range(1, 500))
    weight_decay: float = param(0.0, "", Range(0, 0.001, log=True))
    cor_weight: float = param(0.01, "", Range(0.00001, 0.1))
    beta_lr: float = param(0.001, "", Range(1e-4, 1e-1, exponents=True))
    margin: float = param(0.4, "", Range(0, 0.9))
    n_layers: int = param(3, "", Range(1, 4))
    n_walks: int = param(50, "", Range(10, 100))
    surrogate: str = param("tanh", "", Choice("tanh", "atan", "relu"))
    clipped: bool = param(False, "", Choice(False, True))
    a: float = param(0.0, "", Choice(0, 0.5, 1, 2))
    adam_eps: float = param(1e-8, "", Choice(1e-8, 1e-16))
    K: int = param(20, "", Choice(10, 20, 50))
    dropout: float = param(0.5, "", Fixed(0.5))
    omega: float = param(1.0, "", Fixed("not published"))
    without: float = param(1.0, "")


@pytest.mark.parametrize(
    ("name", "text", "space"),
    [
        ("tau", "0.05 to 0.3", {"uniform": [0.05, 0.3]}),
        ("lam", "10 to 500, log scale", {"loguniform": [10, 500]}),
        ("alpha", "0.01 to 1; not published", {"loguniform": [0.01, 1]}),
        ("lam_prime", "1 to 500", {"loguniform": [1, 500]}),
        ("weight_decay", "0 to 0.001, log scale from 1e-6", {"loguniform": [1e-6, 1e-3]}),
        ("cor_weight", "0.00001 to 0.1", {"loguniform": [1e-5, 0.1]}),
        ("beta_lr", "1e-4 to 1e-1", {"loguniform": [1e-4, 0.1]}),
        ("margin", "0 to 0.9", {"uniform": [0, 0.9]}),
        ("n_layers", "1 to 4", {"choice": [1, 2, 3, 4]}),
        ("n_walks", "10 to 100", {"choice": [10, 20, 40, 80, 100]}),
        ("surrogate", "tanh, atan, relu", {"choice": ["tanh", "atan", "relu"]}),
        ("clipped", "false, true", {"choice": [False, True]}),
        ("a", "0, 0.5, 1, 2", {"choice": [0, 0.5, 1, 2]}),
        ("adam_eps", "1e-8, 1e-16", {"choice": [1e-8, 1e-16]}),
        ("K", "10, 20, 50", {"choice": [10, 20, 50]}),
        ("dropout", "0.5", None),
        ("omega", "not published", None),
        ("without", "", None),
    ],
)
def test_values_say_how_to_draw_and_how_they_are_shown(name, text, space):
    (field,) = (field for field in fields(Shown) if field.name == name)
    assert field.metadata["search"] == text
    assert space_of(field) == space


def test_a_text_in_place_of_values_is_refused():
    with pytest.raises(ConfigError, match=r"Range\(low, high\), Choice\(a, b\) or Fixed\(a\), got '0.1 to 2'"):
        param(1.0, "margin", "0.1 to 2")
