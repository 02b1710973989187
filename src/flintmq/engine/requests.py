"""Requests that wait for a reply, each by its private address.

A request is a message that carries an address in its headers. It goes to the members of queue
groups, stored, or to live feeds, not stored. The first reply to the address ends the wait.
Addresses live in the memory of whoever leads: they are as secret and as short-lived as the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..broker_api import Batch
from ..errors import FlintError, InvalidRequest, NoReply, NoResponders, NotLeader, OutcomeUnknown
from ..model import Receipt
from ..rows import Origin, Rows, Run
from .shard import Shard
from .waiting import again

ADDRESS_BYTES_MAX = 64


class OpenRequests:
    def __init__(
        self,
        shard: Shard,
        publish_nowait: Callable[..., Receipt | Awaitable[Receipt] | None],
        publish: Callable[..., Awaitable[Receipt]],
    ) -> None:
        self._shard, self._publish_nowait, self._publish = shard, publish_nowait, publish
        self._waiting: dict[str, asyncio.Future[Batch]] = {}
        shard.on_end.append(self._end)

    async def request(
        self, topic: str, address: str, rows: Batch, timeout: float | None, auto_create: bool = True
    ) -> Rows:
        shard = self._shard
        shard.check_open()
        _check_address(address)
        _check_one(rows, "request")
        if address in self._waiting:
            raise InvalidRequest("this reply address is in use: every request needs its own")
        qos = self._qos_for(topic)
        if qos is None:
            raise NoResponders(topic)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Batch] = loop.create_future()
        self._waiting[address] = reply
        timer = None
        if timeout is not None:
            timer = shard.clock.call_later(timeout, lambda: _fail(reply, NoReply(topic, timeout)))
        sending = None
        try:
            begun = self._publish_nowait(topic, rows, qos=qos, auto_create=auto_create)
            if not isinstance(begun, Receipt):
                if begun is None:  # it has to wait
                    begun = self._publish(
                        topic, rows, qos=qos, auto_create=auto_create, timeout=timeout
                    )
                sending = loop.create_task(_sent(begun, reply))
            answer = await reply
        finally:
            del self._waiting[address]
            if sending is not None:
                sending.cancel()
            if timer is not None:
                timer.cancel()
        found = shard.topics.get(topic)
        origin = Origin(topic.partition("/")[0]) if found is None else found.origin
        return Rows([Run(answer, 0, 1, origin)])

    def _qos_for(self, topic: str) -> int | None:
        """How a request has to be published for somebody to get it; None: there is nobody."""
        found = self._shard.topics.get(topic)
        if found is not None and any(group.members for group in found.queues.values()):
            return 1
        if not isinstance(topic, str):
            raise InvalidRequest(f"a topic name is a str, not {topic!r}")
        return 0 if self._shard.board.find(topic.partition("/")[0]) else None

    async def reply(self, address: str, rows: Batch) -> bool:
        self._shard.check_open()
        _check_address(address)
        _check_one(rows, "reply")
        waiting = self._waiting.get(address)
        if waiting is None or waiting.done():
            return False
        rows.append_time = self._shard.clock.now_ms()
        waiting.set_result(rows)
        return True

    def _end(self) -> None:
        error = self._shard.refusal
        assert error is not None
        if isinstance(error, NotLeader):  # the request was sent: it must not be sent again
            error = OutcomeUnknown("another node leads now; the reply to this request is lost")
        for waiting in list(self._waiting.values()):
            _fail(waiting, again(error))


async def _sent(begun: Awaitable[Receipt], reply: asyncio.Future[Batch]) -> None:
    """Wait for the receipt of a request. A reply may be here before it."""
    try:
        await begun
    except FlintError as error:
        _fail(reply, error)


def _fail(reply: asyncio.Future[Batch], error: FlintError) -> None:
    if not reply.done():
        reply.set_exception(error)


def _check_address(address: str) -> None:
    if not isinstance(address, str) or not 16 <= len(address.encode()) <= ADDRESS_BYTES_MAX:
        raise InvalidRequest(
            f"a reply address is a random str of 16 to {ADDRESS_BYTES_MAX} bytes, not {address!r}"
        )


def _check_one(rows: Batch, what: str) -> None:
    if rows.row_count != 1:
        raise InvalidRequest(f"a {what} is one message, not {rows.row_count}")
