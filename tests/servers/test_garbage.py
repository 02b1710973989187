"""Hostile and broken clients: they are told or dropped, memory is bounded, others do not notice."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import psutil
import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.frames import Frame, FrameDecoder, encode_frame
from flintmq.net.wire.hello import HELLO_BYTES, client_hello
from flintmq.net.wire.operations import Op, OpenRequest, encode
from tests.patience import jump, until

Address = tuple[str, int]


class Raw:
    """A connection that sends whatever it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    async def open(self, **options: Any) -> None:
        self.send(
            client_hello() + b"".join(encode_frame(Op.OPEN, 9, encode(OpenRequest(**options))))
        )
        await self._reader.readexactly(HELLO_BYTES)
        assert (await self.frame()).op == Op.REPLY

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def ask(self, op: int, id: int, control: Any, batches: bytes = b"") -> None:
        self.send(b"".join(encode_frame(op, id, encode(control), [batches])))

    async def frame(self) -> Frame:
        while not self._frames:
            data = await asyncio.wait_for(self._reader.read(65536), 60)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def answer(self, id: int) -> tuple[int, Any]:
        while True:
            frame = await self.frame()
            if frame.id == id:
                return frame.op, msgspec.msgpack.decode(frame.control)

    async def wait_closed(self) -> None:
        try:
            while await asyncio.wait_for(self._reader.read(65536), 60):
                pass
        except ConnectionError:
            pass


@asynccontextmanager
async def raw(address: Address) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


async def _is_well(url: str) -> None:
    async with flintmq.connect(url) as mq:
        receipt = await mq.publish("fine", b"x")
        async with mq.reader("fine", start=receipt.offset) as reader:
            message = await reader.read(timeout=60)
            assert message is not None
            assert message.value == b"x"


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_end_a_connection_and_nothing_else(
    address: Address, url: str, server: NativeServer, seed: int
) -> None:
    chance = random.Random(seed)
    async with raw(address) as hostile:
        if seed % 2:
            await hostile.open()
        hostile.send(chance.randbytes(5000))
        await hostile.wait_closed()
    await _is_well(url)
    await until(lambda: not server.connections and not server.sessions, "something is left")


@pytest.mark.parametrize("seed", range(30))
async def test_frames_with_random_controls_are_answered_or_end_the_connection(
    address: Address, url: str, server: NativeServer, seed: int
) -> None:
    chance = random.Random(seed)
    values: list[Any] = [None, 0, -1, 2**63, 1.5, "x", b"x", [], {}, [[]], True, "a/b", {"a": 1}]
    async with raw(address) as hostile:
        await hostile.open()
        ops = [int(op) for op in Op if op not in (Op.OPEN, Op.GOODBYE, Op.CANCEL)] + [0, 200]
        for id in range(1, 60):
            control = [chance.choice(values) for _ in range(chance.randrange(6))]
            hostile.ask(chance.choice(ops), id, control, chance.choice([b"", bytes(64)]))
        hostile.ask(Op.PING, 1000, [])
        with suppress(EOFError):
            await hostile.answer(1000)
    await _is_well(url)


async def test_a_truncated_frame_is_given_up_with_its_connection(
    address: Address, server: NativeServer
) -> None:
    async with raw(address) as hostile:
        await hostile.open(resumable=False)
        hostile.send(bytes(encode_frame(Op.PUBLISH, 1, b"", [bytes(1000)])[0]))
        await asyncio.sleep(0.01)
        assert len(server.sessions) == 1
    await until(lambda: not server.sessions, "a session is left")


@pytest.mark.parametrize("length", [2**32 - 1, 2**27, 3])
async def test_a_length_beyond_all_limits_is_refused_and_said(
    address: Address, length: int
) -> None:
    async with raw(address) as hostile:
        await hostile.open()
        hostile.send(struct.pack("<I", length))
        frame = await hostile.frame()
        assert (frame.op, frame.id) == (Op.ERROR, 0)
        assert msgspec.msgpack.decode(frame.control)[0] == "MalformedFrame"
        await hostile.wait_closed()


