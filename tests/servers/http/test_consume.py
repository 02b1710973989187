"""Consuming over HTTP: poll and settle by lease, and reading in both directions."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.frontends.http import consuming
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.seats import LINGER_SECONDS, LeaseName
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock

from .conftest import Caller
from .running import Line, Running, Start

GROUP = "/topics/orders/groups/billing"


@pytest.fixture
def mq(broker: Broker) -> Client:
    return Client(broker, Codec(), auto_create=True, timeout=None)


async def poll(call: Caller, **body: Any) -> list[dict[str, Any]]:
    answer = await call.ok("POST", f"{GROUP}/poll", body)
    found: list[dict[str, Any]] = answer["messages"]
    return found


def leases(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {"leases": [one["lease"] for one in messages]}


async def test_what_is_polled_and_acked_is_not_delivered_again(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [b"a", b"\xff", "c"], key="k", headers={"region": "eu"})

    first = await poll(call, max=2)
    assert [one["value"] for one in first] == ["a", base64.b64encode(b"\xff").decode()]
    assert [one["encoding"] for one in first] == ["text", "base64"]
    assert (first[0]["key"], first[0]["headers"]) == ("k", {"region": "eu"})
    assert [one["delivery_count"] for one in first] == [1, 1]
    assert await call.ok("POST", f"{GROUP}/ack", leases(first)) == {"count": 2}

    stats = await mq.group_stats("orders", "billing")
    assert (stats.settled, stats.in_flight, stats.ready) == (2, 0, 1)
    assert [one["value"] for one in await poll(call)] == ["c"]
    assert await poll(call) == []


async def test_nack_reject_and_redrive(call: Caller, mq: Client) -> None:
    await mq.publish("orders", b"a")

    assert await call.ok("POST", f"{GROUP}/nack", leases(await poll(call))) == {"count": 1}
    again = await poll(call)
    assert again[0]["delivery_count"] == 2
    await call.ok("POST", f"{GROUP}/reject", {**leases(again), "reason": "no such customer"})
    assert await poll(call) == []
    (dead,) = (await call.ok("GET", f"{GROUP}/dead-letters"))["dead_letters"]
    assert (dead["reason"], dead["message"]["value"]) == ("no such customer", "a")
    await call.ok("POST", f"{GROUP}/dead-letters/redrive", {"ids": [dead["id"]]})
    assert [one["value"] for one in await poll(call)] == ["a"]


async def test_a_nack_may_have_a_delay(call: Caller, mq: Client) -> None:
    await mq.publish("orders", b"a")
    await call.ok("POST", f"{GROUP}/nack", {**leases(await poll(call)), "delay": 3600})
    assert await poll(call) == []
    assert (await mq.group_stats("orders", "billing")).delayed == 1


async def test_a_lease_that_was_lost_is_named_and_the_others_are_settled(
    call: Caller, mq: Client
) -> None:
    await mq.publish_batch("orders", [b"a", b"b"])
    one, two = await poll(call)
    await call.ok("POST", f"{GROUP}/nack", leases([one]))
    (again,) = await poll(call)

    answer = await call("POST", f"/api/v1{GROUP}/ack", leases([one, two]))
    assert (answer.status_code, answer.json()["error"]["kind"]) == (409, "LeaseLost")
    assert answer.json()["lost"] == [one["lease"]]
    assert (await mq.group_stats("orders", "billing")).settled == 1
    assert await call.ok("POST", f"{GROUP}/ack", leases([again])) == {"count": 1}


async def test_to_ack_again_changes_nothing(call: Caller, mq: Client) -> None:
    await mq.publish("orders", b"a")
    found = leases(await poll(call))
    for _ in range(2):
        assert await call.ok("POST", f"{GROUP}/ack", found) == {"count": 1}


async def test_partitions_are_polled_and_settled_as_one_topic(call: Caller, mq: Client) -> None:
    await mq.create_topic("orders", partitions=3)
    for number in range(9):
        await mq.publish("orders", str(number), partition=number % 3)
    found = await poll(call, max=100)
    assert sorted(one["value"] for one in found) == list("012345678")
    assert {one["partition"] for one in found} == {"0", "1", "2"}
    assert await call.ok("POST", f"{GROUP}/ack", leases(found)) == {"count": 9}
    assert (await mq.group_stats("orders", "billing")).settled == 9
    assert await call.error("POST", f"{GROUP}/ack", {"leases": ["3.0.1"]}) == (409, "LeaseLost")


async def test_values_are_whole_and_what_does_not_fit_is_given_back(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "MESSAGES_BYTES_MAX", 250)
    await mq.publish_batch("orders", [b"x" * 100] * 3 + [b"y" * 1000])
    assert [one["size"] for one in await poll(call, max=4)] == [100, 100]
    assert [one["size"] for one in await poll(call, max=4)] == [100]
    (large,) = await poll(call, max=4)
    assert (large["value"], large["truncated"], large["delivery_count"]) == ("y" * 1000, False, 1)


async def test_auto_ack_leases_nothing(call: Caller, mq: Client) -> None:
    await mq.publish("orders", b"a")
    (one,) = await poll(call, ack="auto")
    assert one["lease"] == ""
    assert (await mq.group_stats("orders", "billing")).settled == 1


async def test_the_first_poll_makes_the_group(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [b'{"n": 1}', b'{"n": 2}'], content_type="application/json")
    found = await poll(call, filter="value.n > 1", order="log", start="earliest")
    assert [one["value"] for one in found] == ['{"n": 2}']
    (info,) = await mq.groups("orders")
    assert (info.order, info.filter) == ("log", "value.n > 1")
    answer = await call.error("POST", f"{GROUP}/poll", {"order": "key"})
    assert answer == (409, "GroupExists")


@pytest.mark.parametrize("lease", ["", "1.2", "a.b.c", "0.-1.1", "0.0.99999999999999999999"])
async def test_what_is_no_lease_is_refused(call: Caller, mq: Client, lease: str) -> None:
    await mq.poll("orders", "billing")
    answer = await call.error("POST", f"{GROUP}/ack", {"leases": [lease]})
    assert answer == (400, "InvalidRequest")


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
async def test_to_settle_makes_neither_topic_nor_group(call: Caller, mq: Client, verb: str) -> None:
    body = {"leases": ["0.0.1"]}
    assert await call.error("POST", f"{GROUP}/{verb}", body) == (404, "TopicNotFound")
    await mq.publish("orders", b"a")
    assert await call.error("POST", f"{GROUP}/{verb}", body) == (404, "GroupNotFound")
    assert await mq.groups("orders") == []
    async with mq.reader("orders", name="billing"):
        assert await call.error("POST", f"{GROUP}/{verb}", body) == (400, "InvalidRequest")


async def test_a_group_that_was_made_anew_can_be_settled(call: Caller, mq: Client) -> None:
    await mq.publish("orders", b"a")
    await poll(call)
    await mq.delete_group("orders", "billing")
    assert await call.error("POST", f"{GROUP}/ack", {"leases": ["0.0.1"]}) == (404, "GroupNotFound")
    assert await call.ok("POST", f"{GROUP}/ack", leases(await poll(call))) == {"count": 1}


# --- time


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestTime:
    @pytest.fixture
    async def broker(self, clock: ManualClock) -> Any:
        broker = Broker(decoder=Codec(), clock=clock)
        yield broker
        await broker.close()

    async def test_a_lease_ends_unless_it_is_extended(
        self, call: Caller, mq: Client, clock: ManualClock
    ) -> None:
        await mq.publish_batch("orders", [b"a", b"b"])
        a, _b = await poll(call, lease=10)
        assert await call.ok("POST", f"{GROUP}/extend", {**leases([a]), "lease": 100}) == {
            "count": 1
        }
        await clock.advance(20)
        assert [one["value"] for one in await poll(call, lease=10)] == ["b"]
        await clock.advance(81)
        assert "a" in [one["value"] for one in await poll(call)]

    async def test_the_broker_leaves_a_group_that_nobody_polls(
        self, call: Caller, mq: Client, clock: ManualClock
    ) -> None:
        await mq.publish("orders", b"a")
        found = await poll(call, lease=100)
        await clock.advance(LINGER_SECONDS + 1)
        assert (await mq.group_stats("orders", "billing")).members == 1
        assert (await mq.group_stats("orders", "billing")).in_flight == 1
        for _ in range(4):
            await clock.advance(LINGER_SECONDS)
        assert (await mq.group_stats("orders", "billing")).members == 0
        # Nobody else got it since: the ack counts still.
        assert await call.ok("POST", f"{GROUP}/ack", leases(found)) == {"count": 1}


# --- long polls


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)


class Served:
    """The API on a socket, over a broker in memory."""

    def __init__(self, running: Running, broker: Broker) -> None:
        self.running, self.broker = running, broker
        self.mq = Client(broker, Codec(), auto_create=True, timeout=None)

    async def waits(self, count: int = 1) -> None:
        """Until so many polls wait at the group."""

        async def has_come() -> bool:
            stats = await self.mq.group_stats("orders", "billing")
            return self.running.server.pages.waiting == count == stats.waiting

        await eventually(has_come)


@pytest.fixture
async def served(start: Start) -> Any:
    broker = Broker(decoder=Codec())
    state = HttpState(broker, ApiKeyGate(), None, "1")
    running = await start(state=state, routes=api_routes(state), requests=2)
    served = Served(running, broker)
    await served.mq.poll("orders", "billing")
    yield served
    await broker.close()


def send_poll(line: Line, **body: Any) -> None:
    text = json.dumps(body)
    line.send(
        f"POST /api/v1{GROUP}/poll HTTP/1.1\r\nHost: f\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n\r\n{text}"
    )


async def test_a_long_poll_is_answered_when_something_comes(served: Served) -> None:
    async with served.running.line() as line:
        send_poll(line, wait=60)
        await served.waits()
        await served.mq.publish("orders", b"a")
        answer = await line.answer()
        assert [one["value"] for one in answer.json["messages"]] == ["a"]
        send_poll(line, wait=0.001)
        assert (await line.answer()).json == {"messages": []}


async def test_a_poller_that_goes_away_has_taken_nothing(served: Served) -> None:
    async with served.running.line() as line:
        send_poll(line, wait=60)
        await served.waits()
    await served.waits(0)
    await served.mq.publish("orders", b"a")
    stats = await served.mq.group_stats("orders", "billing")
    assert (stats.in_flight, stats.ready, stats.delivered) == (0, 1, 0)


async def test_a_poller_that_goes_as_messages_come_has_taken_nothing(served: Served) -> None:
    for round in range(20):
        async with served.running.line() as line:
            send_poll(line, wait=60)
            await served.waits()
            line.writer.transport.abort()
            for _ in range(round):  # somewhere between the socket and the group
                await asyncio.sleep(0)
            await served.mq.publish("orders", b"a")
        await served.waits(0)

        async def is_back() -> bool:
            return (await served.mq.group_stats("orders", "billing")).ready == 1

        await eventually(is_back)
        (one,) = await served.mq.poll("orders", "billing")
        assert one.delivery_count == 1
        await one.ack()


async def test_polls_that_wait_are_no_requests_under_way(served: Served) -> None:
    async with served.running.line() as a, served.running.line() as b, served.running.line() as c:
        for line in (a, b, c):  # two requests at a time are allowed
            send_poll(line, wait=60, max=1)
        await served.waits(3)
        assert (await served.running.ask("/api/v1/topics")).status == 200
        await served.mq.publish_batch("orders", [b"1", b"2", b"3"])
        answered = [await line.answer() for line in (a, b, c)]
        assert sorted(one.json["messages"][0]["value"] for one in answered) == ["1", "2", "3"]


async def test_a_wait_is_bounded_by_the_setting(start: Start) -> None:
    broker = Broker(decoder=Codec())
    state = HttpState(broker, ApiKeyGate(), None, "1")
    running = await start(
        state=state, routes=api_routes(state), wait_seconds=0.01, handler_seconds=60
    )
    async with running.line() as line:
        send_poll(line, wait=100_000)
        assert (await line.answer()).json == {"messages": []}
    await broker.close()


# --- reading


async def read(call: Caller, **query: Any) -> tuple[list[str], str]:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    answer = await call.ok("GET", f"/topics/orders/messages?{text}")
    return [one["value"] for one in answer["messages"]], answer["next_offset"]


async def test_messages_are_read_backwards_from_the_end(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [str(number) for number in range(25)])
    assert await read(call, order="desc", limit=3) == (["24", "23", "22"], "22")
    assert await read(call, order="desc", limit=3, offset=22) == (["21", "20", "19"], "19")
    assert await read(call, order="desc", limit=10, offset=2) == (["1", "0"], "0")
    assert await read(call, order="desc", offset=0) == ([], "0")


async def test_messages_are_read_by_a_filter_in_both_directions(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "BACK_ROWS", (4, 8))
    await mq.publish_batch(
        "orders", [str(number) for number in range(100)],
        priority=[int(number % 10 == 0) for number in range(100)],
    )  # fmt: skip
    up = await read(call, filter="priority > 0", limit=3)
    assert up[0] == ["0", "10", "20"]
    values, after = await read(call, filter="priority > 0", limit=3, order="desc")
    assert values == ["90", "80", "70"]
    down = await read(call, filter="priority > 0", order="desc", offset=after, limit=100)
    assert down == (["60", "50", "40", "30", "20", "10", "0"], "0")
    assert await call.error("GET", "/topics/orders/messages?filter=nonsense(") == (
        400, "InvalidRequest",
    )  # fmt: skip


async def test_messages_are_read_from_a_time(call: Caller, mq: Client) -> None:
    await mq.publish("orders", b"a")
    async with mq.reader("orders") as reader:
        (first,) = await reader.read_batch(1)
    assert (await read(call, time=first.timestamp - 1))[0] == ["a"]
    assert (await read(call, time=first.timestamp + 100))[0] == []
    for query in ("time=1&offset=1", "time=1&order=desc", "time=-1", "order=up"):
        answer = await call.error("GET", f"/topics/orders/messages?{query}")
        assert answer == (400, "InvalidRequest")


async def test_large_messages_are_few_also_backwards(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "MESSAGES_BYTES_MAX", 250)
    await mq.publish_batch("orders", [b"x" * 100] * 5)
    values, after = await read(call, order="desc")
    assert (len(values), after) == (2, "3")


def test_a_lease_names_partition_offset_and_token() -> None:
    name = LeaseName(3, 42, 7 << 40)
    assert LeaseName.parse(str(name)) == name
