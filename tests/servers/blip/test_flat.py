"""BlipMQ's first protocol: FlatBuffers, pushed, at most once."""

from __future__ import annotations

import struct

import pytest

from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.server import BlipServer
from flintmq.testing import ManualClock

from .raw import DELIVER, RawBlip, RawFlat, command

Address = tuple[str, int]
PUB, SUB, UNSUB, QUIT = range(4)


async def test_a_message_is_pushed_to_every_subscriber(
    address: Address, clock: ManualClock
) -> None:
    async with RawFlat(address) as one, RawFlat(address) as two:
        await one.subscribe(b"chat")
        await two.subscribe(b"chat")
        one.send(PUB, b"chat", b"hi", 5000)
        one.send(PUB, b"chat", b"")

        for client in (one, two):
            first, second = await client.message(), await client.message()
            assert (first.payload, first.ttl) == (b"hi", 5000)
            assert (second.payload, second.ttl) == (b"", 0)
            assert first.timestamp == clock.now_ms()
            assert second.id > first.id > 0


async def test_one_connection_may_subscribe_to_many_topics_and_leave_them(address: Address) -> None:
    async with RawFlat(address) as client:
        await client.subscribe(b"a")
        await client.subscribe(b"b")
        client.send(PUB, b"b", b"1")
        assert (await client.message()).payload == b"1"
        client.send(UNSUB, b"b")
        client.send(UNSUB, b"never")
        client.send(PUB, b"b", b"2")
        client.send(PUB, b"a", b"3")
        assert (await client.message()).payload == b"3"


async def test_subscribing_twice_delivers_once(address: Address) -> None:
    async with RawFlat(address) as client:
        await client.subscribe(b"a")
        await client.subscribe(b"a")
        client.send(PUB, b"a", b"1")
        client.send(PUB, b"a", b"2")
        assert [(await client.message()).payload for _ in range(2)] == [b"1", b"2"]


async def test_a_message_beyond_its_ttl_is_not_sent(address: Address, clock: ManualClock) -> None:
    async with RawFlat(address) as slow, RawBlip(address) as other:
        await other.login()
        number = await other.subscribe("chat", 0)
        slow.send(PUB, b"chat", b"short", 10)
        slow.send(PUB, b"chat", b"long", 60_000)
        await slow.subscribe(b"chat")  # it was all taken in before
        await clock.advance(1)
        got = await other.poll(number)
        assert got is not None
        assert got.message == b"long"


@pytest.mark.parametrize(
    "data",
    [
        command(SUB, b""),
        command(SUB, b"a/b"),
        command(PUB, b"a\nb"),
        command(SUB, b"x" * 257),
        command(QUIT, b""),
        struct.pack(">I", 0),
        struct.pack(">I", 1024 * 1024 + 1),
        struct.pack(">I", 12) + b"\xff" * 12,
        command(SUB, b"fine")[:-6] + b"\xff" * 6,
    ],
)
async def test_what_is_not_allowed_ends_the_connection_without_a_word(
    address: Address, data: bytes
) -> None:
    async with RawFlat(address) as client:
        await client.subscribe(b"chat")
        client.writer.write(data)
        assert await client.is_closed()


async def test_what_came_before_counts_and_quit_ends(address: Address) -> None:
    async with RawFlat(address) as reading, RawFlat(address) as client:
        await reading.subscribe(b"chat")
        client.writer.write(command(PUB, b"chat", b"1") + command(SUB, b"/"))
        assert await client.is_closed()
        assert (await reading.message()).payload == b"1"
        reading.send(QUIT, b"bye")
        assert await reading.is_closed()


async def test_what_was_sent_before_a_half_close_counts(address: Address) -> None:
    async with RawFlat(address) as reading, RawFlat(address) as client:
        await reading.subscribe(b"chat")
        client.send(SUB, b"other")
        client.send(PUB, b"chat", b"last")
        client.writer.write_eof()
        assert (await client.next())[0] == 0  # its SubAck
        assert await client.is_closed()
        assert (await reading.message()).payload == b"last"


async def test_commands_may_come_byte_by_byte_and_all_at_once(address: Address) -> None:
    async with RawFlat(address) as client:
        await client.subscribe(b"chat")
        for byte in command(PUB, b"chat", b"slowly"):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        client.writer.write(b"".join(command(PUB, b"chat", b"%d" % n) for n in range(50)))
        got = [(await client.message()).payload for _ in range(51)]
        assert got == [b"slowly", *(b"%d" % n for n in range(50))]


async def test_all_three_generations_share_one_port_and_its_topics(address: Address) -> None:
    """There each needs a broker of its own (B35)."""
    async with RawFlat(address) as flat, RawBlip(address) as polling, RawBlip(address) as pushed:
        await flat.subscribe(b"chat")
        await polling.login(1)
        number = await polling.subscribe("chat", 1)
        await pushed.login(2)
        await pushed.subscribe("chat", 1)

        flat.send(PUB, b"chat", b"from the first")
        assert (await flat.message()).payload == b"from the first"
        assert (await pushed.delivery()).message == b"from the first"
        pushed.publish("chat", b"stored", 1)
        assert (await flat.message()).payload == b"stored"
        assert (await pushed.delivery()).qos == 1
        got = {await polling.poll(number), await polling.poll(number)}
        assert {one.message for one in got if one} == {b"from the first", b"stored"}


async def test_a_first_frame_that_is_of_no_protocol_ends_the_connection(address: Address) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"FLNT" + bytes(20), struct.pack(">I", 20) + bytes(20)):
        async with RawFlat(address) as client:
            client.writer.write(data)
            assert await client.is_closed()


async def test_a_connection_that_is_gone_leaves_nothing_behind(
    address: Address, server: BlipServer
) -> None:
    async with RawFlat(address) as client:
        await client.subscribe(b"chat")
    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("chat")
        client.publish("chat", b"")
        assert (await client.next()).type == DELIVER
        assert len(server.connections) == 1


@pytest.mark.parametrize("options", [BlipOptions(max_command_bytes=64)])
async def test_the_size_of_commands_has_a_limit(address: Address) -> None:
    async with RawFlat(address) as client:
        client.send(PUB, b"chat", bytes(64))
        assert await client.is_closed()
