"""A closed form that does not fit into the memory it is given: the same ranking by tiles in a file, and nothing left of it."""

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import ConfigError, NumericalError, StorageError
from rankbench.core.memory import LATER, LEAST, Spill, bytes_of
from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run as run_job

MEGABYTE = 1_000_000


@pytest.fixture
def jobs(environment):
    sizes = {"users": 400, "items": 3000, "interactions_per_user": 30}
    card = load_card("synthetic", environment, {f"source.generator.{name}": value for name, value in sizes.items()})
    cells = [{"p": 0.4, "lam_prime": 50, "b": b} for b in (0.25, 1.0)]
    job = Job(card, tuple(configure("deql-l2", cell) for cell in cells))
    return lambda spill: run_job(job, environment, Execution(spill=spill))


def test_the_metrics_are_those_of_the_dense_path_and_the_file_is_gone(jobs, tmp_path):
    dense = jobs(None)
    limit = psutil.Process().memory_info().rss + LATER + 50 * MEGABYTE  # 61 MB are needed
    tiled = jobs(Spill(tmp_path / "spill", limit))
    assert [outcome.record.tiles for outcome in dense] == [None, None]
    assert all(outcome.record.tiles < 3000 and outcome.model is None for outcome in tiled)
    for one, other in zip(dense, tiled, strict=True):
        for name, value in one.record.metrics.items():
            assert other.record.metrics[name].mean == pytest.approx(value.mean, abs=1e-4), name
    assert not list((tmp_path / "spill").iterdir())


def test_a_matrix_that_is_not_positive_definite_leaves_no_tiles(environment, tmp_path):
    sizes = {"users": 400, "items": 5000, "interactions_per_user": 30}
    card = load_card("synthetic", environment, {f"source.generator.{name}": value for name, value in sizes.items()})
    job = Job(card, (configure("ease", {"lam": 1e-12}),))
    with pytest.raises(NumericalError, match="not positive definite"):
        limit = psutil.Process().memory_info().rss + LATER + 85 * MEGABYTE  # 141 MB are needed
        run_job(job, environment, Execution(spill=Spill(tmp_path / "spill", limit)))
    assert not list((tmp_path / "spill").iterdir())


def test_what_fits_is_solved_in_memory(jobs, tmp_path):
    outcomes = jobs(Spill(tmp_path / "spill", psutil.virtual_memory().total))
    assert outcomes[0].record.tiles is None and not (tmp_path / "spill").exists()


def test_less_than_the_process_holds_is_refused_with_what_would_do(jobs, tmp_path):
    with pytest.raises(StorageError, match=r"memory: 1 MB are allowed, Python and the data use \d+ MB; allow \d+ MB"):
        jobs(Spill(tmp_path / "spill", MEGABYTE))
    assert LEAST > 0 and not (tmp_path / "spill").exists()


@given(
    st.integers(1, 999),
    st.sampled_from(["k", "K", "M", "G", "T", "g"]),
    st.sampled_from(["", "B", "b"]),
    st.sampled_from(["", " "]),
)
def test_sizes_are_read_as_people_write_them(number, prefix, unit, space):
    assert bytes_of(f"{number}{space}{prefix}{unit}") == number * 1000 ** ("KMGT".index(prefix.upper()) + 1)


@pytest.mark.parametrize("text", ["", "4", "GB", "0GB", "-1GB", "4 XB", "4GBs", "1e3MB", "4GiB"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ConfigError, match="expected a size such as 4GB"):
        bytes_of(text)
