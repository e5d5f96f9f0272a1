"""The pages of a leaderboard, which load nothing from the network: one per budget, dataset and method, and the data as a file.

index.html  budget-BUDGET.html  dataset-DATASET.html  method-METHOD.html  entries.csv
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rankbench.core.files import write_text
from rankbench.core.spreadsheet import inert
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.figures import critical_differences, quality_by_budget, shares_of_best, space_of_datasets
from rankbench.leaderboard.results import Result, Results
from rankbench.leaderboard.standings import Standings
from rankbench.leaderboard.ties import TESTED, ties
from rankbench.leaderboard.traits import correlations
from rankbench.reports.html import html
from rankbench.reports.page import Best, Block, Grid, Link, Page, Picture, Section, State, Text

MEANING = (
    "Each method had the same time on each dataset, to search its settings on the validation set and to be fitted with several "
    "seeds. Reading data and the measurement on test are not counted. Values are means over users and seeds on test; brackets "
    "are 95 % intervals over users."
)
TIES = (
    f"The {TESTED} best methods are compared with the best one by paired tests over users, corrected for all of their pairs. "
    "= best: not told from it."
)


Told = Callable[[str, int, int], None]  # what is being done, how much of it is done, and of how much


def write_site(
    folder: Path,
    boards: Sequence[Board],
    results: Results,
    families: Mapping[str, Sequence[str]],
    on_page: Told = lambda what, done, total: None,
) -> list[Path]:
    """Write the pages of `boards`, one per budget, the first of which is the index. `families`: those of each method.

    `on_page` is told of each dataset that is compared. Returns the paths of the files. Raises StorageError if they cannot be
    written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, Page] = {}
    first = boards[0]
    with TemporaryDirectory() as scratch:
        for number, board in enumerate(boards):
            pages["index" if number == 0 else _budget_stem(board)] = board_page(board, boards, families, Path(scratch))
        datasets = sorted({each.dataset for each in first.entries})
        for number, dataset in enumerate(datasets, start=1):
            pages[f"dataset-{dataset}"] = _dataset_page(dataset, first, results)
            on_page("comparing methods on each dataset", number, len(datasets))
        for method in sorted({each.entrant for each in first.entries}):
            pages[f"method-{method}"] = _method_page(method, boards)
        paths = [folder / f"{stem}.html" for stem in pages]
        for path, page in zip(paths, pages.values(), strict=True):
            write_text(path, html(page))
    write_text(folder / "entries.csv", _csv([each for board in boards for each in board.entries]))
    return [*paths, folder / "entries.csv"]


def command(result: Result) -> str:
    """The command that fits the chosen setting again and gives the first number of `by_seed`."""
    words = ["rankbench", "run", result.dataset, result.method, "--fit-on", "train"]
    words += [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in result.params.items()]
    words += ["--seed", str(result.seeds[0])] if result.seeds and result.seeds[0] else []
    return " ".join(shlex.quote(word) for word in words)


def board_page(board: Board, boards: Sequence[Board], families: Mapping[str, Sequence[str]], scratch: Path) -> Page:
    """The page of one of the `boards`. Its pictures are written to the folder `scratch`."""
    standings, pictures = board.standings, f"leaderboard-{_budget_stem(board).removeprefix('budget-')}"
    diagram = critical_differences(standings, scratch / f"{pictures}-ranks.png")
    shares = shares_of_best(standings, scratch / f"{pictures}-values.png")
    blocks: list[Block] = []
    if shares:
        blocks.append(Picture(shares, f"{board.metric} in percent of the best value of each dataset; –: no result."))
    if diagram:
        caption = "Mean ranks of the best methods. A bar joins methods that Nemenyi's test does not tell apart at 5 %."
        blocks.append(Picture(diagram, caption))
    sections = [Section("Standings", (*blocks, _standings_grid(board, families)))]
    timed = [(_mean_seconds(each), each.standings) for each in sorted(boards, key=_mean_seconds)]
    if quality := quality_by_budget(timed, board.metric, scratch / f"{pictures}-quality.png"):
        sections.append(Section("Quality and time", (Picture(quality, "What the best methods reach with more time."),)))
    data: list[Block] = [_datasets_grid(board)]
    if apart := board.about_datasets_apart():
        data.append(Text(apart))
    if space := space_of_datasets(standings, scratch / f"{pictures}-datasets.png"):
        data.append(Picture(space, "Datasets on which the same methods do well lie close together."))
    if going := correlations(standings, board.traits):
        data.append(_traits_grid(standings, going))
    sections.append(Section("Datasets", tuple(data)))
    sections.append(Section("All entries", (_entries_grid(board, families),)))
    if len(boards) > 1:
        sections.insert(0, Section("Budgets", (_budgets_grid(board, boards),)))
    shares = [each.seconds["all"] / each.budget for each in board.entries if "all" in each.seconds]
    spent = sum(each.seconds.get("all", each.budget) for each in board.entries) / 3600
    facts = (
        ("budget", board.allowed),
        ("methods", str(len(standings.methods))),
        ("datasets", str(len(standings.datasets))),
        ("processor hours", f"{spent:.1f}"),
        ("largest share of a budget", f"{max(shares, default=0):.2f}"),
        ("chosen and ranked by", board.metric),
    )
    return Page("Leaderboard", (MEANING,), tuple(sections), facts, (*board.conclusions()[:3], *board.notes))