async def test_another_protocol_is_closed(address: Address) -> None:
    async with raw(address) as browser:
        browser.send(b"GET / HTTP/1.1\r\n\r\n")
        await browser.wait_closed()


async def test_a_version_nobody_speaks_is_answered_with_ours(address: Address) -> None:
    async with raw(address) as future:
        future.send(struct.pack("<4sBBHQ", b"FLNT", 7, 9, 0, 0))
        assert await future._reader.readexactly(16) == struct.pack("<4sBBHQ", b"FLNT", 0, 1, 0, 0)
        await future.wait_closed()


class TestSlow:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(handshake_seconds=60, idle_seconds=300)

    async def test_a_handshake_byte_by_byte_is_not_waited_for(
        self, address: Address, server: NativeServer
    ) -> None:
        server.set_limits(Limits(handshake_seconds=0.1))
        async with raw(address) as loris:
            for byte in client_hello()[:5]:
                loris.send(bytes([byte]))
                await asyncio.sleep(0.01)
            await loris.wait_closed()
        await until(lambda: not server.connections, "it is kept")

    async def test_who_says_nothing_for_too_long_is_let_go(
        self, address: Address, server: NativeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with raw(address) as silent:
            await silent.open()
            jump(monkeypatch, 301)
            await silent.wait_closed()
        await until(lambda: not server.connections, "it is kept")


class TestFew:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections=3, requests=100, streams=10, unacknowledged_bytes=50_000)

    async def test_one_connection_too_many_is_refused(
        self, address: Address, url: str, server: NativeServer
    ) -> None:
        async with raw(address) as a, raw(address) as b, raw(address) as c:
            for one in (a, b, c):
                await one.open()
            with pytest.raises(flintmq.Disconnected, match=str(address[1])):
                await flintmq.connect(url)
        await until(lambda: not server.connections, "they are kept")
        await _is_well(url)

    async def test_requests_that_never_end_are_bounded(
        self, address: Address, url: str, server: NativeServer
    ) -> None:
        async with raw(address) as hostile:
            await hostile.open()
            for n in range(20):
                hostile.ask(Op.OPEN_READER, n + 1, ["orders"])
            outcomes = [(await hostile.answer(n + 1))[0] for n in range(20)]
            assert outcomes == [Op.REPLY] * 10 + [Op.ERROR] * 10
            for id in range(100, 5100):
                hostile.ask(Op.FETCH, id, ["orders", 0, 10, None])
            refused = 0
            while refused < 4900:
                frame = await hostile.frame()
                assert frame.op == Op.ERROR
                refused += 1
            await _is_well(url)
            (session,) = server.sessions.values()
            assert len(session._tasks) == 100

    @pytest.mark.slow
    async def test_a_hundred_thousand_requests_that_never_end_harm_nobody(
        self, address: Address, url: str, server: NativeServer
    ) -> None:
        before = psutil.Process().memory_info().rss
        async with raw(address) as hostile, flintmq.connect(url) as mq:
            await hostile.open()
            await mq.publish("orders", b"x")

            async def flood() -> None:
                for id in range(100_000):
                    hostile.ask(Op.FETCH, id + 1, ["orders", 1, 10, None])
                    if id % 100 == 0:
                        await hostile._writer.drain()

            async def swallow() -> None:
                for _ in range(99_900):
                    assert (await hostile.frame()).op == Op.ERROR

            flooding = asyncio.gather(flood(), swallow())
            published = 0
            while not flooding.done():
                await asyncio.wait_for(mq.publish("fine", b"x"), 60)
                published += 1
            await flooding
            assert published > 50
            assert sum(len(session._tasks) for session in server.sessions.values()) == 100
        assert psutil.Process().memory_info().rss - before < 50_000_000

    async def test_a_client_that_may_resume_and_never_acknowledges_is_let_go(
        self, address: Address, url: str
    ) -> None:
        async with raw(address) as hostile:
            await hostile.open(resumable=True)
            for id in range(1, 3000):
                hostile.ask(Op.PING, id, [])
            await hostile.wait_closed()
        await _is_well(url)


