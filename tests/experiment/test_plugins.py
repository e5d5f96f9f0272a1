"""Own losses, encoders, solvers, readers, protocols and metrics from files, after the registries have been read."""

import dataclasses
import json
import logging
import subprocess
import sys

import numpy as np
import pytest

import rankbench.api as rb
from rankbench.core import plugins
from rankbench.core.errors import ConfigError
from rankbench.data.cards import load_card
from rankbench.data.prepare import load, prepared_before
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.methods import load_plugin, method, registered
from rankbench.experiment.outcome import base_record
from rankbench.experiment.run import run
from rankbench.fitting.checkpoints import Checkpoints, State
from rankbench.sweeps.reuse import changed_code, other_plugins
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import DatasetInfo

from ..cli.test_plugins import LOSS as MY_HINGE
from ..cli.test_plugins import METRIC

HEADER = """from dataclasses import dataclass
import numpy as np
from rankbench.core.params import Params, Range, param
"""
LOSS = MY_HINGE.replace("my-hinge", "NAME")
ENCODER = (
    HEADER
    + """from rankbench.models.spec import EmbeddingModel, model
@dataclass(frozen=True)
class Scaled(Params):
    FIELD: float = param(2.0, "factor of the vectors", Range(1, 4), gt=0)
class ScaledModel(EmbeddingModel):
    def forward(self):
        return self.users * 2, self.items
@model("scaled", Scaled, title="Scaled", source="here")
def scaled(X, p, users, items, generator):
    return ScaledModel(users, items)
"""
)
SOLVER = (
    HEADER
    + """from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import FactorRecommender
@dataclass(frozen=True)
class First(Params):
    pass
@direct("NAME", First, title="First items first", source="here")
def first(X, p, seed):
    order = np.arange(X.shape[1], 0, -1, dtype=np.float32)
    return FactorRecommender(np.ones((X.shape[0], 1), np.float32), order[:, None])
"""
)
PROTOCOL = """import numpy as np
from typing import Literal
from pydantic import Field
from rankbench.data.protocols.spec import TEST, TRAIN, VALID, SplitSpec, protocol
class EveryNth(SplitSpec):
    protocol: Literal["every-nth"] = "every-nth"
    n: int = Field(5, ge=3, description="one of n is for test")
@protocol("every-nth", EveryNth)
def every_nth(data, p):
    rest = np.arange(len(data)) % p.n
    return np.where(rest == 0, TEST, np.where(rest == 1, VALID, TRAIN)).astype(np.int8)
"""
CARD = "name: dashed\nsource: {file: raw.txt}\nread: {format: dashes}\n"
READER = """import pyarrow as pa
from rankbench.data.readers import reads
@reads("dashes", example=b"1-2\\n")
def read(raw):
    with raw.open() as file:
        pairs = [line.split(b"-") for line in file.read().split()]
    yield pa.table({"user": pa.array([int(user) for user, _ in pairs]), "item": pa.array([int(item) for _, item in pairs])})
"""


@pytest.fixture(autouse=True)
def separate(monkeypatch):
    monkeypatch.delenv("RANKBENCH_PLUGINS", raising=False)
    registered()  # the registries have been read before
    with plugins.separate():
        yield


@pytest.fixture
def load_text(tmp_path):
    def of(text: str, name: str = "NAME", file: str = "mine.py"):
        path = tmp_path / file
        path.write_text(text.replace("NAME", name))
        return load_plugin(path)

    return of


def outcome(environment, config, card_changes=None, **options):
    small = {"source.generator.users": 60, "source.generator.items": 30, "source.generator.interactions_per_user": 8}
    card = load_card("synthetic", environment, small | (card_changes or {}))
    return run(Job(card, (config,), **options), environment, Execution(1))[0]


def test_a_loss_is_a_method_at_once_and_its_record_names_the_plugin(load_text, environment):
    with pytest.raises(ConfigError, match="unknown method 'my-hinge'"):
        method("my-hinge")
    plugin = load_text(LOSS, "my-hinge")
    found = outcome(environment, configure("my-hinge", {"margin": 0.5, "epochs": 2, "patience": 0}), fit_on="train")
    assert found.record.params["margin"] == 0.5 and found.record.finished
    assert found.record.environment["plugins"] == [{"name": "mine.py", "sha256": plugin.sha256}]
    load_text(LOSS.replace(".mean(dim=1)", ".square().mean(dim=1)"), "my-hinge")  # used without a new process
    again = outcome(environment, configure("my-hinge", {"margin": 0.5, "epochs": 2, "patience": 0}), fit_on="train")
    assert found.record.id == again.record.id and found.record.curve[-1]["loss"] != again.record.curve[-1]["loss"]
    plugins.unload(*plugins.loaded())
    assert "my-hinge" not in registered() and "plugins" not in describe_environment()


