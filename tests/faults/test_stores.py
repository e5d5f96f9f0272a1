"""SIGKILL of `leaderboard` and `reproduce` after a line was stored, and two of them at once on one store: nothing stored is
lost, the same command goes on, and each entry is stored once.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import TOUCHES_OF_A_LINE, Death, Home
from test_kills import kills

from rankbench.leaderboard.results import Result, Results
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.lines import StoredFit

CARD = "name: {}\nsource: {{generator: {{users: 80, items: 60, interactions_per_user: 10, seed: {}}}}}\n"
METHODS = ("popularity", "random", "ease", "ials")
TABLE = """\
name: toy-table1
published: {{paper: Toy, table: 1, recall: recall}}
datasets: [tiny-0]
arms:
  - {{name: Random, method: random, params: {{}}, published: {{tiny-0: {{recall@20: 0.2}}}}}}
metrics: [recall]
cutoffs: [20]
final: {{seeds: {}}}
"""
REPRODUCE = ("reproduce", "toy", "--json")


def home_with(folder: Path, n_cards: int, n_seeds: int) -> Home:
    """A folder with `n_cards` small datasets, and a table whose row has `n_seeds` seeds."""
    home = Home(folder)
    for kind in ("datasets", "experiments"):
        (home.folder / kind).mkdir()
    for number in range(n_cards):
        (home.folder / "datasets" / f"tiny-{number}.yaml").write_text(CARD.format(f"tiny-{number}", number))
    (home.folder / "experiments" / "toy_table1.yaml").write_text(TABLE.format([*range(n_seeds)]))
    return home


def leaderboard_of(n_cards: int) -> tuple[str, ...]:
    datasets = ",".join(f"tiny-{number}" for number in range(n_cards))  # what is made up is left out unless it is named
    words = ("leaderboard", "--methods", ",".join(METHODS), "--datasets", datasets, "--budget", "1s", "--seeds", "1")
    return (*words, "--no-track", "--json")


def lines_of(home: Home) -> set[tuple[str, str]]:
    """The lines of the store, which a strict reading accepts."""
    store = home.folder / "store"
    (Evidence if [*store.glob("*.fits.jsonl")] else Results)(store)
    return {(path.name, line) for path in store.glob("[!.]*.jsonl") for line in path.read_text().splitlines()}


def kill_again_and_again(home: Home, words: tuple[str, ...], ending: str, times: int, seed: int) -> int:
    """Kill a command after it has stored a line, every other time while it writes the next one. Returns the number of deaths
    while a line was written. The last command is not killed.
    """
    rng, writing, scratch = random.Random(seed), 0, 0
    words += ("--store", str(home.folder / "store"))
    for number in range(times):
        before, stored = lines_of(home), rng.randint(1, 2)
        if number % 2:
            death = Death(stored * TOUCHES_OF_A_LINE + rng.choice([2, 3]), lines=ending)
        else:
            death = Death(stored * TOUCHES_OF_A_LINE, rng.uniform(0, 1), ending)
        ended = home.run(*words, death=death)
        assert ended.killed, (number, ended)
        home.require_no_processes()
        after = lines_of(home)
        # The last touch of a line comes after its rename, and a death while the next one is written before that.
        assert before < after and len(after) - len(before) >= stored, (number, len(before), len(after), stored)
        # Nothing is aged here: a command that removed the scratch of the one before would touch more than its own lines.
        left = len([*(home.folder / "store").glob(f".tmp-*{ending}")])
        assert left > scratch or not number % 2, number
        writing, scratch = writing + (left > scratch), left
    home.age()
    before, last = lines_of(home), home.run(*words)
    assert last.code == 0, last.err
    assert before <= lines_of(home) and not [*(home.folder / "store").glob(".tmp-*")]
    return writing


@kills(sample=0)
@pytest.mark.fault("F17")
def test_a_killed_leaderboard_loses_no_entry(times, tmp_path, figure):
    home = home_with(tmp_path / "home", n_cards := 1 + times, 1)
    writing = kill_again_and_again(home, leaderboard_of(n_cards), ".entries.jsonl", times, seed=1)
    assert len([*Results(home.folder / "store").all(Result)]) == n_cards * len(METHODS)
    figure(f"leaderboard, SIGKILL at {times} moments after a stored line, {writing} while one was written: no entry lost")


@kills(sample=0)
@pytest.mark.fault("F17")
def test_a_killed_reproduction_loses_no_fit(times, tmp_path, figure):
    home = home_with(tmp_path / "home", 1, n_seeds := 6 * (1 + times))
    writing = kill_again_and_again(home, REPRODUCE, ".fits.jsonl", times, seed=2)
    assert [fit.seed for fit in Evidence(home.folder / "store").lines(StoredFit, "tiny-0")] == [*range(n_seeds)]
    figure(f"reproduce, SIGKILL at {times} moments after a stored line, {writing} while one was written: no fit lost")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("F17")
def test_two_commands_at_once_run_each_entry_once(tmp_path, figure):
    home = home_with(tmp_path / "home", 6, 30)

    def twice(*words: str) -> list[dict]:
        with ThreadPoolExecutor(2) as pool:
            ended = [*pool.map(lambda _: home.run(*words, "--store", str(home.folder / words[0])), range(2))]
        assert [each.code for each in ended] == [0, 0], ended
        return [each.json for each in ended]

    one, other = ({(each["dataset"], each["entrant"]) for each in about["done"]} for about in twice(*leaderboard_of(6)))
    assert not one & other and len(one | other) == 6 * len(METHODS)
    entries = [(each.dataset, each.entrant) for each in Results(home.folder / "leaderboard").all(Result)]
    assert sorted(entries) == sorted(one | other)
    first, second = twice(*REPRODUCE)
    assert first["fitted"] + second["fitted"] == 30
    assert [fit.seed for fit in Evidence(home.folder / "reproduce").lines(StoredFit, "tiny-0")] == [*range(30)]
    figure(f"two commands at once on one store: {len(one)} + {len(other)} entries and 30 fits, none twice")
