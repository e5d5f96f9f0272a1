"""The entrants of a leaderboard and what of them is searched."""

from rankbench.core.plugins import separate
from rankbench.experiment.methods import load_plugin
from rankbench.leaderboard.entrants import DIM, LIMIT, entrants

from ..cli.test_plugins import LOSS


def test_every_method_and_encoder_enters_with_settings_that_it_accepts(monkeypatch):
    monkeypatch.setattr("rankbench.leaderboard.entrants.DRAWS", 64)
    known = entrants("ndcg@20")
    assert len(known) >= 60 and {"ease", "ials", "talos", "multivae", "lightgcn", "youtubenet"} <= set(known)
    for entrant in known.values():
        settings = entrant.settings(0)
        assert settings[0] == entrant.config()
        assert len(settings) > 25 or not entrant.space, entrant.name
        values = [each.flat for each in settings]
        assert all(each.get("embedding_dim", DIM) == DIM for each in values)
        assert all(each[entrant.spec.length] == LIMIT for each in values if hasattr(entrant.spec, "length"))


def test_what_is_searched_is_the_method_and_not_how_it_is_computed():
    known = entrants("ndcg@20")
    assert set(known["sl"].space) == {"tau", "include_positive", "learning_rate", "weight_decay"}
    assert set(known["ease"].space) == {"lam"}
    assert set(known["lightgcn"].space) == {"n_layers", "learning_rate", "weight_decay"}
    assert known["lightgcn"].config().flat["model"] == "lightgcn"
    assert not set(known["ials"].space) & {"solver", "cg_steps", "iterations", "tolerance", "embedding_dim"}


def test_the_key_changes_with_what_is_searched():
    from dataclasses import replace

    sl = entrants("ndcg@20")["sl"]
    assert replace(sl, space=sl.space | {"tau": {"uniform": [0.1, 0.2]}}).key != sl.key == entrants("ndcg@20")["sl"].key
    assert entrants("recall@20")["sl"].key != sl.key


def test_the_key_of_a_method_of_a_plugin_changes_with_its_code_and_not_with_its_place(tmp_path):
    def keys(folder, added=""):
        (tmp_path / folder).mkdir()
        (file := tmp_path / folder / "mine.py").write_text(LOSS + added)
        with separate():
            load_plugin(file)
            known = entrants("ndcg@20")
            return known["my-hinge"].key, known["bpr"].key

    mine, built_in = keys("first")
    assert keys("second") == (mine, built_in)
    changed, still = keys("third", "# another version\n")
    assert changed != mine and still == built_in


def test_two_encoders_also_enter_with_losses_of_others():
    known = entrants("ndcg@20")
    mine = known["xsimgcl-bsl"]
    assert mine.config().flat["model"] == "xsimgcl" and mine.method == "bsl"
    assert set(mine.space) == set(known["bsl"].space) | set(known["xsimgcl"].space) > set(known["bsl"].space)
    assert {"lightgcn-sl", "lightgcn-bsl", "lightgcn-advinfonce", "xsimgcl-sl", "xsimgcl-advinfonce"} <= set(known)
