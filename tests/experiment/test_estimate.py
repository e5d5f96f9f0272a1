"""Estimates grow with the data, and are above the measured memory of fits, but not far above."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment import estimate
from rankbench.experiment.estimate import Size, evaluations_every, memory, products_a_second, seconds
from rankbench.experiment.job import Job, configure
from rankbench.experiment.methods import registered

CARD = load_card("synthetic", Environment.from_env())
FAMILIES = {
    "inverse": ("ease", {}),
    "low-rank": ("edlae-low-rank", {}),
    "als": ("ials", {}),
    "iterative": ("rg2-newton", {}),
    "trained": ("bpr", {}),
    "autoencoder": ("multivae", {}),
    "columns": ("slim", {}),
    "plain": ("popularity", {}),
}


def job_of(method, params, times=1, **about):
    """`times`: settings with rankings of their own that share the fit."""
    bs = [{"b": 0.1 + i / 10} for i in range(times)] if times > 1 else [{}]
    return Job(CARD, tuple(configure(method, params | b) for b in bs), metrics=metric_set(), **about)


def size_of(users, items, interactions, ranked):
    """Users whose activity varies as it does in real data."""
    return Size(users, items, interactions, 2.5 * interactions**2 / users, ranked)


@pytest.mark.parametrize("kind", FAMILIES)
@given(
    users=st.integers(20, 500_000), items=st.integers(20, 60_000), each=st.integers(1, 200),
    grown=st.sampled_from(["users", "items", "interactions", "ranked"]), by=st.floats(1.1, 20),
)  # fmt: skip
def test_no_estimate_falls_when_the_data_grow(kind, users, items, each, grown, by):
    job = job_of(*FAMILIES[kind])
    assert job.configs[0].spec.cost == kind
    counts = {"users": users, "items": items, "interactions": users * each, "ranked": users}
    small = Size(**counts, pairs=2.5 * users * each**2)
    # More users with as many interactions in all have fewer each: their pairs stay, which is more than there can be.
    large = Size(**counts | {grown: int(counts[grown] * by)}, pairs=2.5 * users * each**2)
    assert memory(job, large) >= memory(job, small)
    assert grown == "users" or seconds(job, large, 1) >= seconds(job, small, 1)


# Peaks of runs on real data: method, parameters, settings in one fit, data, bytes.
MEASURED = [
    ("talos", {"batch_size": 1024, "n_negatives": 64}, 1, size_of(942, 1447, 55_375, 934), 815e6),
    ("bpr", {"batch_size": 2048}, 1, size_of(6038, 3533, 575_281, 6028), 689e6),
    ("softmax", {"batch_size": 1024}, 1, size_of(15_603, 8692, 139_554, 15_603), 856e6),
    ("edlae-low-rank", {}, 1, size_of(2000, 1000, 51_819, 2000), 513e6),
    ("ials", {"embedding_dim": 128}, 1, size_of(29_858, 40_981, 1_027_370, 29_858), 887e6),
    ("deql-l2", {"p": 0.5, "lam_prime": 50}, 10, size_of(29_283, 13_701, 669_193, 2861), 1473e6),
    ("deql-l2", {"p": 0.5, "lam_prime": 50}, 2, size_of(29_858, 40_981, 1_027_370, 29_858), 7613e6),
    ("multivae", {"patience": 1}, 1, size_of(29_858, 40_981, 1_027_370, 29_858), 1804e6),
    ("ials", {"embedding_dim": 64}, 1, size_of(463_435, 17_769, 56_890_107, 20_000), 2199e6),
]


@pytest.mark.parametrize(("method", "params", "times", "size", "peak"), MEASURED)
def test_a_measured_peak_lies_below_its_estimate_and_not_far_below(method, params, times, size, peak):
    assert peak <= memory(job_of(method, params, times), size) <= 2 * peak + 0.5e9


def test_trials_of_one_dataset_have_few_different_needs():
    size = size_of(6038, 3533, 575_281, 6028)
    methods = ["ease", "bpr", "softmax", "ials", "popularity", "talos", "rg2", "edlae-low-rank"]
    needs = {memory(job_of(method, {}), size) for method in methods}
    assert len(needs) <= 3 and needs <= {int(step * 1e9) for step in estimate.GRID}
    assert memory(job_of("ease", {}), size_of(100_000, 100_000, 10**6, 10)) % 8_000_000_000 == 0


# Seconds an epoch or iteration of fits that had a core to themselves.
PACED = [
    ("bpr", {"epochs": 1, "batch_size": 2048, "patience": 0}, size_of(6038, 3533, 414_033, 0), 1.75),
    ("ccl", {"epochs": 1, "batch_size": 1024, "patience": 0}, size_of(15_603, 8692, 87_688, 0), 0.62),
    ("softmax", {"epochs": 1, "batch_size": 1024, "patience": 0}, size_of(15_603, 8692, 87_688, 0), 7.5),
    ("ials", {"iterations": 1, "embedding_dim": 64}, size_of(29_858, 40_981, 810_128, 0), 0.3),
    ("ials", {"iterations": 1, "embedding_dim": 128}, size_of(6038, 3533, 460_255, 0), 0.14),
]


@pytest.mark.parametrize(("method", "params", "size", "measured"), PACED)
def test_a_measured_fit_took_about_its_estimate(method, params, size, measured):
    assert measured / 3 < seconds(job_of(method, params), size, 1) - estimate.START < 3 * measured


def test_products_are_timed_also_where_a_reading_of_the_clock_takes_a_second(monkeypatch):
    assert 1e8 < products_a_second("float32") == products_a_second("float32") < 1e14
    clock = itertools.count()
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    assert products_a_second.__wrapped__("float32") == 2 * 768**3  # one second for each product
    assert next(clock) >= 6  # three products at least, timed at both ends


def test_an_inverse_takes_eight_times_as_long_on_twice_the_items_and_half_on_two_cores():
    once, twice = (seconds(job_of("ease", {}), size_of(10, n, 10, 0), 1) - estimate.START for n in (20_000, 40_000))
    assert twice == pytest.approx(8 * once, rel=1e-3)
    both = seconds(job_of("ease", {}), size_of(10, 40_000, 10, 0), 2) - estimate.START
    assert both == pytest.approx(twice / 2, rel=1e-3)
    size = size_of(29_858, 40_981, 1_027_370, 29_858)
    single, double = (memory(job_of("ease", {}, dtype=dtype), size) for dtype in ("float32", "float64"))
    assert double - single == pytest.approx(4 * 40_981**2, abs=2e9)


def test_a_loss_that_keeps_the_whole_catalogue_says_so_itself(monkeypatch):
    size = size_of(15_603, 40_000, 139_554, 15_603)
    params, methods = {"batch_size": 4096}, registered()
    chunked = memory(job_of("softmax", params), size)
    # The softmax loss as another file might declare it.

    def declare(**about):
        method = methods.get("softmax")
        loss = replace(method.loss, **about)
        monkeypatch.setitem(methods._specs, "softmax", replace(method, loss=loss, pace=loss.pace))

    declare(pace=3.0)  # slow is not large
    assert memory(job_of("softmax", params), size) == chunked
    declare(whole_catalogue=True)
    assert memory(job_of("softmax", params), size) >= chunked + 5 * 4096 * 40_000 * 4 - 2**29


@pytest.mark.parametrize("model", ["gat", "dgcf", "pinsage"])
def test_an_encoder_with_weights_of_edges_takes_longer_and_needs_memory_for_them(model):
    size = size_of(30_000, 41_000, 800_000, 30_000)
    jobs = [job_of("bpr", {"model": name, "n_negatives": 1}) for name in ("lightgcn", model)]
    assert 1.5 < seconds(jobs[1], size, 1) / seconds(jobs[0], size, 1) < 30
    dense = replace(size, interactions=20 * size.interactions)
    assert memory(jobs[1], dense) - memory(jobs[0], dense) > 19 * 800_000 * 90
    many = size_of(2_000_000, 1000, 4_000_000, 10)
    assert memory(job_of("softmax", {"model": "lightgcn"}), many) > memory(job_of("softmax", {}), many) + 10**9


def test_negatives_of_the_batch_need_memory_for_each_pair():
    """2.2 GB were measured at a peak; a batch has no more rows than the data."""
    size = size_of(3000, 2000, 20_000, 3000)
    in_batch = {"sampler": "in-batch", "batch_size": 8192}
    assert memory(job_of("bpr", in_batch), size) > 2.2e9 > 2 * memory(job_of("bpr", {"batch_size": 8192}), size)
    few = size_of(300, 200, 1000, 300)
    assert memory(job_of("bpr", in_batch), few) == memory(job_of("bpr", in_batch | {"batch_size": 1000}), few)
    full = {"batch_size": 10**6}  # as people write who want the whole data in one batch
    assert memory(job_of("bpr", full), few) == memory(job_of("bpr", {"batch_size": 1000}), few)
    assert memory(job_of("softmax", full), few) == memory(job_of("softmax", {"batch_size": 1000}), few)
    assert seconds(job_of("bpr", in_batch), size, 1) > 2 * seconds(job_of("bpr", in_batch | {"batch_size": 512}), size, 1)


@pytest.mark.parametrize("sampling", [{"sampler": "in-batch"}, {"shared_negatives": True, "n_negatives": 8192}])
def test_a_loss_of_sums_over_shared_negatives_has_no_array_of_their_scores(sampling):
    """AdvInfoNCE, which keeps the slopes of two sums, had 1.33 GB at its peak with negatives of the batch, SL 0.97 GB."""
    size, batch = size_of(3000, 2000, 20_000, 3000), {"batch_size": 8192, **sampling}
    table = memory(job_of("sl-at-k", batch), size)  # it looks for the largest score
    assert 1.33e9 < memory(job_of("advinfonce", batch), size) < table / 2
    assert memory(job_of("sl", batch | {"precision": "bfloat16"}), size) > 2e9
    assert memory(job_of("bce", {"model": "neumf", **batch}), size) > 2e9


def test_positives_that_are_drawn_pass_through_the_network_too():
    size, batch = size_of(3000, 2000, 20_000, 3000), {"model": "neumf", "batch_size": 8192, "n_negatives": 10}
    few, more = (memory(job_of("debiased-mse", batch | {"n_positives": n}), size) for n in (1, 50))
    other = memory(job_of("debiased-mse", batch | {"n_positives": 1, "n_negatives": 59}), size)
    assert more - few > 0.9 * (other - few)


def test_the_layers_of_a_network_need_memory_for_each_node():
    """Conjugate gradients had arrays of 11.8 tables of vectors at their peak, with towers of 64 units 15.5, of 256 units 21."""
    size = size_of(2_000_000, 2_000_000, 4_000_000, 10)
    table = 4 * (size.users + size.items) * 64
    for method, params, tables in (
        ("rg2-newton", {}, 11.8), ("rg2-newton-mlp", {"hidden_dim": 64}, 15.5), ("rg2-newton-mlp", {"hidden_dim": 256}, 21.0),
    ):  # fmt: skip
        assert tables * table < memory(job_of(method, {"embedding_dim": 64, **params}), size) < 2.2 * tables * table


def test_evaluations_take_a_twentieth_of_a_fit_or_follow_each_epoch():
    size = size_of(15_603, 8_692, 106_000, 15_601)
    catalogue = job_of("sl", {"objective": "catalogue", "epochs": 40}, fit_on="train")
    every = evaluations_every(catalogue, size)
    assert every > 1 and evaluations_every(job_of("sl", {"n_negatives": 1024}, fit_on="train"), size) == 1
    blind = seconds(job_of("sl", {"objective": "catalogue", "epochs": 40, "patience": 0}, fit_on="train"), size, 1)
    looking = job_of("sl", {"objective": "catalogue", "epochs": 40, "patience": 5, "eval_every": every}, fit_on="train")
    assert 0.6 * blind < seconds(looking, size, 1) < (0.6 * 1.06) * blind + 1  # a fit that looks is taken to end early
    long, longer = (
        job_of("sl", {"objective": "catalogue", "epochs": epochs, "patience": 5, "eval_every": every}, fit_on="train")
        for epochs in (1000, 2000)
    )
    assert seconds(long, size, 1) == seconds(longer, size, 1)  # it ends long before the limit


def test_a_size_counts_all_parts_of_the_split(environment):
    dataset = prepare(
        load_card("synthetic", environment, {"source.generator.users": 90, "source.generator.items": 40}), environment
    )
    size, split = Size.of(dataset), dataset.split
    whole = split.train + split.valid_target + split.test_target
    assert (size.users, size.items, size.interactions) == (*whole.shape, whole.nnz) == (90, 40, dataset.counts["interactions"])
    assert size.pairs == np.sum(np.diff(whole.indptr).astype(float) ** 2)
    assert size.ranked == dataset.counts["users_with_test_items"]


@pytest.mark.parametrize("kind", ["als", "iterative", "trained", "autoencoder"])
def test_when_a_fit_is_evaluated_does_not_depend_on_the_machine(kind, monkeypatch):
    method, params = FAMILIES[kind]
    every = set()
    for rate in (5e9, 5e10, 3e11):
        monkeypatch.setattr(estimate, "products_a_second", lambda dtype, rate=rate: rate)
        every.add(evaluations_every(job_of(method, params, fit_on="train"), size_of(29_858, 40_981, 810_128, 29_858)))
    assert len(every) == 1
