"""A row says how long it was trained and whether to its end: in the evidence, tables, counts, pages, JSON and MLflow."""

import json
from dataclasses import replace

import pytest

from rankbench.experiment.run import run
from rankbench.judge.convergence import TrainingCurve
from rankbench.reproduce.agenda import agenda
from rankbench.reproduce.agreement import measurements
from rankbench.reproduce.counts import counts
from rankbench.reproduce.evidence import Evidence, stored_fit
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.mlflow_tags import published_tags
from rankbench.reproduce.options import ReproduceOptions
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.required_fits import rows_of
from rankbench.reproduce.results import as_json
from rankbench.reproduce.training import Training

from .stored import stored

TABLE = """\
protocol: {params: {epochs: 8}}
arms:
  - name: BPR
    method: bpr
    params: {embedding_dim: 8, batch_size: 4096, learning_rate: {choice: [0.01, 0.03]}, epochs: 8, SETTING}
    chosen: {synthetic: {learning_rate: 0.03, epochs: EPOCHS}}
    published: {synthetic: {recall@20: 0.2}}
  - {name: EASE, method: ease, params: {lam: 2}, published: {synthetic: {recall@20: 0.2}}}
"""
RISING, FLAT, FALLING = (0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.2, 0.2), (0.1, 0.2, 0.2, 0.15)


def table(epochs, setting="patience: 0"):
    return TABLE.replace("EPOCHS", str(epochs)).replace("SETTING", setting)


def test_a_setting_that_trains_longer_takes_the_place_of_a_shorter_one(home, evidence, toy, tmp_path):
    for epochs, steps in ((3, 33), (8, 88)):
        tables = toy(table(epochs))
        for task in agenda(ReproduceOptions(["toy/2"], stages=["chosen"]), home).tasks:
            (fit,), (outcome,) = task.fits, run(task.unit.job, home)
            evidence.add(stored_fit(outcome.record, fit.config, fit.card_key, idle=False, metrics=fit.metrics))
        row = next(rows_of(tables))
        (measured,) = measurements(row, evidence)
        assert {(fit.seed, fit.iterations) for fit in measured.fits} == {(seed, epochs) for seed in (0, 1, 2)}
        (curve,) = measured.fits[0].curves
        assert (curve.metric, curve.on) == ("recall@20", "test")
        assert [epoch for epoch, _, _ in curve.points] == [*range(1, epochs + 1)]
        assert curve.points[-1][2] == pytest.approx(measured.fits[0].metrics["recall@20"][0], abs=1e-5)
        assert counts(tables, {"toy/2"}, evidence, home)["toy/2"].cut_short == measured.training.cut_short == (epochs < 8)
        (shown,) = as_json([row], [], evidence)["rows"]
        assert (shown["training"]["steps"], shown["training"]["cut_short"]) == ((steps,) * 3, epochs < 8)
        files = {path.name for path in write_pages(tmp_path, tables, evidence, home)}
        assert files >= {"toy.md", "toy-2-synthetic-curves.png"}
        page = (tmp_path / "toy.md").read_text()
        marked = f"{epochs} epochs (paper: 8), {steps} steps; rising; not trained to its end"
        assert (marked if epochs < 8 else str(measured.training)) in page
        note = published_tags(outcome.record, [row])["mlflow.note.content"]
        assert f"\n\nTraining: {epochs} epochs" in note and ("not trained to its end" in note) == (epochs < 8)
    assert len(evidence.lines(StoredFit, "synthetic")) == 6  # the store keeps what was measured before


