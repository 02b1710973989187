"""The first protocol's session: publish, subscribe, messages pushed; all at most once.

It has no handshake and no keys: where keys are asked for, it is not let in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ...access import Access
from ...broker_api import FeedApi
from ...errors import FlintError, MalformedFrame, NotAuthenticated, PermissionDenied
from ...observe.logs import limited
from .flat_codec import (
    FORBIDDEN,
    TOPIC_BYTES_MAX,
    Command,
    FlatAction,
    FlatMessage,
    LengthDecoder,
    decode_command,
    encode_message,
    encode_sub_ack,
)
from .options import TAKE_LIVE
from .portions import Portions
from .publishing import BlipPublishes

if TYPE_CHECKING:
    from .connection import BlipConnection

_log = logging.getLogger(__name__)


class FlatSession:
    protocol = "blip0"

    def __init__(self, connection: BlipConnection) -> None:
        self._connection = connection
        self._server = connection.server
        self._decoder = LengthDecoder(self._server.options.max_command_bytes)
        self._publishes = BlipPublishes(connection)
        self._feeds: dict[str, tuple[FeedApi, asyncio.Task[None]]] = {}
        self._access: Access = self._server.gate.judge(None, connection.host)
        connection.set_deadline(None)
        self._server.watch_keys()

    def answer_at_once(self, data: bytes) -> bytes | None:
        return None

    def cut(self, data: bytes, frames: list[Command]) -> None:
        bodies: list[bytes] = []
        try:
            self._decoder.feed(data, bodies)
        finally:
            for body in bodies:
                frames.append(decode_command(body))

    def is_publish(self, frame: Command) -> bool:
        return frame.action == FlatAction.PUB

    def is_busy(self) -> bool:
        return bool(self._publishes.landing)

    def receive(self, frame: Command) -> Awaitable[None] | None:
        topic = frame.topic
        if not 1 <= len(topic) <= TOPIC_BYTES_MAX or FORBIDDEN.intersection(topic):
            raise MalformedFrame(f"{topic[:TOPIC_BYTES_MAX]!r} is not a valid topic")
        name = self._server.name_of(topic)
        assert name is not None, "texts of buffers are UTF-8"
        if frame.action == FlatAction.PUB:
            self._access.require("publish", name)
            expiry = -min(frame.ttl_ms, 2**61)  # from when it is taken in
            name = self._publishes.plain(name, None)
            return self._publishes.add(0, name, 0, frame.payload, expiry=expiry)
        if self._publishes.gathered:
            waits = self._publishes.flush()
            if waits is not None:
                return self._after(waits, frame)
        if frame.action == FlatAction.QUIT:
            self._connection.close()
            return None
        if frame.action == FlatAction.UNSUB:
            return self._leave(name)
        return self._subscribe(name, topic)

    async def _after(self, waits: Awaitable[None], command: Command) -> None:
        await waits
        more = self.receive(command)
        if more is not None:
            await more

    def end_turn(self) -> Awaitable[None] | None:
        return self._publishes.flush() if self._publishes.gathered else None

    def refuse_publishes(self, ids: Sequence[int], qos: int, error: BaseException) -> None:
        """This protocol has no word for it."""
        self._server.counters.dropped += len(ids)

    def keys_changed(self) -> None:
        try:
            self._access = self._server.gate.still(self._access)
            for name in self._feeds:
                self._access.require("consume", name)
        except (NotAuthenticated, PermissionDenied):
            self._connection.close()

    # --- subscriptions

    async def _subscribe(self, name: str, topic: bytes) -> None:
        self._access.require("consume", name)
        if name not in self._feeds:
            feed = await self._server.broker.open_feed(
                name,
                capacity=self._server.options.queue_capacity,
                overflow=self._server.options.overflow,
                filter=None,
            )
            self._server.flat_feeds.add(feed)
            # Registered first: what is published after the answer is there for sure.
            self._feeds[name] = feed, self._server.spawn(self._push(feed))
        self._connection.write(encode_sub_ack(topic, b"subscribed"))

    async def _push(self, feed: FeedApi) -> None:
        """Also a subscription that has ended ends its connection: it must not look idle."""
        portions = Portions(TAKE_LIVE)
        try:
            while True:
                await self._connection.room()
                if not self._connection.is_open:
                    return
                rows = feed.take(portions.count)
                if not rows.runs:
                    await feed.wait(None)
                    continue
                frames = []
                for run in rows.runs:
                    for row in run.rows():
                        source = run.source
                        sent_ms, expiry = source.time(row), source.expiry(row)
                        ttl_ms = max(1, expiry - sent_ms) if expiry else 0
                        id = self._server.next_message_id()
                        message = FlatMessage(id, source.value(row), sent_ms, ttl_ms)
                        frames.append(encode_message(message))
                portions.note(frames)
                self._server.counters.delivered += len(frames)
                self._connection.write(b"".join(frames))
                self._connection.flush()
                await asyncio.sleep(0)
        except FlintError as error:
            limited(
                _log,
                logging.INFO,
                "client_disconnected",
                self._connection.host,
                f"{self._connection.peer} was disconnected: {error}",
                peer=self._connection.peer,
            )
            self._connection.close()

    def _leave(self, name: str) -> Awaitable[None] | None:
        held = self._feeds.pop(name, None)
        return None if held is None else self._end(*held)

    async def finish(self) -> None:
        await self._publishes.landed()
        for held in self._feeds.values():
            await self._end(*held)
        self._feeds.clear()

    async def _end(self, feed: FeedApi, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait([task])
        self._server.flat_feeds.discard(feed)
        self._server.counters.live_dropped += feed.dropped
        await feed.close()
