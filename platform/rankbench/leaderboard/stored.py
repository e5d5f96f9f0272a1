"""What the store of a leaderboard says: a board per budget, and the static site of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.files import require_writable
from rankbench.core.patterns import selected
from rankbench.evaluation.metrics import metric_set, require_better_if_larger
from rankbench.experiment.methods import families
from rankbench.judge.declared import read_declared
from rankbench.judge.printing import in_words
from rankbench.leaderboard.agenda import FOLDER
from rankbench.leaderboard.board import DECLARED, Board
from rankbench.leaderboard.collection import every_member, sources
from rankbench.leaderboard.comparable import comparable, kind_of
from rankbench.leaderboard.milestones import budget_of, name_of
from rankbench.leaderboard.options import BoardOptions, LeaderboardOptions, ShowOptions
from rankbench.leaderboard.results import Foreign, Leaderboard, Result, seconds_of, within
from rankbench.leaderboard.site import Told, write_site, write_summary


def board(options: ShowOptions, environment: Environment, skipped: list[str] | None = None) -> Board:
    """Return what the store says about the selected methods and datasets at one budget, by default that with most entries, and
    of equal ones the largest. Of entries with several numbers of threads, those that the options name are shown; of those
    chosen by several metrics, those chosen by that of the options; by default, what most have. With `skipped`, lines that
    cannot be read are described there and left out.

    Raises ConfigError if nothing is stored, or nothing of what is selected.
    """
    rope = options.rope
    require(rope is None or 0 < rope < 1, f"--rope: {rope} is not between 0 and 1")
    store = _store(options, environment, skipped)
    found, *others = boards(options, store, sources(environment), options.budget, options.metric)
    if not others:
        return found
    rest = in_words([f"{len(each.entries)} to {each.allowed}" for each in others], "budgets")
    note = f"Shown are entries to {found.allowed}; the option budget shows others: {rest}."
    return replace(found, notes=(*found.notes, note))


def site(
    to: Path,
    options: BoardOptions,
    environment: Environment,
    on_page: Told = lambda what, done, total: None,
    skipped: list[str] | None = None,
) -> list[Path]:
    """Write the pages of the selected methods and datasets to a folder, and return their paths. If `to` is the name of a
    Markdown file, write the standings alone to it, with their pictures beside it. `skipped`: as for `board`.

    Raises ConfigError if nothing is stored, or nothing of what is selected, StorageError if the folder cannot be written.
    """
    one_page = to.suffix == ".md"
    require_writable(to.parent if one_page else to)
    results = _store(options, environment, skipped)
    found = boards(options, results, sources(environment))
    of = _families_of([each for board in found for each in board.entries])
    return write_summary(to, found, of) if one_page else write_site(to, found, results, of, every_member(environment), on_page)


def _store(options: BoardOptions, environment: Environment, skipped: list[str] | None) -> Leaderboard:
    return Leaderboard(environment.stored_beside_experiments(FOLDER, options.store, to_read=True), skipped=skipped)


def _families_of(entries: Sequence[Result]) -> dict[str, list[str]]:
    """The families of each entrant's method, and `encoder` where another encoder than matrix factorisation learns with it."""
    found: dict[str, list[str]] = {}
    for each in sorted(entries, key=lambda each: each.finished):  # an entry without a result may not say its method
        of_method = [family for family, members in families().items() if (each.method or each.entrant) in members]
        found[each.entrant] = of_method + ["encoder"] * ("model" in each.params)
    return found


