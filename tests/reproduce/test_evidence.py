"""The store: whole files, lines that are replaced by newer ones, and settings that are compared by what a fit reads."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rankbench.core.errors import DataError
from rankbench.experiment.job import configure
from rankbench.reproduce.evidence import Evidence, same_params, used_params
from rankbench.reproduce.ledger_records import StoredFit, StoredSearch


def fit(seed=0, value=0.3, **params):
    config = configure("ials", params)
    return StoredFit(
        dataset="d", card="c", fingerprint="f", method="ials", params=used_params(config), fit_on="train", seed=seed,
        dtype="float32", metrics={"recall@20": (value, 0.2, 0.4)},
    )  # fmt: skip


def test_what_is_added_is_read_again(tmp_path):
    evidence = Evidence(tmp_path / "new")
    evidence.add(fit(seed=1))
    evidence.add(fit(seed=0))
    evidence.add(StoredSearch("d", "c", "ials", {"lam": {"grid": [1, 2]}}, "ndcg@20", 2, {"lam": 1}, 0.5))
    again = Evidence(tmp_path / "new")
    assert again._lines == evidence._lines
    assert [each.seed for each in again.lines(StoredFit, "d")] == [0, 1]


def test_a_search_that_was_cut_short_replaces_none_that_tried_more(tmp_path):
    evidence = Evidence(tmp_path)
    whole = StoredSearch("d", "c", "ials", {"lam": {"grid": [1, 2]}}, "ndcg@20", 24, {"lam": 1}, 0.5, bound=600.0)
    slower, new = dataclasses.replace(whole, draws=5, bound=1200.0), dataclasses.replace(whole, draws=5, bound=None)
    for each, draws in ((whole, 24), (slower, 24), (new, 5)):
        evidence.add(each)
        (line,) = Evidence(tmp_path).lines(StoredSearch, "d")
        assert line.draws == draws


def test_lines_that_several_processes_add_at_once_are_kept(tmp_path):
    def add(first):
        evidence = Evidence(tmp_path)
        for seed in range(first, first + 10):
            evidence.add(fit(seed=seed))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(0, 40, 10)))
    assert [each.seed for each in Evidence(tmp_path).lines(StoredFit, "d")] == list(range(40))


def test_a_file_that_another_process_is_writing_is_not_read(tmp_path):
    Evidence(tmp_path).add(fit())
    (tmp_path / ".tmp-0123abcd-d.fits.jsonl").write_text('{"half')
    assert Evidence(tmp_path).datasets(StoredFit) == ["d"]


def test_a_fit_is_found_by_what_it_reads_and_measures(tmp_path):
    evidence = Evidence(tmp_path)
    evidence.add(fit(lam=0.01))
    same, other = configure("ials", {"lam": 0.01}), configure("ials", {"lam": 0.02})
    assert len(evidence.find("d", "c", same, "train", "float32", ["recall@20"])) == 1
    assert evidence.find("d", "c", other, "train", "float32") == []
    assert evidence.find("d", "other card", same, "train", "float32") == []
    assert evidence.find("d", "c", same, "train+valid", "float32") == []
    assert evidence.find("d", "c", same, "train", "float32", ["recall@50"]) == []


@pytest.mark.parametrize("older_first", [True, False])
def test_of_two_lines_of_a_setting_the_last_fit_counts(tmp_path, older_first):
    """Lines from before and after a version that added a parameter are of the same setting."""
    after = dataclasses.replace(fit(value=0.5), started_at="2026-11-25", run="after")
    before = {name: value for name, value in after.params.items() if name != "alpha0"}
    older = dataclasses.replace(fit(value=0.3), params=before, started_at="2026-11-22", run="before")
    evidence = Evidence(tmp_path)
    for line in (older, after) if older_first else (after, older):
        evidence.add(line)
    assert len(evidence.lines(StoredFit, "d")) == 2
    (found,) = evidence.find("d", "c", configure("ials", {}), "train", "float32")
    assert found.run == "after"
    swapped = Evidence(tmp_path / "swapped")
    swapped.add(dataclasses.replace(older, started_at="2026-11-26"))
    swapped.add(after)
    (found,) = swapped.find("d", "c", configure("ials", {}), "train", "float32")
    assert found.run == "before"


def test_fits_on_other_prepared_data_are_no_seeds_of_a_row(tmp_path):
    """A raw file may change while its card, and so the key of the card, stays."""
    evidence = Evidence(tmp_path)
    for seed in (0, 1, 2):
        evidence.add(dataclasses.replace(fit(), seed=seed, started_at=f"2026-11-2{seed}"))
    evidence.add(dataclasses.replace(fit(), seed=1, fingerprint="other", started_at="2026-11-25"))
    found = evidence.find("d", "c", configure("ials", {}), "train", "float32")
    assert [(each.seed, each.fingerprint) for each in found] == [(1, "other")]


@pytest.mark.parametrize(
    ("method", "given", "newer", "other"),
    [
        ("ials", {"lam": 1}, "alpha0", 0.7),
        ("sl", {"tau": 0.1}, "similarity", "dot"),
        ("sl", {"model": "xsimgcl", "n_layers": 2}, "contrast_nodes", 8),  # of an encoder that is not the default one
    ],
)
def test_a_parameter_that_is_newer_than_the_line_had_its_default(method, given, newer, other):
    config = configure(method, given)
    older = {name: value for name, value in used_params(config).items() if name != newer}
    assert newer in used_params(config) and same_params(config, older)
    assert not same_params(configure(method, given | {newer: other}), older)
    assert not same_params(config, older | {"gone": 2})
    assert not same_params(config, older | {name: "another" for name in given})


def test_a_parameter_that_the_fit_does_not_read_may_have_any_value():
    config = configure("aatp", {"objective": "catalogue"})
    stored = used_params(config)
    assert "beta_lr" not in stored and same_params(config, stored | {"beta_lr": 0.1})
    assert not same_params(configure("aatp", {"objective": "catalogue", "threshold": "learned"}), stored | {"beta_lr": 0.1})


def test_a_file_of_another_name_is_named(tmp_path):
    (tmp_path / "d.jsonl").write_text("")
    with pytest.raises(DataError, match=r"d\.jsonl: expected a name that ends in \.fits\.jsonl"):
        Evidence(tmp_path)


def test_a_line_has_no_number_that_json_lacks(tmp_path):
    bad = dataclasses.replace(fit(), metrics={"recall@20": (float("nan"), None, None)})
    with pytest.raises(ValueError, match="Out of range"):
        Evidence(tmp_path).add(bad)
    assert not [*tmp_path.glob("*.jsonl")]


def test_no_stored_fit_took_fewer_seconds_than_its_curve():
    folder = Path(__file__).parents[2] / "experiments" / "evidence"
    evidence = Evidence(folder, read_only=True)
    fits = [fit for path in folder.glob("*.fits.jsonl") for fit in evidence.lines(StoredFit, path.name.split(".")[0])]
    of_curves = [(fit, max(seconds for _, seconds, _ in curve.points)) for fit in fits for curve in fit.curves if curve.points]
    assert of_curves and not [fit.key for fit, seconds in of_curves if seconds > fit.seconds["fit"]]
