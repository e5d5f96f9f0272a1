"""The pages of a leaderboard, which load nothing from the network: one per budget, dataset and method, and the data as a file.

index.html  budget-BUDGET.html  dataset-DATASET.html  method-METHOD.html  entries.csv

Or the standings alone as one page of Markdown, with its pictures beside it, for a repository.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rankbench.core.errors import ConfigError, DataError
from rankbench.core.files import write_text
from rankbench.core.spreadsheet import inert
from rankbench.experiment.job import configure
from rankbench.judge.compare import compare
from rankbench.judge.over_datasets import rank_agreement
from rankbench.judge.printing import counted, estimate, in_words, interval
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import Member
from rankbench.leaderboard.explorer import explorer
from rankbench.leaderboard.figures import LINES, curves, mean_ranks, quality_by_budget, shares_of_best
from rankbench.leaderboard.results import Foreign, Leaderboard, Result, Ties
from rankbench.reports.page import Best, Block, Grid, Items, Link, Page, Section, State, Text
from rankbench.reports.repeat import assignment
from rankbench.reports.site import Site

MEANING = (
    "Each method had the same time on each dataset, to search its settings on the validation set. Reading data and the "
    "measurement on test are not counted. Values are means over users on test. "
)
VALUES = "Values are means over users on test; brackets are 95 % intervals over users."
OF_RACES = "default: the method's own defaults, as long as validation chooses, with as much time as any other setting."
TESTED = 10  # methods of a dataset that are compared: each further one needs more resamples for all pairs
TIES = (
    f"The {TESTED} best methods are compared with the best one by paired tests over users, corrected for all of their pairs. "
    "= best: not significantly different from it."
)
UNTESTED = "No tests: they need two methods, and the values of all of their users on this machine."
SHARES = (
    "What the search has found with more time, on each dataset: the mouse says which. Seconds are those of the processor that "
    "measured the dataset."
)
FOREIGN = "Lists of other programs, which are not ranked and not tested, because nobody knows what time and search they took."

Families = Mapping[str, Sequence[str]]  # method → families
Told = Callable[[str, int, int], None]  # what is being done, how much of it is done, and of how much


def write_site(
    folder: Path,
    boards: Sequence[Board],
    results: Leaderboard,
    families: Families,
    collection: Mapping[str, Member],
    on_page: Told = lambda what, done, total: None,
) -> list[Path]:
    """Write the pages of `boards`, one per budget, the first of which is the index. `families`: those of each method;
    `collection`: what is known of the datasets.

    `on_page` is told of each dataset that is compared. Returns the paths of the files. Raises StorageError if they cannot be
    written.
    """
    site = Site(folder)
    for board in boards:
        site.write(_stem_of(board, boards), board_page(board, boards, families, collection))
    pages = {
        _of_dataset(dataset, board, boards): (dataset, board) for board in reversed(boards) for dataset in board.by_dataset
    }
    for number, (name, (dataset, board)) in enumerate(sorted(pages.items()), start=1):
        others = [Link(of.allowed, other) for other, (shown, of) in pages.items() if shown == dataset and other != name]
        site.write(name, _dataset_page(dataset, board, results, others))
        on_page("comparing methods on each dataset", number, len(pages))
    for method in sorted({each.entrant for board in boards for each in board.entries}):
        site.write(f"method-{method}", _method_page(method, boards))
    stands: dict[int, tuple[Result, list[str]]] = {}  # a race that is over stands on several boards
    for board in sorted(boards, key=lambda each: each.seconds):
        for each in board.entries:
            stands.setdefault(id(each), (each, []))[1].append(board.allowed)
    return [*site.files, write_text(folder / "entries.csv", _csv([*stands.values()]))]


def write_summary(path: Path, boards: Sequence[Board], families: Families) -> list[Path]:
    """Write the first of the `boards`, one per budget, as the Markdown file `path`. Returns its path and those of its pictures.

    Raises StorageError if they cannot be written.
    """
    page = board_page(boards[0], boards, families)
    sections = tuple(
        replace(each, blocks=tuple(block for block in map(_alone, each.blocks) if block is not None)) for each in page.sections
    )
    facts = "; ".join(f"{name}: {value}" for name, value in page.facts)
    site = Site(path.parent, ("md",))
    site.write(path.stem, replace(page, sections=sections, lead=(*page.lead, f"{facts[0].upper()}{facts[1:]}.")))
    return site.files


def _alone(block: Block) -> Block | None:
    """The block without links to the other pages of the site, which are not written. A table with a caption is a detail."""
    if not isinstance(block, Grid):
        return block
    return None if block.caption else replace(block, body=[[str(cell) for cell in line] for line in block.body])


def command(result: Result) -> str:
    """The command that fits the chosen setting again, with the parameters that the fit reads."""
    words = ["rankbench", "run", result.dataset, result.method, "--fit-on", "train"]
    read = set(result.params)
    with suppress(ConfigError):  # of a plugin that is not loaded here, nobody knows which
        read &= {*configure(result.method, result.params).used}
    words += [assignment(name, value) for name, value in result.params.items() if name in read]
    return " ".join(shlex.quote(word) for word in words)


def board_page(
    board: Board, boards: Sequence[Board], families: Families, collection: Mapping[str, Member] | None = None
) -> Page:
    """The page of one of the `boards`. With the collection of datasets, that of the first one is for all budgets: its standings
    follow what the reader selects.
    """
    ranking, metric, figures = board.ranking, board.metric, f"leaderboard-{board.allowed}"
    if collection is not None and board is boards[0]:
        entries = {each.allowed: each.entries for each in boards}
        standings: list[Block | None] = [explorer(entries, board.allowed, families, collection, metric)]
    else:
        timed = [(each.seconds, each.ranking) for each in sorted(boards, key=lambda each: each.seconds)]
        standings = [
            quality_by_budget(ranking, timed, metric, f"{figures}-quality"),
            shares_of_best(ranking, metric, f"{figures}-values"),
            mean_ranks(board.spread, f"{figures}-ranks"), _standings_grid(board, families),
        ]  # fmt: skip
    findings = board.findings()
    sections = [Section("Standings", tuple(filter(None, standings)))]
    for title, lines in {"What the tests say": findings[3:], "What to know": board.caveats()}.items():
        sections += [Section(title, (Items(tuple(lines)),))] if lines else []
    if len(boards) > 1:
        sections.append(Section("Budgets", (_budgets_grid(board, boards), *_of_other_processors(board, boards))))
    sections.append(Section("Datasets", (_datasets_grid(board, boards),)))
    shares = [each.seconds["all"] / each.budget for each in board.counted if "all" in each.seconds]
    spent = sum(
        each.threads * each.seconds.get("all", each.budget if each.status == "over budget" else 0) for each in board.counted
    )
    facts = (
        ("budget", board.allowed),
        ("methods", str(len(ranking.methods))),
        ("datasets", str(len(ranking.datasets))),
        ("processor hours", f"{spent / 3600:.1f}"),
        *_processors(board.entries),
        ("largest share of a budget", f"{max(shares, default=0):.2f}"),
        ("chosen and ranked by", metric),
    )
    return Page("Leaderboard", (MEANING + OF_RACES,), tuple(sections), facts, tuple(findings[:3]))


def _processors(entries: Sequence[Result]) -> list[tuple[str, str]]:
    """The fact which processors measured entries, as far as these say it."""
    cpus = sorted({each.cpu for each in entries if each.cpu})
    return [("processor" if len(cpus) == 1 else "processors", in_words(cpus, "processors"))] if cpus else []


def _budgets_grid(board: Board, boards: Sequence[Board]) -> Grid:
    body = []
    for each in sorted(boards, key=lambda each: each.seconds):
        best = [standing.method for standing in each.standings[:3]]
        name = each.allowed if each is board else Link(each.allowed, _stem_of(each, boards))
        tau = None if each is board else rank_agreement(each.ranking, board.ranking)
        both = [len({*getattr(each.ranking, of)} & {*getattr(board.ranking, of)}) for of in ("methods", "datasets")]
        on = f"{both[0]} methods on {counted(both[1], 'dataset')}"
        agrees = f"{tau.mean:.2f} ({interval(tau.low, tau.high, '.2f')}), {on}" if tau and tau.low is not None else ""
        size = str(len(each.ranking.methods)), str(len(each.ranking.datasets))
        body.append([name, *size, str(len(each.counted)), ", ".join(best), agrees])
    header = ["budget", "methods", "datasets", "entries", "best mean ranks", f"τ of the order with that of {board.allowed}"]
    return Grid(header, body)


def _of_other_processors(board: Board, boards: Sequence[Board]) -> Iterator[Text]:
    """On which datasets the processors of two budgets differ."""
    names = {
        name for each in boards for name, cpus in each.processors.items() if {*board.processors.get(name, cpus)} != {*cpus}
    }
    if names:
        yield Text(
            f"On {in_words(sorted(names), 'datasets')}, races to one budget had another processor than those to another one: "
            "what differs between these budgets is not of time alone."
        )


def _standings_grid(board: Board, families: Families) -> Grid:
    header, body = board.columns
    rows = [[_method(name), *cells, ", ".join(families.get(name, ()))] for name, *cells in body]
    return Grid([*header, "families"], rows)


def _datasets_grid(board: Board, boards: Sequence[Board]) -> Grid:
    several = len({cpu for cpus in board.processors.values() for cpu in cpus}) > 1
    body = []
    for dataset in (*board.ranking.datasets, *board.datasets_apart):
        seconds = max(each.budget for each in board.by_dataset[dataset])
        leaders = [f"{each.entrant} {each.metrics[board.metric][0]:.4f}" for each in board.ranked(dataset)[:3]]
        leaders += [""] * (3 - len(leaders))
        page = Link(dataset, _of_dataset(dataset, board, boards))
        body.append([page, f"{seconds:g}", *leaders, *["; ".join(board.processors[dataset])] * several])
    return Grid(["dataset", "seconds", "first", "second", "third", *["processor"] * several], body)


def _dataset_page(dataset: str, board: Board, results: Leaderboard, others: Sequence[Link]) -> Page:
    """The page of a dataset at a board's budget. `others`: its pages at other budgets."""
    ranked, several = board.ranked(dataset), len(board.processors[dataset]) > 1
    tested = ties(ranked, board.metric, results)
    names = [name for name in ranked[0].metrics if name.endswith(("@20", "@10"))] if ranked else []
    body = []
    for each in ranked:
        tie = tested.verdict(each.entrant) if tested else ""
        value, leads = _value(each, board.metric), each.metrics[board.metric][0] == ranked[0].metrics[board.metric][0]
        body.append(
            [
                _method(each.entrant), Best(value) if leads else value, State(tie) if tie else "",
                *[_value(each, name, False) for name in names if name != board.metric],
                *_of_default(each, board.metric), str(each.tried), each.ended,
                f"{each.seconds.get('all', 0):.1f}", f"{each.seconds.get('fit', 0):.2f}", f"{each.peak_memory_gb:.1f}",
                *[each.cpu] * several,
            ]
        )  # fmt: skip
    beside = [name for name in names if name != board.metric]
    header = ["method", board.metric, "against the best", *beside, "default", "gain", "settings tried", "ended"]
    header += ["seconds", "of the fit", "GB", *["processor"] * several]
    sections = [Section("", (Text(TIES if tested else UNTESTED), Grid(header, body)))]
    caption = (
        "What the searches of the best methods have found with more time. The value on test decides their places, not this."
    )
    found = {each.entrant: each.curve for each in ranked[:LINES]}
    if figure := curves(found, f"{board.metric} on validation", caption, f"leaderboard-{dataset}-curves"):
        sections.append(Section("Quality and time", (figure,)))
    if foreign := [each for each in board.foreign if each.dataset == dataset]:
        rows = [
            [
                each.name, *[_value(each, name) for name in (board.metric, *beside)],
                "" if each.seconds is None else f"{each.seconds:.1f}", each.fit_on, "; ".join(each.said),
            ]
            for each in foreign
        ]  # fmt: skip
        header = ["lists", board.metric, *beside, "seconds of the fit, as told", "fitted on", "notes"]
        sections.append(Section("Foreign lists", (Text(FOREIGN), Grid(header, rows))))
    lost = [each for each in board.by_dataset[dataset] if not each.finished]
    if lost:
        rows = [[_method(each.entrant), each.status, each.reason] for each in lost]
        sections.append(Section("Without a result", (Grid(["method", "status", "reason"], rows),)))
    rows = [[_method(each.entrant), command(each)] for each in ranked]
    sections.append(
        Section(
            "Repeat",
            (
                Text("The chosen settings, as commands; a method of a plugin also needs `--plugin`."),
                Grid(["method", "command"], rows),
            ),
        )
    )
    if others:
        sections.append(Section("Other budgets", (Grid(["budget"], [[each] for each in others]),)))
    facts = ("budget", board.allowed), *_processors(board.by_dataset[dataset])
    return Page(f"Leaderboard: {dataset}, {board.allowed}", (VALUES,), tuple(sections), facts)


