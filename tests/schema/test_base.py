"""An experiment file that takes the arms of another one."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.schema.experiment import load_experiment

BASE = """\
name: first
question: Which?
published: {paper: P, table: 1}
datasets: [synthetic]
claims: [{text: A is above B, better: [A], than: [B], metric: recall@20}]
arms:
  - name: A
    method: ease
    params: {lam: {grid: [1, 2]}}
    printed: {synthetic: {lam: 1}}
    published: {synthetic: {recall@20: 0.1}}
  - {name: B, method: popularity, published: {synthetic: {recall@20: 0.2}}}
not_run: [{name: C, why: not built, published: {synthetic: {recall@20: 0.3}}}]
cutoffs: [5]
"""


def load(folder, text):
    (folder / "first.yaml").write_text(BASE)
    (folder / "second.yaml").write_text("name: second\nbase: first.yaml\n" + text)
    return load_experiment(folder / "second.yaml", {})


def test_what_belongs_to_the_base_alone_is_not_taken(tmp_path):
    spec = load(tmp_path, "arms: [{name: A, published: {synthetic: {ndcg@5: 0.4}}}]")
    assert (spec.question, spec.published, spec.not_run, spec.claims) == ("", None, (), ())
    assert spec.cutoffs == (5,) and spec.dataset_names == ("synthetic",)
    (arm,) = spec.arms
    assert arm.method == "ease" and arm.printed == {"synthetic": {"lam": 1}}
    assert arm.published == {"synthetic": {"ndcg@5": 0.4}}


def test_an_arm_may_continue_another_and_change_parameters_one_by_one(tmp_path):
    spec = load(tmp_path, "arms: [{name: A2, like: A, params: {lam: 7}, printed: {}}, {name: D, method: random}]")
    assert [(arm.label, arm.method, arm.params) for arm in spec.arms] == [("A2", "ease", {"lam": 7}), ("D", "random", {})]
    assert spec.arms[0].published == {} and spec.arms[0].printed == {}


def test_without_arms_it_has_those_of_the_base_with_their_numbers(tmp_path):
    spec = load(tmp_path, "datasets: [gowalla]")
    assert [arm.label for arm in spec.arms] == ["A", "B"]
    assert spec.arms[1].published == {"synthetic": {"recall@20": 0.2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arms: [{name: AA}]", r"second\.yaml: arms\[0\]\.name: first\.yaml has no 'AA'; did you mean A\?"),
        ("arms: [{name: X, like: Y}]", r"arms\[0\]\.like: first\.yaml has no 'Y'"),
        ("arms: [A]", r"arms\[0\]: expected name and published"),
        ("claims: [{text: t, better: [A], than: [Z], metric: recall@20}]", r"claims\[0\]: no arm 'Z'"),
    ],
)
def test_a_name_that_the_base_does_not_have_is_an_error(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


START = "name: first\ndatasets: [synthetic]\n"
MALFORMED = [
    ("", r"expected `key: value` lines, found nothing"),
    ("text", r"expected `key: value` lines"),
    ("5", r"expected `key: value` lines"),
    ("[a, b]", r"expected `key: value` lines"),
    ("a: [", r"not valid YAML"),
    ("a: 1\na: 2", r":2: "),
    ("{}", r"name"),
    ("name: first", r"datasets"),
    (START, r"give arms or methods"),
    (START + "arms: [a]", r"arms\.0"),
    (START + "arms: a", r"arms"),
    (START + "arms: 5", r"arms"),
    (START + "arms: {a: b}", r"arms"),
    (START + "arms:", r"arms"),
    (START + "arms: [[]]", r"arms\.0"),
    (START + "arms: [5, 6]", r"arms\.0"),
    (START + "arms: [null]", r"arms\.0"),
    (START + "arms: [{}]", r"arms\.0\.method"),
    (START + "arms: [{name: A}]", r"arms\.0\.method"),
    (START + "arms: [{name: [A], method: ease}]", r"arms\.0\.name"),
    (START + "arms: [{name: {A: B}, method: ease}]", r"arms\.0\.name"),
    (START + "arms: [{name: A, method: [ease]}]", r"arms\.0\.method"),
    (START + "arms: [{name: A, method: ease, params: }]", r"arms\.0\.params"),
    (START + "arms: [{name: A, method: ease, params: text}]", r"arms\.0\.params"),
    (START + "arms: [{name: A, method: ease, params: [1]}]", r"arms\.0\.params"),
    (START + "arms: [{name: A, method: ease, published: 5}]", r"arms\.0\.published"),
    (START + "arms: [{name: A, method: ease, parms: {}}]", r"arms\.0\.parms"),
    ("name: first\ndatasets: 5\narms: [{method: ease}]", r"datasets"),
    ("name: first\ndatasets: []\narms: [{method: ease}]", r"datasets"),
    (START + "arms: [{method: ease}]\nsearch: 5", r"search"),
    (START + "arms: [{method: ease}]\nfinal: {seeds: a}", r"final\.seeds"),
    (START + "arms: [{method: ease}]\ncutoffs: [a]", r"cutoffs\.0"),
]


@pytest.mark.parametrize(("base", "message"), MALFORMED)
@pytest.mark.parametrize("own", ["", "arms: [{name: A, params: {lam: 3}}]"])
def test_a_malformed_base_is_one_line_with_its_file_and_field(tmp_path, base, message, own):
    (tmp_path / "first.yaml").write_text(base)
    (tmp_path / "second.yaml").write_text(f"name: second\nbase: first.yaml\n{own}")
    with pytest.raises(ConfigError, match=message) as error:
        load_experiment(tmp_path / "second.yaml", {})
    assert f"{tmp_path / 'first.yaml'}:" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ("5", r"arms: expected a list, got 5"),
        ("A", r"arms: expected a list"),
        ("", r"arms: expected a list"),
        ("{A: B}", r"arms: expected a list"),
        ("[{name: [A]}]", r"arms\[0\]\.name: expected the name of an arm of first\.yaml"),
        ("[{}]", r"arms\[0\]\.name: expected the name of an arm"),
        ("[{name: B, like: {A: B}}]", r"arms\[0\]\.like: expected the name of an arm"),
        ("[{name: A, params: }]", r"arms\[0\]\.params: expected a mapping"),
        ("[{name: A, params: [lam]}]", r"arms\[0\]\.params: expected a mapping"),
    ],
)
def test_malformed_arms_beside_a_base_are_one_line_with_file_and_field(tmp_path, arms, message):
    with pytest.raises(ConfigError, match=rf"second\.yaml: {message}"):
        load(tmp_path, f"arms: {arms}")


@pytest.mark.parametrize(
    ("base", "message"), [("gone.yaml", "no such experiment file"), ("../first.yaml", "expected the name of a file")]
)
def test_the_base_is_a_file_of_the_same_folder(tmp_path, base, message):
    (tmp_path / "second.yaml").write_text(f"name: second\nbase: {base}\n")
    with pytest.raises(ConfigError, match=message):
        load_experiment(tmp_path / "second.yaml", {})


def test_a_base_has_no_base(tmp_path):
    load(tmp_path, "")
    (tmp_path / "third.yaml").write_text("name: third\nbase: second.yaml\n")
    with pytest.raises(ConfigError, match=r"second\.yaml has a base itself"):
        load_experiment(tmp_path / "third.yaml", {})
