r"""How blank nodes become a cluster, as a machine without sockets, clocks or disks.

The list of members is sorted by address; its first node is the decider. Only the decider draws the
id of the cluster and asks, one node after the other, itself first. Its rules were checked by a
model of all interleavings of up to four nodes with restarts and wiped disks.

| node is | hears | becomes |
|---|---|---|
| blank | ADOPT(id, list, asker's incarnation) | adopted; answers with its own incarnation |
| adopted, confirmed | ADOPT of the same list by another incarnation of the decider | adopted; the \
one before is not heard again |
| adopted | CONFIRM(id, both incarnations) of what it adopted | confirmed: takes no other id |
| adopted, confirmed | FOUND by the decider, of that id and incarnation | founder |
| adopted, or confirmed under that id | FOUND by another founder of the same list, which names our \
incarnation | founder |
| founder | FOUND of its own cluster | founder; agrees |
| founder, or a directory with data | ADOPT | as before; refused |
| any | anything else | as before; refused |

A record is durable before its answer is given.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

import msgspec

from .identity import Members, NodeRecord, NodeStanding, draw_incarnation, id_of
from .levels import LEVEL

FORMER_MAX = 64


# --- what is said, as MessagePack in a FOUNDING frame


class Bootstrap(msgspec.Struct, frozen=True, tag="bootstrap", tag_field="t"):
    """To the decider: found this cluster."""

    members: Members
    is_question: bool = False
    """Only say whether you would take part."""


class Adopt(msgspec.Struct, frozen=True, tag="adopt", tag_field="t"):
    cluster: bytes
    members: Members
    asker: int
    level: int = 1
    """Of the cluster that is founded."""


class Confirm(msgspec.Struct, frozen=True, tag="confirm", tag_field="t"):
    cluster: bytes
    asker: int
    incarnation: int


class Found(msgspec.Struct, frozen=True, tag="found", tag_field="t"):
    cluster: bytes
    members: Members
    incarnations: tuple[int, ...]
    sender: int
    """The id of the founder who says this."""


class Agreed(msgspec.Struct, frozen=True, tag="agreed", tag_field="t"):
    incarnation: int = 0


class Refused(msgspec.Struct, frozen=True, tag="refused", tag_field="t"):
    why: str
    is_final: bool = False
    """Trying again does not help."""


FoundingRequest: TypeAlias = Bootstrap | Adopt | Confirm | Found
FoundingAnswer: TypeAlias = Agreed | Refused

FOUNDED = (
    "this node belongs to a cluster already; start a new cluster with empty data directories, or "
    "use the members it was founded with"
)
HAS_DATA = (
    "its data directory has data of a broker that ran alone; start it with an empty one, or make"
    " that broker a cluster with `flintmq cluster init` and let the others --join it"
)


# --- one node


class FoundingNode:
    """What one node is, and what it answers. `record` is to be made durable whenever it changes,
    before the answer leaves."""

    def __init__(
        self,
        name: str,
        record: NodeRecord | None = None,
        *,
        has_data: bool = False,
        is_driven: bool = False,
    ) -> None:
        """`is_driven`: a client names the members, and may name others while nothing is adopted."""
        self.name, self.record, self.has_data = name, record, has_data
        self.is_driven = is_driven
        self.incarnation = draw_incarnation() if record is None else record.incarnation
        self.wanted: Members | None = None
        """The list that this node was asked to found a cluster with."""

    def is_founder(self) -> bool:
        return self.record is not None and self.record.standing is NodeStanding.FOUNDER

    def answer(self, request: FoundingRequest) -> FoundingAnswer:
        match request:
            case Bootstrap():
                return self._bootstrap(request)
            case Adopt():
                return self._adopt(request)
            case Confirm():
                return self._confirm(request)
            case Found():
                return self._found(request)

    def _bootstrap(self, request: Bootstrap) -> FoundingAnswer:
        """Also what `--initial-cluster` says. The same again is agreed to."""
        record, members = self.record, request.members
        if record is not None and record.members == members:
            return Agreed(self.incarnation)
        refusal = self._refusal(members)
        if refusal is not None:
            return refusal
        if not request.is_question:
            self.wanted = members
        return Agreed(self.incarnation)

    def _refusal(self, members: Members) -> Refused | None:
        if self.has_data:
            return Refused(HAS_DATA, is_final=True)
        if not id_of(self.name, members):
            return Refused(f"node {self.name!r} is not in the list of members", is_final=True)
        if self.record is not None:
            if self.is_founder():
                return Refused(FOUNDED, is_final=True)
            if self.record.members != members:
                return Refused(
                    "this node was invited to a cluster of other members before; empty its data "
                    "directory to start again",
                    is_final=True,
                )
        elif not self.is_driven and self.wanted not in (None, members):
            return Refused(
                f"node {self.name!r} was started with another list of members; give all nodes the "
                "same --initial-cluster",
                is_final=True,
            )
        return None

    def _adopt(self, request: Adopt) -> FoundingAnswer:
        refusal = self._refusal(request.members)
        if refusal is not None:
            return refusal
        is_own = id_of(self.name, request.members) == 1
        if is_own and request.asker != self.incarnation:
            return Refused("this node sent that before its data directory was emptied")
        former: tuple[int, ...] = ()
        record = self.record
        if record is not None:
            if request.asker in record.former_askers:
                return Refused("the asking node has since started with another data directory")
            if (record.cluster, record.asker) == (request.cluster, request.asker):
                return Agreed(self.incarnation)  # asked again; what was confirmed stays
            former = record.former_askers
            if record.asker != request.asker:
                former = (*former, record.asker)[-FORMER_MAX:]
        self.record = NodeRecord(
            standing=NodeStanding.ADOPTED,
            cluster=request.cluster,
            name=self.name,
            incarnation=self.incarnation,
            members=request.members,
            asker=request.asker,
            former_askers=former,
            level=min(request.level, LEVEL),
        )
        return Agreed(self.incarnation)

    def _confirm(self, request: Confirm) -> FoundingAnswer:
        record = self.record
        if (
            record is None
            or self.is_founder()
            or (record.cluster, record.asker) != (request.cluster, request.asker)
            or record.incarnation != request.incarnation
        ):
            return Refused("this node has not agreed to that cluster, or not with the asking node")
        self.record = msgspec.structs.replace(record, standing=NodeStanding.CONFIRMED)
        return Agreed(self.incarnation)

    def _found(self, request: Found) -> FoundingAnswer:
        record = self.record
        if record is None:
            return Refused("this node was not invited to that cluster")
        if self.is_founder():
            if record.cluster == request.cluster:
                return Agreed(self.incarnation)
            return Refused(FOUNDED, is_final=True)
        if not self._is_ours(record, request):
            return Refused(
                "this is another cluster, or was sent to an earlier data directory of this node"
            )
        self.record = msgspec.structs.replace(
            record,
            standing=NodeStanding.FOUNDER,
            cluster=request.cluster,
            incarnations=request.incarnations,
        )
        return Agreed(self.incarnation)

    def _is_ours(self, record: NodeRecord, request: Found) -> bool:
        node = record.node
        if (
            record.members != request.members
            or len(request.incarnations) != len(request.members)
            or not 1 <= request.sender <= len(request.members)
            or request.incarnations[node - 1] != record.incarnation
        ):
            return False
        if request.sender == 1:
            return record.cluster == request.cluster and record.asker == request.incarnations[0]
        return record.standing is not NodeStanding.CONFIRMED or record.cluster == request.cluster

    def become_founder(self, incarnations: tuple[int, ...]) -> None:
        """The decider: all have confirmed."""
        assert self.record is not None
        self.record = msgspec.structs.replace(
            self.record, standing=NodeStanding.FOUNDER, incarnations=incarnations
        )

    def found(self) -> Found:
        """What a founder tells others of its list."""
        record = self.record
        assert record is not None
        assert self.is_founder()
        return Found(record.cluster, record.members, record.incarnations, record.node)


# --- the one who asks


class Decider:
    """Asks all nodes of a list, in order, itself first. Kept in memory: one that was restarted
    begins again, under the id it has adopted.

    `next_request` says whom to ask what; `answered` takes the answer. None: `is_done`.
    """

    def __init__(self, node: FoundingNode, members: Members) -> None:
        assert id_of(node.name, members) == 1, "the first of the list decides"
        record = node.record
        self.cluster = secrets.token_bytes(16) if record is None else record.cluster
        self._node, self.members = node, members
        self._incarnations: list[int] = []
        self._confirmed = 0
        self.is_done = False

    def next_request(self) -> tuple[int, Adopt | Confirm] | None:
        if self.is_done:
            return None
        asker = self._node.incarnation
        if len(self._incarnations) < len(self.members):
            return len(self._incarnations) + 1, Adopt(self.cluster, self.members, asker, LEVEL)
        at = self._confirmed
        return at + 1, Confirm(self.cluster, asker, self._incarnations[at])

    def answered(self, answer: FoundingAnswer) -> bool:
        """Whether it goes on; else somebody refused, and asking begins again."""
        if isinstance(answer, Refused):
            return False
        if len(self._incarnations) < len(self.members):
            self._incarnations.append(answer.incarnation)
            return True
        self._confirmed += 1
        if self._confirmed == len(self.members):
            self._node.become_founder(tuple(self._incarnations))
            self.is_done = True
        return True


# --- bytes

_requests: msgspec.msgpack.Decoder[FoundingRequest] = msgspec.msgpack.Decoder(FoundingRequest)
_answers: msgspec.msgpack.Decoder[FoundingAnswer] = msgspec.msgpack.Decoder(FoundingAnswer)


def encode_founding(message: FoundingRequest | FoundingAnswer) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_request(data: bytes) -> FoundingRequest:
    """Raises msgspec.DecodeError."""
    return _requests.decode(data)


def decode_answer(data: bytes) -> FoundingAnswer:
    return _answers.decode(data)
