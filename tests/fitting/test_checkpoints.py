"""Checkpoints: two kept, whole or not at all, and a fit that goes on from one is the fit that was never broken off."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from rankbench.contracts.training import expect_resumes
from rankbench.core.errors import ConfigError
from rankbench.core.files import SCRATCH
from rankbench.experiment.job import configure
from rankbench.fitting.checkpoints import Checkpoints, State


def state(number):
    return State(number, {"P": np.full((3, 2), number, np.float32)}, {"seconds": 0.5 * number})


def test_the_last_two_are_kept_and_the_newest_is_read(tmp_path):
    kept = Checkpoints(tmp_path / "run")
    for number in range(1, 6):
        kept.save(state(number))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["000004", "000005"]
    last = Checkpoints(tmp_path / "run", resume=True).last()
    assert last.number == 5 and last.values == {"seconds": 2.5}
    assert_array_equal(last.arrays["P"], state(5).arrays["P"])


def test_one_that_other_code_has_saved_is_used_with_a_warning(tmp_path, caplog, monkeypatch):
    kept = Checkpoints(tmp_path, resume=True)
    kept.save(state(7))
    assert kept.last().number == 7 and not caplog.text
    monkeypatch.setattr("rankbench.fitting.checkpoints.code_fingerprint", lambda: "changed")
    assert kept.last().number == 7
    assert "iteration 7 was saved by another version of the code" in caplog.text
    # A worker of a sweep, whose words nobody reads, begins anew.
    assert kept.values() == {} and Checkpoints(tmp_path, resume=True, discard=True).last() is None and not tmp_path.exists()


@pytest.mark.parametrize("damage", ["a bit", "a stump", "a null", "no checksum"])
def test_a_damaged_one_is_passed_over(damage, tmp_path, caplog):
    kept = Checkpoints(tmp_path, resume=True)
    kept.save(state(1))
    kept.save(state(2))
    arrays, values = (tmp_path / "000002" / name for name in ("arrays.safetensors", "values.json"))
    if damage == "a bit":
        content = bytearray(arrays.read_bytes())
        content[-1] ^= 1
        arrays.write_bytes(content)
    elif damage == "a stump":
        arrays.write_bytes(b"\x08")
    else:
        values.write_text({"a null": "null", "no checksum": '{"seconds": 1.0}'}[damage])
    assert kept.last().number == 1
    assert "000002: not readable" in caplog.text


def test_a_fit_that_begins_again_keeps_its_states_and_not_the_damaged_ones(tmp_path):
    kept = Checkpoints(tmp_path, resume=True)
    for number in (40, 50):
        kept.save(state(number))
        (tmp_path / f"{number:06d}" / "values.json").write_text("null")
    assert kept.last() is None
    for number in (1, 2, 3):
        kept.save(state(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003"] and kept.last().number == 3


def test_scratch_of_a_killed_fit_is_removed(tmp_path):
    Checkpoints(tmp_path).save(state(1))
    (tmp_path / f"{SCRATCH}000002-abcd").mkdir()
    assert Checkpoints(tmp_path, resume=True).last().number == 1
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]


def test_without_resume_a_fit_starts_anew(tmp_path):
    Checkpoints(tmp_path).save(state(3))
    assert Checkpoints(tmp_path).last() is None
    assert not tmp_path.exists()
    assert Checkpoints(tmp_path, resume=True).last() is None


def test_the_states_of_another_fit_are_refused_or_removed(tmp_path, caplog):
    mine, other = ({"method": "ials", "lam": lam, "seed": 0} for lam in (0.1, 5.0))
    Checkpoints(tmp_path / "c", of=mine).save(state(3))
    assert Checkpoints(tmp_path / "c", True, of=mine).last().number == 3
    assert Checkpoints(tmp_path / "c", True).last().number == 3  # a caller who does not say what the fit is
    with pytest.raises(ConfigError, match=r"--resume: .*c holds another fit, with lam 0\.1, not 5\.0; without --resume"):
        Checkpoints(tmp_path / "c", True, of=other).last()
    assert (tmp_path / "c" / "000003").is_dir()
    assert Checkpoints(tmp_path / "c", True, of=other, discard=True).last() is None
    assert "the fit restarts from the beginning" in caplog.text and not (tmp_path / "c").exists()


@pytest.mark.parametrize("method", ["ials", "rg2"])
def test_a_fit_by_conjugate_gradients_goes_on_with_the_bits_of_an_undisturbed_one(method):
    """The contract of methods asks this of the default solver of each."""
    X = sp.csr_array((np.random.default_rng(0).random((300, 200)) < 0.3).astype(np.float32))
    expect_resumes(configure(method, {"solver": "cg", "embedding_dim": 160, "iterations": 4}), X)
