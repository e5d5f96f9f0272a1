"""The line of a fit that was not made."""

from rankbench.reproduce.evidence import used_params
from rankbench.reproduce.ledger_records import StoredFit


def stored(row, config, metrics, seed=0, **about):
    """The line of a setting of a row on the built-in data; its run is that of the row and the seed."""
    about = {"run": f"final-{row.arm.label}-{seed}"} | about
    return StoredFit(
        dataset="synthetic", card=row.card_key, fingerprint="f", method=config.method, params=used_params(config),
        fit_on=row.part(config), seed=seed, dtype="float32", metrics=metrics, **about,
    )  # fmt: skip
