"""Each limit of the server: where it is reached, it is said or logged, and others do not notice."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import msgspec
import pytest

import flintmq
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.frames import encode_frame
from flintmq.net.wire.hello import client_hello
from flintmq.net.wire.operations import Op, OpenRequest, encode
from flintmq.serde.codec import Codec
from tests.integration.test_slow_disk import Gate, SlowFileSystem
from tests.patience import jump, until

from .test_garbage import Address, Raw, _is_well, raw

pytestmark = pytest.mark.slow

HELLO_AND_OPEN = client_hello() + b"".join(encode_frame(Op.OPEN, 9, encode(OpenRequest())))


async def _drip(loris: Raw, data: bytes) -> bool:
    """Send a byte at a time until the other side has enough of it; whether it had."""
    closed = asyncio.ensure_future(loris.wait_closed())
    for byte in data:
        loris.send(bytes([byte]))
        await asyncio.wait([closed], timeout=0.01)
        if closed.done():
            return True
    closed.cancel()
    return False


class TestSlowLoris:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(handshake_seconds=60, idle_seconds=300)

    @pytest.mark.parametrize("ready", [0, 16, 20], ids=["hello", "open", "inside open"])
    async def test_a_handshake_byte_by_byte_ends_in_time(
        self,
        address: Address,
        url: str,
        server: NativeServer,
        ready: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO)
        server.set_limits(Limits(handshake_seconds=0.2))
        async with raw(address) as loris:
            loris.send(HELLO_AND_OPEN[:ready])
            handshake = HELLO_AND_OPEN[ready:]
            assert await _drip(loris, handshake[:10] + bytes(500) if not ready else handshake)
        assert not server.sessions
        assert "its handshake took longer than 0.2 s" in caplog.text or not ready
        server.set_limits(Limits())
        await _is_well(url)

    async def test_a_frame_byte_by_byte_is_silence(
        self,
        address: Address,
        url: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        caplog.set_level(logging.INFO)
        async with raw(address) as loris:
            await loris.open(resumable=False)
            whole = b"".join(encode_frame(Op.PUBLISH, 1, b"", [bytes(10_000)]))
            assert not await _drip(loris, whole[:5])
            jump(monkeypatch, 200)
            assert not await _drip(loris, whole[5:10])
            jump(monkeypatch, 200)
            assert await _drip(loris, whole[10:])
        assert "no complete frame arrived" in caplog.text
        await _is_well(url)

    async def test_who_only_pings_stays(
        self, address: Address, server: NativeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with raw(address) as idle:
            await idle.open()
            for id in range(1, 9):
                jump(monkeypatch, 100)
                await asyncio.sleep(0.001)  # everybody who is silent is looked at
                idle.ask(Op.PING, id, [])
                assert (await idle.answer(id))[0] == Op.REPLY
            assert len(server.connections) == 1


class TestConnections:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections=2)

    async def test_one_too_many_hears_why_and_it_is_logged_once(
        self, address: Address, url: str, caplog: pytest.LogCaptureFixture, server: NativeServer
    ) -> None:
        async with raw(address) as a, raw(address) as b:
            await a.open()
            await b.open()
            for _ in range(20):
                with pytest.raises(flintmq.Disconnected, match=r"connection table is full \(2\)"):
                    await flintmq.connect(url)
            assert caplog.text.count("are rejected") == 1
            assert len(server.connections) == 2
        await until(lambda: not server.connections, "they are kept")
        await _is_well(url)

    async def test_who_is_turned_away_and_does_not_listen_holds_nothing(
        self, address: Address, url: str, server: NativeServer
    ) -> None:
        silent = [await asyncio.open_connection(*address) for _ in range(150)]
        for reader, _ in silent[102:]:
            assert await reader.read() == b""  # nobody tells them anything
        assert len(server.connections) == 2
        assert len(server._turned_away) <= 100
        for _, writer in silent:
            writer.transport.abort()
        await until(lambda: not server.connections and not server._turned_away, "they are kept")
        await _is_well(url)


async def _grown(server: NativeServer, name: str) -> int:
    """The most that waits in our memory to be written to the client of this session."""
    (session,) = [one for one in server.sessions.values() if one.client == name]
    connection = session.connection
    assert connection is not None
    transport = connection._transport
    assert transport is not None
    most, read = 0, -1
    while read != connection.bytes_received:  # until it is not read from any more
        read = connection.bytes_received
        await asyncio.sleep(0.3)
        most = max(most, transport.get_write_buffer_size() + connection._out_bytes)
    return most


@pytest.mark.slow
@pytest.mark.parametrize("op", ["TOPICS", "TOPIC_STATS", "PING", "FETCH", "TAKE_LEASED", "unknown"])
async def test_a_client_that_never_reads_what_it_asks_for_costs_no_memory(
    address: Address, url: str, server: NativeServer, op: str
) -> None:
    names = [f"{'long' * 50}.{n}" for n in range(100)]
    async with flintmq.connect(url) as mq:
        for name in names:
            await mq.create_topic(name)
        await mq.publish_batch("orders", [bytes(1000)] * 3000)
    control, number = {
        "TOPICS": ([">"], Op.TOPICS),
        "TOPIC_STATS": (["orders"], Op.TOPIC_STATS),
        "PING": ([], Op.PING),
        "FETCH": (["orders", 0, 3000, None], Op.FETCH),
        "TAKE_LEASED": ([1, 1000, 30.0, None], Op.TAKE_LEASED),
        "unknown": (["x" * 100], 77),
    }[op]
    async with raw(address) as hostile:
        await hostile.open(client="hostile")
        hostile.ask(Op.JOIN_GROUP, 1, ["orders", "workers"])
        assert (await hostile.answer(1))[0] == Op.REPLY
        hostile._reader._transport.pause_reading()  # type: ignore[attr-defined]
        count = 2_000 if op in ("TOPICS", "FETCH") else 20_000  # their replies are large
        for id in range(2, 2 + count):
            hostile.ask(number, id, control)
        if op == "TAKE_LEASED":
            async with flintmq.connect(url) as mq:
                for _ in range(20):
                    await mq.publish_batch("orders", [bytes(1000)] * 1000)
        assert await _grown(server, "hostile") < 6 * 1024 * 1024
        await _is_well(url)
    async with flintmq.connect(url) as mq:
        if op == "TAKE_LEASED":  # what it had is given to others, now that it is gone
            found = await mq.poll("orders", "workers", 10, wait=60)
            assert [message.offset for message in found] == list(range(10))


class TestAway:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(away=5, away_bytes=3_000_000, grace_seconds=60)

    async def test_sessions_of_clients_that_went_away_are_bounded_and_the_oldest_goes(
        self, address: Address, url: str, server: NativeServer
    ) -> None:
        for number in range(12):
            async with raw(address) as one:
                await one.open(client=f"client {number}", resumable=True)
            await until(lambda: not server.connections, "it is kept")
        left = {session.client for session in server.sessions.values()}
        assert left == {f"client {number}" for number in range(7, 12)}
        await _is_well(url)

    async def test_what_they_keep_is_bounded_in_bytes(
        self, address: Address, url: str, server: NativeServer
    ) -> None:
        async with flintmq.connect(url) as mq:
            await mq.publish_batch("orders", [bytes(1000)] * 900)
        for number in range(5):
            async with raw(address) as one:
                await one.open(client=f"client {number}", resumable=True)
                one.ask(Op.FETCH, 1, ["orders", 0, 900, None])
                assert (await one.answer(1))[0] == Op.REPLY
            await until(lambda: not server.connections, "it is kept")
        left = {session.client for session in server.sessions.values()}
        assert left == {"client 2", "client 3", "client 4"}
        assert sum(session.replies.bytes for session in server.sessions.values()) <= 3_000_000


async def test_what_comes_in_one_turn_is_written_at_once_and_without_delay(
    url: str, server: NativeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flintmq.connect(url) as mq:
        # Behind two at once: what follows a lone message is sent before the turn ends.
        await asyncio.gather(*(mq.publish("orders", b"first") for _ in range(2)))
        (theirs,) = server.connections
        ours = mq._broker.link._connection  # type: ignore[attr-defined]
        written = {"client": 0, "server": 0}

        class Counted:
            def __init__(self, transport: asyncio.Transport, who: str) -> None:
                self._transport, self._who = transport, who

            def write(self, data: bytes) -> None:
                written[self._who] += 1
                self._transport.write(data)

            def __getattr__(self, name: str) -> object:
                return getattr(self._transport, name)

        for connection, who in ((ours, "client"), (theirs, "server")):
            transport = connection._transport
            assert transport is not None
            assert transport.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY
            )
            monkeypatch.setattr(connection, "_transport", Counted(transport, who))
        await asyncio.gather(
            *(mq.publish("orders", b"%d" % n) for n in range(200)),
            *(mq.publish(f"topic{n}", b"x") for n in range(20)),
        )
        assert written == {"client": 1, "server": 1}


class TestRepliesThatWait:
    async def test_everything_is_answered_once_the_client_reads(
        self, address: Address, url: str
    ) -> None:
        async with flintmq.connect(url) as mq:
            await mq.publish_batch("orders", [bytes(1000)] * 3000)
        async with raw(address) as late:
            await late.open()
            late._reader._transport.pause_reading()  # type: ignore[attr-defined]
            for id in range(1, 101):
                late.ask(Op.FETCH, id, ["orders", 0, 3000, None])
            await asyncio.sleep(0.1)
            late._reader._transport.resume_reading()  # type: ignore[attr-defined]
            answered = {(await late.frame()).id for _ in range(100)}
            assert answered == set(range(1, 101))


async def test_a_publisher_that_is_held_back_by_the_disk_is_not_taken_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    broker = durable_broker(SlowFileSystem(tmp_path / "data", gate), decoder=Codec())
    await broker.open()
    server = NativeServer(broker, limits=Limits(in_flight_bytes=20_000, idle_seconds=30))
    host, port = await server.start("127.0.0.1", 0)
    try:
        async with flintmq.connect(f"flint://{host}:{port}") as mq:
            await mq.publish("orders", b"first")
            gate.shut()
            tasks = [asyncio.ensure_future(mq.publish("orders", bytes(1000))) for _ in range(200)]
            (session,) = server.sessions.values()
            connection = session.connection
            assert connection is not None
            await until(lambda: connection.is_held_by_us, "it is not held back")
            jump(monkeypatch, 100)
            await asyncio.sleep(0.001)  # everybody who is silent is looked at
            assert session.connection is connection, "it was disconnected"
            assert connection.is_held_by_us
            assert session.publishes._landing_bytes < 20_000 + 2 * 256 * 1024
            assert not any(task.done() for task in tasks)
            gate.open()
            receipts = await asyncio.gather(*tasks)
            assert [receipt.offset for receipt in receipts] == list(range(1, 201))
    finally:
        gate.open()
        await server.close()
        await broker.close()


async def test_a_frame_over_the_limit_is_refused_by_the_client_and_by_the_server(
    tmp_path: Path,
) -> None:

    broker = Broker(None, Codec())
    server = NativeServer(broker, limits=Limits(frame_bytes=100_000))
    address = await server.start("127.0.0.1", 0)
    try:
        async with flintmq.connect(f"flint://{address[0]}:{address[1]}") as mq:
            with pytest.raises(flintmq.MessageTooLarge, match="100,000"):
                await mq.publish("orders", bytes(200_000))
            assert (await mq.publish("orders", bytes(50_000))).offset == 0
        async with raw(address) as careless:
            await careless.open()
            careless.ask(Op.PUBLISH, 1, ["orders"], bytes(200_000))
            frame = await careless.frame()
            assert (frame.op, frame.id) == (Op.ERROR, 0)
            assert "100,000" in msgspec.msgpack.decode(frame.control)[1]
            await careless.wait_closed()
    finally:
        await server.close()
        await broker.close()