def ties(ranked: Sequence[Result], metric: str, results: Leaderboard) -> Ties | None:
    """Compare the best entries of a dataset, which are given best first, or read what was compared before.

    None for fewer than two entries, or if their users are not on this machine and the store has no verdicts of these entries.
    """
    best = ranked[:TESTED]
    if len(best) < 2:
        return None
    dataset, of = best[0].dataset, _key_of(best)
    if known := results.with_key(Ties, dataset, (of, metric)):
        return known
    samples = {each.entrant: users for each in best if (users := results.users_of(each, metric)) is not None}
    if len(samples) < len(best):
        return None
    try:
        tests = compare(samples, metric=metric)
    except DataError:  # the tables are of data whose files name users differently
        return None
    verdicts = {pair.model: pair.verdict for pair in tests.pairs if pair.against == tests.best}
    worse = tuple(name for name, verdict in verdicts.items() if verdict == "worse")
    equal = tuple(name for name in verdicts if name not in worse)
    allowed = best[0].allowed
    found = Ties(dataset=dataset, allowed=allowed, metric=metric, of=of, best=tests.best, worse=worse, equal=equal)
    results.add(found)
    return found


def _key_of(entries: Sequence[Result]) -> str:
    content = json.dumps([[each.card, each.entrant, each.allowed, each.rules, each.started_at] for each in entries])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _method_page(method: str, boards: Sequence[Board]) -> Page:
    sections = []
    if figure := curves(
        _shares_over_seconds(method, boards), "share of the best on validation", SHARES, f"leaderboard-{method}"
    ):
        sections.append(Section("Quality and time", (figure,)))
    by_board = [[each for each in board.entries if each.entrant == method] for board in boards]
    several = len({each.cpu for entries in by_board for each in entries if each.cpu}) > 1
    for board, entries in zip(boards, by_board, strict=True):
        body = []
        for each in sorted(entries, key=lambda each: each.dataset):
            settings = ", ".join(f"{name}={value}" for name, value in each.params.items())
            body.append(
                [Link(each.dataset, _of_dataset(each.dataset, board, boards)), _place(each, board),
                 _value(each, board.metric), settings or each.reason,
                 *[each.cpu] * several, command(each) if each.finished else ""]
            )  # fmt: skip
        if entries:
            header = ["dataset", "place", board.metric, "chosen setting", *["processor"] * several, "command"]
            sections.append(Section(f"Budget {board.allowed}", (Grid(header, body),)))
    return Page(f"Leaderboard: {method}", (VALUES,), tuple(sections))


