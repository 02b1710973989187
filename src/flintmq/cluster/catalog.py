"""The catalog: which nodes a cluster has, and what may become of them. Pure.

Each node is an entry of the replicated state of group 0. Operators and nodes that join change the
entries; who votes follows from them, one step at a time (`next_step`). So whoever leads next goes
on where the leader before was stopped.

| entry | group 0 has it | next step |
|---|---|---|
| member, its directory known | not at all | learner |
| member, a learner that has caught up | as a learner | voter, in place of the node it replaces |
| leaving | as a voter or learner | out of the group; a leader hands over first |
| leaving, or replaced by a voter | not any more | removed |
| removed | | stays, so that its id is never used again, and is refused |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from ..cluster_model import NodeEntry
from ..engine.commands import SetNodes
from ..errors import InvalidRequest
from ..raft import Membership
from ..raft.membership import (
    LEAVE_JOINT,
    MemberAction,
    MembershipChange,
    MembershipStep,
    Transition,
    add_learner,
)
from .levels import LEVEL

NODES_MAX = 64
MEMBER, LEAVING, REMOVED = "member", "leaving", "removed"

Nodes = Mapping[int, NodeEntry]


class ClusterCatalog:
    """The nodes as far as they are applied here; before that, as the node file has them."""

    def __init__(self, known: Iterable[NodeEntry] = (), level: int = LEVEL) -> None:
        self.on_changed: list[Callable[[], object]] = []
        self.nodes: Nodes = {}
        self.level = level
        """Of the cluster: see levels.py. It only grows."""
        self.know(known)

    def know(self, known: Iterable[NodeEntry], own: int = 0) -> None:
        """Before anything is applied. `own`: this node; what is applied without it is older than
        what it was told."""
        self._own = own
        self.nodes = {node.id: node for node in known}

    def applied(self, nodes: Nodes) -> None:
        if nodes and (not self._own or self._own in nodes):  # else nobody has filled it in yet
            self.nodes = dict(nodes)
            for tell in self.on_changed:
                tell()

    def raised(self, level: int) -> None:
        """The cluster has that level."""
        if level > self.level:
            self.level = level
            for tell in self.on_changed:
                tell()

    def present(self) -> list[NodeEntry]:
        """Those that are not removed, and have a directory."""
        return [
            node for node in self.nodes.values() if node.standing != REMOVED and node.incarnation
        ]

    def name_of(self, node: int) -> str:
        entry = self.nodes.get(node)
        return str(node) if entry is None else entry.name


def named(nodes: Nodes, name: str) -> NodeEntry | None:
    """The node of that name; of two, the one that takes the other's place."""
    found = [node for node in nodes.values() if node.name == name and node.standing != REMOVED]
    return max(found, key=lambda node: node.id, default=None)


# --- wishes


def admitted(nodes: Nodes, name: str, address: str, incarnation: int) -> NodeEntry | SetNodes:
    """What becomes of a node that wants to join: the entry it has, or the one it is to get."""
    entry = named(nodes, name)
    if entry is None:
        _check_address(nodes, address)
        return SetNodes([NodeEntry(_next_id(nodes), name, address, incarnation)])
    if entry.standing == LEAVING:
        raise InvalidRequest(f"node {name} is being removed; wait until that is done")
    if entry.incarnation == incarnation and entry.address == address:
        return entry
    if entry.incarnation in (0, incarnation):
        if entry.incarnation:
            _check_address(nodes, address)
        return SetNodes([msgspec.structs.replace(entry, address=address, incarnation=incarnation)])
    raise InvalidRequest(
        f"the cluster has a node {name} with another data directory; start that one, or choose "
        f"another node_name. If its disk is lost, run `flintmq cluster replace {name} {address}`, "
        "then start this node again"
    )


def added(nodes: Nodes, name: str, address: str) -> SetNodes:
    """Reserve name and address for a node that will join."""
    if named(nodes, name) is not None:
        raise InvalidRequest(f"the cluster has a node {name} already")
    _check_address(nodes, address)
    return SetNodes([NodeEntry(_next_id(nodes), name, address, 0)])


