"""The JSON API: what its routes say and do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest

import flintmq
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.frontends.http import consuming, desk
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.pages import Pages
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec

from .conftest import Caller
from .running import Start


@pytest.fixture
def mq(broker: Broker) -> Client:
    return Client(broker, Codec(), auto_create=True, timeout=None)


# --- topics


async def test_a_topic_is_made_shown_changed_and_deleted(call: Caller) -> None:
    made = await call.ok("PUT", "/topics/orders.eu", {"retention_count": 5, "ttl": 60})
    assert (made["name"], made["options"]["retention_count"]) == ("orders.eu", 5)
    assert isinstance(made["id"], str)

    changed = await call.ok("PATCH", "/topics/orders.eu", {"retention_count": None})
    assert (changed["options"]["retention_count"], changed["options"]["ttl"]) == (None, 60)

    page = await call.ok("GET", "/topics/orders.eu")
    assert page["stats"]["next_offset"] == "0"
    assert (page["partitions"], page["groups"]) == ([], [])

    assert await call.ok("DELETE", "/topics/orders.eu") == {"done": True}
    assert await call.error("GET", "/topics/orders.eu") == (404, "TopicNotFound")


async def test_making_a_topic_again_is_fine_unless_options_differ(call: Caller) -> None:
    await call.ok("PUT", "/topics/orders", {"retention_count": 5})
    await call.ok("PUT", "/topics/orders", {"retention_count": 5})
    await call.ok("PUT", "/topics/orders")
    assert await call.error("PUT", "/topics/orders", {"retention_count": 6}) == (409, "TopicExists")


@pytest.mark.parametrize(
    "options", [{"retention": 5}, {"retention_count": "5"}, {"retention_count": -1},
                {"format": "object"}, {"format": "nonsense"}, {"overflow": "flood"}],
)  # fmt: skip
async def test_options_that_are_wrong_are_refused(call: Caller, options: dict[str, object]) -> None:
    assert await call.error("PUT", "/topics/orders", options) == (400, "InvalidRequest")
    assert await call.error("GET", "/topics/orders") == (404, "TopicNotFound")


async def test_topics_are_listed_page_by_page_by_pattern_and_with_figures(
    call: Caller, mq: Client
) -> None:
    for name in ("a.1", "a.2", "a.3", "b.1"):
        await mq.create_topic(name)
    await mq.create_topic("a.4", partitions=2)
    await mq.publish("a.1", b"12345")

    first = await call.ok("GET", "/topics?pattern=a.*&limit=2&stats=true")
    assert [one["name"] for one in first["topics"]] == ["a.1", "a.2"]
    assert [one["stats"]["byte_count"] for one in first["topics"]] == [5, 0]
    rest = await call.ok("GET", f"/topics?pattern=a.*&after={first['after']}")
    assert [one["name"] for one in rest["topics"]] == ["a.3", "a.4"]
    assert (rest["after"], rest["topics"][0]["stats"]) == (None, None)

    await mq.delete_topic("a.2")
    await mq.create_topic("a.0")
    now = await call.ok("GET", "/topics")
    assert [one["name"] for one in now["topics"]] == ["a.0", "a.1", "a.3", "a.4", "b.1"]


async def test_a_page_that_is_exactly_full_is_the_last(call: Caller, mq: Client) -> None:
    for name in ("a", "b"):
        await mq.create_topic(name)
    assert (await call.ok("GET", "/topics?limit=2"))["after"] is None


async def test_a_long_list_is_walked_in_steps(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "STEP_SECONDS", 0)
    monkeypatch.setattr(desk, "PAGE", 2)
    for n in range(9):
        await mq.create_topic(f"t.{n}")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        for path in ("/topics?pattern=t.8", "/topics?stats=true", "/overview"):
            before = turns
            await call.ok("GET", path)
            assert turns - before >= 9, path
    finally:
        counting.cancel()


async def test_partitions_have_their_figures_and_are_named_with_an_encoded_slash(
    call: Caller, mq: Client
) -> None:
    await mq.create_topic("orders", partitions=2)
    await mq.publish("orders", b"x", partition=1)

    page = await call.ok("GET", "/topics/orders")
    counts = [(one["partition"], one["stats"]["message_count"]) for one in page["partitions"]]
    assert counts == [("0", 0), ("1", 1)]
    shown = await call.ok("GET", "/topics/orders%2F1/messages")
    assert [one["partition"] for one in shown["messages"]] == ["1"]
    assert await call.error("GET", "/topics/orders%2F7/messages") == (400, "InvalidRequest")
    assert await call.error("GET", "/topics/orders/1/messages") == (404, "NotFound")


@pytest.mark.parametrize("name", ["a b", "größe.€", "a.b..c", "+x&y=z?#", "日本"])
async def test_names_are_percent_decoded_once(call: Caller, mq: Client, name: str) -> None:
    from urllib.parse import quote

    await call.ok("PUT", f"/topics/{quote(name, safe='')}")
    assert await mq.topics() == [name]


@pytest.mark.parametrize("path", ["a%25b", "a%2A", "%00", "a%0Ab", "a%252fb"])
async def test_names_that_cannot_be_are_refused(call: Caller, path: str) -> None:
    assert await call.error("PUT", f"/topics/{path}") == (400, "InvalidRequest")


async def test_a_path_that_is_no_utf8_is_refused(call: Caller) -> None:
    assert await call.error("GET", "/topics/%FF") == (400, "InvalidRequest")


async def test_a_topic_is_purged(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [b"x"] * 5)
    assert await call.ok("POST", "/topics/orders/purge", {"before": "2"}) == {"purged": 2}
    assert await call.ok("POST", "/topics/orders/purge") == {"purged": 3}
    assert await call.error("POST", "/topics/orders/purge", {"before": 2}) == (
        400, "InvalidRequest",
    )  # fmt: skip


# --- messages


async def test_messages_are_shown_and_stay(call: Caller, mq: Client) -> None:
    await mq.publish(
        "orders", "grüße", key=b"\xff", headers={"a": "1", "b": b"\xfe"}, priority=3,
        content_type="text/x",
    )  # fmt: skip
    await mq.publish("orders", b"\xff\x00")

    for _ in range(2):
        shown = await call.ok("GET", "/topics/orders/messages")
        text, binary = shown["messages"]
        assert (text["value"], text["encoding"], text["size"]) == ("grüße", "text", 7)
        assert (text["key"], text["key_encoding"]) == ("/w==", "base64")
        assert (text["headers"], text["binary_headers"]) == ({"a": "1"}, {"b": "/g=="})
        assert (text["offset"], text["priority"], text["content_type"]) == (
            "0",
            3,
            "text/x; format=text",
        )
        assert (base64.b64decode(binary["value"]), binary["encoding"]) == (b"\xff\x00", "base64")
        assert shown["next_offset"] == "2"


async def test_messages_are_looked_through_by_offset_and_long_values_are_cut(
    call: Caller, mq: Client
) -> None:
    await mq.publish_batch("orders", [f"äöü{n}" for n in range(5)])
    shown = await call.ok("GET", "/topics/orders/messages?offset=2&limit=2&value_bytes=3")
    assert [one["offset"] for one in shown["messages"]] == ["2", "3"]
    assert {one["value"] for one in shown["messages"]} == {"ä"}  # the cut ö is left out
    assert {one["truncated"] for one in shown["messages"]} == {True}
    assert shown["next_offset"] == "4"
    empty = await call.ok("GET", "/topics/orders/messages?offset=900")
    assert empty["messages"] == []


async def test_an_answer_has_only_so_many_bytes_of_messages(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "MESSAGES_BYTES_MAX", 250)
    await mq.publish_batch("orders", [b"x" * 100] * 5)
    shown = await call.ok("GET", "/topics/orders/messages")
    assert (len(shown["messages"]), shown["next_offset"]) == (2, "2")


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ({"text": "hallo"}, b"hallo"),
        ({"text": ""}, b""),
        ({"base64": "/wA="}, b"\xff\x00"),
        ({"json": {"id": 7}}, b'{"id":7}'),
        ({"json": None}, b"null"),
        ({"json": "hallo"}, b'"hallo"'),
    ],
)
async def test_a_message_is_published_as_text_base64_or_json(
    call: Caller, mq: Client, body: dict[str, object], stored: bytes
) -> None:
    receipt = await call.ok("POST", "/topics/orders/messages", body)
    assert (receipt["offset"], receipt["partition"], receipt["count"]) == ("0", "0", 1)
    async with mq.reader("orders") as reader:
        assert list((await reader.read_batch(10, timeout=0)).values) == [stored]


async def test_json_is_written_in_the_topics_own_format(call: Caller, mq: Client) -> None:
    await mq.create_topic("orders", format="msgpack")
    await call.ok("POST", "/topics/orders/messages", {"json": {"id": 7}})
    async with mq.reader("orders") as reader:
        (message,) = await reader.read_batch(10, timeout=0)
    assert (message.value, message.decode()) == (b"\x81\xa2id\x07", {"id": 7})


async def test_what_is_said_of_a_message_is_kept(call: Caller, mq: Client) -> None:
    await mq.create_topic("orders", partitions=3)
    body = {
        "text": "x", "key": "k", "headers": {"a": "1"}, "priority": 7, "ttl": 60,
        "content_type": "text/x", "partition": "2", "producer": "p", "sequence": "9",
    }  # fmt: skip
    first = await call.ok("POST", "/topics/orders/messages", body)
    again = await call.ok("POST", "/topics/orders/messages", body)
    assert (first["partition"], first["duplicate"], again["duplicate"]) == ("2", False, True)
    (shown,) = (await call.ok("GET", "/topics/orders%2F2/messages"))["messages"]
    assert (shown["key"], shown["headers"], shown["priority"]) == ("k", {"a": "1"}, 7)
    assert shown["expires_at"] == pytest.approx(shown["timestamp"] + 60, abs=1)


@pytest.mark.parametrize(
    "body", [{}, {"text": "a", "base64": ""}, {"base64": "?"}, {"text": "a", "priority": 8},
             {"text": "a", "partition": 1}, {"text": "a", "colour": "red"},
             {"text": "a", "partition": "1"}],
)  # fmt: skip
async def test_a_message_that_is_wrong_is_not_published(
    call: Caller, mq: Client, body: dict[str, object]
) -> None:
    await mq.create_topic("orders")
    assert await call.error("POST", "/topics/orders/messages", body) == (400, "InvalidRequest")
    assert (await mq.topic_stats("orders")).message_count == 0


async def test_a_full_topic_says_so_and_a_missing_one_too(call: Caller, mq: Client) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="reject")
    await call.ok("POST", "/topics/orders/messages", {"text": "x"})
    body = {"text": "x", "auto_create": False}
    assert await call.error("POST", "/topics/orders/messages", body) == (429, "TopicFull")
    assert await call.error("POST", "/topics/more/messages", body) == (404, "TopicNotFound")


async def test_a_broker_that_is_about_to_stop_takes_no_messages(
    call: Caller, native: NativeServer
) -> None:
    native.is_draining = True
    answer = await call.error("POST", "/topics/orders/messages", {"text": "x"})
    assert answer == (503, "Draining")


# --- groups


async def test_groups_are_shown_paused_resumed_reset_and_deleted(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [b"0", b"1", b"2"])
    await mq.poll("orders", "billing", 2, ack="auto")

    (group,) = (await call.ok("GET", "/topics/orders/groups"))["groups"]
    assert (group["name"], group["kind"], group["order"]) == ("billing", "queue", "priority")
    page = await call.ok("GET", "/topics/orders/groups/billing")
    assert (page["stats"]["position"], page["stats"]["lag"]) == ("2", 1)
    next_one = await call.ok("GET", "/topics/orders/groups/billing/next")
    assert [one["value"] for one in next_one["messages"]] == ["2"]

    await call.ok("POST", "/topics/orders/groups/billing/pause")
    assert (await call.ok("GET", "/topics/orders/groups/billing"))["stats"]["paused"] is True
    await call.ok("POST", "/topics/orders/groups/billing/resume")
    await call.ok("POST", "/topics/orders/groups/billing/reset", {"to": "earliest"})
    assert (await call.ok("GET", "/topics/orders/groups/billing"))["stats"]["lag"] == 3
    await call.ok("POST", "/topics/orders/groups/billing/reset", {"offset": "1"})
    assert (await call.ok("GET", "/topics/orders/groups/billing"))["stats"]["lag"] == 2
    await call.ok("POST", "/topics/orders/groups/billing/reset", {"time": 0})
    assert (await call.ok("GET", "/topics/orders/groups/billing"))["stats"]["lag"] == 3

    await call.ok("DELETE", "/topics/orders/groups/billing")
    assert await call.error("GET", "/topics/orders/groups/billing") == (404, "GroupNotFound")


async def test_a_group_of_partitions_is_reset_by_partition(call: Caller, mq: Client) -> None:
    await mq.create_topic("orders", partitions=2)
    for _ in range(2):
        for number in range(2):
            await mq.publish("orders", b"x", partition=number)
    await mq.poll("orders", "g", ack="auto")
    await mq.poll("orders", "g", ack="auto")

    body = {"offsets": {"0": "1", "1": "0"}}
    await call.ok("POST", "/topics/orders/groups/g/reset", body)
    page = await call.ok("GET", "/topics/orders/groups/g")
    lags = [(one["partition"], one["stats"]["lag"]) for one in page["partitions"]]
    assert lags == [("0", 1), ("1", 2)]


@pytest.mark.parametrize(
    "body", [{}, {"to": "middle"}, {"to": "latest", "offset": "1"}, {"time": 1e300},
             {"offset": "9" * 19}, {"offset": "x"}],
)  # fmt: skip
async def test_a_place_that_is_none_is_refused(
    call: Caller, mq: Client, body: dict[str, object]
) -> None:
    await mq.publish("orders", b"x")
    await mq.poll("orders", "g")
    answer = await call.error("POST", "/topics/orders/groups/g/reset", body)
    assert answer == (400, "InvalidRequest")


async def test_what_is_in_flight_says_who_has_it(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [b"0", b"1", b"2"])
    await mq.poll("orders", "g", lease=30)
    found = await call.ok("GET", "/topics/orders/groups/g/in-flight?limit=2")
    assert [one["offset"] for one in found["in_flight"]] == ["0", "1"]
    assert (found["more"], found["in_flight"][0]["delivery_count"]) == (True, 1)
    assert found["in_flight"][0]["expires_in"] == pytest.approx(30, abs=5)


async def _dead(mq: Client, *values: bytes) -> None:
    await mq.publish_batch("orders", values)
    for message in await mq.poll("orders", "g", order="log"):
        await message.reject("no such customer")


async def test_dead_letters_are_browsed_redriven_and_let_go(call: Caller, mq: Client) -> None:
    await _dead(mq, b"0", b"\xff", b"2", b"3")
    path = "/topics/orders/groups/g/dead-letters"

    page = await call.ok("GET", f"{path}?limit=2")
    first, second = page["dead_letters"]
    assert (first["topic"], first["offset"], first["group"]) == ("orders", "0", "g")
    assert (first["reason"], first["delivery_count"]) == ("no such customer", 1)
    assert (first["message"]["value"], second["message"]["encoding"]) == ("0", "base64")
    rest = await call.ok("GET", f"{path}?after={page['after']}")
    assert ([one["message"]["value"] for one in rest["dead_letters"]], rest["after"]) == (
        ["2", "3"], None,
    )  # fmt: skip

    assert await call.ok("POST", f"{path}/redrive", {"ids": [first["id"]]}) == {"count": 1}
    assert await call.ok("POST", f"{path}/discard", {"filter": "offset == 1"}) == {"count": 1}
    assert await call.ok("POST", f"{path}/discard", {"all": True}) == {"count": 2}
    assert (await call.ok("GET", path))["dead_letters"] == []


@pytest.mark.parametrize("verb", ["redrive", "discard"])
@pytest.mark.parametrize("body", [{}, {"all": False}, {"ids": [], "all": True}, {"ids": ["x"]},
                                  {"ids": [1]}, {"filter": "nonsense("}])  # fmt: skip
async def test_which_dead_letters_are_meant_has_to_be_said(
    call: Caller, mq: Client, verb: str, body: dict[str, object]
) -> None:
    await _dead(mq, b"0")
    answer = await call.error("POST", f"/topics/orders/groups/g/dead-letters/{verb}", body)
    assert answer == (400, "InvalidRequest")
    assert len(await mq.dead_letters("orders", "g")) == 1


# --- the broker


async def test_the_overview_has_totals(call: Caller, mq: Client) -> None:
    await mq.publish_batch("orders", [b"12", b"34"])
    await mq.publish("more", b"5")
    found = await call.ok("GET", "/overview")
    assert (found["version"], found["ready"]) == ("1.2.3", True)
    assert found["uptime_seconds"] >= 0
    assert found["totals"] == {
        "topics": 2, "messages": 3, "bytes": 5, "published": 3, "delivered": 0, "connections": 0,
    }  # fmt: skip


async def test_those_who_ask_for_totals_at_once_share_one_walk(
    call: Caller, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("orders", {})
    asked = 0
    topic_stats = broker.topic_stats

    async def counted(name: str) -> flintmq.TopicStats:
        nonlocal asked
        asked += 1
        return await topic_stats(name)

    monkeypatch.setattr(broker, "topic_stats", counted)
    await asyncio.gather(*(call.ok("GET", "/overview") for _ in range(20)))
    assert asked == 1


async def test_keys_and_settings_are_those_that_may_be_shown(call: Caller) -> None:
    (key,) = (await call.ok("GET", "/keys"))["keys"]
    assert key == {
        "id": "k1", "name": "billing", "grants": {"orders": ["consume"]}, "made_at": 1.5,
        "expires_at": None, "last_used_at": None, "note": "",
    }  # fmt: skip
    assert await call.ok("GET", "/config") == {"settings": {"listen": "127.0.0.1:7600"}}


async def test_connections_are_listed_and_closed(call: Caller, native: NativeServer) -> None:
    host, port = await native.start("127.0.0.1", 0)
    async with flintmq.connect(f"flint://{host}:{port}") as one, one.reader("orders"):
        async with flintmq.connect(f"flint://{host}:{port}"):
            page = await call.ok("GET", "/connections?limit=1")
            (first,) = page["connections"]
            assert first["peer"].startswith("127.0.0.1:")
            assert (first["protocol"], first["streams"], first["key"]) == ("native", 1, "")
            assert first["bytes_received"] > 0 < first["bytes_sent"]
            rest = await call.ok("GET", f"/connections?after={page['after']}")
            assert (len(rest["connections"]), rest["after"]) == (1, None)
            assert (await call.ok("GET", "/overview"))["totals"]["connections"] == 2

            await call.ok("DELETE", f"/connections/{first['id']}")
            await one.publish("orders", b"it came back")
        again = await call.error("DELETE", f"/connections/{first['id']}")
        assert again == (404, "NotFound")
    assert await call.error("DELETE", "/connections/x") == (400, "InvalidRequest")


# --- HTTP itself


async def test_what_is_not_there_is_said_in_json(call: Caller) -> None:
    assert await call.error("GET", "/nonsense") == (404, "NotFound")
    assert await call.error("GET", "/topics/") == (404, "NotFound")
    response = await call("PATCH", "/api/v1/topics", {})
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
    assert response.json()["error"]["kind"] == "MethodNotAllowed"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_what_changes_something_has_to_be_json(
    call: Caller, mq: Client, kind: str | None
) -> None:
    await mq.publish("orders", b"x")
    headers = {} if kind is None else {"content-type": kind}
    for path in ("/topics/orders/purge", "/topics/orders/groups/g/pause"):
        response = await call._client.post(
            f"/api/v1{path}", content=b"{}",
            headers={"authorization": "Bearer admin-key", **headers},
        )  # fmt: skip
        assert response.status_code == 415
    assert (await mq.topic_stats("orders")).message_count == 1


async def test_head_has_what_get_would_have_but_for_the_body(start: Start, broker: Broker) -> None:
    state = HttpState(broker, ApiKeyGate(), None, "1")
    running = await start(state=state, routes=api_routes(state))

    got = await running.ask("/api/v1/topics")
    headed = await running.ask("/api/v1/topics", "HEAD")

    assert (headed.status, headed.body) == (200, b"")
    assert headed.headers["content-length"] == str(len(got.body))
    assert (await running.ask("/api/v1/topics/orders/purge", "HEAD")).status == 405


async def test_no_other_site_is_let_in(call: Caller) -> None:
    response = await call("GET", "/api/v1/topics", headers={"origin": "http://evil.example"})
    assert not any(name.startswith("access-control") for name in response.headers)
    assert (await call("OPTIONS", "/api/v1/topics")).status_code == 405


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "colour=red",
                                   "limit=1&limit=2", "stats=perhaps", "pattern=a*"])  # fmt: skip
async def test_a_query_that_is_wrong_is_refused(call: Caller, query: str) -> None:
    assert await call.error("GET", f"/topics?{query}") == (400, "InvalidRequest")


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"text": "\xff"}'])
async def test_a_body_that_is_wrong_is_refused(call: Caller, body: bytes) -> None:
    response = await call._client.post(
        "/api/v1/topics/orders/messages", content=body,
        headers={"authorization": "Bearer admin-key", "content-type": "application/json"},
    )  # fmt: skip
    assert (response.status_code, response.json()["error"]["kind"]) == (400, "InvalidRequest")


async def test_a_body_that_is_too_large_is_refused(call: Caller, app: Pages, mq: Client) -> None:
    app.limits = HttpLimits(body_bytes=100)
    answer = await call.error("POST", "/topics/orders/messages", {"text": "x" * 100})
    assert answer == (413, "RequestTooLarge")

    async def without_a_length() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b" " * 40

    response = await call._client.post(
        "/api/v1/topics/orders/messages", content=without_a_length(),
        headers={"authorization": "Bearer admin-key", "content-type": "application/json"},
    )  # fmt: skip
    assert response.status_code == 413
    assert await mq.topics() == []


async def test_what_takes_too_long_says_that_it_may_have_been_done(
    call: Caller, app: Pages, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(broker, "purge_topic", never)
    app.limits = HttpLimits(handler_seconds=0.01)
    assert await call.error("POST", "/topics/orders/purge") == (504, "TooSlow")


async def test_a_failure_of_ours_tells_the_log_and_not_the_caller(
    call: Caller, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(broker, "groups", broken)
    response = await call("GET", "/api/v1/topics/orders/groups")
    assert (response.status_code, "secret" in response.text) == (500, False)
    assert "a secret" in caplog.text


async def test_a_topic_that_does_not_exist_is_answered_with_the_way_to_create_it_here(
    call: Caller,
) -> None:
    answer = await call("GET", "/api/v1/topics/new%20orders")
    assert answer.json()["error"]["message"] == (
        "topic 'new orders' does not exist; create it with PUT /api/v1/topics/new%20orders"
    )