def _shares_over_seconds(method: str, boards: Sequence[Board]) -> dict[str, list[tuple[float, float]]]:
    """The curve of the longest race of a method on each dataset, in shares of the best value that any method has there."""
    longest: dict[str, Result] = {}
    best: dict[str, float] = {}
    for each in sorted((each for board in boards for each in board.entries), key=lambda each: each.budget):
        if each.valid is not None:
            best[each.dataset] = max(each.valid, best.get(each.dataset, 0.0))
            if each.entrant == method:
                longest[each.dataset] = each
    return {
        dataset: [(seconds, value / best[dataset]) for seconds, value in each.curve]
        for dataset, each in sorted(longest.items())
        if best[dataset] > 0
    }


def _place(entry: Result, board: Board) -> str:
    """The place of an entry on its dataset, which those with equal values share, or why it has none."""
    ranked = board.ranked(entry.dataset)
    if not any(each is entry for each in ranked):
        return f"not measured by {board.metric}" if entry.finished else entry.status
    better = sum(each.metrics[board.metric][0] > entry.metrics[board.metric][0] for each in ranked)
    return f"{better + 1} of {len(ranked)}"


def _value(result: Result | Foreign, metric: str, interval: bool = True) -> str:
    if metric not in result.metrics:
        return ""
    value, low, high = result.metrics[metric]
    return estimate(value, low, high) if interval else estimate(value)


