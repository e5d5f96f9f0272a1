"""Lines of fits: of one that was not made, and of one that is made here."""

from rankbench.experiment.job import Job
from rankbench.experiment.run import run
from rankbench.reproduce.evidence import stored_fit, used_params
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.required_fits import metrics_for


def stored(row, config, metrics, seed=0, **about):
    """The line of a setting of a row on the built-in data; its run is that of the row and the seed."""
    about = {"run": f"final-{row.arm.label}-{seed}"} | about
    return StoredFit(
        dataset="synthetic", card=row.card_key, fingerprint="f", method=config.method, params=used_params(config),
        fit_on=row.part(config), seed=seed, dtype="float32", metrics=metrics, **about,
    )  # fmt: skip


def fitted(fit, environment, tables):
    """Run a wanted fit in this process. Returns its outcome, and the line of it."""
    job = Job(fit.card, (fit.config,), fit.part, "test", metrics_for(fit.card.name, tables), seed=fit.seed)
    (outcome,) = run(job, environment)
    return outcome, stored_fit(outcome.record, fit.config, fit.card_key, idle=False)
