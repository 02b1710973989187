"""What goes wrong, and what operators do meanwhile: one function per kind of fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.errors import ProposalRefused
from flintmq.raft import (
    MemberAction,
    Membership,
    MembershipChange,
    MembershipStep,
    Transition,
    add_learner,
    add_voter,
    remove,
)
from tests.simulation.plan import MS

if TYPE_CHECKING:
    from tests.simulation.server import Server
    from tests.simulation.world import World

MEMBERS_MAX = 7


class Faults:
    """Draws a fault now and then. What it did is counted under its name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random

    def begin(self) -> None:
        self._world.later(self._random.randrange(self._world.plan.fault_every_us), self._next)

    def _next(self) -> None:
        world = self._world
        if world.is_calm:
            return
        kind = self._random.choice(world.plan.faults)
        if getattr(self, f"_{kind}")() is not False:
            world.counts[f"fault {kind}"] += 1
            world.note(f"fault {kind}")
        world.later(self._random.randint(1, 2 * world.plan.fault_every_us), self._next)

    def _for_a_while(self) -> int:
        return self._random.choice((100, 500, 1500, 4000)) * MS

    def _some_server(self) -> Server:
        return self._random.choice(list(self._world.servers.values()))

    # -- network ----------------------------------------------------------------------------

    def _cut(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            self._world.network.cut(*link)
        self._world.later(self._for_a_while(), self._heal_links, links)

    def _heal_links(self, links: list[tuple[int, int]]) -> None:
        self._world.network.cut_links.difference_update(links)

    def _all_links(self) -> list[tuple[int, int]]:
        nodes = list(self._world.servers)
        return [(a, b) for a in nodes for b in nodes if a != b]

    def _split(self) -> None:
        side = {node for node in self._world.servers if self._random.random() < 0.5}
        self._cut([(a, b) for a, b in self._all_links() if (a in side) != (b in side)])

    def _one_way(self) -> None:
        node = self._some_server().id
        outward = self._random.random() < 0.5
        self._cut([(a, b) for a, b in self._all_links() if (a if outward else b) == node])

    def _partial(self) -> None:
        self._cut([link for link in self._all_links() if self._random.random() < 0.3])

    def _isolate_leader(self) -> bool | None:
        leader = self._world.leader()
        if leader is None:
            return False
        self._cut([(a, b) for a, b in self._all_links() if leader.id in (a, b)])
        return None

    def _rough_network(self) -> None:
        self._world.network.rough_until = self._world.now + self._for_a_while()

    # -- power ------------------------------------------------------------------------------

    def _stop(self, server: Server) -> None:
        if server.is_up:
            server.stop()
            self._world.later(self._for_a_while(), self._start, server)

    def _start(self, server: Server) -> None:
        if not server.is_up:
            server.start()

    def _crash(self) -> None:
        self._stop(self._some_server())

    def _crash_leader(self) -> bool | None:
        leader = self._world.leader()
        if leader is None:
            return False
        self._stop(leader)
        return None

    def _crash_all(self) -> None:
        outage = self._random.randrange(10, 500) * MS
        for server in self._world.servers.values():
            if server.is_up:
                server.stop()
                self._world.later(outage + self._random.randrange(200) * MS, self._start, server)

    def _pause(self) -> None:
        self._some_server().paused_until = self._world.now + self._for_a_while()

    def _slow_disk(self) -> None:
        self._some_server().disk.slow_until = self._world.now + self._for_a_while()

    # -- operators --------------------------------------------------------------------------

    def _transfer(self) -> bool | None:
        leader = self._world.leader()
        if leader is None:
            return False
        # Any server may be asked, and any node named: most wishes make no sense, and do no harm.
        asked = leader if self._random.random() < 0.7 else self._some_server()
        if not asked.is_up:
            return False
        asked.raft.transfer_leadership(self._some_server().id)
        asked.pump()
        return None

    def _compact(self) -> bool | None:
        server = self._some_server()
        return None if server.is_up and server.compact() else False

    def _change_membership(self) -> bool | None:
        return self._propose_change(self._simple_change)

    def _change_jointly(self) -> bool | None:
        return self._propose_change(self._joint_change)

    def _propose_change(self, draw: Callable[[Membership], MembershipChange | None]) -> bool | None:
        world, leader = self._world, self._world.leader()
        if leader is None or leader.paused_until > world.now:
            return False
        change = draw(leader.raft.membership)
        if change is None:
            return False
        try:
            leader.raft.propose_membership(change)
        except ProposalRefused:
            leader.pump()
            return False
        for step in change.steps:
            if step.action is not MemberAction.REMOVE and step.node not in world.servers:
                world.add_server(step.node)
        leader.pump()
        return None

    def _simple_change(self, membership: Membership) -> MembershipChange | None:
        choice = self._random.random()
        if choice < 0.4 and len(membership.everybody()) < MEMBERS_MAX:
            node = max(self._world.servers) + 1  # ids are never used again
            return add_learner(node) if self._random.random() < 0.6 else add_voter(node)
        if choice < 0.7 and membership.learners:
            return add_voter(self._random.choice(membership.learners))
        if choice < 0.8:
            return add_learner(self._random.choice(membership.voters))
        return remove(self._random.choice(membership.everybody()))

    def _joint_change(self, membership: Membership) -> MembershipChange | None:
        if membership.is_joint():
            return MembershipChange() if self._random.random() < 0.5 else None
        steps: list[MembershipStep] = []
        node_next = max(self._world.servers) + 1
        for node in membership.everybody():
            draw = self._random.random()
            if draw < 0.2:
                steps.append(MembershipStep(MemberAction.REMOVE, node))
            elif draw < 0.4:
                steps.append(
                    MembershipStep(
                        self._random.choice((MemberAction.ADD_VOTER, MemberAction.ADD_LEARNER)),
                        node,
                    )
                )
        while (
            len(membership.everybody()) + len(steps) < MEMBERS_MAX and self._random.random() < 0.5
        ):
            steps.append(
                MembershipStep(
                    self._random.choice((MemberAction.ADD_VOTER, MemberAction.ADD_LEARNER)),
                    node_next,
                )
            )
            node_next += 1
        transition = self._random.choice(tuple(Transition))
        return MembershipChange(tuple(steps), transition) if steps else None