def replaced(nodes: Nodes, name: str, address: str) -> SetNodes:
    """Keep a place for the node that will be `name` from now on."""
    entry = _existing(nodes, name)
    if entry.incarnation == 0:  # asked again
        return SetNodes([msgspec.structs.replace(entry, address=address)])
    return SetNodes([NodeEntry(_next_id(nodes), name, address, 0, replaces=entry.id)])


def removed(nodes: Nodes, name: str, membership: Membership, live: Collection[int]) -> SetNodes:
    """Raises where the nodes that are left could not go on."""
    entry = _existing(nodes, name)
    left = [node for node in membership.voters if node != entry.id]
    alive = [node for node in left if node in live]
    if not left:
        raise InvalidRequest(f"{name} is the only voter: a cluster needs one")
    if 2 * len(alive) <= len(left):
        raise InvalidRequest(
            f"without {name}, {len(alive)} of {len(left)} voters would be up, which is no "
            "majority: nothing could be published; start the nodes that are down first, or replace "
            "them"
        )
    return SetNodes([msgspec.structs.replace(entry, standing=LEAVING)])


def _existing(nodes: Nodes, name: str) -> NodeEntry:
    entry = named(nodes, name)
    if entry is None:
        known = ", ".join(sorted(node.name for node in nodes.values() if node.standing != REMOVED))
        raise InvalidRequest(f"the cluster has no node {name}; it has {known}")
    return entry


def _next_id(nodes: Nodes) -> int:
    if sum(node.standing != REMOVED for node in nodes.values()) >= NODES_MAX:
        raise InvalidRequest(f"a cluster has at most {NODES_MAX} nodes")
    return max(nodes, default=0) + 1


def _check_address(nodes: Nodes, address: str) -> None:
    for node in nodes.values():
        if node.address == address and node.standing != REMOVED:
            raise InvalidRequest(
                f"node {node.name} has the address {address}; each node needs its own"
            )


# --- what follows from them


def next_step(
    nodes: Nodes, membership: Membership, leader: int, caught_up: Callable[[int], bool]
) -> MembershipChange | SetNodes | None:
    """What the leader does next; None: all is as it should be. A step that removes the leader
    itself is for whoever leads next."""
    if membership.is_joint():
        return LEAVE_JOINT
    members = set(membership.everybody())
    for node in sorted(nodes.values(), key=lambda one: one.id):
        if node.standing == MEMBER and node.incarnation and node.id not in members:
            if any(
                other.replaces == node.id and _votes(other, membership) for other in nodes.values()
            ):
                return SetNodes([msgspec.structs.replace(node, standing=REMOVED)])
            return add_learner(node.id)
        if node.standing == MEMBER and membership.is_learner(node.id) and caught_up(node.id):
            steps = [MembershipStep(MemberAction.ADD_VOTER, node.id)]
            if node.replaces in members:
                steps.append(MembershipStep(MemberAction.REMOVE, node.replaces))
            if node.replaces != leader:
                return MembershipChange(tuple(steps), Transition.JOINT_EXPLICIT)
        if node.standing == LEAVING:
            if node.id not in members:
                return SetNodes([msgspec.structs.replace(node, standing=REMOVED)])
            if node.id != leader:
                step = MembershipStep(MemberAction.REMOVE, node.id)
                return MembershipChange((step,), Transition.JOINT_EXPLICIT)
    return None


def _votes(node: NodeEntry, membership: Membership) -> bool:
    return node.standing != REMOVED and node.id in membership.voters


def must_hand_over(
    nodes: Nodes, membership: Membership, leader: int, caught_up: Callable[[int], bool]
) -> bool:
    """Whether the leader is about to be removed, so that another should lead."""
    return any(
        (node.id == leader and node.standing == LEAVING)
        or (node.replaces == leader and membership.is_learner(node.id) and caught_up(node.id))
        for node in nodes.values()
    )
