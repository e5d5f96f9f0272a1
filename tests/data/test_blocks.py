"""Sparse blocks and the Gram kernel against dense arithmetic."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import csr_from_pairs, csr_from_parts, gram, mirror_upper, union

zero_one = arrays(
    np.float32, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12), elements=st.sampled_from([0.0, 1.0])
)


def csr(X: np.ndarray) -> sp.csr_array:
    user, item = np.nonzero(X)
    return csr_from_pairs(user, item, X.shape)


@given(X=zero_one, shuffle=st.randoms(use_true_random=False))
def test_pairs_in_any_order_and_number_make_the_matrix(X, shuffle):
    pairs = [pair for pair in zip(*np.nonzero(X), strict=True) for _ in range(shuffle.randint(1, 3))]
    shuffle.shuffle(pairs)
    user, item = np.array(pairs, int).reshape(-1, 2).T
    matrix = csr_from_pairs(user, item, X.shape)
    np.testing.assert_array_equal(matrix.toarray(), X)
    assert matrix.nnz == X.sum()
    assert all(np.all(np.diff(matrix[[u]].indices) > 0) for u in range(len(X)))


@given(X=zero_one)
def test_the_parts_of_a_matrix_make_it_again_without_a_copy(X):
    matrix = csr(X)
    again = csr_from_parts(matrix.indptr, matrix.indices, X.shape[1])
    np.testing.assert_array_equal(again.toarray(), X)
    assert np.shares_memory(again.indices, matrix.indices) or matrix.nnz == 0


@given(a=zero_one, seed=st.integers(0, 99))
def test_union_is_one_where_either_is(a, seed):
    b = np.random.default_rng(seed).integers(0, 2, a.shape).astype(np.float32)
    both = union(csr(a), csr(b))
    np.testing.assert_array_equal(both.toarray(), np.maximum(a, b))
    assert both.has_sorted_indices


@given(X=zero_one, dtype=st.sampled_from([np.float32, np.float64]))
def test_gram_is_the_dense_product(X, dtype):
    G = gram(csr(X), dtype)
    np.testing.assert_array_equal(G.matrix, X.T @ X)
    np.testing.assert_array_equal(G.counts, X.sum(axis=0))
    assert G.matrix.dtype == dtype
    assert G.n_items == X.shape[1]


def test_gram_is_exact_beyond_one_tile_and_one_thread():
    X = (np.random.default_rng(0).random((900, 300)) < 0.2).astype(np.float32)
    np.testing.assert_array_equal(gram(csr(X)).matrix, X.T @ X)


def test_gram_reads_a_memory_mapped_matrix(tmp_path):
    X = (np.random.default_rng(1).random((40, 20)) < 0.3).astype(np.float32)
    for half in ("indptr", "indices"):
        np.save(tmp_path / half, getattr(csr(X), half))
    mapped = csr_from_parts(*(np.load(tmp_path / f"{half}.npy", mmap_mode="r") for half in ("indptr", "indices")), 20)
    np.testing.assert_array_equal(gram(mapped).matrix, X.T @ X)


def test_a_gram_is_taken_once():
    G = gram(csr(np.eye(3, dtype=np.float32)))
    np.testing.assert_array_equal(G.take(), np.eye(3))
    with pytest.raises(ConfigError, match="taken before"):
        G.take()


def test_more_interactions_than_float32_counts_are_refused():
    """2^24 + 1 is no float32. One item of 2^24 users, without the memory for them twice."""
    X = csr_from_parts(np.arange(2**24 + 1, dtype=np.int32), np.zeros(2**24, np.int32), 1)
    with pytest.raises(ConfigError, match="use dtype=float64"):
        gram(X)
    assert gram(X, np.float64).matrix.tolist() == [[2.0**24]]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_mirroring_copies_the_upper_triangle(n):
    matrix = np.random.default_rng(n).random((n, n))
    expected = np.triu(matrix) + np.triu(matrix, 1).T
    mirror_upper(matrix)
    np.testing.assert_array_equal(matrix, expected)
