"""Lines inside one process behave like lines: in order, lost when cut, ended with a process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flintmq.cluster.transport import LocalNetwork
from flintmq.raft import MessageKind, RaftMessage


class Listener:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def receive(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        self.heard += [(peer, message.index) for message in messages]

    def receive_shipping(self, peer: int, kind: int, body: memoryview) -> None:
        self.heard.append((peer, kind, bytes(body)))

    def peer_connected(self, peer: int, incarnation: int) -> None:
        self.heard.append(f"{peer} is here, incarnation {incarnation}")

    def peer_lost(self, peer: int) -> None:
        self.heard.append(f"{peer} is gone")

    def peer_is_fit(self, peer: int, is_fit: bool) -> None: ...


def messages(*indexes: int) -> list[RaftMessage]:
    return [RaftMessage(MessageKind.APPEND_REPLY, 1, 2, index=index) for index in indexes]


async def test_messages_arrive_in_order_in_a_later_turn() -> None:
    network, listener = LocalNetwork(), Listener()
    one, two = network.transport(1), network.transport(2)
    one.start(Listener())
    two.start(listener)

    one.send(2, messages(1, 2))
    one.send(2, messages(3))

    assert listener.heard == ["1 is here, incarnation 1"]
    await asyncio.sleep(0)
    assert listener.heard[1:] == [(1, 1), (1, 2), (1, 3)]


async def test_what_is_sent_over_a_cut_link_is_lost() -> None:
    network, listener = LocalNetwork(), Listener()
    one, two = network.transport(1), network.transport(2)
    one.start(Listener())
    two.start(listener)
    listener.heard.clear()

    network.cut(1, 2)
    one.send(2, messages(1))
    await asyncio.sleep(0)
    network.heal()
    one.send(2, messages(2))
    await asyncio.sleep(0)

    assert listener.heard == [(1, 2)]


async def test_a_process_that_comes_again_is_another_incarnation() -> None:
    network, listener = LocalNetwork(), Listener()
    one, two = network.transport(1), network.transport(2)
    one.start(Listener())
    two.start(listener)

    one.send(2, messages(1))
    await one.close()
    network.transport(1).start(Listener())
    await asyncio.sleep(0)

    assert listener.heard == ["1 is here, incarnation 1", "1 is gone", "1 is here, incarnation 3"]
