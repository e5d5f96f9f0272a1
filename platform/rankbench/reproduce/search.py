"""The search of a row: as many different settings for every row of a table, in at most the same time, beyond the ranges if the
best one lies on an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import configure
from rankbench.reproduce.ledger_records import Part, StoredSearch
from rankbench.reproduce.required_fits import PaperRow
from rankbench.schema.space import expand
from rankbench.sweeps.search.extend_range import STEPS, edges, one_step_beyond
from rankbench.sweeps.units import Unit, units
from rankbench.tracking.record import RunRecord

Done = Callable[[Unit, list[RunRecord], bool], None]  # that of `run_units`
Run = Callable[[Sequence[Unit], Done, Callable[[Unit], bool]], None]


def search(
    row: PaperRow, on: Part, size: Size, metrics: MetricSet, cpus: int, bound: float | None, run: Run
) -> StoredSearch | None:
    """Return the best setting of a row on a part, or None if every draw failed.

    `bound`: seconds of training after which no further setting is begun; a few settings run at once, so the time can be longer
    by theirs. `run(units, done, may_begin)` runs units and calls `done` with the records of each; it asks `may_begin` when the
    turn of a unit comes, and leaves it out if the answer is no. If a scheduler may end trials, units that have records are
    given again, because it compares each trial with the earlier ones.
    """
    spec, metric = row.table.spec, row.table.spec.search.choose.metric
    tried: dict[str, RunRecord] = {}
    values: dict[str, dict[str, Any]] = {}
    order: list[str] = []  # of the settings; units end in any order, and a tie must not depend on it
    compared: list[Unit] = []

    def spent() -> float:
        return sum(each.own_seconds for each in tried.values())

    def tried_values() -> list[dict[str, Any]]:
        return [values[name] for name in tried]

    def over() -> bool:
        return bound is not None and spent() >= bound

    def measure(settings: Sequence[dict[str, Any]]) -> None:
        configs = [configure(row.arm.method, each, row.source, row.arm.label) for each in settings]
        # On test, a draw is a final run with the first seed.
        final = spec.final.model_copy(update={"seeds": spec.final.seeds[:1]})
        stage = "search" if on == "valid" else "final"
        planned = units(row.card, size, configs, spec.model_copy(update={"final": final}), metrics, stage, cpus)
        own = {unit.job.run_id(each): settings[configs.index(each)] for unit in planned for each in unit.job.configs}
        order.extend(sorted(own, key=lambda name: settings.index(own[name])))
        values.update(own)

        def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
            tried.update({record.id: record for record in records})

        run([*compared, *planned], done, lambda unit: not over())
        if spec.search.prunes:
            compared.extend(planned)

    settings = expand(row.arm.params, spec.search.trials, spec.search.seed, row.source, distinct=True)
    measure(settings)
    drawn, cut = len(tried), False
    for _ in range(STEPS):
        best = _best(tried, order, metric)
        further = one_step_beyond(row.arm, values[best.id], tried_values()) if best else []
        if not further or (cut := over()):
            break
        measure(further)
    best = _best(tried, order, metric)
    if best is None:
        return None
    return StoredSearch(
        dataset=row.dataset,
        card=row.card_key,
        method=row.arm.method,
        space=row.arm.params,
        metric=metric,
        draws=drawn,
        chosen={name: values[best.id][name] for name in row.arm.searched},
        value=round(best.metrics[metric].mean, 6),
        failed=sum(record.failed for record in tried.values()),
        beyond=len(tried) - drawn,
        edges=tuple(edges(row.arm, values[best.id], tried_values())),
        stopped=sum(record.stopped for record in tried.values()),
        on=on,
        seconds=round(spent(), 1),
        bound=bound if cut or len(tried) < len(order) else None,
        seed=spec.search.seed,
        revision=best.environment.get("revision"),
        started_at=best.started_at,
    )


def _best(tried: dict[str, RunRecord], order: Sequence[str], metric: str) -> RunRecord | None:
    """The record with the largest mean; of equal ones, that of the setting that was drawn first."""
    finished = [tried[name] for name in order if name in tried and tried[name].finished]
    return max(finished, key=lambda record: record.metrics[metric].mean, default=None)