def _budgets_grid(board: Board, boards: Sequence[Board]) -> Grid:
    body = []
    for each in sorted(boards, key=_mean_seconds):
        best = [each.standings.methods[i] for i in each.standings.order[:3]]
        name = each.allowed if each is board else Link(each.allowed, _stem_of(each, boards))
        body.append([name, str(len(each.entries)), f"{_mean_seconds(each):.0f}", ", ".join(best)])
    return Grid(["budget", "entries", "mean seconds", "best mean ranks"], body)


def _standings_grid(board: Board, families: Mapping[str, Sequence[str]]) -> Grid:
    standings = board.standings
    wins, shares = standings.copeland(), standings.profiles([1.0, 1 / 0.95, 1 / 0.9])
    body = []
    for place, i in enumerate(standings.order, start=1):
        method = standings.methods[i]
        places = board.jackknife.places[method] if board.jackknife else None
        body.append(
            [
                Link(method, f"method-{method}"), str(place), f"{standings.mean_ranks[i]:.2f}", f"{wins[i]:+d}",
                *[f"{100 * share:.0f} %" for share in shares[i]], str(board.without_result(method)),
                f"{places[0]} to {places[1]}" if places else "", ", ".join(families.get(method, ())),
            ]
        )  # fmt: skip
    header = [
        "method", "place", "mean rank", "wins − losses", "best", "within 5 %", "within 10 %", "no result",
        "places without a dataset", "families",
    ]  # fmt: skip
    return Grid(header, body)


def _datasets_grid(board: Board) -> Grid:
    body = []
    for dataset in (*board.standings.datasets, *board.datasets_apart):
        ranked = _ranked(dataset, board)
        seconds = max(each.budget for each in board.entries if each.dataset == dataset)
        leaders = [f"{each.entrant} {each.metrics[board.metric][0]:.4f}" for each in ranked[:3]]
        leaders += [""] * (3 - len(leaders))
        body.append([Link(dataset, f"dataset-{dataset}"), f"{seconds:g}", *leaders])
    return Grid(["dataset", "seconds", "first", "second", "third"], body)


def _traits_grid(standings: Standings, going: Mapping[str, np.ndarray]) -> Grid:
    body = [
        [
            Link(standings.methods[i], f"method-{standings.methods[i]}"),
            *["" if np.isnan(values[i]) else f"{-values[i]:+.2f}" for values in going.values()],
        ]
        for i in standings.order
    ]
    caption = (
        "Where methods do well: Spearman's correlation of a trait of the dataset with the place, + if better where it is larger"
    )
    return Grid(["method", *going], body, caption)


def _entries_grid(board: Board, families: Mapping[str, Sequence[str]]) -> Grid:
    columns = [name for name in ("recall@20", "ndcg@20", "mrr@20", "coverage@20", "popularity@20") if name != board.metric]
    body = [
        [
            Link(each.entrant, f"method-{each.entrant}"), Link(each.dataset, f"dataset-{each.dataset}"),
            _value(each, board.metric), *[_value(each, name, False) for name in columns],
            f"{each.seconds.get('all', each.budget):.1f}", each.status, ", ".join(families.get(each.entrant, ())),
        ]
        for each in sorted(board.entries, key=lambda each: (each.entrant, each.dataset))
    ]  # fmt: skip
    return Grid(["method", "dataset", board.metric, *columns, "seconds", "status", "families"], body, sticky=2)


