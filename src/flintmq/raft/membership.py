"""Who belongs to a group, and how that may change: one step at a time, or jointly.

Pure values and functions after section 4.3 of the Raft dissertation. A change takes effect when
its entry is *applied*. During a joint configuration both the incoming and the outgoing voters
must agree to everything; a voter that is to become a learner waits in `learners_next` until the
joint phase ends, so that no node votes and learns at once.

    simple      {1 2 3}  --add 4-->  {1 2 3 4}              at most one voter differs
    joint       {1 2 3}  --change->  {1 4 5} & {1 2 3}  --leave-->  {1 4 5}

A change travels as the payload of a MEMBERSHIP entry:

    empty                                   leave the joint configuration
    u8 transition, u8 count, count times (u8 action, u64 node)

The core sees to it that one change is applied before the next is proposed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from flintmq.errors import InvalidRequest, MembershipChangeRefused
from flintmq.raft.quorum import VoteResult, joint_index, joint_vote


class Membership(msgspec.Struct, frozen=True):
    """Sorted tuples, so that equal memberships are equal values everywhere."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False

    def is_joint(self) -> bool:
        return bool(self.outgoing)

    def is_voter(self, node: int) -> bool:
        return node in self.voters or node in self.outgoing

    def is_learner(self, node: int) -> bool:
        return node in self.learners

    def is_member(self, node: int) -> bool:
        return self.is_voter(node) or node in self.learners

    def all_voters(self) -> tuple[int, ...]:
        if not self.outgoing:
            return self.voters
        return tuple(sorted({*self.voters, *self.outgoing}))

    def everybody(self) -> tuple[int, ...]:
        return tuple(sorted({*self.voters, *self.outgoing, *self.learners}))

    def quorum_index(self, acked: Mapping[int, int]) -> int:
        return joint_index(self.voters, self.outgoing, acked)

    def vote_result(self, votes: Mapping[int, bool]) -> VoteResult:
        return joint_vote(self.voters, self.outgoing, votes)

    def has_quorum_of(self, live: set[int]) -> bool:
        votes = {voter: voter in live for voter in self.all_voters()}
        return self.vote_result(votes) is VoteResult.WON


NO_MEMBERS = Membership()


class MemberAction(IntEnum):
    ADD_VOTER = 1
    ADD_LEARNER = 2
    REMOVE = 3


class Transition(IntEnum):
    AUTO = 0  # simple where one voter changes, else joint and leave by itself
    JOINT_IMPLICIT = 1  # joint, leave by itself
    JOINT_EXPLICIT = 2  # joint, until an empty change is proposed


class MembershipStep(msgspec.Struct, frozen=True):
    action: MemberAction
    node: int


class MembershipChange(msgspec.Struct, frozen=True):
    """The steps of one change. Without steps it means: leave the joint configuration."""

    steps: tuple[MembershipStep, ...] = ()
    transition: Transition = Transition.AUTO

    def is_leave(self) -> bool:
        return not self.steps and self.transition is Transition.AUTO

    def is_joint(self) -> bool:
        return self.transition is not Transition.AUTO or len(self.steps) > 1


LEAVE_JOINT = MembershipChange()
STEPS_MAX = 64

_HEAD = struct.Struct("<BB")
_STEP = struct.Struct("<BQ")


def add_voter(node: int) -> MembershipChange:
    return MembershipChange((MembershipStep(MemberAction.ADD_VOTER, node),))


def add_learner(node: int) -> MembershipChange:
    return MembershipChange((MembershipStep(MemberAction.ADD_LEARNER, node),))


def remove(node: int) -> MembershipChange:
    return MembershipChange((MembershipStep(MemberAction.REMOVE, node),))


def encode_change(change: MembershipChange) -> bytes:
    if change.is_leave():
        return b""
    if len(change.steps) > STEPS_MAX:
        raise InvalidRequest(f"a membership change takes at most {STEPS_MAX} steps")
    head = _HEAD.pack(change.transition, len(change.steps))
    return head + b"".join(_STEP.pack(step.action, step.node) for step in change.steps)


def decode_change(data: bytes | memoryview) -> MembershipChange:
    if not len(data):
        return LEAVE_JOINT
    try:
        transition, count = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + count * _STEP.size:
            raise InvalidRequest("a membership change of the wrong length")
        steps = tuple(
            MembershipStep(MemberAction(action), node)
            for action, node in _STEP.iter_unpack(data[_HEAD.size :])
        )
        return MembershipChange(steps, Transition(transition))
    except (struct.error, ValueError) as error:
        raise InvalidRequest(f"not a membership change: {error}") from None


def changed(membership: Membership, change: MembershipChange) -> Membership:
    """The membership after the change, or MembershipChangeRefused."""
    if change.is_leave():
        return _left(membership)
    if membership.is_joint():
        raise MembershipChangeRefused("a joint configuration must be left before the next change")
    after = _with_steps(membership, change.steps, joint=change.is_joint())
    if change.is_joint():
        after = msgspec.structs.replace(
            after,
            outgoing=membership.voters,
            auto_leave=change.transition is not Transition.JOINT_EXPLICIT,
        )
    elif len({*after.voters} ^ {*membership.voters}) > 1:
        raise MembershipChangeRefused("more than one voter changes without a joint configuration")
    return after


def _with_steps(
    membership: Membership, steps: tuple[MembershipStep, ...], *, joint: bool
) -> Membership:
    voters, learners = set(membership.voters), set(membership.learners)
    learners_next: set[int] = set()
    for step in steps:
        node = step.node
        if node == 0:
            raise MembershipChangeRefused("node ids begin at 1")
        learners.discard(node)
        learners_next.discard(node)
        voters.discard(node)
        if step.action is MemberAction.ADD_VOTER:
            voters.add(node)
        elif step.action is MemberAction.ADD_LEARNER:
            waits = joint and node in membership.voters
            (learners_next if waits else learners).add(node)
    if not voters:
        raise MembershipChangeRefused("a group needs at least one voter")
    return Membership(
        voters=tuple(sorted(voters)),
        learners=tuple(sorted(learners)),
        learners_next=tuple(sorted(learners_next)),
    )


def _left(membership: Membership) -> Membership:
    if not membership.is_joint():
        raise MembershipChangeRefused("there is no joint configuration to leave")
    learners = {*membership.learners, *membership.learners_next}
    return Membership(voters=membership.voters, learners=tuple(sorted(learners)))


def check_is_sound(membership: Membership) -> None:
    """Raise InvalidRequest unless this can be the membership of a group."""
    voters, outgoing = set(membership.voters), set(membership.outgoing)
    learners, learners_next = set(membership.learners), set(membership.learners_next)
    if learners & (voters | outgoing):
        raise InvalidRequest("a node is voter and learner at once")
    if learners_next - outgoing:
        raise InvalidRequest("only outgoing voters wait to become learners")
    if not outgoing and (learners_next or membership.auto_leave):
        raise InvalidRequest("only a joint configuration can be left")
    if 0 in voters | outgoing | learners:
        raise InvalidRequest("node ids begin at 1")