@pytest.mark.parametrize(
    ("epochs", "setting", "kept", "curves", "said", "cut_short"),
    [
        (8, "patience: 0", 8, [RISING], "8 epochs, 80 steps; rising; not trained to its end", True),
        (8, "patience: 0", 8, [FALLING], "8 epochs, 80 steps; past its best", False),
        (8, "patience: 0", 8, [], "8 epochs, 80 steps; unknown", False),
        (4, "patience: 0", 4, [], "4 epochs (paper: 8), 40 steps; unknown; not trained to its end", True),
        (4, "patience: 0", 4, [FLAT], "4 epochs (paper: 8), 40 steps; flat", False),
        # The rate falls to zero, so that a curve ends flat wherever it is.
        (4, "patience: 0, schedule: cosine", 4, [FLAT], "4 epochs (paper: 8), 40 steps; flat; not trained to its end", True),
        (4, "patience: 1", 2, [], "2 epochs (paper: 8), 18 steps; unknown, ended by validation", False),
        # Validation would have ended it after nine.
        (8, "patience: 2, eval_every: 2", 5, [FLAT], "5 epochs, 45 steps; flat", False),
        # Of the curves on validation and on test, the first decides.
        (8, "patience: 1", 4, [FLAT, RISING], "4 epochs, 36 steps; flat, ended by validation", False),
        (8, "patience: 1", 1, [], "1 epoch, 9 steps; unknown, ended by validation", False),
        # Patience counts epochs, and two evaluations must be no better. With a best epoch in the second half, only a curve that
        # is shorter shows that validation ended the fit.
        (8, "patience: 2, eval_every: 0", 3, [], "3 epochs, 27 steps; unknown, ended by validation", False),
        (8, "patience: 2, eval_every: 0", 4, [], "4 epochs, 36 steps; unknown", False),
        (8, "patience: 2, eval_every: 0", 6, [FLAT], "6 epochs, 54 steps; flat", False),
        (8, "patience: 2, eval_every: 0", 4, [FLAT[:3]], "4 epochs, 36 steps; flat, ended by validation", False),
        (8, "patience: 6, eval_every: 0", 3, [], "3 epochs, 27 steps; unknown", False),
        (8, "patience: 1, eval_every: 0", 7, [], "7 epochs, 63 steps; unknown, ended by validation", False),
        (8, "patience: 0, cause", 8, [], "8 epochs, 80 steps; unknown; not trained to its end", True),
    ],
)
def test_a_row_that_was_not_trained_to_its_end_is_marked(home, toy, epochs, setting, kept, curves, said, cut_short):
    text = table(epochs, setting.removesuffix(", cause"))
    row = next(rows_of(toy(text.replace("method: bpr", "method: bpr\n    cause: steps") if "cause" in setting else text)))
    evidence = Evidence(home.home / "evidence")
    on = [TrainingCurve("recall@20", part, tuple((2 * i + 2, 1.0, value) for i, value in enumerate(values)))
          for part, values in zip(("valid", "test"), curves, strict=False)]  # fmt: skip
    fit = stored(row, row.setting("chosen", evidence), {"recall@20": (0.2, 0.1, 0.3)}, iterations=kept, curves=tuple(on))
    evidence.add(replace(fit, counts={"train": 36000, "valid": 4800, "users": 400}))
    (measured,) = measurements(row, Evidence(evidence.folder))
    assert (str(measured.training), measured.training.cut_short) == (said, cut_short)


def test_one_seed_that_still_rises_marks_the_row(home, toy):
    row, ease = rows_of(toy(table(8)))
    evidence = Evidence(home.home / "evidence")
    for seed, values in enumerate((FLAT, RISING, FALLING)):
        curve = TrainingCurve("recall@20", "test", tuple((i + 1, 1.0, value) for i, value in enumerate(values)))
        config = row.setting("chosen", evidence)
        evidence.add(stored(row, config, {"recall@20": (0.2, 0.1, 0.3)}, seed, iterations=4, curves=(curve,)))
    assert measurements(row, evidence)[0].training.state == "rising"
    evidence.add(stored(ease, ease.setting("printed", evidence), {"recall@20": (0.2, 0.1, 0.3)}))
    assert measurements(ease, evidence)[0].training is None


def test_of_several_seeds_the_range_of_epochs_is_said_and_too_few_steps_are_always_marked():
    training = Training((630, 420, 15), "epochs", 86, "flat", None, False, True, False)
    assert str(training) == "15 to 630 epochs, 1,290 to 54,180 steps; flat, ended by validation"
    assert training.steps == (54180, 36120, 1290) and not training.cut_short
    assert replace(training, too_few=True).cut_short


def test_a_line_without_curves_stays_as_it_is(home, toy):
    """Lines of earlier versions are not written anew because another line is added."""
    row = next(rows_of(toy(table(8))))
    evidence = Evidence(home.home / "evidence")
    fit = stored(row, row.setting("chosen", evidence), {"recall@20": (0.2, 0.1, 0.3)})
    evidence.add(fit)
    path = evidence.folder / "synthetic.fits.jsonl"
    before = path.read_text()
    assert "curves" not in json.loads(before)
    evidence.add(replace(fit, seed=1, curves=(TrainingCurve("recall@20", "valid", ((1, 0.5, 0.1),)),)))
    first, second = path.read_text().splitlines(keepends=True)
    assert first == before and json.loads(second)["curves"] == [
        {"metric": "recall@20", "on": "valid", "points": [[1, 0.5, 0.1]]}
    ]  # fmt: skip
