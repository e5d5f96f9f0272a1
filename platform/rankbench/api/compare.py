"""Compare fitted models and evaluations by paired tests over users."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
import pyarrow as pa

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.plain import whole_number
from rankbench.core.public import public
from rankbench.evaluation.metrics import metric_set
from rankbench.evaluation.user_tables import UserValues
from rankbench.experiment.evaluation import Evaluation
from rankbench.experiment.fitted_model import Model
from rankbench.judge.compare import compare as compare_values
from rankbench.judge.compare import pairs_frame, sample_of

log = logging.getLogger(__name__)


@public
def compare(
    models: Iterable[Evaluation | Model] | Mapping[str, Evaluation | Model],
    metric: str = "ndcg@20",
    *,
    baseline: str | None = None,
    seed: int = 0,
    environment: Environment | None = None,
) -> pd.DataFrame:
    """Compare models with paired tests over users: each with the best one, and with `baseline` if it is given.

    Models are measured on test; evaluations are used as they are, and must be of the same data. Names are the keys of the
    mapping, otherwise the methods, or positions from 1 for evaluations without a method. Returns one row per pair, with the
    fields of `judge.compare.Comparison` and its `verdict`.

    Raises ConfigError for fewer than two models, an unknown baseline or metric, or models of different data.
    """
    named = dict(models) if isinstance(models, Mapping) else _named([*models])
    seed = whole_number("seed", seed)
    require(len(named) >= 2, f"compare needs at least two models, got {len(named)}")
    samples: dict[str, UserValues] = {}
    first: Evaluation | None = None
    for name, each in named.items():
        if isinstance(each, Model):
            require(len(metric_set([metric]).names) == 1, f"metric: write {metric} with a cutoff, as in ndcg@20")
        measured = each.evaluate(metrics=[metric], environment=environment) if isinstance(each, Model) else each
        first = first or measured
        require(
            (measured.dataset, measured.measured_on) == (first.dataset, first.measured_on),
            f"{name} was measured on {measured.measured_on} of {measured.dataset}, the first on {first.measured_on} of "
            f"{first.dataset}; only evaluations on the same part of the same data can be compared",
        )
        samples[name] = sample_of(pa.Table.from_pandas(measured.per_user, preserve_index=False), metric, name)
    parts = sorted({each.fit_on for each in named.values() if each.fit_on})
    if len(parts) > 1:
        log.warning("the models were fitted on %s: a difference can come from that alone", " and on ".join(parts))
    assert first is not None
    return pairs_frame(compare_values(samples, dataset=first.dataset, metric=metric, baseline=baseline, seed=seed).pairs)


def _named(models: Sequence[Evaluation | Model]) -> dict[str, Evaluation | Model]:
    given = [getattr(each, "method", "") or str(position) for position, each in enumerate(models, start=1)]
    names = [name if given.count(name) == 1 else f"{name} {position}" for position, name in enumerate(given, start=1)]
    doubled = {name for name in names if names.count(name) > 1}
    require(not doubled, f"models: {', '.join(doubled)} would be the name of two; give a mapping from names to models")
    return dict(zip(names, models, strict=True))
