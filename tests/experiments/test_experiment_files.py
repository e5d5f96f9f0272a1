"""What every experiment file of the product keeps, and which tables and figures of the papers have one.

Nothing here prepares data or trains: a file that passes can be planned once its data are there.
"""

from functools import cache
from pathlib import Path

import pytest

from rankbench.core.config import override, read_yaml, validate
from rankbench.core.errors import ConfigError
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set, require_within
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.schema.datasets import card_of
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.reading import load_experiment, of_arms
from rankbench.schema.space import expand
from rankbench.training.methods import Trained

FOLDER = Path(__file__).parents[2] / "experiments"
FILES = sorted(FOLDER.glob("*.yaml"))

# Every table that compares models, by paper. Tables of data sets are `rankbench data describe`; 1.1, A.4 and F.1 of Talos are
# studies.
TABLES = {
    "rg2": ("RG²", "2 4 5"),
    "rgx": ("RG×", "3 4"),
    "deql": ("DEQL", "1 2 3"),
    "talos": ("Talos", "3.1 3.2 3.3 3.4 4.1 A.1 A.2 A.3 D.2"),
    "dcl": ("DCL", "2 3"),
}
# Figures have no numbers; tables 4 and 5 of DCL are published settings. Their files stand beside another table, or none, and
# say in words what they draw or measure again.
OTHERS = {
    "rg2_figure1": "figures 1 and 2",
    "rg2_figure2": "figures 1 and 2",
    "rgx_figure1": "figure 1",
    "talos_figure2d": "figure 2(d)",
    "dcl_figure1": "figure 1",
    "dcl_figure2": "figure 2",
    "dcl_figure3": "figure 3",
    "dcl_table4": "table 4",
    "dcl_table5": "table 5",
}
# Numbers of each file's table, counted in the papers; Talos's second set of the temporal split stands beside two, and a
# stand-in repeats 20 of RG×.
PUBLISHED_NUMBERS = {
    "rg2_table2": 52,
    "rg2_table4": 54,
    "rg2_table5": 24,
    "rgx_table3": 60 + 20,
    "rgx_table4": 12,
    "deql_table1": 72,
    "deql_table2": 76,
    "talos_table3_1": 240,
    "talos_table3_2": 33 - 6,
    "talos_table3_2_recall50": 3,
    "talos_table3_2_recall80": 3,
    "talos_table3_3": 33 - 16,
    "talos_table3_3_recall50": 8,
    "talos_table3_3_recall80": 8,
    "talos_table3_4": 36 + 18,
    "talos_table4_1": 32,
    "talos_table_a_1": 8 + 4,
    "talos_table_a_2": 12,
    "talos_table_a_3": 12,
    "talos_table_d_2": 240,
    "dcl_table2": 48,
    "dcl_table3": 82,
}


@cache
def load(path):
    return load_experiment(path, {})


def read(name):
    return load(FOLDER / f"{name}.yaml")


def card_names(spec):
    return [entry if isinstance(entry, str) else entry["name"] for entry in spec.datasets]


def numbers(spec):
    """(row, dataset, metric, published number), of arms and of rows that are not run."""
    # A variant measures the numbers of another row in another way.
    rows = [(arm.label, arm.published) for arm in spec.arms if arm.variant_of is None] + [
        (row.name, row.published) for row in spec.not_run
    ]
    return [(label, dataset, *number) for label, by in rows for dataset, found in by.items() for number in found.items()]


def check_parameters(spec, where):
    """Every setting of the search, and every one that an earlier search chose, is one that its method takes."""
    for arm in spec.arms:
        for values in expand(arm.params, spec.search.trials, spec.search.seed, where):
            configure(arm.method, values, where, arm.label)
        fixed = {name: value for name, value in arm.params.items() if not isinstance(value, dict)}
        for printed in arm.printed.values():
            unprinted = spec.unprinted | arm.unprinted
            lacking = {name: value for name, value in unprinted.items() if isinstance(arm.params.get(name), dict)}
            configure(arm.method, fixed | lacking | printed, where, arm.label)
        for stated in (*arm.chosen.values(), *arm.as_published.values()):
            configure(arm.method, fixed | stated, where, arm.label)


def test_every_table_of_the_papers_that_compares_models_has_its_file():
    for start, (paper, tables) in TABLES.items():
        for table in tables.split():
            number = table.lower().replace(".", "_")
            about = read(f"{start}_table{number if number[0].isdigit() else f'_{number}'}").published
            assert (about.paper, str(about.table)) == (paper, table)