def test_a_run_is_reused_unless_a_plugin_that_it_uses_has_changed(load_text, environment):
    """A baseline depends neither on a plugin that is loaded beside it nor on its version."""

    def job_of(name, **values):
        return Job(load_card("synthetic", environment), (configure(name, values),), fit_on="train")

    def others(job, record):
        return other_plugins(record, job.plugins(job.configs[0]))

    def record_of(job):
        return base_record(job, job.configs[0], DatasetInfo("synthetic"), "")

    baseline = job_of("bpr")
    without = record_of(baseline)
    load_text(LOSS, "my-hinge")
    mine = job_of("my-hinge", margin=0.5)
    beside, first = record_of(baseline), record_of(mine)
    assert beside.environment.get("plugins") is None and len(first.environment["plugins"]) == 1
    assert not others(baseline, without) and not others(baseline, beside) and not others(mine, first)
    all_loaded = dataclasses.replace(beside, environment=describe_environment())  # as earlier versions wrote it
    assert not others(baseline, all_loaded)
    assert changed_code([without, beside, first]) == []
    load_text(LOSS + "# changed\n", "my-hinge")
    assert others(mine, first) == {"mine.py"} and not others(mine, record_of(mine))
    assert not others(baseline, without) and not others(baseline, beside)
    assert changed_code([without, beside]) == [] and changed_code([first]) == ["mine.py"]
    load_text("x = 1  # registers nothing, and so may change anything\n")
    assert others(baseline, without) == {"mine.py"}


def test_every_loss_can_be_trained_on_an_encoder_of_a_plugin(load_text, environment):
    load_text(ENCODER.replace("FIELD", "factor"))
    config = configure("bpr", {"model": "scaled", "factor": 3.0, "epochs": 1, "patience": 0})
    assert outcome(environment, config, fit_on="train").record.params["factor"] == 3.0
    with pytest.raises(ConfigError, match="model mf has no parameter 'factor'"):
        configure("bpr", {"factor": 3.0})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LOSS.replace("NAME", "bpr"), "loss 'bpr' is registered twice, by rankbench.losses.bpr and by {0}"),
        (LOSS.replace("NAME", "ease"), "method 'ease' is registered twice, by rankbench.solvers.linear.ease and by {0}"),
        (SOLVER.replace("NAME", "bpr"), "method 'bpr' is registered twice, by rankbench.losses.bpr and by {0}"),
        (ENCODER.replace("FIELD", "tau"), "Scaled and .* both have a parameter 'tau'"),
        (ENCODER.replace("FIELD", "learning_rate"), "TrainingParams and Scaled both have a parameter 'learning_rate'"),
        (METRIC.replace("hits_2", "ndcg"), "metric 'ndcg' is registered twice, by rankbench.evaluation.metrics and by {0}"),
        (METRIC.replace("hits_2", "Hits"), "metric 'Hits': the name may have small letters"),
        (METRIC.replace("hits_2", "auc"), "metric 'auc': the name may"),
        (PROTOCOL.replace('"every-nth", E', '"temporal", E'), "protocol 'temporal' is registered twice"),
    ],
)  # fmt: skip
def test_a_name_that_is_taken_is_refused_and_nothing_is_left(text, problem, load_text, tmp_path):
    before = registered().names()
    load_card_registries()
    with pytest.raises(ConfigError, match=problem.format(tmp_path / "mine.py")) as refused:
        load_text(text)
    assert "\n" not in str(refused.value) and not plugins.loaded()
    assert registered().names() == before


def load_card_registries():
    from rankbench.data.protocols.spec import protocols

    protocols()


