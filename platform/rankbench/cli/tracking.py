"""rankbench tracking: messages that wait for MLflow, sending them, and an MLflow server."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from rankbench.cli.arguments import ModelFolder, Plugin, RunName, Tags
from rankbench.cli.console import Json, epilog, err, out, print_json, program
from rankbench.core.environment import Environment
from rankbench.core.errors import StorageError, require
from rankbench.core.extras import require_extra
from rankbench.core.redaction import without_password
from rankbench.tracking.address import artifacts_folder, checked_uri, is_server, tracking_uri, variable
from rankbench.tracking.labels import Labels

if TYPE_CHECKING:
    from rankbench.tracking.model_registry import Registered

EXAMPLES = """Examples:
  rankbench tracking status
  rankbench tracking sync
  rankbench tracking serve --store postgresql+psycopg2://me@127.0.0.1:5433/rankbench
  rankbench tracking register my-model --name movies
"""

app = typer.Typer(
    help="Show and send waiting messages, run an MLflow server, or register a model.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(EXAMPLES),
)

PATIENCE = 120.0  # seconds without progress after which sync gives up; the uploader detects a hung server after 60


@app.callback()
def _root() -> None:
    require_extra("tracking", "tracking")


@app.command(epilog=epilog(EXAMPLES))
def status(json: Json = False) -> None:
    """Show the tracking store, whether it answers, and how many messages wait for it."""
    from rankbench.tracking.delivery import check
    from rankbench.tracking.spool import Spool
    from rankbench.tracking.store import is_new

    environment = Environment.from_env()
    uri, artifacts = tracking_uri(environment), artifacts_folder(environment)
    spool = Spool.beside(artifacts)
    with suppress(OSError):  # as of somebody else's folder
        spool.inherit()
    problem = "" if is_new(uri) else check(uri, artifacts)
    waiting, aside, others = spool.waiting(), spool.aside(), spool.of_others(without_password(uri))
    if json:
        facts = {"store": without_password(uri), "reachable": not problem, "reason": problem or None, "exists": not is_new(uri)}
        print_json(facts | {"spool": str(spool.folder), "waiting": len(waiting), "of_others": others, "set_aside": len(aside)})
        return
    answer = "does not exist yet; the first run creates it" if is_new(uri) else "answers"
    answer = f"does not answer: {problem}" if problem else answer
    out.print(f"store    {without_password(uri)} {answer}")
    out.print(f"waiting  {len(waiting)} messages in {spool.folder}")
    if aside:
        out.print(f"damaged  {len(aside)} messages set aside in the same folder (*.bad)")
    if others:
        out.print(f"{others} of them were written for another store; `{program()} tracking sync --all` sends them to this one")
    elif waiting and not problem:
        out.print(f"`{program()} tracking sync` sends them")


@app.command(epilog=epilog(EXAMPLES))
def sync(
    every: Annotated[bool, typer.Option("--all", help="Send also what was written for another server or database.")] = False,
    json: Json = False,
) -> None:
    """Send waiting messages to MLflow, each once. The exit code is 5 if some of them still wait."""
    from rich.progress import Progress

    from rankbench.tracking.delivery import Delivery
    from rankbench.tracking.spool import Spool

    environment = Environment.from_env()
    uri, artifacts = tracking_uri(environment), artifacts_folder(environment)
    spool = Spool.beside(artifacts)
    spool.inherit()
    messages = spool.waiting()
    left, aside = 0, len(spool.aside())
    if messages:
        delivery = Delivery(uri, artifacts, queue=False, every=every)
        bar = Progress(console=err, transient=True)
        with bar if err.is_terminal and not json else nullcontext():
            task = bar.add_task("sending", total=len(messages))
            delivery.start()
            left = delivery.finish(
                lambda: sum(path.exists() for path in messages),
                PATIENCE,
                limit=float("inf"),
                progress=lambda left: bar.update(task, completed=len(messages) - left),
            )
        if delivery.note:
            err.print(f"warning: {delivery.note}")
        if left:
            raise StorageError(
                f"tracking at {without_password(uri)}: {left} of {len(messages)} messages still wait in {spool.folder} "
                f"({delivery.reason}); nothing is lost"
            )
    damaged = len(spool.aside()) - aside
    if json:
        print_json({"store": without_password(uri), "sent": len(messages) - damaged, "set_aside": damaged})
    else:
        out.print(f"{len(messages) - damaged} messages sent to {without_password(uri)}")


@app.command(epilog=epilog(EXAMPLES))
def serve(
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    store: Annotated[
        str | None,
        typer.Option(
            help="SQLite or PostgreSQL address without a password. Default: RANKBENCH_TRACKING_URI, or SQLite in the results."
        ),
    ] = None,
    open_to_network: Annotated[
        bool, typer.Option("--open-to-network", help="Allow a --host that others can reach; the server has no login.")
    ] = False,
    allowed_hosts: Annotated[
        str | None,
        typer.Option(help="Further host names of the server, comma-separated. Default: the names of the machine."),
    ] = None,
    json: Json = False,
) -> int:
    """Run an MLflow server on the store until interrupted. It keeps artifacts in the results folder."""
    from rankbench.tracking import server

    environment = Environment.from_env()
    uri, artifacts = checked_uri(store, "--store") if store else tracking_uri(environment), artifacts_folder(environment)
    shown, public = without_password(uri), not server.is_loopback(host)
    given = "--store" if store else variable(environment)
    require(not is_server(uri), f"{given}={shown} is an MLflow server; name a database, as in --store sqlite:///FILE")
    require(
        open_to_network or not public,
        f"--host {host}: others can reach this address, and the server has no login; add --open-to-network if it is "
        "behind a firewall or a proxy with a login",
    )
    names = server.names(host, allowed_hosts)
    url, hosts = server.url(names[0] if public else host, port), server.allowed_hosts(host, port, names)

    def on_ready() -> None:
        if json:
            print_json({"url": url, "store": shown, "artifacts": str(artifacts), "allowed_hosts": list(hosts)})
        else:
            err.print(f"MLflow on {url}, store {shown}, artifacts in {artifacts} (press Ctrl-C to stop)")
            out.print(f"export RANKBENCH_TRACKING_URI={url}")
        if public:
            err.print(
                f"open to the network without a login; answers to {', '.join(hosts)}; "
                "--allowed-hosts NAME,NAME adds other names"
            )

    return server.serve(uri, artifacts, on_ready, host, port, names, err.print)


@app.command(epilog=epilog(EXAMPLES))
def register(
    model: ModelFolder,
    name: Annotated[str, typer.Option("--name", help="Name of the registered model; it gets its next version.")],
    tag: Tags = None,
    run_name: RunName = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Register a model of `rankbench fit` in MLflow, which can then serve it. The exit code is 5 if the store refuses it."""
    from rankbench.api.register import register as register_model
    from rankbench.tracking.model_registry import checked_model_name

    checked_model_name(name, "--name")
    labels = Labels.from_env("rankbench tracking register", tag or (), run_name)
    registered = register_model(model, name, Environment.from_env(), labels)
    if json:
        print_json({"name": registered.name, "version": registered.version, "uri": registered.uri})
        return
    show_registered(registered)


def show_registered(registered: Registered) -> None:
    """Print the version of a registered model and the command that serves it."""
    out.print(f"{registered.name} version {registered.version} registered")
    out.print(f"serve    mlflow models serve -m '{registered.uri}' --env-manager local --port 5001")
