"""rankbench tracking: what MLflow has not been told yet, and telling it."""

from __future__ import annotations

import typer

from rankbench.cli.console import Json, err, out, print_json, program

EXAMPLES = """Examples:

  rankbench tracking status

  rankbench tracking sync
"""

app = typer.Typer(help="What waits for MLflow, and sending it.", no_args_is_help=True, rich_markup_mode=None, epilog=EXAMPLES)

PATIENCE = 120.0  # s without a message taken, after which a sync gives up; of a hung server the uploader knows after 60


@app.command()
def status(json: Json = False) -> None:
    """Show the store, whether it answers, and how many messages wait for it."""
    from rankbench.settings import Settings
    from rankbench.tracking.delivery import check
    from rankbench.tracking.spool import Spool
    from rankbench.tracking.store import is_new, tracking_uri, without_password

    settings = Settings.from_env()
    uri, spool = tracking_uri(settings), Spool(settings.results / "spool")
    why = "" if is_new(uri) else check(uri, settings.results / "mlartifacts")
    waiting, aside = spool.waiting(), spool.aside()
    if json:
        facts = {"store": without_password(uri), "reachable": not why, "reason": why or None, "exists": not is_new(uri)}
        print_json(facts | {"spool": str(spool.folder), "waiting": len(waiting), "set_aside": len(aside)})
        return
    answer = "is made at the first run" if is_new(uri) else f"does not answer: {why}" if why else "answers"
    out.print(f"store    {without_password(uri)} {answer}", markup=False)
    out.print(f"waiting  {len(waiting)} messages in {spool.folder}", markup=False)
    if aside:
        out.print(f"damaged  {len(aside)} messages set aside there (*.bad)", markup=False)
    if waiting and not why:
        out.print(f"`{program()} tracking sync` sends them", markup=False)


@app.command()
def sync(json: Json = False) -> None:
    """Send what waits to MLflow; what it has already is left as it is. Exit code 5 when some of it still waits."""
    from rich.progress import Progress

    from rankbench.errors import StorageError
    from rankbench.settings import Settings
    from rankbench.tracking.delivery import Delivery
    from rankbench.tracking.spool import Spool
    from rankbench.tracking.store import tracking_uri, without_password

    settings = Settings.from_env()
    uri, spool = tracking_uri(settings), Spool(settings.results / "spool")
    messages = spool.waiting()
    left, aside = 0, len(spool.aside())
    if messages:
        delivery = Delivery(uri, settings.results / "mlartifacts", queue=False)
        with Progress(console=err, transient=True, disable=json or not err.is_terminal) as bar:
            task = bar.add_task("sending", total=len(messages))
            delivery.start()
            left = delivery.finish(
                lambda: sum(path.exists() for path in messages),
                PATIENCE,
                limit=float("inf"),
                progress=lambda left: bar.update(task, completed=len(messages) - left),
            )
        if delivery.note:
            err.print(f"warning: {delivery.note}", markup=False)
        if left:
            raise StorageError(
                f"tracking at {without_password(uri)}: {left} of {len(messages)} messages still wait in {spool.folder} "
                f"({delivery.reason}); nothing is lost, try again"
            )
    damaged = len(spool.aside()) - aside
    if json:
        print_json({"store": without_password(uri), "sent": len(messages) - damaged, "set_aside": damaged})
    else:
        out.print(f"{len(messages) - damaged} messages sent to {without_password(uri)}", markup=False)
