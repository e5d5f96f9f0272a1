"""Links to the runs of a sweep, in a store that a sink has filled, and none where there is nothing to link to."""

import dataclasses

import pyarrow as pa
import pytest

from rankbench.tracking.links import remember, run_links, web_address
from rankbench.tracking.mlflow_runs import MlflowRuns
from rankbench.tracking.record import write_record
from rankbench.tracking.spool import RunMessage, SweepStart
from rankbench.tracking.store import connect

from . import test_record

RECORD = dataclasses.replace(test_record.RECORD, id="final-x-ease-1", arm="ease", stage="final")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with two sweeps, which have a run of the same id, as a repeated sweep has."""
    results = tmp_path_factory.mktemp("results")
    uri = f"sqlite:///{results}/mlflow.db"
    runs = MlflowRuns(connect(uri, results / "mlartifacts"), results, results / "mlartifacts")
    for sweep in ("e-1", "e-2"):
        runs.take(SweepStart(experiment="e", time=1, sweep=sweep, params={}, tags={}))
        for record in (RECORD, dataclasses.replace(RECORD, id=f"search-{sweep}", stage="search")):
            folder = write_record(results / "sweeps" / sweep / "records", record, pa.table({"user": [1]}))
            runs.take(RunMessage(experiment="e", time=2, record=str(folder.relative_to(results)), sweep=sweep))
    return results, uri


def test_a_record_is_linked_to_its_run_under_its_own_sweep(store):
    results, uri = store
    client = connect(uri, results / "mlartifacts")
    pages = {}
    for sweep in ("e-1", "e-2"):
        links = run_links(uri, results / "mlartifacts", sweep, [RECORD.id, "unknown"])
        assert links.needs == "rankbench ui" and [*links.runs] == [RECORD.id]
        base, _, rest = links.runs[RECORD.id].partition("/#/experiments/")
        experiment, _, run = rest.partition("/runs/")
        assert base == "http://127.0.0.1:5000"
        found = client.get_run(run)
        assert (found.info.experiment_id, found.data.tags["rankbench.run"]) == (experiment, RECORD.id)
        assert found.data.tags["rankbench.of_sweep"] == sweep
        pages[sweep] = run
    assert pages["e-1"] != pages["e-2"]


def test_the_links_lead_to_where_the_store_was_served_last(store):
    results, uri = store
    known = results / "mlflow.db.address"
    for address, needs in (
        ("http://127.0.0.1:5051", "rankbench ui --port 5051"),
        ("http://[::1]:5052", "rankbench ui --port 5052"),
    ):
        remember(uri, address)
        links = run_links(uri, results / "mlartifacts", "e-1", [RECORD.id])
        assert links.runs[RECORD.id].startswith(f"{address}/#/experiments/") and links.needs == needs
    for wrong in (b"", b"javascript:alert(1)", b'http://a"onclick=b', b"\xff", b"http://" + b"a" * 999, b"http://u:p@h/x"):
        known.write_bytes(wrong)
        assert web_address(uri) == "http://127.0.0.1:5000"
    known.unlink()
    known.mkdir()
    remember(uri, "http://127.0.0.1:5051")  # there is no place for it, and serving goes on
    assert web_address(uri) == "http://127.0.0.1:5000"
    known.rmdir()


def test_without_an_answer_there_are_no_links_and_no_error(store, tmp_path):
    results, uri = store
    assert run_links(uri, results / "mlartifacts", "another", [RECORD.id]).runs == {}
    missing = f"sqlite:///{tmp_path}/none.db"
    assert run_links(missing, tmp_path, "e-1", [RECORD.id]).runs == {} and not (tmp_path / "none.db").exists()
    (tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    assert run_links(f"sqlite:///{tmp_path}/broken.db", tmp_path, "e-1", [RECORD.id]).runs == {}
    dead = run_links("http://127.0.0.1:9", tmp_path, "e-1", [RECORD.id])
    assert dead.runs == {} and not dead.needs


def test_an_address_in_a_report_has_no_password():
    assert (
        web_address("https://ann:secret@mlflow.example.org:8443/team/?token=secret") == "https://mlflow.example.org:8443/team"
    )
    assert web_address("http://localhost:5001") == "http://localhost:5001"
    assert web_address("postgresql+psycopg2://ann:secret@db/mlflow") == "http://127.0.0.1:5000"