def test_every_figure_and_every_table_of_settings_has_its_file():
    for name in OTHERS:
        read(name)
        assert OTHERS[name] in (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").lower()


def test_no_number_of_a_table_is_missing():
    for name in PUBLISHED_NUMBERS:
        spec = read(name)
        of_the_paper = [number for number in numbers(spec) if number[1] in card_names(spec)]
        assert len(of_the_paper) == PUBLISHED_NUMBERS[name]


def test_a_stand_in_has_the_numbers_of_what_it_stands_for():
    for arm in (*read("rg2_table2").arms, *read("rgx_table3").arms):
        assert arm.published["movielens-1m-rg2"] == arm.published["movielens-10m"]


@pytest.mark.parametrize("path", [path for path in FILES if path.stem.endswith("_standins")], ids=lambda path: path.stem)
def test_the_numbers_beside_stand_ins_are_one_column_of_the_papers_table(path, environment):
    spec, real = load(path), read(path.stem.removesuffix("_standins"))
    assert (spec.published.paper, spec.published.table) == (real.published.paper, real.published.table)
    for position, entry in enumerate(spec.datasets):
        card = card_of(entry, environment, path.name)
        assert card.stand_in and card.name not in card_names(real), f"{path.name}: datasets[{position}]"
        columns = [column(real, name, {arm.label for arm in spec.arms}) for name in card_names(real)]
        assert column(spec, card.name) in columns, card.name


def column(spec, dataset, labels=None):
    """Row → its published numbers and costs on a dataset; only of some rows."""
    arms = [arm for arm in spec.arms if labels is None or arm.label in labels]
    return {arm.label: (arm.published.get(dataset), arm.costs.get(dataset)) for arm in arms}


def test_the_file_is_called_as_the_experiment_and_its_datasets_are_cards_long_enough_for_its_lists(environment):
    for path in FILES:
        spec = load(path)
        assert spec.name == path.stem.replace("_", "-")
        wanted = metric_set([*spec.metrics, spec.search.choose.metric], spec.cutoffs)
        for name in card_names(spec):
            items = load_card(name, environment).expect.prepared.items
            if items is not None:
                require_within(wanted, items, name, path.name)


def test_every_setting_that_is_drawn_or_chosen_is_one_that_its_method_takes():
    for path in FILES:
        check_parameters(load(path), path.name)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"arms.0.method": "bqr"}, "bqr"),
        ({"arms.0.params.learning_rat": 0.1}, "learning_rat"),
        ({"arms.0.params.n_negatives": {"choice": [10, -1]}}, "n_negatives"),
        ({"arms.0.chosen": {"steam": {"init": "zero"}}}, "init"),
    ],
)
def test_a_parameter_that_no_method_takes_would_be_noticed(change, complaint):
    spec = validate(ExperimentSpec, override(read_yaml(FOLDER / "rg2_table2.yaml"), change), "changed")
    with pytest.raises(ConfigError, match=complaint):
        check_parameters(spec, "changed")


def test_published_numbers_are_shares_of_metrics_on_datasets_of_the_file_or_their_stand_ins(environment):
    for path in FILES:
        spec = load(path)
        datasets = {*card_names(spec), *(card_names(load(FOLDER / base)) if (base := read_yaml(path).get("base")) else ())}
        for label, dataset, metric, value in numbers(spec):
            assert dataset in datasets or load_card(dataset, environment).stand_in, f"{label}: {dataset}"
            assert metric_set([metric]).names == (metric,), f"{label}: {metric} has no cutoff"
            assert 0 < value < 1, f"{label}, {dataset}: {metric} = {value}"
        assert spec.published or not numbers(spec), "numbers without a source"


def test_rows_have_names_of_their_own_and_settings_of_what_is_searched_on_datasets_of_the_file():
    for path in FILES:
        spec = load(path)
        for names in ([arm.label for arm in spec.arms] + [row.name for row in spec.not_run], card_names(spec)):
            assert len(set(names)) == len(names), path.name
        for arm in spec.arms:
            where, searched = f"{path.name}: {arm.label}", set(arm.searched)
            assert {*arm.chosen, *arm.as_published} <= {*card_names(spec), *arm.published}, where
            assert all(searched <= {*printed, *spec.unprinted, *arm.unprinted} for printed in arm.printed.values()), where
            # A parameter that the file fixes cannot be another one for a dataset.
            assert all(set(chosen) == searched for chosen in arm.chosen.values()) and {*arm.unprinted} <= searched, where


def test_training_that_looks_at_validation_and_was_not_searched_is_measured_on_a_model_of_train_alone():
    """Fitted on train and valid, it would have nothing to look at, and no search to say for how many epochs it should run."""
    for path in FILES:
        spec = load(path)
        trained = [arm for arm in spec.arms if isinstance(registered().get(arm.method), Trained)]
        stopping = [arm for arm in trained for found in arm.chosen.values() if (arm.params | found).get("patience", 1) != 0]
        assert spec.final.fit_on == "train" or not stopping, ", ".join(arm.label for arm in stopping)


def test_only_some_arms_leave_the_others_in_the_table():
    spec = load_experiment(FOLDER / "talos_table3_1.yaml", {})
    taken = of_arms(spec, ["*, MF", "Talos, LightGCN"], "here")
    assert len(taken.arms) == 11
    assert {arm.label.split(", ")[1] for arm in taken.arms} == {"MF", "LightGCN"}
    assert len(taken.not_run) + len(taken.arms) == len(spec.arms) + len(spec.not_run)
    assert next(row for row in taken.not_run if row.name == "SL, XSimGCL").published["amazon-beauty"]["recall@20"] == 0.1418
    # What a sweep of them stores is read again, although the file claims something of the others.
    assert validate(ExperimentSpec, taken.model_dump(mode="json"), "sweep.json", stored=True) == taken
    with pytest.raises(ConfigError, match="'MF' matches none of"):
        of_arms(spec, ["MF"], "here")
