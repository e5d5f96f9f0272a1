"""The rule for names, where each kind of name is registered or declared."""

import dataclasses

import pandas as pd
import pytest

from rankbench.api.dataset import dataset
from rankbench.core.config import validate
from rankbench.core.errors import ConfigError
from rankbench.core.registry import Registry
from rankbench.data.cards import Card
from rankbench.schema.experiment import ExperimentSpec

REFUSED = [
    "", "my loss", "../../x", "a/b", "<b>x</b>", "a&b", "a=b", "ev*l", "a[b", "a?", "!x", "family:x", "all", "-x", ".x", "x\n",
    "a,b", "größe", "x" * 65, None, 3,
]  # fmt: skip
ACCEPTED = ["x", "EASE", "sl_at_k", "a.b-c_2", "3d", "x" * 64]


def experiment(name="x", label=None):
    content = {"name": name, "datasets": ["d"], "arms": [{"method": "bpr", "name": label}]}
    return validate(ExperimentSpec, content, "x.yaml")


def card(name):
    return validate(Card, {"name": name, "source": {"generator": {}}}, "c.yaml")


@dataclasses.dataclass
class Spec:
    families: tuple[str, ...] = ()


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_a_command_a_path_or_a_page_would_misread_is_refused(name, environment):
    expected = "expected a (name|text)"
    with pytest.raises(ConfigError, match=f"^loss: {expected}"):
        Registry("loss").add(name, Spec(), "mine")
    with pytest.raises(ConfigError, match=f"^loss: {expected}"):
        Registry("loss").add("x", Spec((name,)), "mine")
    with pytest.raises(ConfigError, match=f"^c.yaml: name: {expected}"):
        card(name)
    with pytest.raises(ConfigError, match=f"^x.yaml: name: {expected}"):
        experiment(name)
    if name is not None:  # the name is chosen then
        with pytest.raises(ConfigError, match=r"^(dataset: )?name: expected a (name|text)"):
            dataset(pd.DataFrame({"user": [1], "item": [2]}), name=name, environment=environment)


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_name_of_letters_digits_and_three_signs_is_accepted(name):
    names = Registry("loss")
    names.add(name, Spec((name,)), "mine")
    assert names.names() == [name] and card(name).name == experiment(name).name == name


@pytest.mark.parametrize(
    "label",
    ["", " x", "a/b", "a\\b", "<b>", "a&b", "a|b", "`a`", "sl*", "a[1]", "a?", "a\nb", "a\x1b[31m", "\u202ea", "x" * 65],
)
def test_a_label_of_a_paper_has_no_markup_path_or_pattern(label):
    for paper in ("RG² with α", "SSM (GNN)", "DEQL(L2+zero-diag)", "SL@K, K = 20", "the authors' program"):
        assert experiment(label=paper).arms[0].label == paper
    with pytest.raises(ConfigError, match=r"^x.yaml: arms.0.name: expected a text of 1 to 64 characters"):
        experiment(label=label)
