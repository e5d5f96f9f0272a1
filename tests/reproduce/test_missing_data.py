"""The files that a user must bring, and that cells are measured once a file is there under its published name."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.counts import counts
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.missing_data import files_to_bring, missing_data

from ..sweeps.commands import output, start

GAMES = "amazon-games-2018"


@pytest.mark.slow
def test_a_file_under_its_published_name_is_enough_for_its_cells_to_be_measured(environment, tmp_path):
    store, mirror = tmp_path / "evidence", tmp_path / "mirror"
    here = replace(environment, mirror=mirror, offline=True)
    tables = [table for table in paper_tables(here) if table.name == "deql/1"]
    missing = missing_data(tables, {"deql/1"}, Evidence(store), here)
    assert sum(each.cells for each in missing) == counts(tables, {"deql/1"}, Evidence(store), here)["deql/1"].published == 72
    (row,) = (row for row in files_to_bring(missing, here).body if row[0] == GAMES)
    assert (
        row[1:3] == ["12", "deql/1"]
        and row[3].startswith("[Video_Games.csv](https://")
        and row[5:] == ["1,006", "896", "15,276"]
    )

    rng = np.random.default_rng(0)
    lines = [f"item{item},user{user},5.0,1500000000" for user in range(200) for item in rng.choice(80, 20, replace=False)]
    (mirror / GAMES).mkdir(parents=True)
    (mirror / GAMES / "Video_Games.csv").write_text("\n".join(lines) + "\n")
    assert GAMES not in [each.card.name for each in missing_data(tables, {"deql/1"}, Evidence(store), here)]

    words = ["deql/1", "--datasets", GAMES, "--rows", "EASE", "--store", str(store), "--json"]
    out, _ = output(start(tmp_path, "reproduce", *words, RANKBENCH_MIRROR=str(mirror)))
    assert json.loads(out)["searched"] == 1
    measured = Evidence(store)
    assert {fit.method for fit in measured.lines(StoredFit, GAMES)} == {"ease"}
    found = counts(tables, {"deql/1"}, measured, here)["deql/1"]
    assert (found.data_here, found.measured) == (12, 2)
