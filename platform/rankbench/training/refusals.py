"""Which losses, encoders and ways of training do not go together, and why: what a fit would ignore is refused before it."""

from __future__ import annotations

from collections.abc import Iterator

from rankbench.losses.spec import Loss
from rankbench.losses.spec import registered as losses
from rankbench.models.spec import Encoder
from rankbench.training.params import TrainingParams

_READS = {
    "catalogue": "the scores of all items in each step, each a pass of the network",
    "rivals": "similarities of two items",
    "user_vectors": "the vectors of users as those of a product",
}


def refusal(loss: Loss, encoder: Encoder, p: TrainingParams) -> str:
    """Return why `loss` is not trained with an encoder and with `p`, in one line that names the parameter; empty if it is."""
    return next(_refusals(loss, encoder, p), "")


def _refusals(loss: Loss, encoder: Encoder, p: TrainingParams) -> Iterator[str]:
    whole, similarity = p.objective == "catalogue", p.similarity_for(loss.similarity)
    if whole and not loss.over_catalogue:
        able = ", ".join(each.name for each in losses() if each.over_catalogue)
        yield f"objective=catalogue: this loss has no form for it; use one of {able}"
    if whole and encoder.per_row:
        yield f"objective=catalogue: model {encoder.name} has a vector per interaction, not per user"
    if why := _why_not_sampled_so(loss, p):
        yield f"sampler={p.sampler}: this loss {why}; leave it out"
    if p.decay == "batch-negatives" and p.weight_decay and (why := _why_no_negatives(loss, p)):
        yield f"decay=batch-negatives: {why}; use decay=batch"
    if similarity != loss.similarity:
        problem = f"similarity={similarity}: this loss needs {loss.similarity}"
        if loss.only_because:
            yield f"{problem}, because {loss.only_because}"
        if similarity == "distance" and (whole or loss.needs - {"rivals", "user_vectors"}):
            yield f"{problem}: what it reads besides positives and negatives has no form for distances"
    if p.temperature != 1 and similarity in ("cosine", "half-cosine") and loss.only_because:
        yield f"temperature: not for this loss, because {loss.only_because}"
    if p.temperature != 1 and similarity == "distance":
        yield "temperature divides dot products and cosines only"
    if p.precision != "float32" and not (encoder.work or encoder.short_rows or p.scores_by_products(loss)):
        read, advice = ("own negatives", "use shared_negatives=true, or ") if loss.sampler else ("sums over the catalogue", "")
        yield f"precision={p.precision}: model={encoder.name} with {read} has no product that it is for; {advice}leave it out"
    if encoder.work and (why := _why_no_pairs(loss, p)):
        yield f"{loss.name} does not train model={encoder.name}, which scores pairs: {why}"


def _why_not_sampled_so(loss: Loss, p: TrainingParams) -> str:
    """Return why `loss` has no meaning with the sampler that is given, as half a sentence; empty if it has."""
    if p.sampler in ("auto", "uniform-all"):
        return ""
    whole = "it reads the scores of the whole catalogue" if loss.whole_catalogue else ""
    why = loss.among_all or loss.only_uniform or whole
    if p.sampler == "uniform-other" and why:
        return f"needs all items, because {why}"
    if loss.only_uniform:
        return f"needs uniform-all, because {loss.only_uniform}"
    ignored = loss.sampler is None and p.objective == "sampled"
    return "draws no negatives, because it reads the scores of all items" if ignored else ""


def _why_no_negatives(loss: Loss, p: TrainingParams) -> str:
    """Return why a fit has no drawn negatives that a penalty could act on; empty if it has."""
    if p.objective == "catalogue" or loss.sampler is None:
        return "no negatives are drawn, because the loss reads the whole catalogue"
    in_batch = p.sampler == "in-batch"
    return "with sampler=in-batch, the negatives are items of the batch, which decay already" if in_batch else ""


def _why_no_pairs(loss: Loss, p: TrainingParams) -> str:
    """Return why `loss` cannot be trained with `p` on an encoder that scores pairs, as half a sentence; empty if it can."""
    similarity = p.similarity_for(loss.similarity)
    if loss.similarity == "distance" or loss.unit_ball:
        return "it needs distances of vectors"
    reads = [_READS[need] for need in sorted(loss.needs) if need in _READS]
    if reads:
        return f"it reads {reads[0]}"
    if similarity != "dot":
        fixed = loss.only_because
        return f"it needs cosines, because {fixed}" if fixed else f"it has no {similarity}; use similarity=dot"
    if p.objective == "catalogue":
        return "objective=catalogue needs products of vectors"
    if p.rank_by == "dot":
        return "rank_by=dot needs products of vectors"
    if p.temperature != 1 or p.precision != "float32":
        return "temperature and precision are those of products of vectors"
    return ""
