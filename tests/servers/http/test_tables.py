"""A compacted topic as a table, and requests and replies, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.serde.codec import Codec

from .conftest import Caller

TABLE = "/topics/prices/table"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def mq(broker: Broker) -> Client:
    return Client(broker, Codec(), auto_create=True, timeout=None)


async def pages(call: Caller, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    more = "&".join(f"{name}={value}" for name, value in query.items())
    after = ""
    while True:
        page = await call.ok("GET", f"{TABLE}?{more}{after}")
        found += page["messages"]
        if page["after"] is None:
            return found
        after = f"&after={page['after']}"


@pytest.mark.parametrize("partitions", [None, 3])
async def test_pages_have_the_last_value_of_every_key_once(
    call: Caller, mq: Client, partitions: int | None
) -> None:
    await mq.create_topic("prices", compact="key", partitions=partitions)
    for n in range(120):
        await mq.publish("prices", b"%d" % n, key=f"k{n % 25}")
    await mq.publish("prices", b"", key="k3")
    found = await pages(call, limit=7)
    assert len(found) == 24
    assert {one["key"]: one["value"] for one in found} == {
        f"k{n % 25}": str(n) for n in range(95, 120) if n % 25 != 3
    }
    some = await pages(call, limit=2, filter='key%20==%20"k7"')
    assert [one["value"] for one in some] == ["107"]


async def test_what_is_set_between_two_pages_is_not_on_the_second(call: Caller, mq: Client) -> None:
    await mq.create_topic("prices", compact="key")
    for key in "abcd":
        await mq.publish("prices", b"1", key=key)
    first = await call.ok("GET", f"{TABLE}?limit=2")
    await mq.publish("prices", b"2", key="a")
    await mq.publish("prices", b"2", key="d")
    second = await call.ok("GET", f"{TABLE}?limit=2&after={first['after']}")
    assert [(one["key"], one["value"]) for one in first["messages"]] == [("a", "1"), ("b", "1")]
    assert [(one["key"], one["value"]) for one in second["messages"]] == [("c", "1")]


async def test_a_key_is_set_read_and_deleted(call: Caller, mq: Client) -> None:
    await mq.create_topic("prices", compact="key", format="json", partitions=2)
    receipt = await call.ok("PUT", f"{TABLE}/EUR%2FUSD", {"json": {"bid": 1.08}})
    assert receipt["topic"] == "prices"
    value = await call.ok("GET", f"{TABLE}/EUR%2FUSD")
    assert (value["key"], value["value"]) == ("EUR/USD", '{"bid":1.08}')
    await call.ok("DELETE", f"{TABLE}/EUR%2FUSD")
    assert await call.error("GET", f"{TABLE}/EUR%2FUSD") == (404, "KeyNotFound")
    async with mq.table("prices") as prices:
        assert dict(prices) == {}


async def test_what_is_not_a_table_or_would_delete_is_refused(call: Caller, mq: Client) -> None:
    assert await call.error("PUT", f"{TABLE}/k", {"text": "x"}) == (404, "TopicNotFound")
    await mq.publish("prices", b"x")
    for method in ("GET", "PUT", "DELETE"):
        answer = await call.error(method, f"{TABLE}/k", {"text": "x"})
        assert answer == (400, "InvalidRequest")
    await mq.configure_topic("prices", compact="key")
    assert await call.error("PUT", f"{TABLE}/k", {"text": ""}) == (400, "InvalidRequest")
    other = await call.error("PUT", f"{TABLE}/k", {"text": "x", "key": "other"})
    assert other == (400, "InvalidRequest")
    assert await call.error("GET", f"{TABLE}?after=nonsense") == (400, "InvalidRequest")


async def test_a_request_is_answered_by_who_polls_with_a_reply_over_http(
    call: Caller, mq: Client
) -> None:
    poll = "/topics/rates/groups/quotes/poll"
    await call.ok("POST", poll, {"wait": 0})
    asking = asyncio.create_task(
        call.ok(
            "POST",
            "/topics/rates/request?timeout=30",
            {"json": {"pair": "EURUSD"}, "ttl": 20},
            headers={"traceparent": TRACE},
        )
    )
    messages: list[dict[str, Any]] = []
    while not messages:
        messages = (await call.ok("POST", poll, {"wait": 5}))["messages"]
    assert messages[0]["value"] == '{"pair":"EURUSD"}'
    assert messages[0]["headers"]["traceparent"] == TRACE
    assert round(messages[0]["expires_at"] - messages[0]["timestamp"]) == 20
    address = messages[0]["headers"]["reply-to"]
    assert await call.ok("POST", f"/replies/{address}", {"json": 1.08}) == {"waiting": True}
    reply = await asking
    assert (reply["value"], reply["content_type"]) == ("1.08", "application/json")
    assert await call.ok("POST", f"/replies/{address}", {"json": 1.09}) == {"waiting": False}


async def test_nobody_there_and_no_reply_in_time_are_errors(call: Caller, mq: Client) -> None:
    answer = await call.error("POST", "/topics/rates/request", {"text": "x"})
    assert answer == (404, "NoResponders")
    await mq.subscribe("rates", group="quotes")
    answer = await call.error("POST", "/topics/rates/request?timeout=0.01", {"text": "x"})
    assert answer == (504, "NoReply")
