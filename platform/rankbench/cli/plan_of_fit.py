"""`--dry-run --nodes`: what a closed form would take on a cluster that need not exist."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING

from rankbench.cli.console import out, phase_progress, print_json
from rankbench.core.environment import Environment
from rankbench.core.errors import require

if TYPE_CHECKING:
    from rankbench.data.cards import Card
    from rankbench.experiment.job import MethodConfig
    from rankbench.experiment.options import FitOptions

PREDICTED = {"dataset", "method", "params", "dtype", "dry_run", "nodes", "source"}  # `plan_fit` refuses the last one


def require_both(options: FitOptions) -> None:
    """Raise ConfigError if one of the options is given without the other, or with one that does not change the prediction."""
    dry_run, nodes = options.dry_run, options.nodes
    require(not dry_run or nodes is not None, "--dry-run: name the nodes too, such as --nodes 16x16x128GB@10")
    require(dry_run or nodes is None, "--nodes: only describes nodes for --dry-run; --address joins a cluster")
    for field in fields(options):
        name = field.metadata.get("flags", [f"--{field.name.replace('_', '-')}"])[0]
        known = not dry_run or field.name in PREDICTED or getattr(options, field.name) == field.default
        require(known, f"{name}: no effect on what --dry-run predicts; leave it out")


def show_plan(card: Card, config: MethodConfig, dtype: str, nodes: str, json: bool) -> None:
    """Print hours, bytes over the wire and memory per node of the inverse for the data of `card`."""
    from rankbench.data.prepare import prepare
    from rankbench.experiment.estimate import Size
    from rankbench.experiment.tile_plan import hardware_of, plan, require_tiles

    require_tiles(config)
    hardware = hardware_of(nodes, dtype)
    with phase_progress() as progress:
        size = Size.of(prepare(card, Environment.from_env(), progress))
        found = plan(size, dtype, hardware, partial(progress, "simulate"))
    if json:
        about = asdict(found)
        more = {
            "efficiency": found.efficiency,
            "error": found.error,
            "expected_seconds": found.expected,
            "gflops_per_core": hardware.rate / 1e9,
        }
        print_json({"dataset": card.name, "method": config.method, "nodes": nodes} | about | more)
        return
    room = hardware.store * hardware.memory
    out.print(
        f"{config.method} on {card.name}: {size.items:,} items, {hardware.nodes:,} nodes of {hardware.cores} cores and "
        f"{hardware.memory / 1e9:g} GB, {hardware.gigabits:g} Gbit/s",
        style="bold",
    )
    out.print(
        f"inverse by tiles of {found.tile:,} rows: {found.seconds / 3600:.3f} hours ({found.seconds:,.0f} s), of which "
        f"{100 * found.efficiency:.0f} % are arithmetic, at {hardware.rate / 1e9:.0f} GFLOP/s per core as measured here"
    )
    out.print(f"over the wire: {found.sent / 1e9:,.1f} GB, {found.sent / hardware.nodes / 1e9:,.1f} GB into each node")
    out.print(f"memory per node: {found.held / 1e9:,.1f} GB of tiles and copies, of {room / 1e9:,.1f} GB in its object store")
    out.print(
        f"a simulation: {found.error}, so expect {found.expected[0]:,.0f} to {found.expected[1]:,.0f} s; "
        "without the reading of the data and the ranking"
    )
