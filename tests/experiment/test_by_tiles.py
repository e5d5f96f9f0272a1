"""A closed form that does not fit into the memory it is given: the same ranking by tiles in a file, and nothing left of it."""

import psutil
import pytest

from rankbench.core.errors import ConfigError, NumericalError, StorageError
from rankbench.core.memory import Spill, bytes_of
from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run as run_job

MEGABYTE = 1_000_000


class Given(Spill):
    """`memory` is what may still be allocated, whatever this process has by now and gives back meanwhile."""

    def left(self) -> int:
        return self.memory


@pytest.fixture
def jobs(environment):
    """Two settings on data of 2,955 items with at least six users each. If two items had just one, the same user, their
    scores would be equal, and the last bit would decide which one is listed.
    """
    sizes = {"users": 1500, "items": 3000, "interactions_per_user": 60}
    changes = {f"source.generator.{name}": value for name, value in sizes.items()} | {"prepare": [{"k_core": 6}]}
    card = load_card("synthetic", environment, changes)
    cells = tuple(configure("deql-l2", {"p": 0.4, "lam_prime": 50, "b": b}) for b in (0.25, 1.0))
    return lambda spill, dtype="float32": run_job(Job(card, cells, dtype=dtype), environment, Execution(spill=spill))


# Single precision may change the order of two items whose scores differ in the seventh digit.
@pytest.mark.parametrize(
    ("dtype", "memory", "users_that_may_differ"), [("float32", 50 * MEGABYTE, 3), ("float64", 90 * MEGABYTE, 0)]
)  # 59 and 118 MB are needed
def test_each_user_has_the_metrics_of_the_dense_path_and_the_file_is_gone(jobs, tmp_path, dtype, memory, users_that_may_differ):
    dense = jobs(None, dtype)
    tiled = jobs(Given(tmp_path / "spill", memory), dtype)
    assert [outcome.record.tiles for outcome in dense] == [None, None]
    assert all(outcome.record.tiles < 2955 and outcome.model is None for outcome in tiled)
    for one, other in zip(dense, tiled, strict=True):
        users, same_users = one.per_user.to_pandas().set_index("user"), other.per_user.to_pandas().set_index("user")
        differ = (users - same_users).abs().gt(1e-6).any(axis=1)
        assert len(users) == 1500 and differ.sum() <= users_that_may_differ
        for name, value in one.record.metrics.items():
            if dtype == "float64":
                assert other.record.metrics[name].mean == pytest.approx(value.mean, abs=1e-9), name
    assert not list((tmp_path / "spill").iterdir())


def test_a_matrix_that_is_not_positive_definite_leaves_no_tiles(environment, tmp_path):
    sizes = {"users": 400, "items": 5000, "interactions_per_user": 30}
    card = load_card("synthetic", environment, {f"source.generator.{name}": value for name, value in sizes.items()})
    run_job(Job(card, (configure("ease", {"lam": 100}),)), environment, Execution())  # what it loads is no part of the limit
    job = Job(card, (configure("ease", {"lam": 1e-12}),))
    with pytest.raises(NumericalError, match="not positive definite"):
        # 141 MB are needed.
        run_job(job, environment, Execution(spill=Given(tmp_path / "spill", 85 * MEGABYTE)))
    assert not list((tmp_path / "spill").iterdir())


def test_what_fits_is_solved_in_memory_and_less_than_the_process_holds_is_refused(jobs, tmp_path):
    assert jobs(Spill(tmp_path / "spill", psutil.virtual_memory().total))[0].record.tiles is None
    with pytest.raises(StorageError, match=r"memory: 1 MB are allowed, Python and the data use \d+ MB; allow \d+ MB"):
        jobs(Spill(tmp_path / "spill", MEGABYTE))
    assert not (tmp_path / "spill").exists()


def test_sizes_are_read_as_people_write_them():
    sizes = {"4GB": 4e9, "500 mb": 5e8, "1.5 TB": 1.5e12, "7K": 7000, "12 gB": 12e9}
    assert {text: bytes_of(text) for text in sizes} == sizes
    for text in ("", "4", "GB", "0GB", "-1GB", "4 XB", "4GBs", "1e3MB", "4GiB"):
        with pytest.raises(ConfigError, match="expected a size such as 4GB"):
            bytes_of(text)
