"""The command line as a user meets it: results on stdout, one line on stderr for what is wrong, exit codes."""

import json
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer

from rankbench.cli import _main, _stopped, app
from rankbench.sweeps.views.phases import phase_progress

pytestmark = pytest.mark.usefixtures("home")

CARD = """
name: my-shop
source: {file: clicks.csv}
read: {user: customer, item: product}
split: {protocol: random-per-user, test: 0.25, valid: 0.25}
"""
TINY = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]


def test_run_prints_one_object_whose_metrics_have_intervals(home, capsys):
    assert _main(["run", "synthetic", "ease", "lam=50", *TINY, "--json", "--no-track"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["params"] == {"lam": 50.0}
    for name in ("recall@20", "ndcg@20", "map_capped@10"):
        value = result["metrics"][name]
        assert 0 <= value["low"] <= value["mean"] <= value["high"] <= 1
    assert result["metrics"]["coverage@20"]["low"] is None
    assert result["dataset"]["counts"]["users"] == 80
    per_user = pq.read_table(f"{result['folder']}/per_user.parquet")
    assert per_user.num_rows == result["users"]["measured"]
    assert per_user["ndcg@20"].to_numpy().mean() == pytest.approx(result["metrics"]["ndcg@20"]["mean"], abs=1e-6)


def test_run_is_repeatable_and_a_person_can_read_it(home, capsys):
    for _ in range(2):
        assert _main(["run", "synthetic", "random", *TINY, "--no-track", "--json"]) == 0
    first, second = capsys.readouterr().out.split("}\n{")
    assert json.loads(first + "}")["metrics"] == json.loads("{" + second)["metrics"]
    assert _main(["run", "synthetic", "random", *TINY, "--no-track"]) == 0
    text = capsys.readouterr().out
    assert "recall_capped" in text and "fitted on train+valid, measured on test" in text


def test_a_run_of_a_kept_record_says_so(home, capsys):
    folders, errors = [], []
    for words in (["0"], ["0"], ["1"], ["0", "--fresh"]):
        assert _main(["run", "synthetic", "ease", "lam=50", *TINY, "--seed", *words, "--no-track", "--json"]) == 0
        printed = capsys.readouterr()
        folders.append(json.loads(printed.out)["folder"])
        errors.append(printed.err)
        recorded = json.loads((Path(folders[-1]) / "record.json").read_text(encoding="utf-8"))["seconds"]
        assert (recorded == json.loads(printed.out)["seconds"]) is not json.loads(printed.out)["kept_an_earlier_record"]
    assert folders[0] == folders[1] == folders[3] != folders[2]
    kept = "an earlier finished record of this run was kept, with its seconds and memory; --fresh replaces it\n"
    assert errors == ["", kept, "", ""]


@pytest.mark.parametrize("text", ['{"format": 99}', "{", "null"])
def test_a_record_that_cannot_be_read_is_refused_before_the_fit(home, capsys, monkeypatch, text):
    words = ["run", "synthetic", "ease", "lam=50", *TINY, "--no-track"]
    assert _main([*words, "--json"]) == 0
    record = Path(json.loads(capsys.readouterr().out)["folder"]) / "record.json"
    record.write_text(text, encoding="utf-8")
    with monkeypatch.context() as fits:
        fits.setattr("rankbench.experiment.run.fit_stepwise", None)  # a fit would be a traceback
        assert _main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{record}: not a run record" in error and "--fresh replaces it" in error
    assert record.read_text(encoding="utf-8") == text
    assert _main([*words, "--fresh"]) == 0
    assert json.loads(record.read_text(encoding="utf-8"))["status"] == "finished"


def test_a_run_whose_record_was_lost_is_recorded_again(home, capsys):
    words = ["run", "synthetic", "ease", "lam=50", *TINY, "--no-track", "--json"]
    assert _main(words) == 0
    record = Path(json.loads(capsys.readouterr().out)["folder"]) / "record.json"
    record.unlink()
    assert _main(words) == 0
    assert record.is_file() and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        ("ials", ["--memory", "1GB"], "--memory: ials has no item-item matrix"),
        ("ials", ["--spill", "somewhere"], "--spill: ials has no item-item matrix"),
        ("ials", ["--device", "cuda"], "--device: ials runs only on CPUs"),
        ("ease", ["--device", "meta"], "error: device meta: expected cpu, cuda or cuda:N"),
        ("ease", ["--memory", "4GiB"], "--memory: expected a size such as 4GB or 500MB, got '4GiB'"),
        ("random", ["--resume"], "--resume: random is fitted in one step"),
        ("random", ["--address", "127.0.0.1:1"], "--address: random is fitted in this process"),
        ("ease", ["--address", "http://127.0.0.1:8265"], "expected HOST:PORT or auto, got 'http://127.0.0.1:8265'"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(home, capsys, method, option, message):
    assert _main(["run", "synthetic", method, *TINY, *option, "--no-track"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_closed_form_goes_on_without_being_told_the_memory_again(home):
    assert _main(["run", "synthetic", "ease", *TINY, "--resume", "--no-track"]) == 0


def test_an_interrupt_that_a_library_swallowed_is_raised_again(monkeypatch):
    monkeypatch.setattr("rankbench.sweeps.views.phases.SIGNALS", [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt), phase_progress() as progress:
        progress("fit", 1, 2)


SAVED = "the same command with --resume continues from the last saved iteration or tiles, if there are any"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "d", "m"], f"error: interrupted; {SAVED}\n"),
        (["fit", "d", "m"], f"error: interrupted; {SAVED}\n"),
        (["ui"], "error: interrupted\n"),
        (["data", "fetch", "run"], "error: interrupted\n"),
        (
            ["--verbose", "sweep", "demo"],
            "error: interrupted; finished runs are kept; the same command with --resume continues the sweep if it had begun\n",
        ),
        (["leaderboard", "--budget", "30s"], "error: interrupted; finished entries are kept; the same command goes on\n"),
        (["leaderboard", "verify", "--draw", "20"], "error: interrupted\n"),
        (["sweep", "demo", "--dry-run"], "error: interrupted\n"),
        ([], "error: interrupted\n"),
    ],
)
def test_an_interrupt_speaks_of_what_the_command_leaves(capsys, words, said):
    assert _stopped(words) == 130
    assert capsys.readouterr().err == said


def test_the_end_of_a_file_is_no_interrupt(monkeypatch):
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])

    @app.command("load")
    def load() -> None:
        raise EOFError("Ran out of input")

    with pytest.raises(EOFError, match="Ran out of input"):
        _main(["load"])


