"""rankbench doctor: check whether this machine is ready."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rankbench.cli.console import Json, out, print_json, print_table
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.judge.printing import counted

EXAMPLES = """Examples:
  rankbench doctor
  rankbench doctor --cluster
  rankbench doctor --address HEAD:6379
"""


def doctor(
    cluster: Annotated[bool, typer.Option("--cluster", help="Also start a local Ray cluster and run a task on it.")] = False,
    address: Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster, whose nodes are also checked.")] = None,
    json: Json = False,
) -> None:
    """Check machine, folders, datasets, tracking and cluster. The exit code is 2 if a check fails."""
    from rankbench.cli import checks as doctor
    from rankbench.cluster.session import host_and_port

    if address:
        require(not cluster, f"--cluster starts a local one, and --address {address} names another; leave one of them out")
        host_and_port(address)
    environment = Environment.from_env()
    results = list(doctor.checks(environment))
    if cluster or address:
        results += doctor.cluster(environment, address)
    failed = [check for check in results if check.status == "fail"]
    if json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in results]})
        raise typer.Exit(2 if failed else 0)
    print_table(["", "check", "result", "what to do"], [[c.status, c.what, c.detail, c.advice] for c in results])
    if failed:
        raise ConfigError(f"{len(failed)} of {len(results)} checks failed; the first: {failed[0].what}: {failed[0].detail}")
    out.print(f"ready: {counted(sum(check.status == 'warn' for check in results), 'warning')}", style="green")
