import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import POSITIVES, C, row_b, tensor

from rankbench.losses.others import ScoreTable
from rankbench.losses.recall_at_k import CatalogueRecallAtK, RecallAtK, recall_at_k, recall_at_k_catalogue


def of(p: RecallAtK, pos, *neg) -> float:
    return recall_at_k(row_b(pos=tensor([pos]), neg=tensor([neg])), p).item()


def all_but(i: int) -> list[float]:
    return [x for j, x in enumerate(C.tolist()) if j != i]


@pytest.mark.worked("recall-at-k")
def test_worked_numbers():
    p = RecallAtK(K=2, tau1=0.1, tau2=1)
    value = recall_at_k(row_b(), p)
    assert value.item() == pytest.approx(0.3264596601, abs=1e-9)
    assert (1 + torch.logit(value)).item() == pytest.approx(0.2757584984, abs=1e-9)  # the soft count
    # C: each positive against all other items; both fit into K, so the mean over them is the loss of the list.
    each = [of(p, C[i].item(), *all_but(i)) for i in POSITIVES]
    assert [2 + torch.logit(tensor(x)).item() for x in each] == pytest.approx([1.1397874, 2.9888300], abs=1e-6)
    assert sum(each) / 2 == pytest.approx(0.5130758510, abs=1e-9)


@given(st.permutations([-0.7, -0.3, 0.0, 0.2, 0.6]), st.integers(1, 5))
def test_is_a_miss_at_low_temperatures(scores, K):
    pos, *neg = scores
    rank = 1 + sum(x > pos for x in neg)
    value = of(RecallAtK(K=K, tau1=1e-3, tau2=1e-3), pos, *neg)
    assert value == pytest.approx(0.5 if rank == K else float(rank > K), abs=1e-9)  # just at K, the step is cut in half


def test_the_rank_can_be_that_among_all_items():
    # Of 4 negatives about 0.2757584984 lie above, so of the 9 other items 9/4 times as many.
    p = RecallAtK(K=2, tau1=0.1, tau2=1, scale_rank=True)
    assert (1 + torch.logit(recall_at_k(row_b(), p))).item() == pytest.approx(9 / 4 * 0.2757584984, abs=1e-9)


@pytest.mark.worked("recall-at-k-catalogue")
def test_over_the_catalogue_it_is_the_sampled_form_with_every_other_item():
    p = CatalogueRecallAtK(K=2, tau1=0.1, tau2=1)
    catalogue = ScoreTable(C.expand(len(POSITIVES), -1))
    found = recall_at_k_catalogue(row_b(pos=C[list(POSITIVES)], catalogue=catalogue), p)
    assert found.tolist() == pytest.approx([of(RecallAtK(K=2, tau1=0.1, tau2=1), C[i].item(), *all_but(i)) for i in POSITIVES])
    assert found.mean().item() == pytest.approx(0.5130758510, abs=1e-9)


@pytest.mark.parametrize("ranks", [0.0, 20.0, 37.0, 60.0, 100.0])
def test_the_gradient_is_accurate_in_single_precision_however_far_the_rank_is_from_k(ranks):
    """With K = 20 and τ2 = 1; a sigmoid itself loses its gradient beyond rank 37."""
    slopes = []
    for dtype in (torch.float32, torch.float64):
        neg = torch.linspace(-1, 1, 201, dtype=dtype)[None]
        pos = torch.tensor([1.0 - ranks / 100], dtype=dtype, requires_grad=True)
        loss = recall_at_k(row_b(pos=pos, neg=neg), RecallAtK(K=20, tau1=0.01, tau2=1))
        (slope,) = torch.autograd.grad(loss.sum(), pos)
        slopes.append(slope.item())
    assert slopes[1] < 0 and slopes[0] == pytest.approx(slopes[1], rel=1e-3)