def _dataset_page(dataset: str, board: Board, results: Results) -> Page:
    ranked = _ranked(dataset, board)
    tested = ties(ranked, board.metric, results)
    names = [name for name in ranked[0].metrics if name.endswith(("@20", "@10"))] if ranked else []
    body = []
    for number, each in enumerate(ranked):
        tie = tested.verdict(each.entrant) if tested else ""
        value = _value(each, board.metric)
        body.append(
            [
                Link(each.entrant, f"method-{each.entrant}"), Best(value) if number == 0 else value, State(tie) if tie else "",
                *[_value(each, name, False) for name in names if name != board.metric], str(each.tried), str(len(each.seeds)),
                f"{each.seconds.get('all', 0):.1f}", f"{each.seconds.get('fit', 0):.2f}", f"{each.peak_memory_gb:.1f}",
            ]
        )  # fmt: skip
    others = [name for name in names if name != board.metric]
    header = ["method", board.metric, "against the best", *others, "settings tried", "seeds", "seconds", "of the fit", "GB"]
    sections = [Section("", (Text(TIES), Grid(header, body)))]
    lost = [each for each in board.entries if each.dataset == dataset and not each.finished]
    if lost:
        rows = [[Link(each.entrant, f"method-{each.entrant}"), each.status, each.reason] for each in lost]
        sections.append(Section("Without a result", (Grid(["method", "status", "reason"], rows),)))
    rows = [[Link(each.entrant, f"method-{each.entrant}"), command(each)] for each in ranked]
    sections.append(Section("Repeat", (Text("The chosen settings, as commands."), Grid(["method", "command"], rows))))
    seconds = f"{ranked[0].budget:g} s" if ranked else board.allowed
    return Page(f"Leaderboard: {dataset}", (), tuple(sections), (("budget", f"{board.allowed}, here {seconds}"),))


def _method_page(method: str, boards: Sequence[Board]) -> Page:
    sections = []
    for board in boards:
        entries = sorted((each for each in board.entries if each.entrant == method), key=lambda each: each.dataset)
        body = []
        for each in entries:
            place = _place(each, board)
            settings = ", ".join(f"{name}={value}" for name, value in each.params.items())
            body.append(
                [Link(each.dataset, f"dataset-{each.dataset}"), place, _value(each, board.metric), settings or each.reason,
                 command(each) if each.finished else ""]
            )  # fmt: skip
        if entries:
            header = ["dataset", "place", board.metric, "chosen setting", "command"]
            sections.append(Section(f"Budget {board.allowed}", (Grid(header, body),)))
    return Page(f"Leaderboard: {method}", (), tuple(sections))


def _ranked(dataset: str, board: Board) -> list[Result]:
    """The finished entries of a dataset that have the metric, best first."""
    finished = [each for each in board.entries if each.dataset == dataset and each.finished and board.metric in each.metrics]
    return sorted(finished, key=lambda each: (-each.metrics[board.metric][0], each.entrant))


def _place(result: Result, board: Board) -> str:
    ranked = _ranked(result.dataset, board)
    without = f"not measured by {board.metric}" if result.finished else result.status
    return f"{ranked.index(result) + 1} of {len(ranked)}" if result in ranked else without


def _value(result: Result, metric: str, interval: bool = True) -> str:
    if metric not in result.metrics:
        return ""
    value, low, high = result.metrics[metric]
    text = f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{text} [{low:.4f}, {high:.4f}]" if interval and low is not None and high is not None else text


def _mean_seconds(board: Board) -> float:
    return sum(each.budget for each in board.entries) / len(board.entries)


def _budget_stem(board: Board) -> str:
    return f"budget-{board.allowed.replace('/', '-per-')}"


def _stem_of(board: Board, boards: Sequence[Board]) -> str:
    return "index" if board is boards[0] else _budget_stem(board)


def _csv(entries: Sequence[Result]) -> str:
    """All entries, a line each, with a column per metric."""
    metrics = list(dict.fromkeys(name for each in entries for name in each.metrics))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["method", "dataset", "budget", "budget_seconds", "status", *metrics, "seconds", "tried", "seeds", "params"]
    )
    for each in entries:
        values = [each.metrics[name][0] if name in each.metrics else "" for name in metrics]
        writer.writerow(
            [
                inert(each.entrant), inert(each.dataset), inert(each.allowed), each.budget, inert(each.status), *values,
                each.seconds.get("all", ""), each.tried, len(each.seeds), json.dumps(each.params, sort_keys=True),
            ]
        )  # fmt: skip
    return buffer.getvalue()
