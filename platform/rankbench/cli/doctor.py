"""rankbench doctor: is this machine ready?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rankbench.cli.console import Json, out, print_json, print_table

EXAMPLES = """Examples:

  rankbench doctor

  rankbench doctor --cluster

  rankbench doctor --address HEAD:6379
"""


def doctor(
    cluster: Annotated[bool, typer.Option("--cluster", help="Start a local Ray cluster too, and run a task on it.")] = False,
    address: Annotated[str | None, typer.Option(help="Join this Ray cluster and ask every node.")] = None,
    json: Json = False,
) -> None:
    """Check machine, folders, mirror, tracking and cluster; exit code 2 when something will not work."""
    from rankbench.cli import checks as doctor
    from rankbench.cluster.session import host_and_port
    from rankbench.core.environment import Environment
    from rankbench.core.errors import ConfigError

    if address:
        host_and_port(address)
    environment = Environment.from_env()
    found = list(doctor.checks(environment))
    if cluster or address:
        found += doctor.cluster(environment, address)
    failed = [check for check in found if check.status == "fail"]
    if json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in found]})
        raise typer.Exit(2 if failed else 0)
    print_table(["", "check", "found", "what to do"], [[c.status, c.what, c.detail, c.advice] for c in found])
    if failed:
        raise ConfigError(f"{len(failed)} of {len(found)} checks failed; the first: {failed[0].what}: {failed[0].detail}")
    out.print(f"ready: {sum(check.status == 'warn' for check in found)} warnings", style="green", markup=False)
