"""YAML, words of the command line and parameter dataclasses: what is read, and how a mistake is named."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from rankbench.core.config import Strict, assignments, override, read_yaml, scalar, validate
from rankbench.core.errors import ConfigError, require
from rankbench.core.params import Params, Range, param, parameters
from rankbench.core.wording import MD5


@pytest.fixture
def file(tmp_path):
    """file("a: 1\\n") → a YAML file of that text."""

    def file(text: str | bytes) -> Path:
        path = tmp_path / "c.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # 1e-3 is a number and `on` is a word, as in YAML 1.2; PyYAML alone reads a string and True.
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("-2e+3", -2000.0),
        ("1.5e3", 1500.0),
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("7", 7),
        # PyYAML alone reads 52 and 90.
        ("064", 64),
        ("1:30", "1:30"),
        ("+1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("-0.5", -0.5),
        ("null", None),
        ("[1, 2.5, a]", [1, 2.5, "a"]),
        ("{tau: 1e-1}", {"tau": 0.1}),
        ("ndcg@20", "ndcg@20"),
        ("'7'", "7"),
        # What YAML cannot read is a word.
        ("[1, 2", "[1, 2"),
        ("a: b: c", "a: b: c"),
        ("2024-13-45", "2024-13-45"),
        ("!!int x", "!!int x"),
        ("9" * 30, "9" * 30),
    ],
)
def test_a_scalar(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


# PyYAML writes 1e1 for the word "1e1", which YAML 1.2 reads as a number.
words = st.text("abcdeno -1.", max_size=8).filter(lambda text: not re.fullmatch(r"-?1+(\.1*)?e-?1+", text))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(content=st.dictionaries(st.text("abcxyz_", min_size=1, max_size=6), plain, max_size=4))
def test_what_yaml_writes_is_read_back(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("yaml") / "c.yaml"
    path.write_text(yaml.safe_dump(content))
    assert read_yaml(path) == content


def bomb(levels: int) -> str:
    """A document of some hundred bytes whose value is a list of 10^levels words."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(9), ":1: not valid YAML: more than 50,000 values, with what aliases repeat"),
        (
            "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40))]),
            ":9: not valid YAML: nested deeper than",
        ),
        ("a: [" + "1, " * 60_000 + "1]\n", ":1: not valid YAML: more than 50,000 values"),
        ("title: " + "x" * 20_000_000, ": larger than 256 kB"),
        ("title: " + "x" * 250_000 + "\ntitle: 2\n", ":2: not valid YAML: key 'title' is given twice"),
        ("x" * 100_000 + ": 1\n" + "x" * 100_000 + ": 1\n", ":"),
        ("a: 1\nb: 2\na: 3\n", ":3: not valid YAML: key 'a' is given twice"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", ":4: not valid YAML: key 'b' is given twice"),
        ("a: 1\nb: [1, 2\n", ":3: not valid YAML"),
        ("a: 1\n\tb: 2\n", ":2: not valid YAML"),
        ("a: !!python/object:os.system x\n", ":1: not valid YAML"),
        ("a: 1\n? [1, 2]\n: 3\n", ":2: not valid YAML: a key must be a plain value"),
        ("a: 1\n---\nb: 2\n", ":2: not valid YAML"),
        ("a: 2024-13-45\n", ": not readable as YAML: month"),
        ("a: " + "[" * 5000 + "\n", ":1: not valid YAML: nested deeper than 32 levels"),
        ("a: !!int ''\n", ":1: not valid YAML: the tag 'tag:yaml.org,2002:int' is not supported"),
        ("a: 1\nb: 0x" + "f" * 17 + "\n", ":2: not valid YAML: a whole number of more than 64 bits"),
        ("b: &b [1, *b]\n", ":1: not valid YAML: nested deeper than 32 levels"),
        ("a: \x00\n", ": not readable as YAML"),
        (b"a: \xff\xfe\n", ": not readable as YAML"),
        ("", ": expected `key: value` lines, found nothing"),
        ("- 1\n- 2\n", ": expected `key: value` lines, found [1, 2]"),
        ("word\n", ": expected `key: value` lines, found 'word'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_broken_file_is_named_with_its_line(text, message, file):
    path = file(text)
    with pytest.raises(ConfigError) as error:
        read_yaml(path)
    assert str(error.value).startswith(f"{path}{message}")
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_aliases_and_merges_of_a_usual_size_are_read(file):
    assert read_yaml(file("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n")) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}] * 2,
    }


