"""The plan: what shares a fit, what is redundant, and that everything is checked before anything runs."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.errors import ConfigError
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import configure
from rankbench.sweeps.dry_run import dry_run
from rankbench.sweeps.sweep import final_settings
from rankbench.sweeps.units import units

from .planned import SMALL, plan_of, spec_of


def test_every_b_and_edlae_share_one_fit(environment):
    bs = [0.1, 0.5, 1.0, 2.0]
    planned = plan_of(
        environment,
        {"method": "edlae", "params": {"p": {"grid": [0.3, 0.6]}, "lam": 10}},
        {"method": "deql-l2", "params": {"p": {"grid": [0.3, 0.6]}, "lam_prime": 10, "b": {"grid": bs}}},
    )
    assert planned.n_settings == 10
    assert [len(unit.job.configs) for unit in planned.search] == [5, 5]
    assert "10 settings need 2 fits: the others share a fit" in planned.notes
    papers_scale = plan_of(environment, {"method": "deql-l2", "params": {"lam": 10, "b": {"grid": [0.5, 1.0]}}})
    assert len(papers_scale.search) == 2


def test_b_under_zero_diagonal_is_planned_once_and_said_to_be_redundant(environment):
    arm = {"method": "deql-l2-zero-diag", "params": {"p": {"grid": [0.2, 0.4]}, "lam_prime": 5, "b": {"grid": [0.5, 1, 2]}}}
    planned = plan_of(environment, arm)
    assert planned.n_settings == 2
    assert any("2 of 6 settings" in note and "EDLAE" in note for note in planned.notes)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("deql-l2-zero-diag", {"p": 0.5, "lam": 10, "b": {"grid": [0.1, 0.5, 1, 2]}}),  # λ' = 79.2, 64, 40, 16
        ("debiased-ease", {"lam": 100, "alpha": {"grid": [0, 0.5, 0.9, 0.99]}}),  # an EASE with 100, 200, 1000, 10000
    ],
)
def test_parameters_that_rescale_the_ridge_are_all_planned(environment, method, params):
    planned = plan_of(environment, {"method": method, "params": params})
    assert planned.n_settings == 4 and not any("planned" in note for note in planned.notes)
    spread = {"deql-l2-zero-diag": {"b": {"loguniform": [0.1, 2]}}, "debiased-ease": {"alpha": {"uniform": [0, 0.99]}}}[method]
    drawn = {"method": method, "params": params | spread}
    search = {"by": "tpe", "trials": 4, "choose": {"metric": "ndcg@10"}}
    planned = plan_of(environment, drawn, search=search)
    assert not any("changes no ranking" in note for note in planned.notes)


def test_equal_rankings_of_two_arms_are_named(environment):
    planned = plan_of(
        environment,
        {"method": "edlae", "params": {"p": 0.5, "lam": 10}},
        {"method": "deql-l2-zero-diag", "params": {"p": 0.5, "lam_prime": 10}},
    )
    assert any(note.startswith("edlae and deql-l2-zero-diag: 1 settings have the same ranking") for note in planned.notes)


def test_a_model_that_two_arms_ask_for_is_fitted_once_and_shown_for_both(environment):
    planned = plan_of(environment, {"method": "rg2"}, {"method": "rgx"}, {"method": "ials"})
    assert [[each.method for each in unit.job.configs] for unit in planned.search] == [["rg2", "rgx"], ["ials"]]
    assert [note for note in planned.notes if "same ranking" in note] == [
        "rg2 and rgx: 1 settings have the same ranking; run once, shown for each"
    ]


def test_losses_that_are_one_in_other_words_are_trained_once(environment):
    def arm(method, name=None, **params):
        return {"method": method, "name": name or method, "params": {"sampler": "uniform-all", **params}}

    planned = plan_of(
        environment,
        arm("sl", tau=0.3),
        arm("mine", tau=0.3),
        arm("mine-plus", tau=0.3, lam=1),
        arm("bsl", tau1=0.7, tau2=0.3),
        arm("infonce", tau=0.3),
        arm("sl", "sl with the positive", tau=0.3, include_positive=True),
        # Each of these is another model.
        arm("mine-plus", "weighted", tau=0.3, lam=1.1),
        arm("bsl", "with a penalty", tau1=0.7, tau2=0.3, weight_decay=1e-6),
        arm("bsl", "several positives", tau1=0.7, tau2=0.3, form="multi"),
        arm("sl", "other negatives", tau=0.3, sampler="uniform-other"),
    )
    assert [[each.arm for each in unit.job.configs] for unit in planned.search] == [
        ["sl", "mine", "mine-plus", "bsl"],
        ["infonce", "sl with the positive"],
        ["weighted"],
        ["with a penalty"],
        ["several positives"],
        ["other negatives"],
    ]


def test_draws_one_after_another_have_one_need_and_idle_ones_are_named(environment):
    arm = {"method": "deql-l2-zero-diag", "params": {"p": 0.4, "lam_prime": 5, "b": {"uniform": [0.5, 2]}}}
    planned = plan_of(environment, arm, search={"by": "tpe", "trials": 7})
    (search,) = planned.adaptive
    assert (planned.n_fits, planned.n_settings, search.trials) == (7, 7, 7)
    unit = search.unit({"b": 1.25})
    assert [each.params.b for each in unit.job.configs] == [1.25]
    assert (unit.cpus, unit.memory_bytes) == (search.draft.cpus, search.draft.memory_bytes)
    (note,) = [note for note in planned.notes if "every draw" in note]
    assert note.startswith("deql-l2-zero-diag: every draw of b is run, although it changes no ranking: with a zero diagonal")


@pytest.mark.parametrize("dims", [{"choice": [2_000_000, 8]}, {"randint": [8, 2_000_001]}, {"grid": [8, 2_000_000]}])
def test_a_draft_has_room_for_the_largest_draw(environment, dims):
    arm = {"method": "ials", "params": {"embedding_dim": dims, "iterations": 1, "lam": {"loguniform": [0.1, 10]}}}
    (search,) = plan_of(environment, arm, search={"by": "tpe", "trials": 1}).adaptive
    assert search.draft.job.configs[0].params.embedding_dim == 2_000_000 and search.draft.memory_bytes > 4e9


def test_what_is_searched_in_vain_is_named(environment):
    params = {"epochs": 20, "T_beta": {"choice": [5, 20]}, "n_negatives": {"grid": [5, 9]}, "tau_d": {"choice": [0.1, 0.2]}}
    arms = [{"name": each, "method": "sl-at-k", "params": params | {"objective": each}} for each in ("catalogue", "sampled")]
    notes = [note for note in plan_of(environment, *arms).notes if "reads" in note]
    assert notes == ["warning: catalogue: no setting reads T_beta and n_negatives, so that searching this changes nothing"]


def test_a_value_that_no_arm_reads_is_named(environment):
    softmax, bpr = ({"method": each, "params": {"epochs": 1, "n_negatives": 7}} for each in ("softmax", "bpr"))
    alone, together = (
        [note for note in plan_of(environment, *arms).notes if "reads" in note] for arms in ([softmax], [softmax, bpr])
    )
    assert alone == ["warning: n_negatives=7: no setting of this experiment reads it"] and not together


def test_what_a_scheduler_cannot_stop_and_a_plan_does_not_count_is_named(environment):
    arms = [{"name": str(n), "method": "bpr", "params": {"epochs": 9, "patience": n}} for n in (0, 2)]
    planned = plan_of(environment, *arms, search={"scheduler": "asha", "grace": 2, "extend": True})
    blind, beyond = (note for note in planned.notes if "asha" in note or "extend" in note)
    assert blind == "warning: 0: asha stops none of their trials, because with patience=0 they look at no validation set"
    always = plan_of(environment, {"method": "ials"}, search={"scheduler": "asha", "grace": 2})  # has no patience by default
    assert any(note.startswith("warning: ials: asha stops none of their trials") for note in always.notes)
    assert beyond == "search.extend: fits beyond the ends of ranges are not counted: at most 3 for each searched number"


def test_fits_that_cannot_end_by_the_metric_that_chooses_are_named(environment):
    params = {"epochs": 9, "patience": 2, "eval_every": 1}
    stated = {"never": {"patience": 0}, "early": {}, "own": {"stop_metric": "mrr@20"}}
    arms = [{"name": name, "method": "bpr", "params": params | own} for name, own in stated.items()]
    said = "early: fits end by ndcg@20, since none can follow opauc@5, by which settings are chosen"
    for metric, expected in (("opauc@5", [said]), ("recall@10", [])):
        planned = plan_of(environment, *arms, search={"choose": {"metric": metric}})
        assert [note for note in planned.notes if "end by" in note] == expected


@pytest.mark.parametrize(
    ("method", "cpus", "unused"), [("popularity", 2, 3), ("popularity", None, 3), ("ease", None, 1), ("ease", 2, 2)]
)
def test_resources_that_nothing_uses_are_named(environment, method, cpus, unused):
    wanted = ({"workers": 2}, {"nodes": 2}, {"device": "cuda"})
    notes = [plan_of(environment, {"method": method}, cpus=cpus, resources=each).notes for each in wanted]
    found = [note for each in notes for note in each if note.startswith("warning: resources.")]
    assert len(found) == unused and found[0].startswith("warning: resources.workers: no method of this experiment uses it")


def test_a_table_whose_paper_leaves_open_which_recall_it_means_has_tests_for_both(environment):
    arms = [{"method": name, "published": {"synthetic": {"recall@5": 0.1, "ndcg@5": 0.1}}} for name in ("ease", "popularity")]
    planned = plan_of(environment, *arms, published=PAPER)
    assert dry_run(planned, environment, [Machine(2, 10**12)]).statistics.comparisons == 3


def test_a_card_may_be_written_out_in_the_file(environment):
    card = {"name": "own", "source": {"generator": {"users": 50, "items": 25, "interactions_per_user": 6}}}
    planned = plan_of(environment, {"method": "popularity"}, datasets=[{"name": "own", "card": card, "split": {"seed": 3}}])
    assert [(card.name, card.split.seed) for card in planned.cards] == [("own", 3)]
    with pytest.raises(ConfigError, match=r"x\.yaml: datasets\[0\]\.card: sorce: unknown key; did you mean source\?"):
        plan_of(environment, {"method": "popularity"}, datasets=[{"name": "own", "card": {"name": "own", "sorce": {}}}])


def test_the_key_ignores_resources_but_not_the_grid(environment):
    arm = {"method": "ease", "params": {"lam": {"grid": [1, 2]}}}
    key = plan_of(environment, arm).key
    assert plan_of(environment, arm, resources={"cpus": 1}).key == key
    assert plan_of(environment, {"method": "ease", "params": {"lam": {"grid": [1, 3]}}}).key != key


def final_jobs(environment, arms, **more):
    """What the final stage would run, were these arms chosen as they stand."""
    planned = plan_of(environment, *arms, **more)
    chosen = [configure(arm["method"], arm.get("params", {})) for arm in arms]
    return planned, [
        unit.job
        for card in planned.final_cards
        for unit in units(card, Size.of(prepare(card, environment)), chosen, planned.spec, planned.metrics, "final", 2)
    ]


ARMS = [{"method": "random"}, {"method": "ease"}, {"method": "edlae", "params": {"p": 0.5}}, {"method": "popularity"}]


def test_a_final_run_a_seed_where_the_method_uses_it_and_one_where_not(environment):
    planned, jobs = final_jobs(environment, ARMS, final={"seeds": [3, 1, 2]})
    seeds = {}
    for job in jobs:
        for each in job.configs:
            seeds.setdefault(each.method, []).append(job.seed)
    assert seeds == {"random": [3, 1, 2], "ease": [3], "edlae": [3], "popularity": [3]}
    assert len({job.run_id(each) for job in jobs for each in job.configs}) == 6
    assert "ease, edlae, popularity: the method uses no seed; run with seed 3 alone" in planned.notes
    assert not any("no seed" in note for note in plan_of(environment, *ARMS).notes)


def test_a_final_run_a_split_seed_on_other_data_under_the_same_name(environment):
    planned, jobs = final_jobs(environment, ARMS, final={"seeds": [0, 1], "split_seeds": [0, 7]})
    assert [(job.card.name, job.card.split.seed) for job in jobs if job.seed == 1] == [("synthetic", 0), ("synthetic", 7)]
    assert len(jobs) == 2 * 5 and len({job.run_id(each) for job in jobs for each in job.configs}) == 10
    first, other = (prepare(card, environment) for card in planned.final_cards)
    assert first.fingerprint == prepare(planned.cards[0], environment).fingerprint != other.fingerprint
    assert "synthetic: settings are chosen on the split of seed 0, then measured on those of 0, 7" in planned.notes
    # The card's own changes hold on every split.
    assert other.split.n_users <= 60


def test_a_split_seed_that_changes_no_final_run_is_left_out(environment, tmp_path):
    # Parts as published: a seed carves another validation part, and train + valid is what it was.
    for part, pairs in {"train": range(40), "test": range(40, 50)}.items():
        (tmp_path / f"{part}.csv").write_text("\n".join(["user,item", *[f"u{i % 5},i{i}" for i in pairs]]))
    (tmp_path / "shop.yaml").write_text(
        "name: shop\nsource: {files: {train: {file: train.csv}, test: {file: test.csv}}}\n"
        "split: {protocol: published, valid: 0.4}"
    )
    more = {"datasets": [str(tmp_path / "shop.yaml")], "cutoffs": [5], "search": {"choose": {"metric": "ndcg@5"}}}
    planned = plan_of(environment, {"method": "ease"}, final={"split_seeds": [0, 1]}, **more)
    assert [card.split.seed for card in planned.final_cards] == [0]
    assert "shop: split seed 1 gives the same final runs as 0 and is left out" in planned.notes
    on_train = plan_of(environment, {"method": "ease"}, final={"split_seeds": [0, 1], "fit_on": "train"}, **more)
    assert [card.split.seed for card in on_train.final_cards] == [0, 1]
    # Each seed has another validation part, by which a fit ends unless the search has found its length.
    early = {"method": "bpr", "params": {"epochs": 3, "patience": 1}}
    for arm, use_chosen, seeds in ((early, False, [0]), (early, True, [0, 1])):
        planned = plan_of(environment, arm, final={"split_seeds": [0, 1]}, use_chosen=use_chosen, **more)
        assert [card.split.seed for card in planned.final_cards] == seeds


@pytest.mark.parametrize(
    ("split", "fit_on", "expected"),
    [
        ({"protocol": "random-per-user"}, "auto", "train+valid"),
        ({"protocol": "random-per-user"}, "train", "train"),
        ({"protocol": "held-out-users", "valid": 8, "test": 8}, "auto", "train"),
        ({"protocol": "held-out-users", "valid": 8, "test": 8}, "train+valid", "train+valid"),
    ],
)
def test_the_final_fit_is_what_the_protocol_says_unless_the_file_does(environment, split, fit_on, expected):
    _, jobs = final_jobs(environment, ARMS, datasets=[SMALL | {"split": split}], final={"fit_on": fit_on})
    assert {(job.fit_on, job.measure_on) for job in jobs} == {(expected, "test")}


EARLY = {"epochs": 6, "patience": 2, "embedding_dim": 4}


def test_a_setting_that_valid_ends_is_fitted_on_train_and_one_of_a_given_length_on_both(environment):
    arms = [{"method": "bpr", "params": EARLY}, {"method": "bpr", "params": EARLY | {"patience": 0}}, {"method": "ease"}]
    named = [arm | {"name": str(number)} for number, arm in enumerate(arms)]
    planned = plan_of(environment, *named, use_chosen=True)
    (card,), size = planned.final_cards, Size.of(prepare(planned.final_cards[0], environment))
    jobs = [unit.job for unit in units(card, size, planned.given[card.name], planned.spec, planned.metrics, "final", 2)]
    assert {job.configs[0].arm: job.fit_on for job in jobs} == {"0": "train", "1": "train+valid", "2": "train+valid"}


def test_a_chosen_setting_cannot_end_by_the_part_that_it_is_fitted_on(environment):
    arm, final = {"name": "A", "method": "bpr", "params": EARLY}, {"fit_on": "train+valid"}
    with pytest.raises(ConfigError, match=r"x\.yaml: final\.fit_on: train\+valid: A: no validation set .* patience=0"):
        plan_of(environment, arm, final=final, use_chosen=True)
    assert plan_of(environment, arm, final=final).search  # a search finds the number of epochs


@pytest.mark.parametrize(
    ("schedule", "kept", "part"),
    [("constant", {"epochs": 3, "patience": 0}, "train+valid"), ("cosine", {}, "train"), ("plateau", {}, "train")],
)
def test_the_length_that_a_search_finds_is_used_unless_it_changes_the_learning_rates(environment, schedule, kept, part):
    planned = plan_of(environment, {"method": "bpr", "params": EARLY | {"schedule": schedule, "patience": 5}})
    (unit,), (card,) = planned.search, planned.cards
    record = SimpleNamespace(method="bpr", arm="bpr", params=unit.job.configs[0].flat, id="r", iterations=3)
    (setting,) = final_settings({(card.name, "bpr"): record}, card, planned.spec)
    assert setting.flat == record.params | kept
    (final,) = units(card, Size.of(prepare(card, environment)), [setting], planned.spec, planned.metrics, "final", 2)
    assert final.job.fit_on == part
    both = planned.spec.model_copy(update={"final": planned.spec.final.model_copy(update={"fit_on": "train+valid"})})
    (setting,) = final_settings({(card.name, "bpr"): record}, card, both)
    assert (setting.flat["epochs"], setting.flat["patience"]) == (3, 0)  # as the file wants, whatever the schedule


def test_one_seed_has_a_short_form():
    assert spec_of({"method": "ease"}, final={"seed": 4}) == spec_of({"method": "ease"}, final={"seeds": [4]})
    assert spec_of({"method": "ease"}).final.seeds == (0,)


def test_the_columns_are_what_the_paper_reports_or_what_was_searched():
    assert spec_of({"method": "ease"}).report_metrics == ("recall@20", "ndcg@20")
    arm = {"method": "ease", "published": {"synthetic": {"ndcg@50": 0.2, "hit@10": 0.1}}}
    assert spec_of(arm).report_metrics == ("ndcg@50", "hit@10")


PAPER = {"paper": "P", "table": 1}
CLAIM = {"text": "EASE is first", "better": ["ease"], "than": ["ease"]}


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ({"method": "esae"}, r"unknown method 'esae'; did you mean ease\?"),
        ({"params": {"lamm": 1}}, r"x\.yaml: arms\[0\]\.params: unknown parameter 'lamm'; did you mean lam\?"),
        ({"params": {"lam": {"grid": [1, -1]}}}, r"x\.yaml: arms\[0\]\.params: lam must be > 0"),
        ({"params": {"lam": {"grid": [1, True]}}}, r"x\.yaml: arms\[0\]\.params: lam: expected a number, got True"),
        ({"published": {"synthetc": {}}}, r"unknown dataset 'synthetc'; did you mean synthetic\?"),
        ({"published": {"synthetic": {"recal@5": 0.1}}}, r"x\.yaml: published: unknown metric 'recal@5'"),
        ({"published": {"synthetic": {"recall": 0.1}}}, r"x\.yaml: published: write recall with its cutoff, as in recall@20"),
        ({"protocol": {"lamm": 1}}, r"arms\[0\]\.protocol\.lamm: none of the methods has this parameter; did you mean lam\?"),
        ({"unprinted": {"lamm": 1}}, r"arms\[0\]\.unprinted\.lamm: none of the methods has this parameter"),
        ({"costs": {"synthetc": {"minutes": 1}}}, r"arms\[0\]\.costs: unknown dataset 'synthetc'"),
        ({"ranges": "registry", "params": {"lam": {"grid": [1, 2]}}}, r"arms\.0: ranges: registry: lam has a range here"),
        ({"variant_of": "eas"}, r"x\.yaml: variant_of: no arm 'eas'; did you mean ease\?"),
    ],
)
def test_a_wrong_arm_is_refused(environment, arm, message):
    with pytest.raises(ConfigError, match=message):
        plan_of(environment, {"method": "ease"} | arm)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"datasets": ["synthetik"]}, r"\.yaml: datasets\[0\]: unknown dataset 'synthetik'; did you mean synthetic\?"),
        ({"datasets": [SMALL, "synthetic"]}, r"datasets: synthetic is given twice"),
        ({"arms": [{"method": "ease"}] * 2}, "ease is given twice"),
        ({"published": PAPER | {"costs_of": "eas"}}, r"x\.yaml: published\.costs_of: no arm 'eas'; did you mean ease\?"),
        ({"published": PAPER | {"beside": ["synthetc"]}}, r"published\.beside: unknown dataset 'synthetc'"),
        ({"protocol": {"params": {"n_negativs": 1}}}, r"protocol\.params\.n_negativs: none .*; did you mean n_negatives\?"),
        ({"unprinted": {"lamm": 1}}, r"x\.yaml: unprinted\.lamm: none of the methods has this parameter"),
        ({"claims": [CLAIM | {"metric": "recal@5"}]}, r"claims\[0\]\.metric: unknown metric 'recal@5'"),
        ({"not_run": [{"name": "B", "why": "w", "costs": {"synthetic": {"minuts": 1}}}]}, r"not_run\.0\.costs\.synthetic"),
        ({"metrics": ["recal"]}, r"\.yaml: metrics: unknown metric 'recal'; did you mean recall\?"),
        ({"metrics": ["recall@0"]}, r"\.yaml: metrics: unknown metric 'recall@0': a cutoff is a whole number"),
        ({"search": {"choose": {"metric": "ndgc@5"}}}, r"\.yaml: search\.choose\.metric: unknown metric 'ndgc@5'"),
        ({"search": {"choose": {"metric": "ndcg@999"}}}, r"search\.choose\.metric: 999 is more than the \d+ items"),
        ({"search": {"choose": {"metric": "ndcg"}}}, r"search\.choose\.metric: write it with a cutoff"),
        ({"search": {"choose": {"metric": "ndcg@5", "on": "test"}}}, r"x\.yaml: search\.choose\.on"),
        ({"search": {"chose": {}}}, r"x\.yaml: search\.chose: unknown key; did you mean choose\?"),
        ({"final": {"seed": 1, "seeds": [1]}}, r"final: give seed or seeds, not both"),
        ({"final": {"seeds": []}}, r"final\.seeds: expected at least 1 value, got \[\]"),
        ({"final": {"seeds": [1, 1]}}, r"final: seeds: a seed is given twice"),
        ({"final": {"split_seeds": [-1]}}, r"final\.split_seeds\.0: must be ≥ 0, got -1"),
        ({"final": {"fit_on": "valid"}}, r"final\.fit_on: expected 'auto', 'train' or"),
        ({"resources": {"cpus": 0}}, r"resources\.cpus"),
        ({"resources": {"concurrent": -1}}, r"resources\.concurrent"),
        ({"resources": {"device": "tpu"}}, r"resources\.device"),
        ({"resources": {"cpus": 3}}, r"resources\.cpus: a trial needs 3, this machine has 2"),
        *((wrong, next(iter(wrong))) for wrong in ({"cutoffs": [0]}, {"cutoffs": []}, {"metrics": []})),
    ],
)
def test_a_wrong_experiment_is_refused_whole(environment, more, message):
    with pytest.raises(ConfigError, match=message):
        plan_of(environment, *more.pop("arms", [{"method": "ease"}]), **more)


def test_chosen_parameters_replace_the_search(environment):
    arms = [
        {"method": "popularity"},
        {"method": "ease", "params": {"lam": {"grid": [1, 2]}}, "chosen": {"synthetic": {"lam": 7}}},
        {"method": "deql-l2", "params": {"p": 0.3, "b": {"grid": [1, 2]}}, "chosen": {"synthetic": {"b": 2, "lam": 3}}},
    ]
    planned = plan_of(environment, *arms, use_chosen=True)
    assert planned.search == ()
    _, ease, deql = planned.given["synthetic"]
    assert ease.params.lam == 7 and (deql.params.p, deql.params.b, deql.params.lam) == (0.3, 2, 3)
    assert planned.key != plan_of(environment, *arms).key


def test_a_searched_arm_without_chosen_parameters_is_left_out_and_named_unless_it_is_the_only_one(environment):
    ease = {"method": "ease", "params": {"lam": {"grid": [1, 2]}}}
    edlae = {"method": "edlae", "params": {"lam": {"grid": [1, 2]}}}
    planned = plan_of(environment, ease | {"chosen": {"synthetic": {"lam": 7}}}, edlae, use_chosen=True)
    assert [config.method for config in planned.given["synthetic"]] == ["ease"]
    assert "synthetic: edlae: no chosen setting, so it is left out" in planned.notes
    with pytest.raises(ConfigError, match=r"x\.yaml: arms\[0\]\.chosen: nothing for synthetic; run the search first"):
        plan_of(environment, ease, use_chosen=True)
    with pytest.raises(ConfigError, match=r"x\.yaml: arms\[0\]\.chosen\.synthetic: no lam, which the arm searches"):
        plan_of(environment, ease | {"chosen": {"synthetic": {}}}, use_chosen=True)
    other = {"method": "edlae", "params": {"p": 0.5, "lam": 80}, "chosen": {"synthetic": {"p": 0.5, "lam": 300}}}
    with pytest.raises(ConfigError, match=r"chosen\.synthetic: lam is 300, and 80 under params; state it once"):
        plan_of(environment, other, use_chosen=True)


def test_a_dry_run_says_what_goes_by_tiles(environment):
    planned = plan_of(environment, {"method": "ease"}, {"method": "ials"})
    told = dry_run(planned, environment, [Machine(2, planned.search[0].memory_bytes - 1)])
    assert told.by_tiles == ("synthetic: ease: its matrix does not fit; solved by tiles in a file",)
    assert dry_run(planned, environment, [Machine(2, 10**12)]).by_tiles == ()


@pytest.mark.parametrize(
    ("seeds", "splits", "trials", "message"),
    [
        (1000, 1000, 1, r"x\.yaml: final\.split_seeds: 1,000 splits of each dataset, where a sweep prepares at most 100"),
        (1000, 100, 1, r"final: 200,000 fits \(1 dataset x 100 split seeds x 2 models x 1,000 seeds\), where a stage"),
        (1, 1, 60_000, r"search: 120,000 fits \(1 dataset x 2 models x 60,000 trials\), where a stage has at most 100,000"),
    ],
)
def test_a_plan_of_very_many_fits_is_refused_before_any_data_is_prepared(
    environment, monkeypatch, seeds, splits, trials, message
):
    monkeypatch.setattr("rankbench.sweeps.plan_data.prepare", lambda *_: pytest.fail("data were prepared"))
    arms = [{"name": name, "method": "ials", "params": {"lam": {"uniform": [0.1, 1]}, "iterations": 1}} for name in "ab"]
    final = {"seeds": list(range(seeds)), "split_seeds": list(range(splits))}
    with pytest.raises(ConfigError, match=message):
        plan_of(environment, *arms, {"method": "popularity"}, final=final, search={"trials": trials})


def test_the_final_stage_of_a_plan_never_has_fewer_fits_than_are_run(environment):
    searched = {"p": {"grid": [0.3, 0.6]}, "lam": 10}, {"p": {"grid": [0.3, 0.6]}, "lam_prime": 10, "b": 0.5}
    arms = [{"method": "edlae", "params": searched[0]}, {"method": "deql-l2", "params": searched[1]}]
    planned = plan_of(environment, *arms)
    (card,) = planned.final_cards
    settings = [
        [each for unit in planned.search for each in unit.job.configs if each.arm == arm] for arm in ("edlae", "deql-l2")
    ]
    size = Size.of(prepare(card, environment))
    fits = {len(units(card, size, pair, planned.spec, planned.metrics, "final", 2)) for pair in itertools.product(*settings)}
    told = dry_run(planned, environment, [Machine(2, 10**12)])
    assert fits == {1, 2} and told.stages[1].fits == 2 and told.at_most
    alone = dry_run(plan_of(environment, arms[0], {"method": "popularity"}), environment, [Machine(2, 10**12)])
    assert alone.stages[1].fits == 2 and not alone.at_most


def test_a_cluster_of_one_node_is_described_with_the_processors_that_its_final_runs_get(environment, monkeypatch):
    of = Size.of
    monkeypatch.setattr(Size, "of", lambda dataset: replace(of(dataset), items=10_000))
    for cpus in (None, 2):  # of a cluster, and of this machine
        planned = plan_of(environment, {"method": "ease", "params": {"lam": 10}}, cpus=cpus, use_chosen=True)
        (row,) = dry_run(planned, environment, [Machine(16, 10**12)]).rows
        assert row.cpus == (cpus or 4)


@pytest.mark.parametrize(("gpus", "share", "at_once"), [(2, 1.0, 2), (2, 0.5, 4), (2, 0.6, 2), (8, 1.0, 6)])
def test_a_dry_run_has_as_many_fits_at_once_as_gpus_allow(environment, gpus, share, at_once):
    arm = {"method": "bpr", "params": {"learning_rate": {"grid": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}}}
    planned = plan_of(environment, arm, resources={"device": "cuda", "gpus": share})
    told = dry_run(planned, environment, [Machine(16, 10**12, gpus)])
    assert told.stages[0].concurrent == at_once