def test_ones_own_csv_needs_a_card_of_five_lines(home, capsys):
    rows = ["customer,product", *[f"c{u},p{(u * 7 + i * i) % 23:02d}" for u in range(12) for i in range(5)]]
    (home / "clicks.csv").write_text("\n".join(rows))
    (home / "my-shop.yaml").write_text(CARD)
    assert len(CARD.strip().splitlines()) <= 5
    assert _main(["run", str(home / "my-shop.yaml"), "ease", "lam=1", "--no-track", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["dataset"]["counts"]["users"] == 12
    assert pq.read_table(f"{result['folder']}/per_user.parquet")["user"][0].as_py() == "c0"


def test_a_record_of_other_data_is_replaced(home, capsys):
    (home / "my-shop.yaml").write_text(CARD)
    fingerprints, said = [], []
    for n_users in (12, 12, 13):
        rows = ["customer,product", *[f"c{u},p{(u * 7 + i * i) % 23:02d}" for u in range(n_users) for i in range(5)]]
        (home / "clicks.csv").write_text("\n".join(rows))
        assert _main(["run", str(home / "my-shop.yaml"), "ease", "lam=1", "--no-track", "--json"]) == 0
        printed = capsys.readouterr()
        record = json.loads((Path(json.loads(printed.out)["folder"]) / "record.json").read_text())
        fingerprints.append(record["dataset"]["fingerprint"])
        said.append(printed.err)
        assert record["dataset"]["counts"]["users"] == n_users
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    replaced = "the data of my-shop have changed since an earlier run of this setting, whose record was replaced\n"
    assert [replaced in each for each in said] == [False, False, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "synthetic", "neumf"], "neumf is an encoder, which learns with a loss: write the method bce with model=neumf"),
        (["run", "synthetic", "lightgcn-bsl"], "lightgcn is an encoder, which learns with a loss: write the method bsl with"),
        (["run", "synthetic", "ease", "lam=-1"], "ease: lam must be > 0, got -1.0"),
        (["run", "synthetic", "ease", "data.referense=x"], "referense: unknown key; known: expect, name, prepare, "),
        (["run", "synthetic", "ease", "--cutoffs", ""], "--cutoffs: expected whole numbers such as 10,20, got ''"),
        (["run", "synthetic", "ease", "--dtype", "int8"], "--dtype: expected float32 or float64"),
        (
            ["run", "synthetic", "ease", "--metrics", "ndcg@20", "--cutoffs", "5"],
            "--cutoffs: no effect, because no metric uses them",
        ),
        (
            ["run", "synthetic", "bpr", "stop_metric=coverage@20"],
            "bpr: stop_metric: coverage@20 cannot be followed during a fit",
        ),
        (["run", "synthetic", "bpr", "stop_metric=ndcg@x"], "bpr: stop_metric: unknown metric 'ndcg@x'"),
        (["run", "synthetic", "bpr", "--fit-on", "train+valid"], "--fit-on train+valid: bpr: no validation set is left"),
        (["sweep", "demo", "search.choose.metric=gini@20"], "search.choose.metric: larger is not better for gini@20"),
        (["run", "yelp2018", "ease"], "yelp2018: train.txt is not in the cache"),
        (["methods", "ease2"], "unknown method 'ease2'; did you mean ease?"),
        (["methods", "ease", "--encoder", "mf"], "--encoder mf: ease has no encoder"),
        (["methods", "sl", "--encoder", "lightgnc"], "--encoder: unknown encoder 'lightgnc'; did you mean lightgcn?"),
        (["sweep", "dmo.yaml"], "dmo.yaml: no such experiment file; did you mean demo.yaml?"),
        (["sweep", "typo/experiments/demo.yaml"], "typo/experiments/demo.yaml: no such experiment file"),
        (["doctor", "--cluster", "--address", "127.0.0.1:6379"], "--cluster starts a local one, and --address 127.0.0.1:6379"),
        (["study", "--seed", "3"], "--seed 3: give the NAME of a study, too"),
        (["sweep", "demo", "--resume"], "demo: nothing to resume"),
        (["evaluate", "synthetic", "lists.csv", "--no-track", "--tag", "a=b"], "leave out --tag and --run-name"),
        (["sweep", "demo", "--take-over"], "--take-over continues a sweep that another process runs; give --resume, too"),
        (["sweep", "demo", "--address", "127.0.0.1:99999"], "--address: expected a port between 1 and 65535"),
        (["report"], "no sweep"),
        (["report", "--format", "markdown"], "--format: unknown 'markdown'"),
        (["study", "--out", "here"], "--out here: give the NAME of a study, too"),
        (["data", "export", "yelp2018", "--format", "feather"], "--format: unknown 'feather'"),  # before any download
        (["run", "synthetic", "ease", "--threads", "100000"], "--threads: 100000 threads are too many for"),
        (["sweep", "demo", "--chosen", "resources.cpus=100000"], "resources.cpus: a trial needs 100000, this machine has"),
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["run", "synthetic"], "Missing argument"),
        (["run", "synthetic", "ease", "--sede", "1"], "No such option: --sede"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_written(home, capsys, words, message):
    before = set(home.rglob("*"))
    assert _main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert message in printed.err
    # Preparing the data is allowed to stay; results are not begun.
    assert {path for path in set(home.rglob("*")) - before if "results" in path.parts} == set()


def test_json_says_what_was_wrong_too(capsys):
    assert _main(["run", "synthetik", "ease", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2
    assert _main(["report", "--format", "md", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith("--format md: --json prints JSON")


def test_data_list_fetch_and_describe(capsys):
    assert _main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    names = set(rows)
    sizes = [rows["gowalla"][name] for name in ("users", "items", "interactions", "counted")]
    assert sizes == [29858, 40981, 1027370, "published"] and rows["amazon2018-magazine"]["counted"] == "raw"
    assert {"gowalla", "yelp2018", "amazon-book", "movielens-100k", "movielens-1m", "amazon-beauty", "synthetic"} <= names
    assert _main(["data", "fetch", "synthetic", "--json"]) == 0
    (fetched,) = json.loads(capsys.readouterr().out)
    assert _main(["data", "describe", "synthetic", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["fingerprint"] == fetched["fingerprint"]
    assert _main(["data", "list"]) == 0  # what is prepared is counted
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("synthetic "))
    assert line.split()[-1] == f"{described['counts']['interactions']:,}"
    assert described["counts"]["interactions"] == sum(described["counts"][part] for part in ("train", "valid", "test"))


def test_methods_state_parameters(capsys):
    assert _main(["methods", "deql-l2", "--json"]) == 0
    params = {p["name"]: p for p in json.loads(capsys.readouterr().out)["params"]}
    assert set(params) == {"p", "a", "b", "lam", "lam_prime"} and all(p["help"] for p in params.values())


def test_a_loss_states_its_own_parameters_first_and_those_of_one_encoder_last(capsys):
    def params(*words):
        assert _main(["methods", "sl", *words, "--json"]) == 0
        return [each["name"] for each in json.loads(capsys.readouterr().out)["params"]]

    alone, with_encoder = params(), params("--encoder", "xsimgcl")
    assert alone[:2] == ["tau", "include_positive"] and "learning_rate" in alone and "n_layers" not in alone
    assert with_encoder[: len(alone)] == alone
    assert {*with_encoder[len(alone) :]} == {"n_layers", "contrast_nodes", "noise", "aux_weight", "aux_tau", "contrast_layer"}
    assert _main(["methods", "sl"]) == 0 and "rankbench methods sl --encoder " in capsys.readouterr().out


def test_a_numeric_failure_is_exit_3(home, capsys):
    # One user, no ridge to speak of: the Gram has rank one and float32 cannot invert it.
    (home / "one.csv").write_text("user,item\n" + "\n".join(f"u{u},i{i}" for u in range(3) for i in range(30)))
    (home / "one.yaml").write_text("name: one\nsource: {file: one.csv}\n")
    assert _main(["run", str(home / "one.yaml"), "ease", "lam=1e-9", "--no-track"]) == 3
    assert "not positive definite" in capsys.readouterr().err


def _commands(command, name="rankbench"):
    for word, each in getattr(command, "commands", {}).items():
        yield f"{name} {word}", each
        yield from _commands(each, f"{name} {word}")


@pytest.mark.parametrize("words", [words for words, _ in _commands(typer.main.get_command(app))])
def test_every_help_has_examples_of_the_command(words, capsys):
    name, *command = words.split()
    assert _main([*command, "--help"]) == 0
    assert f"{name} {command[0]}" in capsys.readouterr().out.split("Example", 1)[1]


def test_a_test_set_of_one_user_is_said(home, capsys):
    """Ninety users with one item each are only trained on; the last one has enough for every part."""
    rows = [f"{user},{user % 9}" for user in range(90)] + [f"99,{item}" for item in range(9)]
    (home / "clicks.csv").write_text("customer,product\n" + "\n".join(rows) + "\n")
    (home / "shop.yaml").write_text(CARD)
    assert _main(["run", str(home / "shop.yaml"), "popularity", "--cutoffs", "3", "--no-track"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert lines == ["warning: only one user was measured, so no interval or test says anything about other users"]


def test_dropped_rows_are_shown_by_every_command(home, capsys):
    rows = [f"{user},{item}" for user in range(9) for item in range(9)]
    (home / "clicks.csv").write_text("\n".join(["customer,product", *rows, ",1", "2,", ""]))
    (home / "shop.yaml").write_text(CARD + "prepare: [drop_missing]\n")
    card = str(home / "shop.yaml")
    assert _main(["run", card, "popularity", "--cutoffs", "3", "--no-track"]) == 0
    assert "2 rows of the raw files had no user, item, value or time, and were dropped" in capsys.readouterr().out
    assert _main(["data", "fetch", card]) == 0
    assert "my-shop: 2 rows of the raw files had no user" in capsys.readouterr().out
    assert _main(["data", "describe", card, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["counts"]["dropped_missing"], facts["raw_counts"]["interactions"]) == (2, 83)
    record = next((home / "results" / "runs").glob("*/record.json"))
    assert json.loads(record.read_text())["dataset"]["counts"]["dropped_missing"] == 2


def test_the_demo_is_that_of_the_product(home, monkeypatch):
    (home / "demo.yaml").write_text("name: other\nplugins: [mine.py]\n")
    monkeypatch.chdir(home)
    given = []
    monkeypatch.setattr("rankbench.cli.demo.sweep", lambda options, json: given.append(options.experiment))
    assert _main(["demo", "--json"]) == 0
    assert given[0].is_absolute() and given[0].name == "demo.yaml" and given[0].parent != home
