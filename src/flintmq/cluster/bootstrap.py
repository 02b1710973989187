"""Founding a cluster over founding lines: `founding` decides, this asks, waits and syncs."""

from __future__ import annotations

import asyncio
import logging
import random

import msgspec

from ..cluster_model import NodeEntry
from ..config.kinds import HostPort
from ..errors import Disconnected, InvalidRequest
from ..observe.logs import event, limited
from .founding import (
    Bootstrap,
    Decider,
    FoundingAnswer,
    FoundingNode,
    FoundingRequest,
    Refused,
    decode_answer,
    decode_request,
    encode_founding,
)
from .identity import ClusterMember, Members, NodeFile, NodeRecord, id_of
from .peers import Belonging, Peers

_log = logging.getLogger(__name__)

AGAIN_SECONDS = (0.05, 1.0)


class ClusterFounder:
    """Brings the node of one directory into its cluster, and others of the list after it.

    The peers must be able to reach it (`answer` is what founding lines ask) before `wait_founded`.
    """

    def __init__(self, file: NodeFile, name: str, *, is_driven: bool = False) -> None:
        self._file = file
        self.node = FoundingNode(
            name, file.record, has_data=file.has_other_data(), is_driven=is_driven
        )
        self.waits_for = ""
        """Why the cluster is not founded yet, as far as is known."""
        self._refusal: tuple[Members, str] | None = None
        """Members that a client named, and why they cannot found a cluster."""
        self._changed = asyncio.Event()

    def answer(self, data: bytes) -> bytes:
        """What a founding line asks."""
        try:
            request = decode_request(data)
        except msgspec.DecodeError as error:
            return encode_founding(Refused(f"not understood: {error}", is_final=True))
        if isinstance(request, Bootstrap) and not request.is_question:
            refusal, self._refusal = self._refusal, None  # asked once more, it is tried again
            if refusal is not None and refusal[0] == request.members:
                return encode_founding(Refused(refusal[1], is_final=True))
        return encode_founding(self._answered(request))

    def _answered(self, request: FoundingRequest) -> FoundingAnswer:
        self.node.record = self._file.record  # who has joined meanwhile is not asked to found
        answer = self.node.answer(request)
        self._keep()
        return answer

    def _keep(self) -> None:
        """What we are is on the disk before anybody hears of it."""
        record = self.node.record
        if record is not None and record != self._file.record:
            self._file.write(record)
        self._changed.set()

    def want(self, members: Members) -> None:
        """Found a cluster of these. Raises InvalidRequest where that cannot be."""
        if not id_of(self.node.name, members):
            raise InvalidRequest(
                f"--initial-cluster has no node {self.node.name!r}; it must list all nodes, this "
                "one too"
            )
        answer = self._answered(Bootstrap(members))
        if isinstance(answer, Refused):
            raise InvalidRequest(answer.why)

    def forget(self, why: str = "") -> None:
        """Whoever named the members has given up; or another refuses, and those who passed the
        list on to us have to hear of it."""
        if why and self.node.wanted is not None:
            self._refusal = (self.node.wanted, why)
        self.node.wanted = None
        self._changed.set()

    # --- asking

    async def wait_founded(self, peers: Peers) -> NodeRecord:
        """Until this node is a founder. Raises InvalidRequest where another refuses for good."""
        least, most = AGAIN_SECONDS
        pause = 0.0
        while not self.node.is_founder():
            members = self._members()
            if members is not None:
                if id_of(self.node.name, members) == 1:
                    await self._decide(peers, members)
                elif await self._ask(peers, members[0], Bootstrap(members)) is not None:
                    self.waits_for = f"node {members[0].name}, which is to ask this one"
            if not self.node.is_founder():
                await self._pause(None if members is None else pause)
                pause = min(most, max(least, pause * 2)) if self._members() == members else 0.0
        record = self.node.record
        assert record is not None
        event(
            _log,
            logging.INFO,
            "cluster_founded",
            f"this is node {record.name} of cluster {record.cluster.hex()}",
            cluster=record.cluster.hex(),
            node=record.node,
            members=len(record.members),
        )
        return record

    def _members(self) -> Members | None:
        record = self.node.record
        return self.node.wanted if record is None else record.members

    async def _pause(self, seconds: float | None) -> None:
        """Until something has changed, or for a while. None: until somebody names the members."""
        members = self._members()
        self._changed.clear()
        wait = None if seconds is None else seconds * random.uniform(0.5, 1.0)
        try:
            async with asyncio.timeout(wait):
                while not self.node.is_founder() and self._members() == members:
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            pass

    async def _decide(self, peers: Peers, members: Members) -> None:
        if self.node.is_driven and self.node.record is None:
            # A client may have named a node that is not there: nothing is adopted for that.
            for member in members[1:]:
                question = Bootstrap(members, is_question=True)
                if await self._ask(peers, member, question) is None:
                    return
        decider = Decider(self.node, members)
        while (wanted := decider.next_request()) is not None:
            to, request = wanted
            if to == 1:
                answer: FoundingAnswer | None = self._answered(request)
            else:
                answer = await self._ask(peers, members[to - 1], request)
            if answer is None or not decider.answered(answer):
                return
        self._keep()
        await self.tell_founded(peers)

    async def tell_founded(self, peers: Peers) -> None:
        """Once to all others; `peers` that were away are told when they ask, or by the next."""
        found = self.node.found()
        async with asyncio.TaskGroup() as telling:
            for member in found.members:
                if member.name != self.node.name:
                    telling.create_task(self._ask(peers, member, found))

    async def keep_telling(self, peers: Peers) -> None:
        """Others may have been away when the cluster was founded: tell those without a line."""
        least, most = AGAIN_SECONDS
        pause = least
        found = self.node.found()
        while any(not state.is_connected for state in peers.states.values()):
            for node, state in list(peers.states.items()):
                if not state.is_connected and node <= len(found.members):
                    await self._ask(peers, found.members[node - 1], found)
            await asyncio.sleep(pause)
            pause = min(most, pause * 2)

    async def _ask(
        self, peers: Peers, member: ClusterMember, message: FoundingRequest
    ) -> FoundingAnswer | None:
        """None: no answer."""
        why = ""
        try:
            data = await peers.ask(address_of(member), member.name, encode_founding(message))
            answer = decode_answer(data)
        except Disconnected as error:
            why = str(error)
        except msgspec.DecodeError as error:
            why = f"an answer that is not understood: {error}"
        else:
            if not isinstance(answer, Refused):
                return answer
            why = answer.why
            if answer.is_final and not self.node.is_founder():
                raise InvalidRequest(f"node {member.name} refuses: {why}")
        self.waits_for = f"node {member.name} ({member.address}): {why}"
        limited(
            _log,
            logging.WARNING,
            "founding_waits",
            member.name,
            f"waiting for node {member.name}: {why}",
            member=member.name,
        )
        return None


PEER_PORT = HostPort(7602)


def address_of(member: ClusterMember) -> tuple[str, int]:
    return PEER_PORT.parse(member.address)


def belonging_of(record: NodeRecord) -> Belonging:
    return Belonging(record.cluster, record.node, record.incarnation)


def entries_of(record: NodeRecord) -> list[NodeEntry]:
    """The nodes as the node file knows them."""
    if record.nodes:
        return list(record.nodes)
    pairs = zip(record.members, record.incarnations, strict=True)
    return [
        NodeEntry(node, member.name, member.address, incarnation)
        for node, (member, incarnation) in enumerate(pairs, 1)
    ]
