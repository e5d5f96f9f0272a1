"""Workers that train one model together make the steps of one worker."""

import contextlib
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import interactions, params, trainer_of
from ring import together

from rankbench.losses.spec import registered as losses
from rankbench.models.exchange import Exchange, owned
from rankbench.models.spec import registered as encoders
from rankbench.training.ring import Ring, wire_bytes
from rankbench.training.trainer import Trainer

EPOCHS = 2
RECEIVED = 128  # offset of tcpi_bytes_received in the kernel's struct tcp_info (linux/tcp.h), since Linux 4.1
# Of the losses that read the scores of their own row alone, one is enough.
LOSSES = sorted({"bpr", "bsl", *(loss.name for loss in losses() if loss.state or loss.needs)})
OVER_CATALOGUE = sorted({"sl", "bsl", *(name for name in LOSSES if losses().get(name).over_catalogue)})
VARIANTS = [
    ("bpr", {"optimizer": "row-adam"}),
    ("bpr", {"optimizer": "row-adam", "weight_decay": 0.01}),
    ("sl", {"weight_decay": 0.01}),
    ("sl", {"weight_decay": 0.01, "decay": "batch-negatives"}),
    ("bpr", {"weight_decay": 0.01, "decay": "layer-0", "model": "lightgcn"}),
    ("sl", {"sampler": "in-batch"}),
    ("sampled-softmax", {"sampler": "in-batch", "batch_size": 3}),
    ("sl", {"shared_negatives": True}),
    ("sl", {"shared_negatives": True, "sampler": "uniform-other", "weight_decay": 0.01, "decay": "batch-negatives"}),
    ("talos", {"sampler": "popularity", "reduction": "user"}),
    ("sl-at-k", {"T_beta": 2}),
    ("advinfonce", {"T_adv": 2}),
    ("uib", {"boundary": "embedding"}),
    ("sl", {"batch_size": 3}),  # some workers have no row of a batch
    ("bpr", {"model": "neumf", "network": "he", "gmf_dim": 2, "hidden_layers": 1}),
]


def run(X, name, exchange=None, dtype=np.float64, epochs=EPOCHS, **values):
    """A trainer after some epochs, the loss of each step, and the bytes that were sent until then."""
    trainer = Trainer(X, params(name, **values), losses().get(name), 0, dtype, "cpu", exchange)
    seen, step = [], trainer._step
    trainer._step = lambda *given: seen.append(step(*given)) or seen[-1]
    means = [trainer.epoch(number, 1.0) for number in range(1, epochs + 1)]
    return trainer, np.array([float(each) for each in seen]), means, trainer.exchange.sent


def scored(trainer):
    model = trainer.model()
    return [np.asarray(array) for array in vars(model).values() if isinstance(array, np.ndarray)]


def require_equal_steps(size, name, dtype=np.float64, rtol=1e-12, **values):
    X = interactions(empty=True)
    alone, steps, means, _ = run(X, name, dtype=dtype, **values)
    expected = scored(alone)

    def work(exchange):
        trainer, *rest = run(X, name, exchange, dtype, **values)
        return *rest, scored(trainer), trainer.arrays()

    workers = together(size, work)
    # The loss of a step is the sum of the workers' parts. One near 0 is compared with the others.
    parts = sum(own_steps for own_steps, *_ in workers)
    np.testing.assert_allclose(parts, steps, rtol=rtol, atol=rtol * np.abs(steps).max())
    for _, own_means, _, arrays, state in workers:
        np.testing.assert_allclose(own_means, means, rtol=rtol, atol=rtol)
        for array, wanted in zip(arrays, expected, strict=True):
            np.testing.assert_allclose(array, wanted, atol=1e4 * rtol)
        for part, array in state.items():
            np.testing.assert_array_equal(array, workers[0][-1][part], part)


@pytest.mark.parametrize("name", LOSSES)
def test_two_workers_make_the_steps_of_one(name):
    require_equal_steps(2, name)


@pytest.mark.parametrize("name", OVER_CATALOGUE)
def test_three_workers_share_the_users_of_a_catalogue_step(name):
    require_equal_steps(3, name, objective="catalogue", users_per_step=5)


