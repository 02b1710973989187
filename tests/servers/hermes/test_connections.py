"""Pipelining, broken frames, half-closed and slow connections, many of them."""

from __future__ import annotations

import asyncio
import random
import socket
import time

import pytest

import flintmq
from flintmq.broker_api import Fetch
from flintmq.engine.broker import Broker
from flintmq.frontends.hermes.holds import Hold
from flintmq.frontends.hermes.server import HermesLimits, HermesServer
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.hello import client_hello

from .client import HermesClient, Refused, without_nodelay
from .conftest import Connect
from .schema import MESSAGES, ONE_OF, Response, frame_of, request

# --- pipelining


async def test_replies_come_in_the_order_of_requests(client: HermesClient) -> None:
    client.send("produce", topic="t", payload=b"a")
    client.send("stats")
    client.writer.write(bytes.fromhex("00000001ff"))
    client.send("poll", topic="missing", group="g")
    client.writer.write(bytes(4))
    client.send("create_topic", topic="u")
    kinds = [(await client.read()).WhichOneof("kind") for _ in range(6)]

    assert kinds == ["produced", "stats", "error", "polled", "error", "ok"]


async def test_w20_produces_of_one_connection_keep_their_order(
    client: HermesClient, broker: Broker
) -> None:
    """HermesMQ may give pipelined produces offsets in another order."""
    for number in range(300):
        client.send(
            "produce", topic="t", payload=b"%d" % number, priority=number % 3,
            producer_id="p" if number % 5 else "", seq=number,
        )  # fmt: skip

    assert [(await client.read_ok()).offset for _ in range(300)] == list(range(300))
    fetched = await broker.fetch(
        Fetch("t", 0, end=None, max_rows=300, max_bytes=10**6, filter=None, with_expired=False)
    )
    assert fetched.rows.values == [b"%d" % number for number in range(300)]


async def test_a_produce_behind_a_long_poll_is_what_it_waits_for(client: HermesClient) -> None:
    client.send("poll", topic="t", group="g", wait_ms=60_000)
    client.send("produce", topic="t", payload=b"x")

    assert [item.payload for item in (await client.read_ok()).items] == [b"x"]
    assert (await client.read_ok()).offset == 0


@pytest.mark.slow
async def test_more_than_32_may_be_asked_before_anything_is_read(client: HermesClient) -> None:
    for _ in range(3000):
        client.send("stats")
        client.send("produce", topic="t", payload=b"x")
    await client.writer.drain()
    for number in range(3000):
        assert (await client.read()).WhichOneof("kind") == "stats"
        assert (await client.read_ok()).offset == number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_every_request_is_answered_once_whatever_it_says(
    client: HermesClient, server: HermesServer, seed: int
) -> None:
    chance = random.Random(seed)
    numbers = (0, 1, 7, 1000, 2**32 - 1)
    texts = ("", "t", "u", "g", "auto", "manual", "a/b", "%", "x" * 70_000)
    expected = 0
    for _ in range(300):
        kind, _, message = chance.choice(ONE_OF["Request"].split()[:-1]).partition(":")
        fields: dict[str, object] = {}
        for field in MESSAGES[message].split():
            name, _, type_name = field.partition(":")
            if type_name == "string":
                fields[name] = chance.choice(texts)
            elif type_name == "bytes":
                fields[name] = bytes(chance.choice((0, 1, 100)))
            elif type_name == "double":
                fields[name] = chance.choice((0.0, -1.0, 0.5, 1e300))
            elif name != "nodes":
                fields[name] = chance.choice(numbers)
        fields.pop("wait_ms", None)
        body = bytearray(request(kind, **fields).SerializeToString())
        if chance.random() < 0.3 and body:
            body[chance.randrange(min(len(body), 40))] = chance.randrange(256)
        if b"b" not in body[:1]:  # what has become a subscribe is another story
            client.writer.write(len(body).to_bytes(4, "big") + body)
            expected += 1
    client.send("stats")
    kinds = [(await client.read()).WhichOneof("kind") for _ in range(expected + 1)]

    assert kinds[-1] == "stats"
    assert await client.is_silent()
    assert not server.connections.copy().pop().is_busy()


async def test_polls_beyond_the_limit_wait_for_those_before(
    client: HermesClient, connect: Connect
) -> None:
    for _ in range(200):
        client.send("poll", topic="t", group="g", wait_ms=60_000, max=1)
    other = await connect()
    for number in range(200):
        await other.produce("t", b"%d" % number)

    found = [(await client.read_ok()).items[0].payload for _ in range(200)]
    assert found == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("limits", [HermesLimits(reply_bytes=100_000)])