LABELS = PROTOCOL.replace("    return np.where", "    labels = np.where") + "    return GIVEN\n"
# Of each kind of plugin: its text, and what a user's error begins with.
KINDS = {
    "loss": (LOSS.replace("(p.margin - s.pos[:, None] + s.neg).clamp(min=0).mean(dim=1)", "GIVEN"), "loss my-own: returned "),
    "protocol": (LABELS, "protocol every-nth: "),
    "reader": (f"{READER[: READER.index('    with')]}    return GIVEN\n", "reader dashes: "),
    "solver": (f"{SOLVER[: SOLVER.index('    return')]}    return GIVEN\n", "method my-own: "),
    "encoder": (ENCODER.replace("self.users * 2, self.items", "GIVEN"), "encoder ScaledModel: "),
}
EIGHT = "expected a tensor of 8 floating-point numbers"
WRONG = [
    ("loss", "None", f"None; {EIGHT}"),
    ("loss", "1.5", "the type float;"),
    ("loss", "s.pos.mean()", r"a tensor of shape \(\) and type float32;"),
    ("loss", "s.neg", r"a tensor of shape \(8, 3\) and type float32;"),
    ("loss", "s.pos > 0", "type bool without a gradient"),
    ("loss", "s.pos.detach()", "type float32 without a gradient;"),
    ("protocol", "labels[:3]", r"returned an array of shape \(3,\) and type int\d+; expected an array of [\d,]+ whole numbers"),
    ("protocol", "labels - 9", "expected an array of .* whole numbers, each one of TRAIN, VALID, TEST"),
    ("protocol", "labels.tolist()", r"returned \[\d, .*; expected"),
    ("protocol", "exit(0)", r"sys.exit\(0\) was called in "),
    ("reader", "None", "yielded None instead of a pyarrow.Table"),
    ("reader", "pa.table({'user': [1]})", "the columns are user; expected user, item"),
    ("reader", "[pa.table({'item': [1], 'user': [1]})]", "the columns are item, user; expected user, item and perhaps"),
    ("reader", "[pa.table({'user': [1.5], 'item': [2]})]", "the column user is double"),
    ("reader", "exit(0)", r"sys.exit\(0\) was called in "),
    ("solver", "None", "returned None instead of a recommender"),
    ("solver", "FactorRecommender(np.ones((X.shape[0], 1)), order[1:, None])", r"V is float32 \(29, 1\), and does not fit"),
    ("solver", "FactorRecommender(None, order)", "U is NoneType, and does not fit"),
    ("solver", "FactorRecommender(np.ones((X.shape[0], 1), complex), order)", "U is complex128, and does not fit"),
    ("encoder", "self.users, self.items[1:]", r"returned \(60, 64\), \(29, 64\); expected a vector of floating-point numbers"),
    ("encoder", "self.users.long(), self.items", "expected a vector of floating-point"),
    ("encoder", "None, None", "returned NoneType, NoneType; expected"),
]


@pytest.mark.parametrize(("kind", "given", "expected"), WRONG)
def test_what_a_plugin_returns_wrongly_is_named(kind, given, expected, load_text, environment, tmp_path):
    text, begins = KINDS[kind]
    load_text(text.replace("GIVEN", given).replace("FIELD", "factor"), "my-own")
    (tmp_path / "raw.txt").write_text("1-2")
    (tmp_path / "own.yaml").write_text(CARD)
    with pytest.raises(ConfigError, match=f"^{begins}.*{expected}") as refused:
        if kind == "protocol":
            load("synthetic", environment, {"split": {"protocol": "every-nth", "n": 4}})
        elif kind == "reader":
            load(str(tmp_path / "own.yaml"), environment)
        elif kind == "encoder":
            outcome(environment, configure("bpr", {"model": "scaled", "epochs": 1}), fit_on="train")
        else:
            short = {"epochs": 1, "patience": 0, "batch_size": 8, "n_negatives": 3} if kind == "loss" else {}
            outcome(environment, configure("my-own", short), fit_on="train")
    assert "\n" not in str(refused.value)


