"""The arguments of write_report as types, from the plain values that tests write down and change."""

from rankbench.schema.stored_sweep import ChosenFile, ComparisonsFile, SweepFile


def typed(about, chosen, records, compared):
    chosen = chosen and ChosenFile.model_validate({"finished_at": ""} | chosen)
    return SweepFile.model_validate(about), chosen, records, ComparisonsFile.model_validate(compared)