async def test_a_batch_that_is_damaged_is_refused_and_the_connection_lives(
    address: Address,
) -> None:
    rows = BatchBuilder()
    rows.append_row(b"hello", key="k", headers={"a": "b"}, priority=3)
    batch = bytearray(rows.seal().encode())
    async with raw(address) as producer:
        await producer.open()
        for position in range(len(batch)):
            damaged = bytearray(batch)
            damaged[position] ^= 0xFF
            producer.ask(Op.PUBLISH, position + 1, ["orders"], bytes(damaged))
            op, answer = await producer.answer(position + 1)
            if not 40 <= position < 60:  # what the broker stamps itself
                assert op == Op.ERROR, position
                assert answer[0] in ("Corrupt", "UnsupportedFormat", "MalformedFrame"), answer
        producer.ask(Op.PUBLISH, 5000, ["orders"], bytes(batch))
        assert (await producer.answer(5000))[0] == Op.REPLY


async def test_a_producer_stamps_nothing_itself(address: Address) -> None:
    rows = BatchBuilder(5)
    rows.append_at(b"a", 10)
    rows.append_at(b"b", 99)
    stamped = rows.seal()
    async with raw(address) as producer:
        await producer.open()
        producer.ask(Op.PUBLISH, 1, ["orders"], stamped.encode())
        assert (await producer.answer(1))[1][0] == "InvalidRequest"


@pytest.mark.parametrize(
    ("op", "control"),
    [
        (Op.TOPIC_STATS, b"\x91\xa3a\xffb"),
        (Op.CREATE_TOPIC, b"\x92\xa1t\x81\xa2\xc3\x28\x01"),
        (Op.PUBLISH, b"\x92\xa3a\xffb\x01"),
        (Op.TAKE, b"\x93\xa1\xff\x01\xc0"),
    ],
)
async def test_a_text_that_is_not_utf8_is_the_clients_fault_and_the_connection_lives(
    address: Address, url: str, caplog: pytest.LogCaptureFixture, op: Op, control: bytes
) -> None:
    async with raw(address) as client:
        await client.open()
        client.send(b"".join(encode_frame(op, 7, control)))
        kind, fault = await client.answer(7)
        assert kind == Op.ERROR
        assert fault[0] == "InvalidRequest"
        client.ask(Op.TOPICS, 8, [">"])
        assert (await client.answer(8))[0] == Op.REPLY
    assert "internal error" not in caplog.text
    await _is_well(url)


async def test_one_request_id_is_under_way_once(address: Address) -> None:
    async with raw(address) as confused:
        await confused.open()
        confused.ask(Op.FETCH, 7, ["orders", 0, 1, None])
        confused.ask(Op.CREATE_TOPIC, 8, ["orders", {}])
        await confused.answer(8)
        confused.ask(Op.FETCH, 9, ["orders", 0, 1, None])
        confused.ask(Op.FETCH, 9, ["orders", 0, 1, None])
        await confused.wait_closed()


@pytest.mark.slow
async def test_a_slow_reader_is_held_back_and_costs_no_memory(
    address: Address, url: str, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish_batch("orders", [bytes(1000)] * 5000)
    async with raw(address) as slow:
        await slow.open()
        streams = []
        for id in range(1, 51):
            slow.ask(Op.OPEN_READER, id, ["orders"])
            streams.append((await slow.answer(id))[1][0])
        for id, stream in enumerate(streams, 100):
            slow.ask(Op.TAKE, id, [stream, 5000, None])
        await asyncio.sleep(0.2)
        (connection,) = server.connections
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_size() < 10 * 1024 * 1024
        got = 0
        for _ in streams:
            frame = await slow.frame()
            assert frame.op == Op.REPLY
            got += 1
        assert got == 50
    await _is_well(url)
