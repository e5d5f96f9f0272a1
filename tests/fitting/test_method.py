"""The parameters of a method from flat values."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.experiment.job import configure


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("bpr", "embedding_dim"),  # of the training
        ("aatp", "K"),  # of the loss
        ("ials", "embedding_dim"),
        ("itemknn", "neighbours"),
        ("multivae", "hidden_dim"),
    ],
)
def test_a_size_that_no_array_can_have_is_refused_in_one_line(method, name):
    with pytest.raises(ConfigError, match=f"{name} must be at most 2147483647, got 10000000"):
        configure(method, {name: 10**30})


def test_a_size_of_an_encoder_is_bounded_too_and_a_real_number_is_not():
    with pytest.raises(ConfigError, match="n_walks must be at most"):
        configure("bpr", {"model": "pinsage", "n_walks": 2**31})
    assert configure("wrmf", {"lam": 10**30}).params.lam == 1e30
