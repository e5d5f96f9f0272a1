"""--plugin, RANKBENCH_PLUGINS and `plugins:` on the command line, and `rankbench check`."""

import json

import pytest

from rankbench.cli import _main
from rankbench.core import plugins
from rankbench.tracking.record import read_record

LOSS = """from dataclasses import dataclass
from torch import Tensor
from rankbench.core.params import Params, Range, param
from rankbench.losses.spec import Scores, loss
@dataclass(frozen=True)
class Mine(Params):
    margin: float = param(1.0, "difference that costs nothing", Range(0.1, 2), gt=0)
@loss("my-hinge", Mine, similarity="dot", title="My hinge", source="me")
def my_hinge(s: Scores, p: Mine) -> Tensor:
    return (p.margin - s.pos[:, None] + s.neg).clamp(min=0).mean(dim=1)
"""
METRIC = """from rankbench.evaluation.metrics import metric
@metric
def hits_2(hits, n_targets):
    return 2.0 * hits.sum(axis=1)
"""
PROTOCOL = """from rankbench.data.protocols.random_per_user import RandomPerUser, random_per_user
from rankbench.data.protocols.spec import protocol
class MySplit(RandomPerUser):
    protocol: str = "my-split"
@protocol("my-split", MySplit)
def my_split(data, p):
    return random_per_user(data, p)
"""
EXPERIMENT = """
name: own
plugins: [my_loss.py]
datasets: [mine.yaml]
arms: [{method: my-hinge, params: {epochs: 2, patience: 0, margin: {grid: [0.5, 1]}}}]
search: {choose: {metric: ndcg@10}}
cutoffs: [10]
"""
CARD = """
name: mine
source: {generator: {users: 60, items: 30, interactions_per_user: 8}}
split: {protocol: my-split}
"""


@pytest.fixture(autouse=True)
def home(home):
    """A folder with plugins, where commands write; what they load is forgotten after each test."""
    for name, text in (("my_loss.py", LOSS), ("my_metric.py", METRIC), ("my_split.py", PROTOCOL), ("mine.yaml", CARD)):
        (home / name).write_text(text)
    with plugins.separate():
        yield home


