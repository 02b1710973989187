"""The binary protocol's session: handshake, then requests in order. Versions 1 and 2.

Order of the checks and texts are BlipMQ's own: its clients may look at them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ...access import Access
from ...errors import (
    FlintError,
    GroupNotFound,
    InvalidRequest,
    NotAuthenticated,
    NotLeader,
    PermissionDenied,
    TopicNotFound,
)
from . import refusals
from .codec import (
    LENGTH_MAX,
    LENGTH_MIN,
    NUMBERED,
    TOPIC_BYTES_MAX,
    BlipFrame,
    BlipFrameDecoder,
    BlipPublish,
    BlipSubscribe,
    Type,
    decode_auth,
    decode_hello,
    decode_number,
    decode_publish,
    decode_subscribe,
    encode_ack,
    encode_frame,
    encode_nack,
)
from .leases import Acks
from .options import LOGIN_FAILURES_MAX, UNKNOWN_BYTES_MAX
from .polled import PolledSubscription, is_ours
from .publishing import BlipPublishes, Gathered
from .pushed import PushedSubscription
from .refusals import Refusal, publish_refusal, subscribe_refusal

if TYPE_CHECKING:
    from .connection import BlipConnection

VERSIONS = (1, 2)
# As plain numbers: every frame is compared with some of them.
HELLO, AUTH = int(Type.HELLO), int(Type.AUTH)
PUBLISH, SUBSCRIBE = int(Type.PUBLISH), int(Type.SUBSCRIBE)
POLL_BEGINS = NUMBERED.pack(LENGTH_MIN + 8, Type.POLL, 0, 0)[:5]
ACK, PING, POLL = int(Type.ACK), int(Type.PING), int(Type.POLL)


class BinarySession:
    def __init__(self, connection: BlipConnection) -> None:
        self._connection = connection
        self._server = connection.server
        self.version = 0
        self._access: Access | None = None
        self._decoder = BlipFrameDecoder(length_max=UNKNOWN_BYTES_MAX)
        self._publishes = BlipPublishes(connection)
        self._acks = Acks(connection.server, self._refuse_tag)
        self._pushed: dict[int, PushedSubscription] = {}
        self._failures = 0
        self._run: Gathered | None = None
        self._run_begins = b""
        connection.set_deadline(self._server.limits.handshake_seconds)

    @property
    def protocol(self) -> str:
        return f"blip{self.version}" if self.version else "blip"

    def answer_at_once(self, data: bytes) -> bytes | None:
        """A POLL of QoS 0: version 1 sends one for each message, and waits for its answer."""
        if not data.startswith(POLL_BEGINS) or len(data) != NUMBERED.size or self.version != 1:
            return None
        if self._access is None or self._publishes.landing or self._decoder.kept_bytes:
            return None
        _, _, id, number = NUMBERED.unpack(data)
        polled = self._server.polled.find(number)
        if polled is None or polled.leases is not None:
            return None
        if not self._access.may("consume", polled.name):
            return None
        try:
            found = polled.poll_live(id)
        except (TopicNotFound, NotLeader):
            return None
        if found is None:
            return b""
        self._server.counters.delivered += 1
        return found

    def cut(self, data: bytes, frames: list[BlipFrame]) -> None:
        self._decoder.feed(data, frames)

    def is_publish(self, frame: BlipFrame) -> bool:
        return frame.type == PUBLISH

    def is_busy(self) -> bool:
        return bool(self._publishes.landing)

    def receive(self, frame: BlipFrame) -> Awaitable[None] | None:
        type, id, payload = frame
        if type == PUBLISH and self._access is not None:
            run = self._run
            if run is not None and payload.startswith(self._run_begins):
                # As the one before it: flags and topic are checked, the rest is the message.
                run.add(id, payload[len(self._run_begins) :])
                return None
            return self._publish(id, payload)
        self._run = None
        if self._publishes.gathered:
            waits = self._publishes.flush()
            if waits is not None:
                return self._after(waits, frame)
        if self._access is not None:
            if type == POLL:
                return self._poll(id, payload)
            if type == ACK:
                return self._acknowledge(id, payload)
            if type == PING:
                return self._pong(id)
            if type == SUBSCRIBE:
                return self._subscribe(id, payload)
        if type == HELLO:
            return self._hello(id, payload)
        if type == AUTH:
            return self._authenticate(id, payload)
        if self._access is None:
            return self._nack(id, refusals.NO_AUTH)
        return None  # PONG, NACK, DELIVER: not for us

    async def _after(self, waits: Awaitable[None], frame: BlipFrame) -> None:
        await waits
        more = self.receive(frame)
        if more is not None:
            await more

    def end_turn(self) -> Awaitable[None] | None:
        self._run = None
        if self._acks.gathered:
            self._acks.flush()
        return self._publishes.flush() if self._publishes.gathered else None

    def _nack(self, id: int, refusal: Refusal) -> Awaitable[None] | None:
        self._server.counters.refusals[refusal[0]] += 1
        self._connection.write(encode_nack(id, *refusal))
        return None  # nothing to wait for

    # --- handshake

    def _hello(self, id: int, payload: bytes) -> Awaitable[None] | None:
        if self.version:
            return self._nack(id, refusals.HELLO_TWICE)
        version = decode_hello(payload)
        if version is None:
            return self._nack(id, refusals.HELLO_INVALID)
        if version not in VERSIONS:
            return self._nack(id, refusals.HELLO_VERSION)
        self.version = version
        self._decoder.type_max = Type.DELIVER if version > 1 else Type.POLL
        self._connection.write(encode_ack(id))
        return None

    def _authenticate(self, id: int, payload: bytes) -> Awaitable[None] | None:
        if not self.version:
            return self._nack(id, refusals.AUTH_EARLY)
        if self._access is not None:
            return self._nack(id, refusals.AUTH_TWICE)
        key = decode_auth(payload)
        if key is None:
            return self._nack(id, refusals.AUTH_INVALID)
        try:
            self._access = self._server.gate.judge(key, self._connection.host)
        except NotAuthenticated:
            return self._refuse_login(id)
        self._decoder.length_max = LENGTH_MAX
        self._connection.set_deadline(None)
        self._server.watch_keys()
        self._connection.write(encode_ack(id))
        return None

    async def _refuse_login(self, id: int) -> None:
        gate, host = self._server.gate, self._connection.host
        self._server.counters.login_failures += 1
        self._failures += 1
        seconds = gate.hold_back(host)
        if seconds is None:
            self._connection.abort()
            return
        try:
            await asyncio.sleep(seconds)
        finally:
            gate.let_go(host)
        self._nack(id, refusals.AUTH_WRONG)
        if self._failures >= LOGIN_FAILURES_MAX:
            self._connection.close()
        else:
            self._connection.set_deadline(self._server.limits.handshake_seconds)

    def keys_changed(self) -> None:
        """A key that is gone takes its connection with it; so does a permission in use."""
        if self._access is None:
            return
        try:
            self._access = self._server.gate.still(self._access)
            for subscription in self._pushed.values():
                self._access.require("consume", subscription.name)
        except (NotAuthenticated, PermissionDenied):
            self._connection.close()

    # --- publishing

    def _publish(self, id: int, payload: bytes) -> Awaitable[None] | None:
        wanted = decode_publish(payload, self.version)
        name = None if wanted is None else self._server.name_of(wanted.topic)
        if wanted is None or name is None:
            return self._nack(id, refusals.PUBLISH_INVALID)
        refusal = self._check(wanted)
        if refusal is None and len(name) > TOPIC_BYTES_MAX and wanted.qos:
            refusal = refusals.name_too_long(self.version)
        if refusal is not None:
            return self._nack(id, refusal)
        assert self._access is not None
        if not self._access.may("publish", name):
            return self._nack(id, (refusals.FORBIDDEN, str(PermissionDenied("publish", name))))
        expiry = -wanted.ttl_ms  # from when it is taken in
        self._run = None
        name = self._publishes.plain(name, wanted.key)
        waits = self._publishes.add(
            id, name, wanted.qos, wanted.message, key=wanted.key, expiry=expiry
        )
        if waits is None and wanted.key is None and not expiry:
            self._run = self._publishes.open_for(name, wanted.qos)
            self._run_begins = payload[: len(payload) - len(wanted.message)]
        return waits

    def _check(self, wanted: BlipPublish | BlipSubscribe) -> Refusal | None:
        if not wanted.topic:
            return refusals.TOPIC_EMPTY
        if self.version > 1 and b"\0" in wanted.topic:
            return refusals.TOPIC_NUL
        if isinstance(wanted, BlipPublish) and wanted.key == b"":
            return refusals.KEY_EMPTY
        if isinstance(wanted, BlipSubscribe) and wanted.group == b"":
            return refusals.GROUP_EMPTY
        return None if wanted.qos in (0, 1) else refusals.QOS_INVALID

    def refuse_publishes(self, ids: Sequence[int], qos: int, error: BaseException) -> None:
        if qos == 0 and not isinstance(error, InvalidRequest | PermissionDenied):
            self._server.counters.dropped += len(ids)  # at most once, as it was asked for
            return
        refusal = publish_refusal(error, self.version)
        if qos == 0 and isinstance(error, InvalidRequest):
            refusal = (refusals.BAD_REQUEST, str(error))
        for id in ids:
            self._nack(id, refusal)

    # --- subscribing

    def _subscribe(self, id: int, payload: bytes) -> Awaitable[None] | None:
        wanted = decode_subscribe(payload, self.version)
        name = None if wanted is None else self._server.name_of(wanted.topic)
        group = ""
        if wanted is not None and wanted.group:
            group = self._server.name_of(wanted.group) or ""
        if wanted is None or name is None or (wanted.group and not group):
            return self._nack(id, refusals.SUBSCRIBE_INVALID)
        if is_ours(group):
            return self._nack(id, refusals.GROUP_RESERVED)
        refusal = self._check(wanted)
        if refusal is not None:
            return self._nack(id, refusal)
        return self._open(id, wanted, name, group)

    async def _open(self, id: int, wanted: BlipSubscribe, name: str, group: str) -> None:
        assert self._access is not None
        await self._publishes.landed()  # what it has published before is not for it
        pushed = None
        try:
            self._access.require("consume", name)
            if self.version == 1:
                polled = await self._server.polled.subscribe(name, wanted.topic, wanted.qos, self)
                number = polled.id
            else:
                number = self._server.next_id()
                pushed = PushedSubscription(self._connection, number, name, wanted, group or None)
                await pushed.open()
                self._pushed[number] = pushed
        except FlintError as error:
            self._nack(id, subscribe_refusal(error))
            return
        self._connection.write(encode_ack(id, number))
        if pushed is not None:
            pushed.begin()

    # --- consuming

    def _poll(self, id: int, payload: bytes) -> Awaitable[None] | None:
        number = decode_number(payload)
        if number is None:
            return self._nack(id, refusals.POLL_INVALID)
        if number == 0:
            return self._nack(id, refusals.SUBSCRIPTION_ZERO)
        if self.version > 1:
            return None  # what there is comes by itself
        assert self._access is not None
        subscription = self._server.polled.find(number)
        if subscription is None:
            return self._poll_sought(number, id) if self._server.is_shared else None
        return self._poll_of(subscription, id)

    async def _poll_sought(self, number: int, id: int) -> None:
        subscription = await self._server.polled.sought(number)
        polling = None if subscription is None else self._poll_of(subscription, id)
        if polling is not None:
            await polling

    def _poll_of(self, subscription: PolledSubscription, id: int) -> Awaitable[None] | None:
        assert self._access is not None
        if not self._access.may("consume", subscription.name):
            return None
        if subscription.leases is None and not self._publishes.landing:
            try:
                self._answer_poll(subscription.poll_live(id))
                return None
            except TopicNotFound:
                return self._server.polled.forget(subscription)  # somebody has deleted it
            except NotLeader:
                pass
        subscription.users.add(self)
        return self._poll_later(subscription, id)

    async def _poll_later(self, subscription: PolledSubscription, id: int) -> None:
        await self._publishes.landed()  # what it has published itself can be polled
        try:
            found = await self._server.polled.poll(subscription, id)
        except (TopicNotFound, GroupNotFound):
            await self._server.polled.forget(subscription)  # somebody has deleted it
            return
        self._answer_poll(found)

    def _answer_poll(self, found: bytes | None) -> None:
        """A message if there is one; else silence, which is what their clients wait for."""
        if found is not None:
            self._server.counters.delivered += 1
            self._connection.write(found)

    def _acknowledge(self, id: int, payload: bytes) -> Awaitable[None] | None:
        number = decode_number(payload)
        if number is None:
            return self._nack(id, refusals.ACK_INVALID)
        if number == 0:
            return self._nack(id, refusals.SUBSCRIPTION_ZERO)
        subscription = (
            self._server.polled.find(number) if self.version == 1 else self._pushed.get(number)
        )
        assert self._access is not None
        if (
            subscription is None
            or subscription.leases is None
            or not self._access.may("consume", subscription.name)
        ):
            return self._nack(id, refusals.TAG_UNKNOWN)
        self._acks.add(subscription.leases, id)
        return None

    def _refuse_tag(self, tag: int) -> None:
        self._nack(tag, refusals.TAG_UNKNOWN)

    def _pong(self, id: int) -> Awaitable[None] | None:
        """Once everything before it is as safe as it will be: publishes, acknowledgements."""
        self._acks.flush()
        if self._publishes.landing or self._acks.are_under_way:
            return self._pong_later(id)
        self._connection.write(encode_frame(Type.PONG, id))
        return None

    async def _pong_later(self, id: int) -> None:
        await self._publishes.landed()
        await self._acks.settled()
        self._connection.write(encode_frame(Type.PONG, id))

    # --- the end

    async def finish(self) -> None:
        await self._publishes.landed()
        await self._acks.settled()
        self._server.polled.left(self)
        for subscription in self._pushed.values():
            await subscription.close()
        self._pushed.clear()