def test_a_loss_with_the_name_of_one_that_is_imported_later_leaves_no_half_behind(tmp_path):
    """In a process of its own, where nothing is imported yet."""
    (tmp_path / "taken.py").write_text(LOSS.replace("NAME", "mine"))  # the second loss of its file
    (tmp_path / "free.py").write_text(LOSS.replace("NAME", "my-loss"))
    code = (
        "from rankbench.experiment.methods import load_plugin, registered\n"
        "for name in ('taken.py', 'free.py'):\n    try:\n        load_plugin(name)\n    except Exception as error:\n"
        "        print(error)\nprint({'infonce', 'mine', 'my-loss'} <= {*registered().names()})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    first, second = done.stdout.splitlines()
    assert "loss 'mine' is registered twice" in first and second == "True"


@pytest.mark.parametrize(
    ("text", "name", "changed"),
    [
        (LOSS, "my-loss", "    return (p.margin"),
        (SOLVER, "my-solver", "    order ="),
        (ENCODER, "bpr", "    return ScaledModel"),
    ],
)
def test_an_exit_in_a_plugin_is_an_error_of_the_fit(text, name, changed, load_text, environment, tmp_path):
    text = text.replace(changed, f"    raise SystemExit(0)\n{changed}")
    load_text(text.replace("FIELD", "factor"), name)
    config = configure(name, {"model": "scaled"} if name == "bpr" else {})
    line = text[: text.index("raise SystemExit")].count("\n") + 1
    with pytest.raises(ConfigError, match=rf"^synthetic: .*: sys.exit\(0\) was called in {tmp_path / 'mine.py'}:{line}$"):
        outcome(environment, config, fit_on="train")


def test_a_metric_is_measured_and_searched_by(load_text, environment):
    with pytest.raises(ConfigError, match="unknown metric 'hits_2@5'"):
        metric_set(["hits_2@5"])
    load_text(METRIC)
    found = outcome(environment, configure("ease", {}), metrics=metric_set(["hits_2", "recall"], [5]))
    targets = found.per_user["hits_2@5"].to_numpy()
    assert (
        set(np.unique(targets)) <= {0.0, 2.0, 4.0, 6.0, 8.0, 10.0} and found.record.metrics["hits_2@5"].mean == targets.mean()
    )


def test_a_protocol_splits_and_its_changes_prepare_the_data_again(load_text, environment):
    changes = {"split": {"protocol": "every-nth", "n": 4}}
    with pytest.raises(ConfigError, match="unknown 'every-nth'"):
        load_card("synthetic", environment, changes)
    load_text(PROTOCOL)
    first = load("synthetic", environment, changes)
    assert first.split.test_target.nnz == -(-first.counts["interactions"] // 4)
    load_text(PROTOCOL.replace("rest == 0", "rest == 2"))
    assert load("synthetic", environment, changes).fingerprint != first.fingerprint
    folders = sorted((environment.data / "prepared").glob("synthetic-*/manifest.json"))
    assert len({tuple(json.loads(path.read_text())["plugins"]) for path in folders}) == 2
    # A plugin that has no part in the data does not prepare them again.
    load_text(METRIC, file="other.py")
    load("synthetic", environment, changes)
    assert sorted((environment.data / "prepared").glob("synthetic-*/manifest.json")) == folders


def test_a_reader_reads_the_format_that_a_card_names(load_text, environment, tmp_path):
    pairs = [(user, item) for user in range(9) for item in range(7)]
    (tmp_path / "raw.txt").write_text("".join(f"{user}-{item}\n" for user, item in pairs))
    path = tmp_path / "dashed.yaml"
    path.write_text(CARD)
    with pytest.raises(ConfigError, match=r"read\.format: unknown 'dashes'; known: .*delimited"):
        load_card(str(path), environment)
    load_text(READER)
    assert load(str(path), environment).counts["interactions"] == len(pairs)
    (tmp_path / "raw.txt").unlink()
    assert prepared_before(load_card(str(path), environment), environment) is not None
    load_text(READER + "# changed\n")
    assert prepared_before(load_card(str(path), environment), environment) is None


def test_a_checkpoint_of_an_earlier_version_of_a_plugin_is_noticed(load_text, tmp_path, caplog):
    load_text(LOSS, "my-hinge")
    checkpoints = Checkpoints(tmp_path / "c", resume=True)
    checkpoints.save(State(3, {"x": np.zeros(2)}, {}))
    with caplog.at_level(logging.WARNING):
        assert checkpoints.last().number == 3 and not caplog.records
        load_text(LOSS + "# changed\n", "my-hinge")
        assert checkpoints.last().number == 3
    assert "was saved by another version of the code" in caplog.text


def test_python_loads_a_plugin_after_any_call(tmp_path, environment):
    assert rb.fit("synthetic", "popularity", environment=environment).method == "popularity"
    path = tmp_path / "first.py"
    path.write_text(SOLVER.replace("NAME", "first-items"))
    assert rb.plugin(path) == "first.py" and "first-items" in rb.methods().index
    model = rb.fit("synthetic", "first-items", environment=environment)
    listed = model.recommend([model.users[0].as_py()], k=3, filter_seen=False)["item"].tolist()
    assert listed == model.items[:3].to_pylist()