@pytest.mark.parametrize("model", sorted(encoder.name for encoder in encoders()))
def test_every_encoder_can_be_trained_by_several_workers(model):
    require_equal_steps(2, "bpr", model=model)


@pytest.mark.parametrize(("name", "values"), VARIANTS, ids=[f"{name}-{'-'.join(values)}" for name, values in VARIANTS])
def test_variants_make_the_steps_of_one_worker(name, values):
    require_equal_steps(3, name, **values)


@pytest.mark.parametrize("values", [{}, {"objective": "catalogue", "users_per_step": 5}], ids=["sampled", "catalogue"])
def test_in_single_precision_the_steps_differ_by_rounding(values):
    require_equal_steps(4, "sl", np.float32, 1e-5, **values)


@pytest.mark.parametrize("name", ["sl", "talos", "llpauc"])
def test_one_worker_of_a_ring_has_the_bits_of_a_fit_alone(name):
    X = interactions()
    alone, steps, means, _ = run(X, name, dtype=np.float32)
    ((trainer, ring_steps, ring_means, sent),) = together(1, lambda exchange: run(X, name, exchange, np.float32))
    np.testing.assert_array_equal(ring_steps, steps)
    assert ring_means == means
    assert sent == 0
    for name, array in alone.arrays().items():
        np.testing.assert_array_equal(trainer.arrays()[name], array, name)


def test_the_same_workers_have_the_same_bits_again():
    X = interactions()
    first, second = (together(2, lambda ring: run(X, "sl", ring, np.float32)[0]) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.encoder.items.detach(), b.encoder.items.detach())


@pytest.mark.parametrize(("before", "size", "model"), [(2, 1, "mf"), (2, 3, "mf"), (2, 1, "lightgcn"), (1, 2, "lightgcn")])
def test_a_fit_goes_on_with_another_number_of_workers(before, size, model):
    X = interactions()
    _, _, means, _ = run(X, "talos", epochs=3, model=model)
    arrays = together(before, lambda ring: run(X, "talos", ring, epochs=2, model=model)[0].arrays())[0]

    def resumed(ring):
        trainer = Trainer(X, params("talos", model=model), losses().get("talos"), 0, np.float64, "cpu", ring)
        trainer.restore(arrays)
        return trainer.epoch(3, 1.0)

    np.testing.assert_allclose(together(size, resumed), means[2], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "values", "rows"),
    [
        ("sl", {"objective": "catalogue", "users_per_step": 5}, lambda n_items, touched: n_items),
        ("sl", {"batch_size": 2, "n_negatives": 2, "optimizer": "row-adam"}, lambda n_items, touched: touched),
        ("sl", {"batch_size": 16, "n_negatives": 100}, lambda n_items, touched: touched),
    ],
    ids=["catalogue", "touched-rows", "most-rows"],
)
def test_the_bytes_sent_are_those_of_the_items_of_each_step(name, values, rows):
    """2 (W − 1)/W · d · 8 bytes for each item whose gradient is summed, and for the loss of each epoch."""
    X, size = interactions(), 3
    touched, trainer = [], trainer_of(X, name, **values)
    read = trainer.learner.rows
    trainer.learner.rows = lambda users, items, *more: (
        touched.append(X.shape[1] if items is None else len(items)) or read(users, items, *more)
    )
    for number in range(1, EPOCHS + 1):
        trainer.epoch(number, 1.0)
    numbers = sum(rows(X.shape[1], each) for each in touched) * trainer.p.embedding_dim + EPOCHS
    for *_, sent in together(size, lambda ring: run(X, name, ring, **values)):
        assert sent == pytest.approx(2 * (size - 1) / size * 8 * numbers, rel=1e-12)


def test_sums_are_exact_and_counted():
    def work(ring: Ring):
        tensors = torch.arange(6.0).reshape(2, 3).T + ring.rank, torch.tensor(2**40 + ring.rank)
        ring.sum(tensors)
        return tensors, ring.sent

    for (matrix, number), sent in together(3, work):
        np.testing.assert_array_equal(matrix, 3 * torch.arange(6.0).reshape(2, 3).T + 3)
        assert int(number) == 3 * 2**40 + 3
        assert sent == 4 / 3 * (24 + 8) == wire_bytes(matrix, 3) + wire_bytes(number, 3)


