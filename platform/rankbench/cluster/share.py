"""The part of a cluster that the blocks of a fit run on: all of its nodes, or the nodes that were reserved for one trial.

Ray chooses the place of a first attempt; a block that is late is sent elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rankbench.cluster.alive_nodes import alive_nodes


class Place(NamedTuple):
    """A node, or a part of one: `cpus` processors, Ray's scheduling strategy for tasks there, and the node's id."""

    cpus: int
    strategy: Any
    node: str


@dataclass
class WholeCluster:
    """All alive nodes."""

    _nodes: list[str] = field(default_factory=list)

    @property
    def cpus(self) -> int:
        """Number of processors, at least 1."""
        return max(1, int(sum(node["Resources"].get("CPU", 0) for node in alive_nodes())))

    def places(self) -> list[Place]:
        """The places with a processor, in an order that does not depend on time."""
        nodes = [node for node in alive_nodes() if node["Resources"].get("CPU", 0) >= 1]
        nodes.sort(key=lambda node: node["NodeManagerAddress"])
        return [
            # On another node if this one dies: then the work starts again anyway.
            Place(int(node["Resources"]["CPU"]), NodeAffinitySchedulingStrategy(node["NodeID"], soft=True), node["NodeID"])
            for node in nodes
        ]

    def look(self) -> None:
        """Look again where late blocks may be sent. The driver's own node is the first, because it is known to work."""
        own = ray.get_runtime_context().get_node_id()
        nodes = [node["NodeID"] for node in alive_nodes() if node["Resources"].get("CPU")]
        self._nodes = sorted(nodes, key=lambda node: node != own) or [own]

    def elsewhere(self, index: int, attempt: int) -> NodeAffinitySchedulingStrategy:
        """Ray's scheduling strategy for the given attempt, from 1, to run block `index` again."""
        if not self._nodes:
            self.look()
        first, *rest = self._nodes
        node = first if attempt == 1 or not rest else rest[(index + attempt) % len(rest)]
        # By default Ray would reuse the worker that it has leased, on the node that hangs.
        return NodeAffinitySchedulingStrategy(node, soft=True)


@dataclass(frozen=True)
class TrialShare:
    """The bundles of a trial's placement group, apart from the first, which the trial itself occupies.

    Tasks run in these bundles by default, because Tune lets a trial's tasks inherit its group. If a node is lost, Ray moves its
    bundle to another node as soon as one is free, and the other bundles take its blocks until then.
    """

    group: PlacementGroup

    @classmethod
    def of_this_trial(cls) -> TrialShare:
        """The share of the trial that runs in this process."""
        group = ray.util.get_current_placement_group()
        assert group is not None, "a trial over several nodes has a placement group"
        return cls(group)

    @property
    def cpus(self) -> int:
        return max(1, int(sum(bundle.get("CPU", 0) for bundle in self.group.bundle_specs[1:])))

    def places(self) -> list[Place]:
        nodes = ray.util.placement_group_table(self.group)["bundles_to_node_id"]
        bundles = range(1, len(self.group.bundle_specs))
        return [Place(int(self.group.bundle_specs[i]["CPU"]), self._in_bundle(i), nodes[i]) for i in bundles if i in nodes]

    def look(self) -> None:
        """Do nothing: the bundles of a group never change, only their nodes."""

    def elsewhere(self, index: int, attempt: int) -> PlacementGroupSchedulingStrategy:
        n = len(self.group.bundle_specs) - 1
        return self._in_bundle(1 + (index + attempt) % n)

    def _in_bundle(self, index: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(self.group, index, placement_group_capture_child_tasks=True)


Share = WholeCluster | TrialShare
