"""What a parameter says of its usual values, as something to draw from."""

from dataclasses import dataclass, fields

import pytest

from rankbench.core.config import param
from rankbench.leaderboard.entrants import DIM, LIMIT, entrants
from rankbench.leaderboard.ranges import range_of


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


def test_every_method_and_encoder_enters_with_settings_that_it_accepts():
    known = entrants("ndcg@20")
    assert len(known) >= 60 and {"ease", "ials", "talos", "multivae", "lightgcn", "youtubenet"} <= set(known)
    for entrant in known.values():
        settings = entrant.settings(0)
        assert settings[0] == entrant.config()
        assert len(settings) > 100 or not entrant.space, entrant.name
        values = [each.flat for each in settings]
        assert all(each.get("embedding_dim", DIM) == DIM for each in values)
        assert all(each[entrant.spec.length] == LIMIT for each in values if hasattr(entrant.spec, "length"))


def test_what_is_searched_is_the_method_and_not_how_it_is_computed():
    known = entrants("ndcg@20")
    assert set(known["sl"].space) == {"tau", "include_positive", "learning_rate", "weight_decay"}
    assert set(known["ease"].space) == {"lam"}
    assert set(known["lightgcn"].space) == {"n_layers", "learning_rate", "weight_decay"}
    assert known["lightgcn"].config().flat["model"] == "lightgcn"
    assert not set(known["ials"].space) & {"solver", "cg_steps", "iterations", "tolerance", "embedding_dim"}


def test_the_key_changes_with_what_is_searched():
    from dataclasses import replace

    sl = entrants("ndcg@20")["sl"]
    assert replace(sl, space=sl.space | {"tau": {"uniform": [0.1, 0.2]}}).key != sl.key == entrants("ndcg@20")["sl"].key
    assert entrants("recall@20")["sl"].key != sl.key


def test_the_key_of_an_encoder_of_a_plugin_changes_with_its_code(monkeypatch):
    from rankbench.models.spec import MODELS

    def key(origin):
        monkeypatch.setattr(MODELS, "origin", lambda name: origin)
        return entrants("ndcg@20")["lightgcn"].key

    built_in = key("rankbench.models.lightgcn")
    assert len({built_in, key("mine_67afcd49"), key("mine_774146ea")}) == 3
    assert key("rankbench.models.elsewhere") == built_in