@pytest.mark.parametrize("model", ["lightgcn", "ngcf", "sgl", "xsimgcl"])
def test_a_graph_shared_by_workers_gives_the_bits_of_one(model):
    """The vectors that are scored are those of one worker, and each worker computes about its share of the rows."""
    X, size = interactions(), 3
    expected = trainer_of(X, "bpr", model=model).encoder()

    def work(ring: Ring):
        encoder = Trainer(X, params("bpr", model=model), losses().get("bpr"), 0, np.float64, "cpu", ring).encoder
        U, V = encoder.graph.by_rows((0.0, 1.0), *(torch.ones(n, 2) for n in X.shape))
        return encoder(), [(table != 0).any(dim=1).sum() for table in (U, V)]

    linked = [np.count_nonzero(np.diff(matrix.indptr)) for matrix in (X, X.T.tocsr())]
    own = 0
    for vectors, rows in together(size, work):
        for table, wanted in zip(vectors, expected, strict=True):
            assert torch.equal(table, wanted)
        assert all(int(each) <= -(-n // size) for each, n in zip(rows, X.shape, strict=True))
        own = own + np.array([int(each) for each in rows])
    np.testing.assert_array_equal(own, linked)


def test_rows_of_users_come_from_their_owners():
    def work(ring: Ring):
        table = torch.full((5, 2), float(ring.rank))
        last = torch.full((5,), ring.rank)
        table[ring.rank, 0] = -0.0
        ring.complete([table, last])
        assert ring.sent == 3 * (2 * 4 + 8)  # half the workers have three rows
        return table, last

    for rank, (table, last) in enumerate(together(2, work)):
        assert last.tolist() == [0, 1, 0, 1, 0]
        assert table[:, 1].tolist() == [0, 1, 0, 1, 0]
        assert torch.signbit(table[rank, 0])  # the owner's own bits


def test_every_user_has_one_owner():
    class Of(Exchange):
        def __init__(self, rank):
            self.rank, self.size = rank, 4

    owners = np.stack([owned(np.arange(11), Of(rank)) for rank in range(4)])
    np.testing.assert_array_equal(owners.sum(axis=0), 1)


def test_gloo_sends_the_bytes_that_are_counted():
    def bytes_received():
        """By each TCP socket of this process, of which the workers of this test are threads: inode → number.

        Bytes that a busy machine sends again are counted once, unlike those of the kernel's count of sent bytes.
        """
        received = {}
        for path in filter(Path.is_socket, Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as each:
                if each.type == socket.SOCK_STREAM and each.family in (socket.AF_INET, socket.AF_INET6):
                    info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    number = int.from_bytes(info[RECEIVED : RECEIVED + 8], "little") if len(info) >= RECEIVED + 8 else 0
                    received[os.fstat(each.fileno()).st_ino] = number
        return received

    def work(ring: Ring):
        # Connects all workers: each part has numbers, so that each worker sends some to each neighbour.
        ring.sum([torch.zeros(300)])
        ring.complete([torch.zeros(300)])
        barrier.wait()
        # One thread counts, because the others would count the copies of the sockets that it holds meanwhile.
        before, counted = bytes_received() if ring.rank == 0 else {}, ring.sent
        barrier.wait()
        ring.sum([torch.zeros(500_000)])
        ring.complete([torch.zeros(300_000)])
        barrier.wait()
        # Sockets of earlier tests may have been closed in between, and on a busy machine some were connected since.
        after = bytes_received() if ring.rank == 0 else {}
        barrier.wait()  # a worker that has returned closes its sockets
        return sum(number - before.get(inode, 0) for inode, number in after.items()), ring.sent - counted

    barrier = threading.Barrier(3)
    workers = together(3, work)
    if not workers[0][0]:
        pytest.skip("this kernel does not count the bytes of a socket")
    assert workers[0][0] == pytest.approx(sum(counted for _, counted in workers), rel=0.01)
