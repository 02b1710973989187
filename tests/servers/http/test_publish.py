"""Publishing over HTTP: one or many, as JSON, raw or CloudEvents, and repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.frontends.http import publishing
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.pages import Pages
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.rows import Message
from flintmq.serde.codec import Codec

from .conftest import ADMIN, Caller
from .running import Start

PATH = "/api/v1/topics/orders/messages"


@pytest.fixture
def mq(broker: Broker) -> Client:
    return Client(broker, Codec(), auto_create=True, timeout=None)


async def post(
    call: Caller, content: Any, content_type: str | None = None, path: str = PATH, **headers: str
) -> httpx.Response:
    said = {name.replace("_", "-"): value.encode() for name, value in headers.items()}
    if content_type is not None:
        said["content-type"] = content_type.encode()
    said["authorization"] = f"Bearer {ADMIN}".encode()
    raw = [(name.encode(), value) for name, value in said.items()]
    return await call._client.post(path, content=content, headers=raw)


async def stored(mq: Client, topic: str = "orders") -> list[Message]:
    async with mq.reader(topic) as reader:
        return list(await reader.read_batch(100_000, timeout=0))


# --- raw


async def test_a_raw_body_is_the_value_with_its_content_type(call: Caller, mq: Client) -> None:
    answer = await post(
        call, b"\xff\x00", "image/png",
        x_flint_key="größer", x_flint_header_Region="eu",
        x_flint_priority="3", x_flint_delay="0",
    )  # fmt: skip

    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "topic": "orders", "partition": "0", "offset": "0", "count": 1, "dropped": 0,
        "duplicate": False, "durability": "memory",
    }  # fmt: skip
    (one,) = await stored(mq)
    assert (one.value, one.content_type, one.key) == (b"\xff\x00", "image/png", "größer")
    assert (one.headers, one.priority) == ({"region": "eu"}, 3)


async def test_json_with_a_header_of_ours_is_raw_too(call: Caller, mq: Client) -> None:
    await post(call, b'{"id": 42}', "application/json", x_flint_key="42")
    (one,) = await stored(mq)
    assert (one.value, one.content_type) == (b'{"id": 42}', "application/json")


async def test_a_body_without_a_content_type_is_raw(call: Caller, mq: Client) -> None:
    assert (await post(call, b"")).status_code == 200
    (one,) = await stored(mq)
    assert (one.value, one.content_type) == (b"", None)


async def test_what_curl_sends_where_it_is_told_nothing_is_no_content_type(
    call: Caller, mq: Client
) -> None:
    await post(call, b"hello", "application/x-www-form-urlencoded")
    (one,) = await stored(mq)
    assert (one.value, one.content_type) == (b"hello", None)


async def test_a_value_that_is_no_envelope_hears_how_it_would_be_one(call: Caller) -> None:
    for body in (b'{"id": 42}', b"{}"):
        answer = await post(call, body, "application/json")
        assert answer.status_code == 400
        assert '{"json": {"id": 42}' in answer.json()["error"]["message"]
    answer = await post(call, b"x", "text/plain", x_flint_colour="red")
    assert answer.json()["error"]["message"].endswith("there is no x-flint-colour")


@pytest.mark.parametrize(
    "headers",
    [{"x-flint-colour": "red"}, {"x-flint-priority": "8"}, {"x-flint-partition": "1"},
     {"x-flint-producer": "p"}, {"x-flint-sequence": "1"}, {"idempotency-key": ""},
     {"idempotency-key": "a", "x-flint-producer": "p", "x-flint-sequence": "1"}],
)  # fmt: skip
async def test_headers_that_make_no_sense_are_refused(
    call: Caller, mq: Client, headers: dict[str, str]
) -> None:
    answer = await post(call, b"x", "text/plain", **headers)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidRequest")
    assert await mq.topics() == []


async def test_the_trace_of_a_request_goes_with_its_messages(call: Caller, mq: Client) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await post(call, b"x", "text/plain", traceparent=trace)
    await post(call, b'{"text": "x"}', "application/json", traceparent=trace)
    await post(call, b'{"text": "x"}\n', "application/x-ndjson", traceparent=trace)
    own = {"text": "x", "headers": {"traceparent": "its own"}}
    await post(call, json.dumps(own), "application/json", traceparent=trace)
    assert [one.headers["traceparent"] for one in await stored(mq)] == [trace] * 3 + ["its own"]


# --- CloudEvents

EVENT = {
    "specversion": "1.0", "id": "1", "source": "/shop", "type": "order.made",
    "subject": "42", "tries": 3, "partitionkey": "42", "data": {"amount": 9},
}  # fmt: skip
AS_HEADERS = {
    "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order.made",
    "ce-subject": "42", "ce-tries": "3", "ce-partitionkey": "42",
}  # fmt: skip


async def test_an_event_is_the_same_message_in_every_mode(call: Caller, mq: Client) -> None:
    binary = await post(call, b'{"amount":9}', "application/json", **AS_HEADERS)
    structured = await post(call, json.dumps(EVENT), "application/cloudevents+json; charset=utf-8")
    batch = await post(call, json.dumps([EVENT, EVENT]), "application/cloudevents-batch+json")

    assert (binary.status_code, structured.status_code) == (200, 200)
    assert batch.json()["count"] == 2
    found = await stored(mq)
    assert len(found) == 4
    for one in found:
        assert (one.value, one.content_type) == (b'{"amount":9}', "application/json")
        assert (one.key, one.headers) == ("42", AS_HEADERS)


async def test_data_of_an_event_may_be_text_or_bytes(call: Caller, mq: Client) -> None:
    event = {key: EVENT[key] for key in ("specversion", "id", "source", "type")}
    await post(
        call,
        json.dumps([
            event | {"datacontenttype": "text/plain", "data": "hello"},
            event | {"datacontenttype": "image/png", "data_base64": "//4="},
            event,
        ]),
        "application/cloudevents-batch+json",
    )  # fmt: skip
    assert [(one.value, one.content_type) for one in await stored(mq)] == [
        (b"hello", "text/plain"), (b"\xff\xfe", "image/png"), (b"", None),
    ]  # fmt: skip


async def test_attributes_in_headers_are_percent_decoded(call: Caller, mq: Client) -> None:
    await post(call, b"x", "text/plain", **AS_HEADERS | {"ce-subject": "Euro%20%E2%82%AC"})
    (one,) = await stored(mq)
    assert one.headers["ce-subject"] == "Euro €"


@pytest.mark.parametrize(
    "change",
    [{"specversion": "0.3"}, {"id": ""}, {"source": None}, {"type": 1}, {"data_base64": "AA=="},
     {"deep": {"a": 1}}, {"datacontenttype": 1}],
)  # fmt: skip
async def test_what_is_no_event_is_refused(
    call: Caller, mq: Client, change: dict[str, Any]
) -> None:
    answer = await post(call, json.dumps(EVENT | change), "application/cloudevents+json")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidRequest")
    answer = await post(call, b"", "text/plain", **{"ce-specversion": "1.0", "ce-id": "1"})
    assert answer.status_code == 400
    assert await mq.topics() == []


# --- many


async def test_lines_and_arrays_are_many_messages(call: Caller, mq: Client) -> None:
    lines = [{"text": "a", "key": "k"}, {"json": {"b": 1}, "priority": 2}, {"base64": "/w=="}]
    await post(call, "\n".join(map(json.dumps, lines)), "application/x-ndjson")
    answer = await post(call, json.dumps(lines), "application/json")

    receipt = {
        "topic": "orders", "partition": "0", "offset": "3", "count": 3, "dropped": 0,
        "duplicate": False, "durability": "memory",
    }  # fmt: skip
    assert answer.json() == {"count": 3, "receipts": [receipt]}
    found = await stored(mq)
    assert [one.value for one in found] == [b"a", b'{"b":1}', b"\xff"] * 2
    assert [one.key for one in found] == ["k", None, None] * 2
    assert [one.priority for one in found] == [0, 2, 0] * 2


async def test_a_request_for_many_is_published_while_it_arrives(start: Start) -> None:
    broker = Broker(decoder=Codec())
    state = HttpState(broker, ApiKeyGate(), None, "1")
    running = await start(state=state, routes=api_routes(state), body_bytes=10_000)
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
    async with running.line() as connection:
        connection.send(
            f"POST {PATH} HTTP/1.1\r\nHost: f\r\nContent-Type: application/x-ndjson\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        async with mq.reader("orders") as reader:
            for _ in range(300):  # 300 kB: more than a batch, and far more than a body may have
                connection.send(b"%x\r\n%b\r\n" % (len(line), line))
            first = await reader.read_batch(1, timeout=60)
            assert len(first) == 1  # and the request has not ended
        connection.send(b"0\r\n\r\n")
        answer = await connection.answer()

    assert answer.json["count"] == 300
    assert (await mq.topic_stats("orders")).message_count == 300
    await broker.close()


async def test_a_topic_that_blocks_holds_the_sender_back(start: Start) -> None:
    """What is not published yet stays with the client: here waits no more than a few buffers."""
    broker = Broker(decoder=Codec())
    state = HttpState(broker, ApiKeyGate(), None, "1")
    running = await start(state=state, routes=api_routes(state), body_bytes=10_000)
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("orders", retention_bytes=300_000, overflow="block")
    line = json.dumps({"text": "x" * 1000, "timeout": 30}).encode() + b"\n"
    sent = b"%x\r\n%b\r\n" % (len(line) * 100, line * 100)
    async with running.line() as connection, mq.reader("orders") as reader:
        connection.send(
            f"POST {PATH} HTTP/1.1\r\nHost: f\r\nContent-Type: application/x-ndjson\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        transport = connection.writer.transport
        for _ in range(300):  # 30 MB: more than sockets take
            connection.send(sent)
        await asyncio.wait_for(reader.read_batch(1, timeout=60), 60)
        (http,) = running.server._connections
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(http.cycle.body) + len(http._input) < 1_000_000
        assert transport.get_write_buffer_size() > 1_000_000
        transport.abort()
    await broker.close()


async def test_what_failed_midway_says_what_was_published(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "BATCH_ROWS", 2)
    body = b'{"text": "a"}\n' * 5 + b'{"colour": "red"}\n'
    answer = await post(call, body, "application/x-ndjson")

    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidRequest")
    assert answer.json()["error"]["message"].startswith("message 6 of the request: invalid body: ")
    (receipt,) = answer.json()["receipts"]
    assert (receipt["offset"], receipt["count"]) == ("0", 4)
    assert len(await stored(mq)) == 4


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json",
                                  "application/cloudevents-batch+json"])  # fmt: skip
async def test_no_messages_at_all_are_a_mistake(call: Caller, kind: str) -> None:
    answer = await post(call, b"" if "nd" in kind else b"[]", kind)
    assert answer.status_code == 400


async def test_a_message_that_is_too_large_is_refused_among_many(
    call: Caller, app: Pages, mq: Client
) -> None:
    app.limits = HttpLimits(body_bytes=100)
    small, large = json.dumps({"text": "x" * 50}), json.dumps({"text": "x" * 100})
    many = await post(call, f"[{','.join([small] * 10)}]", "application/json")
    assert many.json()["count"] == 10
    answer = await post(call, f"{small}\n{large}\n", "application/x-ndjson")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (413, "MessageTooLarge")


async def test_a_full_topic_is_429_and_says_when_to_come_back(call: Caller, mq: Client) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="reject")
    async with mq.reader("orders", name="slow"):
        assert (await post(call, b"a", "text/plain")).status_code == 200
        answer = await post(call, b"b", "text/plain")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (429, "TopicFull")
    assert int(answer.headers["retry-after"]) >= 1


# --- repeated

REPEATED = {
    "raw": (b"a", "text/plain"),
    "envelope": (b'{"text": "a"}', "application/json"),
    "lines": (b'{"text": "a", "key": "k"}\n{"text": "b"}\n' * 5, "application/x-ndjson"),
    "array": (b'[{"text": "a"}, {"text": "b", "key": "j"}]', "application/json"),
}


@pytest.mark.parametrize("kind", REPEATED)
@pytest.mark.parametrize("partitions", [None, 4])
@pytest.mark.parametrize(
    "said", [{"idempotency-key": "k1"}, {"x-flint-producer": "p", "x-flint-sequence": "7"}]
)
async def test_a_request_that_is_repeated_is_stored_once(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch,
    kind: str, partitions: int | None, said: dict[str, str],
) -> None:  # fmt: skip
    monkeypatch.setattr(publishing, "BATCH_ROWS", 3)
    await mq.create_topic("orders", partitions=partitions)
    body, content_type = REPEATED[kind]

    first = await post(call, body, content_type, **said)
    again = await post(call, body, content_type, **said)

    assert (first.status_code, again.status_code) == (200, 200), again.text
    count = 1 if kind in ("raw", "envelope") else body.count(b"text")
    assert (await mq.topic_stats("orders")).message_count == count
    if count == 1:
        assert again.json() == first.json() | {"duplicate": True}
    else:
        assert all(one["duplicate"] for one in again.json()["receipts"])
        assert again.json()["count"] == count


async def test_a_repeat_goes_on_where_the_first_request_broke_off(
    call: Caller, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "BATCH_ROWS", 2)
    lines = [b'{"text": "%d"}\n' % number for number in range(9)]

    async def breaks_off() -> AsyncIterator[bytes]:
        yield b"".join(lines[:5])
        yield b"nonsense\n"

    await post(call, breaks_off(), "application/x-ndjson", idempotency_key="k")
    assert len(await stored(mq)) == 4
    answer = await post(call, b"".join(lines), "application/x-ndjson", idempotency_key="k")
    assert answer.json()["count"] == 9
    assert [one.value for one in await stored(mq)] == [b"%d" % number for number in range(9)]


async def test_other_keys_are_other_requests(call: Caller, mq: Client) -> None:
    for key in ("a", "b"):
        await post(call, b"x", "text/plain", idempotency_key=key)
    assert len(await stored(mq)) == 2
