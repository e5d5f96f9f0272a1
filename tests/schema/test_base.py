"""An experiment file that takes the arms of another one."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.schema.reading import load_experiment

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
search: {trials: 24, choose: {metric: recall@5}}
final: {fit_on: train}
"""


def load(folder, text):
    (folder / "first.yaml").write_text(BASE)
    own = text if text.startswith("base:") else f"base: first.yaml\n{text}"
    (folder / "second.yaml").write_text(f"name: second\n{own}")
    return load_experiment(folder / "second.yaml", {})


def test_what_belongs_to_the_base_alone_is_not_taken(tmp_path):
    spec = load(tmp_path, "arms: [{name: A, published: {synthetic: {ndcg@5: 0.4}}}]")
    assert (spec.question, spec.published, spec.not_run, spec.claims) == ("", None, (), ())
    assert spec.cutoffs == (5,) and spec.dataset_names == ("synthetic",)
    (arm,) = spec.arms
    assert arm.method == "ease" and arm.printed == {"synthetic": {"lam": 1}}
    assert arm.published == {"synthetic": {"ndcg@5": 0.4}}


def test_of_a_search_and_the_final_runs_only_what_the_file_says_is_its_own(tmp_path):
    spec = load(tmp_path, "search: {trials: 8}\nfinal: {seeds: [1, 2]}")
    assert (spec.search.trials, spec.search.choose.metric) == (8, "recall@5")
    assert (spec.final.fit_on, spec.final.seeds) == ("train", (1, 2))
    short = load(tmp_path, "search: registry").search, load_experiment(tmp_path / "first.yaml", {"search": "registry"}).search
    assert {(each.ranges, each.trials, each.choose.metric) for each in short} == {("registry", 24, "recall@5")}


def test_an_arm_may_continue_another_and_change_parameters_one_by_one(tmp_path):
    spec = load(tmp_path, "arms: [{name: A2, like: A, params: {lam: 7}, printed: {}}, {name: D, method: random}]")
    assert [(arm.label, arm.method, arm.params) for arm in spec.arms] == [("A2", "ease", {"lam": 7}), ("D", "random", {})]
    assert spec.arms[0].published == {} and spec.arms[0].printed == {}


def test_without_arms_it_has_those_of_the_base_with_their_numbers(tmp_path):
    spec = load(tmp_path, "datasets: [gowalla]")
    assert [arm.label for arm in spec.arms] == ["A", "B"]
    assert spec.arms[1].published == {"synthetic": {"recall@20": 0.2}}


START = "name: first\ndatasets: [synthetic]\n"
MALFORMED = [
    ("", r"expected `key: value` lines, found nothing"),
    ("[a, b]", r"expected `key: value` lines"),
    ("a: [", r"not valid YAML"),
    ("a: 1\na: 2", r":2: "),
    ("name: first", r"datasets"),
    (START, r"give arms or methods"),
    (START + "arms: 5", r"arms"),
    (START + "arms:", r"arms"),
    (START + "arms: [null]", r"arms\.0"),
    (START + "arms: [{name: A}]", r"arms\.0\.method"),
    (START + "arms: [{name: [A], method: ease}]", r"arms\.0\.name"),
    (START + "arms: [{name: A, method: ease, params: text}]", r"arms\.0\.params"),
    (START + "arms: [{name: A, method: ease, parms: {}}]", r"arms\.0\.parms"),
    ("name: first\ndatasets: []\narms: [{method: ease}]", r"datasets"),
    ("name: first\ndatasets: [{split: {seed: 1}}]\narms: [{method: ease}]", r"datasets\.0: give the card's `name`"),
    (START + "arms: [{method: ease}]\nfinal: {seeds: a}", r"final\.seeds"),
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
    ("text", "message"),
    [
        ("arms: 5", r"second\.yaml: arms: expected a list, got 5"),
        ("arms: {A: B}", r"arms: expected a list"),
        ("arms: [A]", r"arms\[0\]: expected name and published"),
        ("arms: [{name: [A]}]", r"second\.yaml: arms\[0\]\.name: expected the name of an arm of first\.yaml"),
        ("arms: [{}]", r"arms\[0\]\.name: expected the name of an arm"),
        ("arms: [{name: B, like: {A: B}}]", r"arms\[0\]\.like: expected the name of an arm"),
        ("arms: [{name: A, params: [lam]}]", r"arms\[0\]\.params: expected a mapping"),
        ("arms: [{name: AA}]", r"second\.yaml: arms\[0\]\.name: first\.yaml has no 'AA'; did you mean A\?"),
        ("arms: [{name: X, like: Y}]", r"arms\[0\]\.like: first\.yaml has no 'Y'"),
        ("claims: [{text: t, better: [A], than: [Z], metric: recall@20}]", r"claims\[0\]: no arm 'Z'"),
        ("base: gone.yaml", "no such experiment file"),
        ("base: ../first.yaml", "expected the name of a file"),
    ],
)
def test_what_the_base_does_not_have_or_cannot_be_taken_is_one_line_with_file_and_field(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_a_base_has_no_base(tmp_path):
    load(tmp_path, "")
    (tmp_path / "third.yaml").write_text("name: third\nbase: second.yaml\n")
    with pytest.raises(ConfigError, match=r"second\.yaml has a base itself"):
        load_experiment(tmp_path / "third.yaml", {})
