"""What clients are told about the nodes of a cluster."""

from __future__ import annotations

import msgspec

from .control import Control


class MapNode(Control):
    """A node of a cluster, and where its clients connect."""

    id: int
    name: str
    addresses: list[str]


class MapGroup(Control):
    """A group, and who leads it: 0 is nobody."""

    id: int
    leader: int
    term: int
    members: list[int]
    committed: int = 0
    applied: int = 0
    """The last entry that is committed, and applied, as far as the node knows that says this."""
    learners: list[int] = msgspec.field(default_factory=list)
    """Of the members, those that do not vote yet."""


class ClusterMap(Control):
    """Who the nodes of a cluster are, and who leads, as one of them knows it."""

    cluster: bytes
    nodes: list[MapNode]
    groups: list[MapGroup]
    node: int = 0
    """The node that says this."""