def boards(
    options: BoardOptions | LeaderboardOptions,
    results: Leaderboard,
    of: Mapping[str, str],
    budget: str | None = None,
    metric: str | None = None,
    entries: Sequence[Result] | None = None,
) -> list[Board]:
    """Return a board of the selected entries of a store per budget, those with most entries first, and of equal ones that with
    the largest budget; with `budget`, that one alone. `of` says the source of each dataset. `entries` are by default all of
    the store; its foreign lists on the same data are shown beside them.

    Raises ConfigError if there is nothing, or nothing of what is selected.
    """
    folder, ended = results.folder, entries is not None  # what does not go on in a call that has ended will not
    if entries is None:
        entries = [*results.all(Result)]
    every = [*entries]
    require(bool(entries), f"{folder}: no results; `rankbench leaderboard --budget 30s` measures some")
    budgets = [*{each.allowed for each in entries}]
    if budget is not None:
        budgets = [name_of(budget_of(budget, "--budget"))]
        require(bool(within(entries, budgets[0])), f"{folder}: no results with a budget of {budgets[0]}")
    entries = [each for each in entries if options.threads in (None, each.threads)]
    require(bool(entries), f"{folder}: no results with {options.threads} threads")
    names = selected(options.methods, sorted({each.entrant for each in entries}), "--methods", families())
    places = selected(options.datasets, sorted({each.dataset for each in entries}), "--datasets")
    chosen = [each for each in entries if each.entrant in names and each.dataset in places]
    nothing = f"{folder}: no results of these methods on these datasets"
    require(bool(chosen), nothing)
    if metric is not None:
        metric = metric_set((metric,)).names[0]
        require_better_if_larger(metric, "--metric")
        require(any(metric in each.metrics for each in chosen), f"--metric: {metric} was not measured")
    declared = read_declared(folder / DECLARED) if (folder / DECLARED).exists() else None
    found = []
    # Boards of several budgets are compared with one another, so that their entries are of one kind.
    kind = kind_of(chosen if budget is None else within(chosen, budgets[0]) or chosen, metric)
    alike = {each.allowed for each in chosen if (each.metric, each.threads) == kind}
    others = sorted({each.allowed for each in chosen} - alike, key=seconds_of)
    left = f"Budgets whose entries all have other threads or were chosen by another metric are left out: {', '.join(others)}."
    for allowed in budgets:
        of_budget, waiting = within(chosen, allowed), set[str]()
        if not ended:
            waiting = _waiting(every, chosen, allowed, kind)
            of_budget = [each for each in of_budget if each.dataset not in waiting]
        if of_budget and (budget or allowed not in others):
            shown, notes = comparable(of_budget, kind)
            if not shown:
                continue
            if behind := sorted({each.entrant for each in chosen} - {each.entrant for each in of_budget}):
                notes = (*notes, f"Without an entry at {allowed}, and so not on this board: {in_words(behind, 'methods')}.")
            if own := sorted(waiting - of.keys()):
                notes = (
                    *notes,
                    f"No race has gone on to {allowed} on {in_words(own, 'datasets')}, so not on this board.",
                )
            notes = (*notes, left) if others and not budget else notes
            data = {(each.dataset, each.fingerprint) for each in shown}
            beside = tuple(each for each in results.all(Foreign) if (each.dataset, each.fingerprint) in data)
            found.append(Board(tuple(shown), allowed, metric or shown[0].metric, notes, beside, declared, of))
    require(bool(found), f"{nothing} with a budget of {budgets[0]}")
    return sorted(found, key=lambda each: (-sum(of.metric == each.metric for of in each.entries), -each.seconds))


def _waiting(every: Sequence[Result], chosen: Sequence[Result], allowed: str, kind: tuple[str, int]) -> set[str]:
    """The datasets on which no race of `every` entry has gone on to a budget, and one of the chosen could: methods whose races
    were over before would be all that is ranked there.
    """
    gone = [each for each in comparable(within(every, allowed), kind)[0] if each.allowed == allowed]
    entrants = {each.entrant for each in gone}  # others need not go on, as with --best
    last = {each.race: each for each in sorted(chosen, key=lambda each: each.budget)}
    now = [each for each in comparable([*last.values()], kind)[0] if each.budget < seconds_of(allowed)]
    could = {each.dataset for each in now if each.entrant in entrants and not each.over and each.status != "failed"}
    return could - {each.dataset for each in gone}