async def test_w11_many_polls_at_once_share_what_one_reply_may_have(client: HermesClient) -> None:
    """Replies that nobody reads are kept: thirty-two of the largest would be a gibibyte."""
    for _ in range(40):
        await client.produce("t", bytes(5_000))
    for number in range(64):
        client.send("poll", topic="t", group=f"g{number}", max=1000)
    sizes = []
    for _ in range(64):
        sizes.append(sum(len(item.payload) for item in (await client.read_ok()).items))

    assert min(sizes) >= 5_000
    assert max(sizes) <= 100_000
    assert sum(sizes[:32]) < 32 * 100_000 / 5
    (everything,) = [await client.poll("t", "alone", max=1000)]
    assert sum(len(item.payload) for item in everything) > 90_000


async def test_a_poll_that_has_hardly_begun_when_the_node_stops_is_answered(
    client: HermesClient, server: HermesServer
) -> None:
    await client.call("stats")
    (connection,) = server.connections
    connection.data_received(frame_of(request("poll", topic="t", group="g", wait_ms=60_000)))
    connection.drain()

    assert list((await client.read_ok()).items) == []
    assert (await client.call("stats")).is_leader


# --- broken and odd frames


@pytest.mark.parametrize(
    "body", ["0a", "0a05", "0a040a02ff41", "08ff", "07", "ffffffffffffffffffffff"]
)
async def test_a_broken_request_is_answered_and_the_connection_goes_on(
    client: HermesClient, body: str
) -> None:
    data = bytes.fromhex(body)
    client.writer.write(len(data).to_bytes(4, "big") + data)
    with pytest.raises(Refused) as caught:
        await client.read_ok()

    assert caught.value.code == "bad_request"
    assert await client.produce("t", b"x") == 0


async def test_an_empty_request_is_one_without_a_kind(client: HermesClient) -> None:
    for frame in ("00000000", "000000036a0161"):
        client.writer.write(bytes.fromhex(frame))
        with pytest.raises(Refused, match="bad_request: empty request"):
            await client.read_ok()


async def test_a_length_beyond_64_mib_ends_the_connection_behind_what_was_asked(
    client: HermesClient,
) -> None:
    client.send("poll", topic="t", group="g", wait_ms=60_000)
    client.send("produce", topic="t", payload=b"x")
    client.writer.write((64 * 2**20 + 1).to_bytes(4, "big") + b"rest")

    assert len((await client.read_ok()).items) == 1
    assert (await client.read_ok()).offset == 0
    assert await client.is_closed()


async def test_w12_a_long_request_costs_no_more_than_its_beginning(client: HermesClient) -> None:
    """HermesMQ allocates what a length says."""
    client.writer.write((64 * 2**20).to_bytes(4, "big"))
    for _ in range(64):
        client.writer.write(bytes(2**20))
        await client.writer.drain()
    with pytest.raises(Refused, match="bad_request"):
        await client.read_ok()

    assert await client.produce("t", b"x") == 0


@pytest.mark.parametrize("limits", [HermesLimits(frame_seconds=0.05)])
async def test_w12_a_request_that_does_not_go_on_ends_the_connection(
    client: HermesClient, connect: Connect
) -> None:
    idle = await connect()
    client.send("stats")
    client.writer.write(bytes.fromhex("00000002"))

    assert (await client.read()).WhichOneof("kind") == "stats"
    assert await client.is_closed()
    assert await idle.produce("t", b"who says nothing may stay") == 0


async def test_bytes_may_come_one_by_one(client: HermesClient) -> None:
    for byte in frame_of(request("produce", topic="t", payload=b"hello")):
        client.writer.write(bytes((byte,)))
        await asyncio.sleep(0)

    assert (await client.read_ok()).offset == 0


@pytest.mark.parametrize("limits", [HermesLimits(handshake_seconds=0.1)])
async def test_a_native_client_is_known_by_its_hello_however_that_comes(
    broker: Broker, limits: HermesLimits
) -> None:
    native = NativeServer(broker)
    server = HermesServer(broker, native=native, limits=limits)
    await native.start("127.0.0.1", 0)
    host, port = await server.start("127.0.0.1", 0)
    by_bytes = await HermesClient.connect((host, port))
    for byte in client_hello():
        by_bytes.writer.write(bytes((byte,)))
        await asyncio.sleep(0)
    answer = await asyncio.wait_for(by_bytes.reader.readexactly(16), 60)
    halfway = await HermesClient.connect((host, port))
    halfway.writer.write(b"FLN")
    not_ours = await HermesClient.connect((host, port))
    not_ours.writer.write(b"\0")
    await asyncio.sleep(0)
    not_ours.writer.write(frame_of(request("stats"))[1:])

    assert answer[:4] == b"FLNT"
    assert (await not_ours.read()).WhichOneof("kind") == "stats"
    assert await halfway.is_closed()
    async with flintmq.connect(f"flint://{host}:{port}") as mq:
        await mq.publish("t", b"x")
    assert await not_ours.payloads("t") == [b"x"]
    for client in (by_bytes, halfway, not_ours):
        await client.close()
    await server.close()
    await native.close()


