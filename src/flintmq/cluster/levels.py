"""Levels: what every node of a cluster understands. Pure.

Each FlintMQ knows all levels from 1 up to its own. A cluster has the level of the FlintMQ that it
was founded with, until `flintmq cluster finalize` raises it; so a rolling upgrade can be taken back
until then. The hello between nodes carries the range from the cluster's level to the own one: who
is too old for the level is refused.

| level | commands up to | with |
|---|---|---|
| 1 | 2 | the first clusters |
| 2 | 3 | API keys of the cluster, digests of the state |
| 3 | 4 | segments in object storage |
"""

from __future__ import annotations

from collections.abc import Iterable

from ..cluster_model import NodeStatus
from ..engine.commands import Define
from ..errors import InvalidRequest
from ..model import Definition

LEVEL = 3
"""Of this FlintMQ."""
COMMANDS_UP_TO = {1: 2, 2: 3, 3: 4}
"""The highest level of commands that a leader proposes at a level of the cluster."""
KIND, NAME = "cluster", "level"
"""The definition that has it, of no topic."""


def level_in(definition: Definition | None) -> int:
    return 1 if definition is None else int(definition.value)


def raised(level: int, version: int) -> Define:
    return Define(KIND, "", NAME, str(level).encode(), version)


def highest(nodes: Iterable[NodeStatus]) -> int:
    """The level to which a cluster of these nodes can be raised. Raises InvalidRequest where one
    cannot be asked."""
    known = list(nodes)
    silent = [node.name for node in known if node.role == "down" or node.level is None]
    if silent:
        raise InvalidRequest(
            f"the level of node {silent[0]} is not known: it is down; start it with the new "
            "version, or remove it from the cluster"
        )
    return min([LEVEL, *(node.level for node in known if node.level is not None)])


def too_old(nodes: Iterable[NodeStatus], level: int) -> list[str]:
    """The nodes that do not know that level, with what they run."""
    return [
        f"{node.name} ({node.version or 'an unknown version'})"
        for node in nodes
        if node.level is not None and node.level < level
    ]