@pytest.mark.parametrize(
    "text", ["[" * 5000, "[&a [x, x], " + "*a, " * 20_000 + "x]", "x" * 300_000], ids=["deep", "many", "long"]
)
def test_a_word_that_is_too_much_is_refused(text):
    with pytest.raises(ConfigError, match=r"^lam: ") as error:
        assignments([f"lam={text}"])
    assert len(str(error.value)) < 500


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml: No such file"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_yaml(tmp_path)


def test_assignments():
    assert assignments(["lam=80", "a.b=x=y", "empty=", "sizes=[1, 2]"]) == {
        "lam": 80,
        "a.b": "x=y",
        "empty": None,
        "sizes": [1, 2],
    }
    for words, message in (
        (["lam"], "'lam': expected name=value"),
        (["=3"], "expected name=value"),
        (["a=1", "a=2"], "a: given twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            assignments(words)


def test_override_replaces_by_path_and_leaves_the_original_alone():
    content = {"arms": [{"lam": 1}, {"lam": 2}], "search": {"trials": 4}}
    changed = override(content, {"arms.1.lam": 5, "search.trials": 9, "resources.cpus": 2, "name": "x"})
    assert changed == {"arms": [{"lam": 1}, {"lam": 5}], "search": {"trials": 9}, "resources": {"cpus": 2}, "name": "x"}
    assert content == {"arms": [{"lam": 1}, {"lam": 2}], "search": {"trials": 4}}


def test_a_star_changes_every_entry_that_has_the_path():
    content = {"arms": [{"params": {"epochs": 1}}, {"params": {"lam": 2}}, {"params": {"epochs": 3}}]}
    changed = override(content, {"arms.*.params.epochs": 9})
    assert changed == {"arms": [{"params": {"epochs": 9}}, {"params": {"lam": 2}}, {"params": {"epochs": 9}}]}
    with pytest.raises(ConfigError, match=r"arms\.\*\.params\.epoch: no entry of the list has params\.epoch"):
        override(content, {"arms.*.params.epoch": 9})


@pytest.mark.parametrize(
    "path", ["arms.2.lam", "arms.-1.lam", "arms.x", "arms.²", "search.trials.max", "arms.0.lam.x.y", "a." * 10_000 + "b"]
)
def test_override_names_a_path_that_leads_nowhere(path):
    with pytest.raises(ConfigError, match=f"^{path}: |a path of more than 32 keys"):
        override({"arms": [{"lam": 1}, {"lam": 2}], "search": {"trials": 4}}, {path: 1})


class Inner(Strict):
    trials: int = 1
    rate: float | None = None


class Outer(Strict):
    name: str
    called: str = Field("x", pattern=MD5)
    letters: str = Field("x", pattern=r"^[a-z]+$")
    either: str | int = 0
    search: Inner | None = None
    steps: tuple[Inner, ...] = ()
    by_part: dict[str, Inner] = {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "x", "serch": {}}, "c.yaml: serch: unknown key; did you mean search?"),
        ({"nmae": "x"}, "c.yaml: nmae: unknown key; did you mean name?"),
        ({"name": "x", "search": {"trails": 1}}, "c.yaml: search.trails: unknown key; did you mean trials?"),
        ({"name": "x", "steps": [{}, {"trails": 1}]}, "c.yaml: steps.1.trails: unknown key; did you mean trials?"),
        ({"name": "x", "by_part": {"a": {"rte": 1}}}, "c.yaml: by_part.a.rte: unknown key; did you mean rate?"),
        ({"name": "x", "search": {"zzzzzz": 1}}, "c.yaml: search.zzzzzz: unknown key; known: rate, trials"),
        ({}, "c.yaml: name: missing"),
        ({"name": "x", "search": {"trials": "many"}}, "c.yaml: search.trials: "),
        ({"name": "x", "search": {"trials": 1.5}}, "c.yaml: search.trials: "),
        ({"name": "x", "search": {"rate": float("nan")}}, "c.yaml: search.rate: expected a finite number, got nan"),
        ({"name": "x", "search": {"trials": True}}, "c.yaml: search.trials: expected a whole number, got True"),
        ({"name": "x", "search": {"trials": "3"}}, "c.yaml: search.trials: expected a whole number, got '3'"),
        ({"name": "x", "steps": [{}, {"rate": "0.5"}]}, "c.yaml: steps.1.rate: expected a number, got '0.5'"),
        ({"name": "x", "by_part": {"a": {"rate": False}}}, "c.yaml: by_part.a.rate: expected a number, got False"),
        ({"name": "x", "steps": "a"}, "c.yaml: steps: expected a list, got 'a'"),
        ({"name": "x", "steps": [3]}, "c.yaml: steps.0: expected keys with values, got 3"),
        ({"name": "x", "by_part": None}, "c.yaml: by_part: expected keys with values, got nothing"),
        ({"name": "x", "either": [1]}, "c.yaml: either: expected a text or a whole number, got [1]"),
        ({"name": "x", "called": "X Y"}, "c.yaml: called: expected 32 hexadecimal digits, got 'X Y'"),
        ({"name": "x", "letters": "X"}, "c.yaml: letters: expected a text that fits ^[a-z]+$, got 'X'"),
        ({"name": ["x" * 50_000]}, "c.yaml: name: expected a text, got ['xxx"),
        ({"name": "x", "search": {"rate": float("inf")}}, "c.yaml: search.rate: expected a finite number, got inf"),
    ],
)
def test_a_schema_names_the_place(content, message):
    with pytest.raises(ConfigError) as error:
        validate(Outer, content, "c.yaml")
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 300