async def test_what_speaks_another_protocol_is_let_go(client: HermesClient) -> None:
    client.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert await client.is_closed()


# --- the end of a connection


async def test_who_says_nothing_more_is_still_answered(
    client: HermesClient, connect: Connect
) -> None:
    client.send("poll", topic="t", group="g", wait_ms=60_000)
    client.send("stats")
    client.writer.write_eof()
    other = await connect()
    assert await client.is_silent()
    await other.produce("t", b"x")

    assert [item.payload for item in (await client.read_ok()).items] == [b"x"]
    assert (await client.read()).WhichOneof("kind") == "stats"
    assert await client.is_closed()


async def test_who_says_nothing_at_all_is_closed(client: HermesClient) -> None:
    client.writer.write_eof()

    assert await client.is_closed()


async def test_who_is_torn_away_takes_nobody_elses_answer_along(
    client: HermesClient, connect: Connect, server: HermesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two settle in one turn of the loop is one command, and one future."""
    for _ in range(2):
        await client.produce("t", b"x")
    other = await connect()
    (ours,) = await client.poll("t", max=1)
    (theirs,) = await other.poll("t", max=1)
    carry_out, kept = Hold._carry_out, []
    monkeypatch.setattr(Hold, "_carry_out", lambda self: kept.append(self))
    other.send("ack", topic="t", group="g", lease_id=theirs.lease_id)
    client.send("ack", topic="t", group="g", lease_id=ours.lease_id)
    async with asyncio.timeout(60):
        while sum(one.is_busy() for one in server.connections) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        other.reset()
        while len(server.connections) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
    monkeypatch.undo()
    carry_out(kept[0])

    await client.read_ok()
    assert (await client.call("stats")).messages == 0


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_not_read_from(
    client: HermesClient, connect: Connect, server: HermesServer
) -> None:
    await client.produce("t", bytes(2**20))
    other = await connect()
    for _ in range(60):
        client.send("poll", topic="t", group="g", visibility_timeout_ms=1)
        client.send("nack", topic="t", group="g", lease_id=1)
    for number in range(60):
        client.send("poll", topic="t", group=f"group {number}")
    async with asyncio.timeout(60):
        while not any(one._holding for one in server.connections):  # noqa: ASYNC110
            await asyncio.sleep(0)

    assert await other.produce("u", b"others go on") == 0
    for _ in range(60):
        await client.read()
        await client.read()
    sizes = [len((await client.read_ok()).items[0].payload) for _ in range(60)]
    assert sizes == [2**20] * 60


@pytest.mark.parametrize("limits", [HermesLimits(connections=2)])
async def test_w12_connections_beyond_the_limit_are_turned_away(
    connect: Connect, server: HermesServer
) -> None:
    first, second = await connect(), await connect()
    assert await first.produce("t") == 0
    assert await second.produce("t") == 1
    third = await connect()

    assert await third.is_closed()
    assert (server.accepted, server.refused) == (2, 1)


@pytest.mark.slow
async def test_1000_connections_are_served_beside_each_other(
    address: tuple[str, int], server: HermesServer
) -> None:
    clients = await asyncio.gather(*(HermesClient.connect(address) for _ in range(1000)))
    offsets = await asyncio.gather(*(client.produce("t", b"x") for client in clients))
    taken = await asyncio.gather(*(client.poll("t", max=1) for client in clients))
    await asyncio.gather(
        *(client.ack("t", items[0].lease_id) for client, items in zip(clients, taken, strict=True))
    )

    assert sorted(offsets) == list(range(1000))
    assert sorted(items[0].offset for items in taken) == list(range(1000))
    assert (await clients[0].call("stats")).messages == 0
    for client in clients:
        client.abort()
    async with asyncio.timeout(60):
        while server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)


# --- Nagle


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
@pytest.mark.slow
async def test_a_client_that_writes_length_and_body_apart_does_not_wait_for_a_delayed_ack(
    address: tuple[str, int],
) -> None:
    """Each request but the first few would take 40 ms; on a busy machine some do all the same."""

    def talk() -> list[float]:
        taken = []
        with without_nodelay(address) as client:
            for _ in range(80):
                began = time.monotonic()
                frame = frame_of(request("produce", topic="t", payload=b"x" * 256))
                client.sendall(frame[:4])
                client.sendall(frame[4:])
                head = client.recv(4, socket.MSG_WAITALL)
                body = client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                assert Response.FromString(body).WhichOneof("kind") == "produced"
                taken.append(time.monotonic() - began)
        return taken

    later = (await asyncio.to_thread(talk))[40:]
    assert sorted(later)[5] < 0.020
