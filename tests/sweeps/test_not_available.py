"""Datasets that are not available: a sweep leaves them out with the reason, and --resume adds them once they are available."""

import json
import shutil
from pathlib import Path

import pytest

from rankbench.cli import _main
from rankbench.core.errors import ConfigError, DataError, DownloadError
from rankbench.schema.reading import load_experiment
from rankbench.schema.stored_sweep import NotAvailable, read_sweep
from rankbench.sweeps.plan import plan

EXPERIMENT = """
name: two-shops
datasets: [./here.yaml, ./away.yaml]
arms:
  - {method: popularity, chosen: {here: {}}}
  - {method: ease, params: {lam: {grid: [1, 10]}}, published: {away: {ndcg@5: 0.5}}, chosen: {here: {lam: 1}, away: {lam: 10}}}
search: {choose: {metric: ndcg@5}}
cutoffs: [5]
resources: {cpus: 1, concurrent: 1}
"""
BRIEF = "not available: no such file"


def raw(shift: int = 0) -> str:
    pairs = ((user, item) for user in range(30) for item in range(24) if (user * 7 + item * 5 + shift) % 11 < 6)
    return "user,item\n" + "".join(f"u{user},i{item}\n" for user, item in pairs)


@pytest.fixture
def home(home):
    """A folder with the experiment, both cards and the raw data of one; commands and `Environment` look at it."""
    for name in ("here", "away"):
        (home / f"{name}.yaml").write_text(f"name: {name}\nsource: {{file: {name}.csv}}\n")
    (home / "here.csv").write_text(raw())
    (home / "two.yaml").write_text(EXPERIMENT)
    return home


def plan_of(home, environment, *options, **more):
    return plan(load_experiment(home / "two.yaml", more), environment, 2, "two.yaml", *options)


@pytest.mark.parametrize("use_chosen", [False, True])
def test_a_dataset_that_cannot_be_had_is_left_out_and_named(home, environment, use_chosen):
    planned = plan_of(home, environment, use_chosen)
    assert [card.name for card in planned.cards] == [card.name for card in planned.final_cards] == ["here"]
    assert {unit.job.card.name for unit in planned.search} == (set() if use_chosen else {"here"})
    assert planned.not_available["away"].state == BRIEF
    assert planned.not_available["away"].reason == f"{home / 'away.csv'}: no such file (dataset away)"
    (home / "away.csv").write_text(raw(3))
    whole = plan_of(home, environment, use_chosen)
    # The key names the sweep's folder, which --resume has to find again.
    assert [card.name for card in whole.cards] == ["here", "away"] and whole.key == planned.key and not whole.not_available


def test_splits_that_cannot_be_had_leave_the_dataset_out_as_a_whole(home, environment):
    (home / "away.csv").write_text(raw(3))
    assert plan_of(home, environment).not_available == {}
    (home / "away.csv").unlink()
    # What was prepared serves one split, not those of other seeds.
    assert plan_of(home, environment).not_available == {}
    planned = plan_of(home, environment, **{"final.split_seeds": [0, 1]})
    assert [*planned.not_available] == ["away"] and {card.name for card in planned.final_cards} == {"here"}
    assert not any("away" in note for note in planned.notes)


def test_require_all_stops_and_so_does_an_experiment_none_of_whose_data_can_be_had(home, environment):
    (home / "here.csv").unlink()
    with pytest.raises(DownloadError, match=r"two\.yaml: none of its datasets is available: .*here\.csv: .*away\.csv: "):
        plan_of(home, environment)
    with pytest.raises(DownloadError, match=r"^\S*away\.csv: no such file"):
        plan_of(home, environment, datasets=["./away.yaml"], arms=[{"method": "popularity"}])
    (home / "here.csv").write_text(raw())
    with pytest.raises(DownloadError, match=r"away\.csv: no such file"):
        plan_of(home, environment, False, True)


def test_a_wrong_card_and_wrong_data_are_errors_all_the_same(home, environment):
    (home / "away.csv").write_text("buyer,thing\n1,2\n")
    with pytest.raises(DataError) as error:
        plan_of(home, environment)
    assert not isinstance(error.value, DownloadError)
    (home / "away.yaml").write_text("name: away\nsource: {fiel: away.csv}\n")
    with pytest.raises(ConfigError, match="fiel: unknown key"):
        plan_of(home, environment)


def test_what_the_file_says_of_a_dataset_that_cannot_be_had_is_checked_before_data_are_looked_at(home, environment):
    (home / "two.yaml").write_text(EXPERIMENT.replace("away: {lam: 10}", "away: {lamm: 10}"))
    with pytest.raises(ConfigError, match=r"arms\[1\]\.chosen: unknown parameter 'lamm'; did you mean lam"):
        plan_of(home, environment, True)


def test_the_printed_plan_says_what_is_not_available(home, capsys):
    assert _main(["sweep", "two.yaml", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if BRIEF in line] == [["away", "not"]]  # one row for all its models
    assert f"  not available: {home / 'away.csv'}: no such file (dataset away)" in lines
    assert _main(["sweep", "two.yaml", "--dry-run", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    states = {(row["dataset"], row["model"]): row["state"] for row in content["rows"]}
    assert states == {
        ("here", "popularity"): "planned", ("here", "ease"): "planned",
        ("away", "popularity"): BRIEF, ("away", "ease"): BRIEF,
    }  # fmt: skip
    assert content["not_available"]["away"]["brief"] == "no such file"
    assert _main(["sweep", "two.yaml", "--dry-run", "--require-all"]) == 2
    assert "away.csv: no such file" in capsys.readouterr().err


def test_a_sweep_shows_what_is_missing_and_resume_takes_it_up(home, at_once, capsys):
    """Through table, page and index; then with the data, and then with the data lost again."""

    def swept(*options):
        assert _main(["sweep", "two.yaml", "--json", *options]) == 0
        out, err = capsys.readouterr()
        return json.loads(out), err

    first, err = swept()
    assert {(row["dataset"], row["model"]): row["state"] for row in first["rows"]} == {
        ("here", "popularity"): "measured", ("here", "ease"): "measured",
        ("away", "popularity"): BRIEF, ("away", "ease"): BRIEF,
    }  # fmt: skip
    reason = f"{home / 'away.csv'}: no such file (dataset away)"
    assert f"warning: not available: {reason}; a resumed sweep adds it once it is available" in err
    folder = Path(first["folder"])
    assert read_sweep(folder).about.not_available == {"away": NotAvailable("no such file", reason)}
    assert f"away is not available: {reason}" in (folder / "report" / "report.html").read_text()
    assert _main(["sweep", "status"]) == 0
    assert f"not available: {reason}" in capsys.readouterr().out

    (home / "away.csv").write_text(raw(3))
    second, err = swept("--resume")
    assert second["folder"] == first["folder"] and "not available" not in err
    assert {row["state"] for row in second["rows"]} == {"measured"} and second["not_available"] == {}
    here = [row["metrics"] for row in first["rows"] if row["dataset"] == "here"]
    assert [row["metrics"] for row in second["rows"] if row["dataset"] == "here"] == here
    assert {row.dataset for row in read_sweep(folder).chosen.rows} == {"here", "away"}

    (home / "away.csv").unlink()
    for prepared in (home / "data" / "prepared").glob("away-*"):
        shutil.rmtree(prepared)
    third, _ = swept("--resume")
    # What was measured stays in the table, whatever becomes of the data.
    assert [row["metrics"] for row in third["rows"]] == [row["metrics"] for row in second["rows"]]
    assert [*third["not_available"]] == ["away"]
