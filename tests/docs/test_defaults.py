"""The defaults that pages state are those of the code."""

import re

from pages import ROOT

from rankbench.data.protocols.spec import protocols
from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS
from rankbench.schema.experiment import ExperimentSpec


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_of_split_protocols():
    (table,) = re.findall(r"\| `split\.protocol` .*?\n\n", page("datasets.md"), re.DOTALL)
    rows = dict(re.findall(r"^\| `([\w-]+)`[^|]*\|[^|]*\|(.*)\|$", table, re.MULTILINE))
    assert {*rows} == {*protocols().names()}
    stated = 0
    for protocol, text in rows.items():
        fields = protocols().get(protocol).spec.model_fields
        for names, value in re.findall(r"((?:`\w+`,? )+)\(([\d.]+|false)\)", text):
            for name in re.findall(r"\w+", names):
                assert str(fields[name].default).lower() == value, f"{protocol}: {name}"
                stated += 1
        for name, value in re.findall(r"`(\w+)`: (?:items of the )?`([\w-]+)`(?: users)?, the default", text):
            assert fields[name].default == value, f"{protocol}: {name}"
            stated += 1
    assert stated == 17


def test_of_metrics_and_cutoffs():
    text = page("metrics.md")
    accuracy = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", text.partition("## Partial")[0], re.MULTILINE)))
    assert {*accuracy} - {"mrr_pooled", "auc"} | {"coverage", "popularity"} == {*DEFAULT_METRICS}
    assert f"by default {DEFAULT_CUTOFFS[0]}, {DEFAULT_CUTOFFS[1]} and {DEFAULT_CUTOFFS[2]}." in " ".join(text.split())


def test_of_experiment_files():
    spec = ExperimentSpec(name="a", datasets=("synthetic",), arms=({"method": "ease"},))
    search, final = spec.search, spec.final
    assert (search.trials, search.by, search.scheduler, search.grace) == (10, "random", "none", 5)
    assert (search.choose.metric, final.seeds, final.fit_on) == ("ndcg@20", (0,), "auto")
    text = " ".join(page("experiments.md").split())
    assert "ten `trials` by `random` draws without a `scheduler`, a `grace` of 5, settings chosen by ndcg@20 on valid" in text