def _of_default(result: Result, metric: str) -> tuple[str, str]:
    """The value of the method's defaults, and what the search of the setting has gained."""
    gain = result.gain(metric)
    return ("", "") if gain is None else (f"{result.default[metric]:.4f}", f"{100 * gain:+.1f} %")


def _method(name: str) -> Link:
    return Link(name, f"method-{name}")


def _stem_of(board: Board, boards: Sequence[Board]) -> str:
    return "index" if board is boards[0] else f"budget-{board.allowed}"


def _of_dataset(dataset: str, board: Board, boards: Sequence[Board]) -> str:
    """The page of a dataset at a board's budget. One page has the first board with the dataset, and smaller budgets lead there;
    a larger one has a page of its own.
    """
    first = next(each for each in boards if dataset in each.by_dataset)
    return f"dataset-{dataset}" + (f"-{board.allowed}" if board.seconds > first.seconds else "")


def _csv(stands: Sequence[tuple[Result, Sequence[str]]]) -> str:
    """All entries, a line each, with the boards on which they stand and a column per metric. Text that a spreadsheet would run
    as a formula is made inert.
    """
    import pandas as pd

    metrics = list(dict.fromkeys(name for each, _ in stands for name in each.metrics))
    of_defaults = list(dict.fromkeys(name for each, _ in stands for name in each.default))
    rows = [
        {"method": inert(each.entrant), "dataset": inert(each.dataset), "budget": inert(each.allowed)}
        | {"budget_seconds": each.budget, "boards": inert(" ".join(on)), "status": inert(each.status)}
        | {"threads": each.threads, "chosen by": inert(each.metric)}
        | {inert(name): each.metrics[name][0] if name in each.metrics else "" for name in metrics}
        | {"seconds": each.seconds.get("all", ""), "processor": inert(each.cpu), "tried": each.tried, "ended": each.ended}
        | {inert(f"default {name}"): each.default.get(name, "") for name in of_defaults}
        | {"params": json.dumps(each.params, sort_keys=True)}
        for each, on in stands
    ]
    return pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n")
