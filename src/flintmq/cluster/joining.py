"""How a blank node comes into a cluster that is there: it asks, is given an id, and follows.

The node draws its incarnation and makes that durable before it asks, so that it is the same node
when it asks again after a crash. It may ask any member; that one names the leader. The leader
writes the node into the catalog and says yes once that is committed; until then it says "wait",
and the node asks again. Then it has lines to the others, which make it a learner and a voter.

What is said, as MessagePack in a JOINING frame on a founding line:

    JoinRequest        -> Admitted, AskThere, NotYet or JoinRefused
    MembershipQuestion -> Admitted or JoinRefused: am I still a node of this cluster?
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from ..cluster_model import NodeEntry
from ..errors import Disconnected, FlintError, InvalidRequest, NotLeader
from ..observe.logs import event, limited
from .bootstrap import PEER_PORT
from .catalog import REMOVED, ClusterCatalog
from .identity import NodeFile, NodeRecord, NodeStanding, draw_incarnation
from .members import ClusterMembers
from .peer_frames import NO_CLUSTER, FrameKind
from .peers import Address, PeerPlace, Peers

_log = logging.getLogger(__name__)

AGAIN_SECONDS = (0.05, 1.0)


class JoinRequest(msgspec.Struct, frozen=True, tag="join", tag_field="t"):
    name: str
    address: str
    incarnation: int


class MembershipQuestion(msgspec.Struct, frozen=True, tag="ask", tag_field="t"):
    cluster: bytes
    node: int
    incarnation: int


class Admitted(msgspec.Struct, frozen=True, tag="admitted", tag_field="t"):
    cluster: bytes
    node: int
    nodes: list[NodeEntry]
    level: int = 1
    """Of the cluster."""


class AskThere(msgspec.Struct, frozen=True, tag="there", tag_field="t"):
    address: str
    name: str


class NotYet(msgspec.Struct, frozen=True, tag="wait", tag_field="t"):
    why: str


class JoinRefused(msgspec.Struct, frozen=True, tag="refused", tag_field="t"):
    why: str
    is_removed: bool = False
    """Who asked was a node of this cluster."""


JoinQuestion: TypeAlias = JoinRequest | MembershipQuestion
JoinAnswer: TypeAlias = Admitted | AskThere | NotYet | JoinRefused

_questions: msgspec.msgpack.Decoder[JoinQuestion] = msgspec.msgpack.Decoder(JoinQuestion)
_answers: msgspec.msgpack.Decoder[JoinAnswer] = msgspec.msgpack.Decoder(JoinAnswer)

REMOVED_TEXT = (
    "this node was removed from the cluster; to use the machine again, start it with an empty data "
    "directory and --join"
)
HAS_DATA = (
    "the data directory has data of a broker that ran alone; start with an empty one, or make that "
    "broker a cluster with `flintmq cluster init` and let the others join it"
)


NO_KEY = msgspec.msgpack.encode(
    JoinRefused("its nodes have neither a peer_ca nor a cluster_key_file: no node could join it")
)
STARTING = msgspec.msgpack.encode(NotYet("the node that was asked is starting"))


class Admissions:
    """What a member answers."""

    def __init__(
        self,
        cluster: bytes,
        catalog: ClusterCatalog,
        members: ClusterMembers,
        leader: Callable[[], int],
    ) -> None:
        self._cluster, self._catalog, self._members = cluster, catalog, members
        self._leader = leader

    def answer(self, data: bytes, shown: Sequence[str] | None) -> bytes:
        """`shown`: the names in the certificate of who asks; None without TLS."""
        try:
            question = _questions.decode(data)
        except msgspec.DecodeError as error:
            answer: JoinAnswer = JoinRefused(f"not understood: {error}")
        else:
            if isinstance(question, JoinRequest):
                answer = self._asked(question, shown)
            else:
                answer = self._known(question)
        return msgspec.msgpack.encode(answer)

    def _asked(self, request: JoinRequest, shown: Sequence[str] | None) -> JoinAnswer:
        if shown is not None and request.name not in shown:
            return JoinRefused(f"its certificate does not name {request.name!r}")
        try:
            entry = self._members.admit(request.name, request.address, request.incarnation)
        except NotLeader:
            there = self._catalog.nodes.get(self._leader())
            if there is None:
                return NotYet("no node leads the cluster")
            return AskThere(there.address, there.name)
        except InvalidRequest as error:
            return JoinRefused(str(error))
        except FlintError as error:
            return NotYet(str(error))
        if entry is None:
            return NotYet("the leader writes it down")
        return Admitted(
            self._cluster, entry.id, list(self._catalog.nodes.values()), self._catalog.level
        )

    def _known(self, question: MembershipQuestion) -> JoinAnswer:
        if question.cluster != self._cluster:
            return JoinRefused(
                f"the data directory belongs to another cluster, {question.cluster.hex()}; to join "
                "this one, start with an empty data directory"
            )
        entry = self._catalog.nodes.get(question.node)
        if entry is not None and entry.standing == REMOVED:
            return JoinRefused(REMOVED_TEXT, is_removed=True)
        return Admitted(self._cluster, question.node, [])


def places_in(catalog: ClusterCatalog) -> dict[int, PeerPlace]:
    """Where the nodes are."""
    return {
        node.id: PeerPlace(PEER_PORT.parse(node.address), node.name, node.incarnation)
        for node in catalog.present()
    }


# --- the one who joins


async def join(
    file: NodeFile, peers: Peers, name: str, address: str, seeds: Sequence[Address]
) -> NodeRecord:
    """Until the cluster has this node. Raises InvalidRequest where it does not want it."""
    record = file.record
    if record is None:
        record = NodeRecord(
            standing=NodeStanding.JOINING,
            cluster=NO_CLUSTER,
            name=name,
            incarnation=draw_incarnation(),
            members=(),
            asker=0,
        )
        file.write(record)
    event(
        _log,
        logging.INFO,
        "cluster_joining",
        f"node {name} asks to join a cluster",
        members=", ".join(f"{host}:{port}" for host, port in seeds),
    )
    question = msgspec.msgpack.encode(JoinRequest(name, address, record.incarnation))
    least, most = AGAIN_SECONDS
    pause, there = least, [(seed, "") for seed in seeds]
    at = 0
    while True:
        place, of = there[at % len(there)]
        answer = await _ask(peers, place, of, question)
        if isinstance(answer, Unheard):
            _tell_waiting(place, answer.why)
        if isinstance(answer, Admitted):
            break
        if isinstance(answer, JoinRefused):
            raise InvalidRequest(f"the cluster at {place[0]}:{place[1]} refuses: {answer.why}")
        at += 1
        if isinstance(answer, AskThere):
            there = [(PEER_PORT.parse(answer.address), answer.name), *((s, "") for s in seeds)]
            at = 0
        elif isinstance(answer, NotYet):
            if answer.why:  # another may know more: this one may be ourselves
                _tell_waiting(place, answer.why)
            else:
                at -= 1
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(most, pause * 2) if at % len(there) == 0 else least
    record = msgspec.structs.replace(
        record,
        standing=NodeStanding.JOINED,
        cluster=answer.cluster,
        id=answer.node,
        nodes=tuple(answer.nodes),
        level=answer.level,
    )
    file.write(record)
    event(
        _log,
        logging.INFO,
        "cluster_joined",
        f"this is node {name} of cluster {record.cluster.hex()}",
        cluster=record.cluster.hex(),
        node=record.node,
    )
    return record


class Unheard(NamedTuple):
    """There is no answer, or none that is understood."""

    why: str


async def _ask(peers: Peers, place: Address, name: str, question: bytes) -> JoinAnswer | Unheard:
    try:
        return _answers.decode(await peers.ask(place, name, question, FrameKind.JOINING))
    except Disconnected as error:
        return Unheard(str(error))
    except msgspec.DecodeError as error:
        return Unheard(f"an answer that is not understood: {error}")


def _tell_waiting(place: Address, why: str) -> None:
    where = f"{place[0]}:{place[1]}"
    limited(
        _log,
        logging.WARNING,
        "cluster_joining_waits",
        where,
        f"waiting for the cluster at {where}: {why}",
    )


async def wait_removed(record: NodeRecord, peers: Peers, seeds: Sequence[Address]) -> JoinRefused:
    """Ask nodes that have no line to us whether we still belong to them, and once those that we
    are to join by; until one says no."""
    question = msgspec.msgpack.encode(
        MembershipQuestion(record.cluster, record.node, record.incarnation)
    )
    for seed in seeds:
        answer = await _ask(peers, seed, "", question)
        if isinstance(answer, JoinRefused):
            return answer
    while True:
        await asyncio.sleep(2 * AGAIN_SECONDS[1])
        for state in list(peers.states.values()):
            if not state.is_connected:
                answer = await _ask(peers, state.place.address, state.place.name, question)
                if isinstance(answer, JoinRefused):
                    if answer.is_removed:
                        return answer
                    limited(
                        _log,
                        logging.WARNING,
                        "peer_refused",
                        state.place.name,
                        f"node {state.place.name} refuses this node: {answer.why}",
                        node=record.node,
                    )
