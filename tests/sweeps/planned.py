"""Small experiments and their plans."""

from rankbench.core.config import validate
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.plan import Plan, plan
from rankbench.sweeps.units import Unit

SMALL = {"name": "synthetic", "source": {"generator": {"users": 60, "items": 30, "interactions_per_user": 8}}}


def spec_of(*arms, **more) -> ExperimentSpec:
    return validate(ExperimentSpec, {"name": "test", "datasets": [SMALL], "arms": list(arms), **more}, "x.yaml")


def plan_of(environment, *arms, cpus: int | None = 2, use_chosen: bool = False, **more) -> Plan:
    return plan(spec_of(*arms, **more), environment, cpus, "x.yaml", use_chosen)


def two_units(environment) -> list[Unit]:
    """Of one arm, trained for nine epochs."""
    card, values = load_card("synthetic", environment), {"embedding_dim": 8, "epochs": 9, "patience": 9}
    settings = [configure("bpr", values | {"learning_rate": rate}, arm="a") for rate in (0.1, 0.2)]
    return [Unit(Job(card, (setting,), stage="search"), 1, 1, 1.0) for setting in settings]