def test_a_whole_number_may_be_written_as_a_float_and_stand_for_one():
    value = validate(Inner, {"trials": 1e3, "rate": 2}, "c.yaml")
    assert (value, type(value.trials), type(value.rate)) == (Inner(trials=1000, rate=2.0), int, float)
    with pytest.raises(ValueError, match="frozen"):
        value.rate = 1.0


@dataclass(frozen=True)
class PSL:
    tau: float = 0.1
    surrogate: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self):
        require(self.tau > 0, f"psl.tau must be > 0, got {self.tau}")


def test_parameters_are_typed_and_default():
    assert parameters(PSL, {"tau": 1}, "arms[0]") == PSL(tau=1.0)
    assert isinstance(parameters(PSL, {"tau": 1}, "arms[0]").tau, float)
    assert parameters(PSL, {"tau": np.float32(0.5)}, "arms[0]") == parameters(PSL, {"tau": np.float64(0.5)}, "arms[0]")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tua": 1}, "unknown parameter 'tua'; did you mean tau?"),
        ({"zzzz": 1}, "unknown parameter 'zzzz'; known: tau, surrogate"),
        ({"tau": "warm"}, "tau: "),
        ({"tau": None}, "tau: "),
        ({"tau": True}, "arms[0]: tau: expected a number, got True"),
        ({"tau": "1"}, "arms[0]: tau: expected a number, got '1'"),
        ({"tau": b"1"}, "arms[0]: tau: expected a number, got b'1'"),
        ({"tau": float("nan")}, "tau must be "),
        ({"tau": float("inf")}, "tau must be finite, got inf"),
        ({"tau": 0}, "psl.tau must be > 0, got 0"),
        ({"surrogate": "tahn"}, "surrogate: "),
    ],
)
def test_a_wrong_parameter_is_named(values, message):
    with pytest.raises(ConfigError) as error:
        parameters(PSL, values, "arms[0]")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@dataclass(frozen=True)
class Bounded(Params):
    tau: float = param(0.1, "temperature; small is sharp", Range(0.05, 0.3), gt=0)
    p: float = param(0.5, "probability", ge=0, lt=1)
    q: float = param(0.5, "share", gt=0, le=1)
    lam: float | None = param(None, "ridge", ge=1)
    word: str = param("free", "no bounds")


def test_bounds_are_part_of_the_description_and_belong_to_the_values():
    texts = ["temperature, > 0; small is sharp", "probability, in [0, 1)", "share, in (0, 1]", "ridge, ≥ 1", "no bounds"]
    assert [field.metadata["help"] for field in fields(Bounded)] == texts
    assert Bounded(tau=1e-9, p=0, q=1, lam=1) == Bounded(1e-9, 0, 1, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tau": 0}, "tau must be > 0, got 0"),
        ({"tau": float("nan")}, "tau must be > 0, got nan"),
        ({"p": -0.1}, "p must lie in [0, 1), got -0.1"),
        ({"p": 1}, "p must lie in [0, 1), got 1"),
        ({"q": 0}, "q must lie in (0, 1], got 0"),
        ({"q": 1.1}, "q must lie in (0, 1], got 1.1"),
        ({"lam": 0.5}, "lam must be ≥ 1, got 0.5"),
    ],
)
def test_a_value_out_of_bounds_is_refused(values, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Bounded(**values)
