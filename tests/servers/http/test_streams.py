"""Streams: live, by offset and of groups; as Server-Sent Events and over WebSockets."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest
import trustme
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from flintmq.access import Access, TopicGrant
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.errors import NotAuthenticated, QueueFull
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.hub import ENDS_AT_ONCE
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.serde.codec import Codec

from .conftest import ADMIN, KeyGate
from .running import Running, Start
from .streaming import STREAM, events, text, web_socket


class Served:
    def __init__(self, running: Running, broker: Broker, state: HttpState) -> None:
        self.running, self.broker, self.state = running, broker, state
        self.mq = Client(broker, Codec(), auto_create=True, timeout=None)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def streams(self, count: int) -> None:
        await self.until(lambda: len(self.running.server.streams.open) == count)


@pytest.fixture
def limits() -> dict[str, Any]:
    return {}


@pytest.fixture
def gate() -> ApiKeyGate:
    return ApiKeyGate()


@pytest.fixture
async def served(start: Start, limits: dict[str, Any], gate: ApiKeyGate) -> AsyncIterator[Served]:
    broker = Broker(decoder=Codec())
    state = HttpState(broker, gate, None, "1")
    running = await start(state=state, routes=api_routes(state), cpu_share=1.0, **limits)
    yield Served(running, broker, state)
    await running.server.close()
    await broker.close()


# --- Server-Sent Events


async def test_a_live_stream_has_what_is_published_from_now_on(served: Served) -> None:
    await served.mq.publish("orders", b"before")
    async with events(served.running) as stream:
        assert (stream.status, "text/event-stream" in stream.head) == (200, True)
        await served.streams(1)
        await served.mq.publish("orders", b"a", key="k", headers={"region": "eu"})
        event = await stream.next()
        assert (event["value"], event["key"], event["headers"]) == ("a", "k", {"region": "eu"})
        assert (event["topic"], event["offset"], event["id"], stream.id) == (
            "orders",
            "1",
            "1",
            "1",
        )
        await served.mq.publish_batch("orders", [b"b", b"c"])
        assert await stream.values(2) == ["b", "c"]
    await served.streams(0)
    await served.until(lambda: served.running.server.connections == 0)
    assert served.running.server.pages.waiting == 0


@pytest.mark.parametrize("query", ["", "start=0", "group=g&ack=auto"])
async def test_a_stream_ends_behind_so_many_messages_and_no_later(
    served: Served, query: str
) -> None:
    await served.mq.create_topic("orders")
    async with events(served.running, f"limit=2&{query}") as stream:
        await served.streams(1)
        await served.mq.publish_batch("orders", [b"a", b"b", b"c"])
        assert await stream.values(2) == ["a", "b"]
        assert await stream.next() is None


async def test_a_pattern_is_streamed_live(served: Served) -> None:
    async with events(served.running, path="/api/v1/topics/orders.%3E/stream") as stream:
        await served.streams(1)
        await served.mq.publish("orders.eu", b"a")
        await served.mq.publish("other", b"b")
        await served.mq.publish("orders.us.east", b"c")
        got = [await stream.next() for _ in range(2)]
        assert [(one["topic"], one["value"], one["id"]) for one in got] == [
            ("orders.eu", "a", None), ("orders.us.east", "c", None),
        ]  # fmt: skip


async def test_a_reader_resumes_exactly_behind_the_last_event(served: Served) -> None:
    await served.mq.publish_batch("orders", [str(number) for number in range(10)])
    seen: list[str] = []
    last: str | None = None
    for count in (3, 1, 6):
        said = {} if last is None else {"last_event_id": last}
        async with events(served.running, "start=earliest", **said) as stream:
            seen += await stream.values(count)
            last = stream.id
    assert seen == [str(number) for number in range(10)]
    async with events(served.running, f"after={last}") as stream:
        await served.streams(1)
        await served.mq.publish("orders", b"new")
        assert await stream.values(1) == ["new"]


@pytest.mark.parametrize("partitions", [None, 2])
async def test_a_stream_from_the_end_resumes_where_it_began(
    served: Served, partitions: int | None
) -> None:
    await served.mq.create_topic("orders", partitions=partitions)
    async with events(served.running, "start=latest") as stream:
        place = await stream.place()
    async with web_socket(served.running, "start=latest") as socket:
        assert await text(socket) == {"id": place}
    await served.mq.publish("orders", b"while nobody was there")
    async with events(served.running, "start=latest", last_event_id=place) as stream:
        assert await stream.values(1) == ["while nobody was there"]
    async with web_socket(served.running, f"after={place}") as socket:
        assert (await text(socket))["value"] == "while nobody was there"


async def test_a_live_stream_that_comes_back_misses_nothing(served: Served) -> None:
    await served.mq.publish("orders", b"old")
    async with events(served.running) as stream:
        await served.streams(1)
        await served.mq.publish("orders", b"a")
        assert await stream.values(1) == ["a"]
        last = stream.id
    assert last == "1"
    await served.mq.publish_batch("orders", [b"b", b"c"])
    async with events(served.running, last_event_id=last) as stream:
        assert await stream.values(2) == ["b", "c"]


@pytest.mark.parametrize("begin", ["earliest", "0", "1970-01-02T00:00:00Z"])
async def test_a_reader_starts_where_it_is_told(served: Served, begin: str) -> None:
    await served.mq.publish_batch("orders", [b"a", b"b"])
    async with events(served.running, f"start={begin}&limit=2") as stream:
        assert await stream.values(2) == ["a", "b"]
        assert await stream.next() is None  # the limit is reached


async def test_a_stream_over_partitions_resumes_each_of_them(served: Served) -> None:
    await served.mq.create_topic("orders", partitions=3)
    for number in range(12):
        await served.mq.publish("orders", str(number), partition=number % 3)
    seen: list[str] = []
    last: str | None = None
    for _ in range(4):
        said = {} if last is None else {"last_event_id": last}
        async with events(served.running, "start=earliest", **said) as stream:
            seen += await stream.values(3)
            last = stream.id
    assert sorted(map(int, seen)) == list(range(12))


async def test_filters_are_asked_beside_the_data(served: Served) -> None:
    async with events(served.running, "filter=priority%20%3E%203") as stream:
        await served.streams(1)
        await served.mq.publish("orders", b"low")
        await served.mq.publish("orders", b"high", priority=5)
        assert await stream.values(1) == ["high"]


async def test_what_retention_took_is_told(served: Served) -> None:
    await served.mq.create_topic("orders", retention_count=2)
    await served.mq.publish_batch("orders", [b"a", b"b", b"c", b"d"])
    async with events(served.running, "after=0") as stream:
        assert await stream.next() == {"missed": 1}
        assert await stream.values(2) == ["c", "d"]


async def test_a_group_over_events_is_acked_before(served: Served) -> None:
    await served.mq.publish_batch("orders", [b"a", b"b"])
    await served.mq.poll("orders", "g", max=1, lease=1000)
    async with events(served.running, "group=g&ack=auto") as stream:
        assert await stream.values(1) == ["b"]
    assert (await served.mq.group_stats("orders", "g")).settled == 1


@pytest.mark.parametrize(
    ("query", "path"),
    [("start=nonsense", STREAM), ("start=-1", STREAM), ("group=g", STREAM),
     ("group=g&ack=auto&start=0", STREAM), ("after=x", STREAM), ("overflow=burst", STREAM),
     ("capacity=0", STREAM), ("colour=red", STREAM), ("filter=%28", STREAM),
     ("start=0", "/api/v1/topics/%3E/stream")],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(served: Served, query: str, path: str) -> None:
    await served.mq.publish("orders", b"a")
    answer = await served.running.ask(f"{path}?{query}")
    assert (answer.status, answer.kind) == (400, "InvalidRequest")


async def test_a_topic_that_is_deleted_ends_its_streams(served: Served) -> None:
    await served.mq.publish("orders", b"a")
    async with events(served.running, "start=earliest") as stream:
        assert await stream.values(1) == ["a"]
        await served.mq.delete_topic("orders")
        assert (await stream.next())["error"]["kind"] == "TopicDeleted"
        assert await stream.next() is None


class TestHeartbeats:
    @pytest.fixture
    def limits(self) -> dict[str, Any]:
        return {"heartbeat_seconds": 0.01}

    async def test_an_idle_stream_says_that_it_is_alive(self, served: Served) -> None:
        async with events(served.running) as stream, web_socket(served.running) as socket:
            await stream.comment()
            assert socket.latency == 0  # it is the broker that pings
            await served.streams(2)
            await served.mq.publish("orders", b"a")
            assert await stream.values(1) == ["a"]
            assert (await text(socket))["value"] == "a"

    async def test_who_reads_nothing_is_cut_off(self, served: Served) -> None:
        await served.mq.publish_batch("orders", [b"x" * 100_000] * 200)
        async with events(served.running, "start=earliest"):
            await served.until(lambda: served.running.server.connections == 0)
        await served.streams(0)


class TestAge:
    @pytest.fixture
    def limits(self) -> dict[str, Any]:
        return {"stream_seconds": 0.05}

    async def test_a_stream_ends_at_its_age(self, served: Served) -> None:
        async with events(served.running) as stream:
            assert await stream.next() is None
        async with web_socket(served.running) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await text(socket)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001


# --- bounds


async def fill(served: Served, count: int) -> int:
    """Publish until somebody refuses; how many were taken."""
    for number in range(count):
        try:
            await served.mq.publish("orders", b"%06d" % number + b"x" * 20_000, timeout=0.01)
        except (QueueFull, TimeoutError):
            return number
    return count


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_new", "reject", "block"])
async def test_a_slow_client_costs_its_bound_and_no_more(served: Served, overflow: str) -> None:
    await served.mq.create_topic("orders", retention_count=10)
    async with events(served.running, f"capacity=5&overflow={overflow}") as stream:
        await served.streams(1)
        taken = await fill(served, 2000)  # 40 MB; nobody reads
        (connection,) = served.running.server._connections
        assert connection.transport.get_write_buffer_size() < 64 * 25_000
        assert (taken < 2000) == (overflow in ("reject", "block"))
        # Of what is dropped, the oldest go first, or the newest.
        first = int((await stream.next())["value"][:6])
        assert first == 0 or overflow == "drop_oldest"


async def test_where_thousands_leave_at_once_a_few_streams_end_in_each_turn(
    served: Served,
) -> None:
    loop, hub = asyncio.get_running_loop(), served.running.server.streams
    overs = [loop.create_future() for _ in range(100)]
    for over in overs:
        hub.has_left(over)
    ended = [0]
    while ended[-1] < len(overs):
        await asyncio.sleep(0)
        ended.append(sum(over.done() for over in overs))
    assert 0 < max(b - a for a, b in pairwise(ended)) <= ENDS_AT_ONCE


# --- WebSockets


async def test_a_web_socket_streams_the_same(served: Served) -> None:
    await served.mq.publish_batch("orders", [b"a", b"b" * 200, b"c" * 70_000])
    async with web_socket(served.running, "start=earliest") as socket:
        got = [await text(socket) for _ in range(3)]
        assert [one["size"] for one in got] == [1, 200, 70_000]
        assert [one["id"] for one in got] == ["0", "1", "2"]
        await served.mq.publish("orders", b"d")
        assert (await text(socket))["value"] == "d"
    async with web_socket(served.running, "after=1") as socket:
        assert [(await text(socket))["id"] for _ in range(2)] == ["2", "3"]
    await served.streams(0)


async def test_streams_go_over_tls(served: Served) -> None:
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(ours)
    authority.configure_trust(theirs)
    _, port = await served.running.server.start("127.0.0.1", 0, ours)
    await served.mq.publish_batch("orders", [b"a", b"b" * 70_000])

    at = f"localhost:{port}{STREAM}?start=earliest"
    async with connect(f"wss://{at}", ssl=theirs, proxy=None) as socket:
        assert [(await text(socket))["size"] for _ in range(2)] == [1, 70_000]
    async with (
        httpx.AsyncClient(verify=theirs, trust_env=False) as client,
        client.stream("GET", f"https://{at}&limit=2") as response,
    ):
        lines = [line async for line in response.aiter_lines()]
    sizes = [json.loads(line[6:])["size"] for line in lines if line.startswith("data: ")]
    assert sizes == [1, 70_000]
    await served.streams(0)


async def test_a_web_socket_that_opens_and_closes_is_no_line_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with web_socket(served.running, logger=logging.getLogger("client")):
        await served.streams(1)
    await served.streams(0)
    assert [one.message for one in caplog.records if one.name != "client"] == []


async def test_messages_of_a_group_are_acknowledged_one_by_one(served: Served) -> None:
    await served.mq.publish_batch("orders", [b"a", b"b", b"c", b"d"])
    async with web_socket(served.running, "group=g&prefetch=2") as socket:
        a, b = await text(socket), await text(socket)
        assert ((await served.mq.group_stats("orders", "g")).in_flight) == 2
        await socket.send(json.dumps({"ack": a["lease"]}))
        replies = [await text(socket), await text(socket)]  # and the next message, in any order
        assert {"settled": [a["lease"]]} in replies
        (c,) = [one for one in replies if "value" in one]
        assert c["value"] == "c"
        await socket.send(json.dumps({"extend": b["lease"], "lease": 100}))
        assert await text(socket) == {"extended": [b["lease"]]}
        await socket.send(json.dumps({"reject": [b["lease"], c["lease"]], "reason": "no"}))
        replies = [await text(socket), await text(socket)]
        assert {"settled": [b["lease"], c["lease"]]} in replies
        (d,) = [one for one in replies if "value" in one]
        await socket.send("nonsense")
        assert (await text(socket))["error"]["kind"] == "InvalidRequest"
        await socket.send(json.dumps({"ack": "0.9.9"}))
        assert (await text(socket))["lost"] == ["0.9.9"]
        for wrong in ({"nack": d["lease"], "delay": "soon"}, {"extend": d["lease"], "lease": 0},
                      {"reject": d["lease"], "reason": 5}, {"ack": None}):  # fmt: skip
            await socket.send(json.dumps(wrong))
            said = await text(socket)
            assert (said["error"]["kind"], "lost" in said) == ("InvalidRequest", False)
    # What was out goes back at once.
    await served.streams(0)
    (d,) = await served.mq.poll("orders", "g", wait=60)
    assert (d.value, len(await served.mq.dead_letters("orders", "g"))) == (b"d", 2)


async def test_what_is_no_handshake_is_refused(served: Served) -> None:
    answer = await served.running.ask(STREAM, connection="upgrade", upgrade="websocket")
    assert (answer.status, answer.kind) == (400, "InvalidRequest")


async def test_broken_frames_end_the_connection(served: Served) -> None:
    async with web_socket(served.running) as socket:
        await served.streams(1)
        socket.transport.write(b"\x81\x05hello")  # a client has to mask
        with pytest.raises(ConnectionClosed):
            await text(socket)
    await served.streams(0)


async def test_a_page_of_another_site_opens_no_web_socket(served: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await web_socket(served.running, origin="https://evil.example")
    assert refused.value.response.status_code == 403
    served.state.origins = ("https://shop.example",)
    async with web_socket(served.running, origin="https://shop.example"):
        pass


async def test_a_page_that_is_allowed_reads_streams_and_publishes(served: Served) -> None:
    served.state.origins = ("https://shop.example",)
    async with events(served.running, origin="https://shop.example") as stream:
        assert "access-control-allow-origin: https://shop.example" in stream.head
    asked = await served.running.ask(
        STREAM, "OPTIONS", origin="https://shop.example",
        access_control_request_method="POST", access_control_request_headers="authorization",
    )  # fmt: skip
    assert (asked.status, asked.headers["access-control-allow-headers"]) == (204, "authorization")
    other = await served.running.ask(STREAM, "OPTIONS", origin="https://evil.example")
    assert "access-control-allow-origin" not in other.headers


# --- keys


class EndingGate(KeyGate):
    def __init__(self) -> None:
        super().__init__()
        self.is_over = False

    def still(self, access: Access) -> Access:
        if self.is_over:
            raise NotAuthenticated("the API key has expired")
        return access


class TestKeys:
    @pytest.fixture
    def gate(self) -> EndingGate:
        return EndingGate()

    async def test_a_key_may_come_in_the_query_of_a_stream(
        self, served: Served, gate: EndingGate
    ) -> None:
        gate.keys["page"] = Access("page", (TopicGrant.of("orders.*", ["consume"]),))
        assert (await served.running.ask(STREAM)).status == 401
        assert (await served.running.ask(f"{STREAM}?key=wrong")).status == 401
        assert (await served.running.ask(f"{STREAM}?key=page")).status == 403
        assert (await served.running.ask(f"/api/v1/topics?key={ADMIN}")).status == 401
        async with events(
            served.running, "key=page", path="/api/v1/topics/orders.*/stream"
        ) as stream:
            assert stream.status == 200
        too_much = await served.running.ask("/api/v1/topics/orders.%3E/stream?key=page")
        assert too_much.status == 403

    async def test_a_web_socket_brings_its_key_among_its_protocols_and_not_in_its_url(
        self, served: Served, gate: EndingGate
    ) -> None:
        gate.keys["page"] = Access("page", (TopicGrant.of("orders", ["consume"]),))
        protocols = [Subprotocol("flintmq"), Subprotocol("key.page")]
        async with web_socket(served.running, subprotocols=protocols) as socket:
            assert socket.subprotocol == "flintmq"
            await served.streams(1)
            await served.mq.publish("orders", b"a")
            assert (await text(socket))["value"] == "a"
        with pytest.raises(InvalidStatus) as refused:
            await web_socket(served.running, subprotocols=[Subprotocol("key.wrong")])
        assert refused.value.response.status_code == 401
        elsewhere = await served.running.ask("/api/v1/topics", sec_websocket_protocol="key.page")
        assert elsewhere.status == 401

    async def test_a_stream_ends_with_its_key(self, served: Served, gate: EndingGate) -> None:
        async with events(served.running, f"key={ADMIN}") as stream:
            await served.streams(1)
            gate.is_over = True
            served.running.server.streams._keys_changed()
            assert (await stream.next())["error"]["kind"] == "NotAuthenticated"
            assert await stream.next() is None


# --- the module for web pages


async def test_the_module_and_its_types_are_open_to_every_page(served: Served) -> None:
    for path, kind in (("/flintmq.js", "text/javascript"), ("/flintmq.d.ts", "text/plain")):
        answer = await served.running.ask(path)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
        assert answer.headers["content-type"].startswith(kind)
        assert b"subscribe" in answer.body


async def test_an_event_source_comes_back_to_a_broker_that_starts(served: Served) -> None:
    served.state.can_be_asked = lambda: False
    answer = await served.running.ask(STREAM, accept="text/event-stream")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert (await served.running.ask(STREAM)).status == 503


async def test_a_late_joiner_gets_the_last_values_first_and_resumes_without_gap_or_repeat(
    served: Served,
) -> None:
    await served.mq.create_topic("orders", compact="key")
    for n in range(9):
        await served.mq.publish("orders", b"%d" % n, key=f"k{n % 3}")
    async with events(served.running, "start=last_per_key") as stream:
        assert await stream.values(2) == ["6", "7"]
        last = stream.id
    await served.mq.publish("orders", b"9", key="k0")
    assert last is not None
    async with events(served.running, "start=last_per_key", last_event_id=last) as stream:
        assert await stream.values(2) == ["8", "9"]
        await served.mq.publish("orders", b"10", key="k1")
        assert await stream.values(1) == ["10"]
    async with web_socket(served.running, "start=last_per_key") as socket:
        assert [(await text(socket))["value"] for _ in range(3)] == ["8", "9", "10"]