def test_several_plugins_in_one_command(capsys):
    own = [word for name in ("my_loss.py", "my_metric.py", "my_split.py") for word in ("--plugin", name)]
    words = ["run", "mine.yaml", "my-hinge", "epochs=1", "patience=0", "--metrics", "hits_2@5", "--no-track", "--json"]
    assert _main([*words, *own]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [plugin["name"] for plugin in record["environment"]["plugins"]] == ["my_loss.py", "my_metric.py", "my_split.py"]
    assert [*record["metrics"]] == ["hits_2@5"]


def test_the_record_of_changed_code_wins_and_the_earlier_one_stays(home, capsys):
    words = ["run", "mine.yaml", "popularity", "--metrics", "hits_2@5", "--no-track", "--json"]
    own = ["--plugin", "my_metric.py", "--plugin", "my_split.py"]

    def result():
        assert _main([*words, *own]) == 0
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    first, _ = result()
    text = (home / "my_metric.py").read_text()
    (home / "my_metric.py").write_text(text.replace("2.0 *", "6.0 *"))
    second, said = result()
    ratio = second["metrics"]["hits_2@5"]["mean"] / first["metrics"]["hits_2@5"]["mean"]
    assert ratio == pytest.approx(3) and second["id"] == first["id"] and not second["kept_an_earlier_record"]
    newer, older = sorted((home / "results" / "runs").glob("[!.]*"))
    assert f"the code has changed since an earlier run of this setting, whose record is kept as {older.name}\n" in said
    stored = [read_record(folder) for folder in (newer, older)]
    assert [each.metrics["hits_2@5"].mean for each in stored] == [
        each["metrics"]["hits_2@5"]["mean"] for each in (second, first)
    ]
    assert stored[1].id == older.name == f"{first['id']}.{stored[1].code}" and stored[0].id == newer.name
    # Both can be compared, and the start of an id still means the newer one.
    assert _main(["compare", newer.name[:-1], older.name, "--metric", "hits_2@5"]) == 0
    assert "better" in capsys.readouterr().out
    _, said = result()
    assert "an earlier finished record of this run was kept, with its seconds and memory" in said


def test_what_plugins_print_goes_to_stderr(home, capsys):
    places = {
        "my_loss.py": "    return (p.margin", "my_metric.py": "    return 2.0", "my_split.py": "    return random_per_user",
    }  # fmt: skip
    for name, line in places.items():
        text = (home / name).read_text().replace(line, f"    print('called {name}')\n{line}")
        (home / name).write_text(f"print('imported {name}')\n{text}")
    own = [word for name in places for word in ("--plugin", name)]
    words = ["run", "mine.yaml", "my-hinge", "epochs=1", "patience=0", "--metrics", "hits_2@5", "--no-track", "--json"]
    assert _main([*words, *own]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["method"] == "my-hinge"
    assert all(f"imported {name}\n" in found.err and f"called {name}\n" in found.err for name in places)


def test_a_saved_model_of_a_plugin_recommends_with_the_plugin(capsys):
    words = ["fit", "synthetic", "my-hinge", "epochs=1", "patience=0", "data.source.generator.users=60", "--out", "model"]
    assert _main([*words, "--plugin", "my_loss.py"]) == 0
    plugins.unload(plugins.loaded()[0])
    assert _main(["recommend", "model", "--user", "1", "-k", "2"]) == 2
    assert "unknown method 'my-hinge'" in capsys.readouterr().err
    assert _main(["recommend", "model", "--user", "1", "-k", "2", "--plugin", "my_loss.py"]) == 0


def test_methods_and_data_know_them(capsys):
    assert _main(["methods", "my-hinge", "--plugin", "my_loss.py"]) == 0
    assert "difference that costs nothing" in capsys.readouterr().out
    assert _main(["data", "describe", "mine.yaml", "--plugin", "my_split.py", "--json"]) == 0
    assert "my-split" in capsys.readouterr().out


def test_the_variable_and_an_experiment_file_name_plugins(home, monkeypatch, capsys):
    """The paths of the file are relative to it, those of the variable to the working folder."""
    below = home / "below"
    below.mkdir()
    for name in ("my_loss.py", "mine.yaml"):
        (home / name).rename(below / name)
    (below / "own.yaml").write_text(EXPERIMENT)
    monkeypatch.setenv("RANKBENCH_PLUGINS", "my_split.py")
    plugins._configured.clear()
    assert _main(["sweep", "below/own.yaml", "--dry-run", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["model"] == "my-hinge" and row["state"] == "planned"
    assert [plugin.name for plugin in plugins.loaded()] == ["my_split.py", "my_loss.py"]


def test_a_report_does_not_run_the_plugins_of_a_file(home, capsys):
    (home / "my_loss.py").write_text("raise SystemError\n")
    (home / "own.yaml").write_text(EXPERIMENT.replace("mine.yaml", "synthetic"))
    assert _main(["report", "own.yaml"]) == 0
    assert _main(["sweep", "own.yaml", "--dry-run"]) == 2
    assert capsys.readouterr().err == f"error: {home}/my_loss.py:1: SystemError\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "synthetic", "my-hinge", "--plugin", "no.py"], "error: --plugin: no.py: no such plugin file"),
        (["sweep", "own.yaml"], "error: own.yaml: plugins[0]: no.py: no such plugin file"),
        (["check", "no.py"], "error: no.py: no such plugin file"),
        (["run", "synthetic", "my-hing", "--plugin", "my_loss.py"], "error: unknown method 'my-hing'; did you mean my-hinge?"),
    ],
)
def test_what_is_wrong_is_one_line(home, words, message, capsys):
    (home / "own.yaml").write_text(EXPERIMENT.replace("my_loss.py", "no.py"))
    assert _main(words) == 2
    assert capsys.readouterr().err == f"{message}\n"


def test_check_prints_a_line_per_check_and_what_to_do(home, capsys):
    assert _main(["check", "my_metric.py"]) == 0
    out = capsys.readouterr().out
    assert out.count("ok ") == 4 and "4 checks passed, 0 failed, 0 skipped" in out
    (home / "bad.py").write_text(METRIC.replace("2.0 *", "-2.0 *").replace("hits_2", "missed"))
    assert _main(["check", "bad.py"]) == 2
    out = capsys.readouterr().out
    assert "FAILED  metric missed: a further hit" in out and "what to do: larger values must be better" in out
    assert _main(["check", "bad.py", "--json"]) == 2
    result = json.loads(capsys.readouterr().out)
    assert not result["ok"] and [check["state"] for check in result["checks"]].count("failed") == 1
