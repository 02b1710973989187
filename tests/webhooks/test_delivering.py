"""Webhooks with real sockets: a broker in this process, and targets that answer as they like."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme

import flintmq
from flintmq.clock import Clock
from flintmq.engine.broker import Broker
from flintmq.testing import ManualClock
from flintmq.webhook_model import WebhookState
from flintmq.webhooks import delivering
from flintmq.webhooks.judging import Verdict
from flintmq.webhooks.request import signature
from flintmq.webhooks.running import WebhookRunner

from .targets import OK, Got, answer, target

LOOPBACK = (ip_network("127.0.0.0/8"),)
SWITCHING = b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nx"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "PROBE_SECONDS", (0.01, 0.05))


@asynccontextmanager
async def running(
    tls: ssl.SSLContext | None = None,
    allowed: tuple[object, ...] = LOOPBACK,
    clock: Clock | None = None,
) -> AsyncIterator[flintmq.Client]:
    async with flintmq.connect("memory://", clock=clock) as mq:
        broker = mq._broker
        assert isinstance(broker, Broker)
        runner = WebhookRunner(
            mq,
            broker.shard.state.definitions,
            leads=lambda: True,
            allowed=allowed,  # type: ignore[arg-type]
            tls=tls,
        )
        broker.deliver_webhooks_by(runner)
        runner.start()
        try:
            yield mq
        finally:
            await runner.stop()


async def state_when(mq: flintmq.Client, **wanted: object) -> WebhookState:
    while True:
        [state] = await mq.webhooks("orders")
        if all(getattr(state, name) == value for name, value in wanted.items()):
            return state
        await asyncio.sleep(0.005)


async def webhook(mq: flintmq.Client, to: str, **said: object) -> flintmq.Webhook:
    await mq.create_topic("orders")
    return await mq.create_webhook("orders", group="hook", url=to, backoff=0.01, **said)  # type: ignore[arg-type]


async def test_messages_are_posted_signed_and_acknowledged() -> None:
    async with running() as mq, target() as there:
        made = await webhook(mq, there.url, headers={"authorization": "Bearer 1"})
        await mq.publish("orders", {"id": 42}, key="k1", headers={"Region": "eu"})
        [got] = await there.wait_for(1)

        assert got.body == b'{"id":42}'
        assert got.path == "/hook"
        assert got.headers["content-type"] == "application/json"
        assert got.headers["x-flint-key"] == "k1"
        assert got.headers["x-flint-header-region"] == "eu"
        assert got.headers["x-flint-topic"] == "orders"
        assert got.headers["x-flint-offset"] == "0"
        assert got.headers["authorization"] == "Bearer 1"
        id, time = got.headers["webhook-id"], int(got.headers["webhook-timestamp"])
        assert got.headers["webhook-signature"] == signature(made.secret, id, time, got.body)
        state = await state_when(mq, delivered=1)
        assert state.condition == "delivering"
        assert (await mq.group_stats("orders", "hook")).lag == 0


async def test_connections_are_kept_and_requests_go_side_by_side() -> None:
    async with running() as mq, target() as there:
        await webhook(mq, there.url, concurrency=3)
        await mq.publish_batch("orders", [b"%d" % n for n in range(60)])
        await state_when(mq, delivered=60)
        assert sorted(int(got.body) for got in there.got) == list(range(60))
        assert there.connections <= 3


async def test_a_message_that_fails_is_sent_again_under_its_id_then_is_a_dead_letter() -> None:
    async with running() as mq, target(lambda got: answer(500, b"no such order")) as there:
        await webhook(mq, there.url, retries=2)
        await mq.publish("orders", b"bad")
        state = await state_when(mq, dead=1)

        assert len(there.got) == 3
        assert len({got.headers["webhook-id"] for got in there.got}) == 1
        assert [got.headers["x-flint-delivery-count"] for got in there.got] == ["1", "2", "3"]
        assert (state.retried, state.last_status) == (2, 500)
        [letter] = await mq.dead_letters("orders", "hook")
        assert letter.reason == "HTTP 500: no such order"


async def test_without_retries_the_topic_says_how_often() -> None:
    async with running() as mq, target(lambda got: answer(400)) as there:
        await mq.create_topic("orders", max_deliveries=2)
        await webhook(mq, there.url)
        await mq.publish("orders", b"bad")
        await state_when(mq, dead=1)
        assert len(there.got) == 2
        await mq.configure_topic("orders", max_deliveries=3)
        await mq.publish("orders", b"bad")
        await state_when(mq, dead=2)
        assert len(there.got) == 2 + 3


async def test_while_the_target_is_down_messages_wait_and_their_attempts_do_not_count() -> None:
    async with running() as mq:
        async with target() as there:
            pass  # nobody listens there any more
        await webhook(mq, there.url, retries=0)
        await mq.publish_batch("orders", [b"1", b"2", b"3"])
        state = await state_when(mq, condition="down")
        assert state.last_error
        assert state.next_attempt_seconds is not None

        async with target(port=there.port) as back:
            await state_when(mq, delivered=3, condition="delivering")
            assert {got.headers["x-flint-delivery-count"] for got in back.got} == {"1"}
        assert await mq.dead_letters("orders", "hook") == []


async def test_a_target_that_is_busy_is_left_alone_as_long_as_it_says() -> None:
    answers = [answer(503, b"", "retry-after: 0.02"), answer(429, b"", "retry-after: 0"), OK]
    async with running() as mq, target(lambda got: answers.pop(0)) as there:
        await webhook(mq, there.url, retries=0)
        await mq.publish("orders", b"x")
        await state_when(mq, delivered=1)
        assert len(there.got) == 3


async def test_a_target_that_is_gone_pauses_its_webhook() -> None:
    async with running() as mq, target(lambda got: answer(410)) as there:
        await webhook(mq, there.url)
        await mq.publish("orders", b"x")
        assert (await state_when(mq, condition="paused")).last_error == "HTTP 410"
        assert (await mq.webhook("orders", "hook")).paused

        there.answering = lambda got: OK
        await mq.resume_webhook("orders", "hook")
        await state_when(mq, delivered=1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "no answer within 0.05 s"),
        (b"", "closed the connection"),
        (b"ssh-2.0 hello\r\n\r\n", "did not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, "did not answer in HTTP"),
        (answer(302, b"", "location: http://127.0.0.1:1/"), "redirects to http://127.0.0.1:1/"),
        (SWITCHING, "did not answer in HTTP"),
    ],
    ids=["silence", "hung up", "another protocol", "an endless head", "a redirect", "an upgrade"],
)
async def test_what_is_no_good_answer_is_a_failure_of_the_message(
    said: bytes | None, why: str
) -> None:
    async with running() as mq, target(lambda got: said) as there:
        await webhook(mq, there.url, retries=0, timeout=0.05 if said is None else 5.0)
        await mq.publish("orders", b"x")
        await state_when(mq, dead=1)
        [letter] = await mq.dead_letters("orders", "hook")
        assert why in letter.reason


async def test_a_fault_of_our_own_is_told_and_ends_no_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faulty(*_: object) -> Verdict:
        raise ZeroDivisionError("at work")

    clock = ManualClock()
    async with running(clock=clock) as mq, target() as there:
        await webhook(mq, there.url, concurrency=1)
        with monkeypatch.context() as patch:
            patch.setattr(delivering, "judged", faulty)
            await mq.publish("orders", b"x")
            await state_when(mq, last_error="at work")
        await clock.advance(60)  # the lease ends, and the message is offered again
        await state_when(mq, delivered=1)
        assert [got.headers["x-flint-delivery-count"] for got in there.got] == ["1", "2"]


async def test_of_an_answer_of_10_gb_only_the_status_is_read() -> None:
    gigabytes = 10 * 1000**3

    def endless(got: Got) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % gigabytes
        for _ in range(gigabytes // 65_536):
            yield bytes(65_536)

    async with running() as mq, target(endless) as there:
        await webhook(mq, there.url, concurrency=1)
        await mq.publish_batch("orders", [b"1", b"2"])
        await state_when(mq, delivered=2)
        assert there.connections == 2
        assert there.sent < 50_000_000  # what was on its way in the buffers of the system


async def test_an_answer_that_does_not_come_to_its_end_counts_by_its_status() -> None:
    def unfinished(got: Got) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"

    async with running() as mq, target(unfinished) as there:
        await webhook(mq, there.url, timeout=0.05)
        await mq.publish("orders", b"1")
        await state_when(mq, delivered=1)


async def test_a_redirect_to_the_broker_s_own_network_reaches_nobody() -> None:
    async with target() as inside:
        to_inside = answer(307, b"", f"location: {inside.url}")
        async with running() as mq, target(lambda got: to_inside) as there:
            await webhook(mq, there.url, retries=1)
            await mq.publish("orders", b"x")
            await state_when(mq, dead=1)
            [letter] = await mq.dead_letters("orders", "hook")
            assert letter.reason == (
                f"HTTP 307: redirects to {inside.url} are not followed; change the URL"
            )
        assert (len(there.got), inside.connections) == (2, 0)


async def test_a_name_that_comes_to_mean_another_address_is_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """127.0.0.2 is the public address here, and 127.0.0.1 the broker's own network."""
    public, inside = "127.0.0.2", "127.0.0.1"
    meant = [public]

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        assert host == "shop.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in meant]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    closing = answer(200, b"", "connection: close")  # the next message needs a new connection
    async with (
        running(allowed=(ip_network(f"{public}/32"),)) as mq,
        target(lambda got: closing, host=public) as there,
        target(host=inside, port=there.port) as secret,
    ):
        await webhook(mq, f"http://shop.example:{there.port}/")
        await mq.publish("orders", b"1")
        await state_when(mq, delivered=1)
        for changed in ([inside], [public, inside]):
            meant[:] = changed
            await mq.publish("orders", b"2")
            state = await state_when(mq, condition="down")
            assert f"shop.example is at {inside}" in state.last_error
            assert "webhook_networks" in state.last_error
            meant[:] = [public]
            await state_when(mq, condition="delivering", in_flight=0)
        await state_when(mq, delivered=3)
        assert (len(there.got), secret.connections) == (3, 0)


async def test_an_address_of_the_broker_s_own_network_is_not_reached() -> None:
    async with running(allowed=()) as mq, target() as there:
        await webhook(mq, there.url.replace("127.0.0.1", "localhost"))
        await mq.publish("orders", b"x")
        state = await state_when(mq, condition="down")
        assert "webhook_networks" in state.last_error
        assert there.connections == 0


async def test_a_target_that_changes_its_certificate_is_down_until_it_has_a_good_one() -> None:
    good, bad = trustme.CA(), trustme.CA()
    trusting = ssl.create_default_context()
    good.configure_trust(trusting)

    def served_by(authority: trustme.CA) -> ssl.SSLContext:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(server)
        return server

    closing = answer(200, b"", "connection: close")
    async with running(tls=trusting) as mq:
        async with target(lambda got: closing, tls=served_by(good)) as there:
            to = there.url.replace("http://127.0.0.1", "https://localhost")
            await webhook(mq, to, retries=0)
            await mq.publish("orders", b"1")
            await state_when(mq, delivered=1)
        async with target(tls=served_by(bad), port=there.port) as other:
            await mq.publish("orders", b"2")
            state = await state_when(mq, condition="down")
            assert "CERTIFICATE_VERIFY_FAILED" in state.last_error
            assert other.got == []
        async with target(tls=served_by(good), port=there.port):
            await state_when(mq, delivered=2)


async def test_messages_of_a_key_go_in_order_one_after_the_other() -> None:
    def first_fails(got: Got) -> bytes:
        return answer(500) if got.headers["x-flint-delivery-count"] == "1" else OK

    async with running() as mq, target(first_fails) as there:
        await webhook(mq, there.url, order="key", concurrency=8)
        for n in range(12):
            await mq.publish("orders", b"%d" % n, key=f"key{n % 3}")
        await state_when(mq, delivered=12)
        good = [got for got in there.got if got.headers["x-flint-delivery-count"] == "2"]
        for key in ("key0", "key1", "key2"):
            numbers = [int(got.body) for got in good if got.headers["x-flint-key"] == key]
            assert numbers == sorted(numbers)


async def test_a_rate_spreads_requests_over_time() -> None:
    clock = ManualClock()
    async with running(clock=clock) as mq, target() as there:
        await webhook(mq, there.url, rate=2.0)
        await clock.advance(60)  # what was not used meanwhile is not made up for
        await mq.publish_batch("orders", [b"x"] * 5)
        for count in range(1, 6):
            state = await state_when(mq, delivered=count)
            await clock.advance(0.499)
            assert len(there.got) == count
            await clock.advance(0.001)
        assert state.per_second == 2.5  # five, of which the first began to count


async def test_while_the_target_is_down_one_alone_tries() -> None:
    clock = ManualClock()
    async with running(clock=clock) as mq, target(lambda got: answer(503)) as there:
        await webhook(mq, there.url, concurrency=8, retries=0)
        await mq.publish("orders", b"0")
        await state_when(mq, condition="down")
        await mq.publish_batch("orders", [b"1"] * 20)  # for whoever has been waiting
        for _ in range(20):
            await clock.settle()
        assert len(there.got) == 1
        there.answering = lambda got: OK
        await clock.advance(1)  # more than until the next attempt
        await state_when(mq, delivered=21, in_flight=0)
        assert {got.headers["x-flint-delivery-count"] for got in there.got} == {"1"}


async def test_a_trace_goes_on_at_the_target() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with running() as mq, target() as there:
        await webhook(mq, there.url)
        await mq.publish("orders", b"x", headers={"traceparent": trace})
        [got] = await there.wait_for(1)
        assert got.headers["traceparent"] == trace


async def test_what_a_message_may_cost_is_known_without_asking_for_its_topic() -> None:
    async with running() as mq, target(lambda got: answer(500)) as there:
        await webhook(mq, there.url)
        broker = mq._broker
        asked: list[str] = []
        topic_info = broker.topic_info

        async def counted(name: str) -> flintmq.TopicInfo:
            asked.append(name)
            return await topic_info(name)

        broker.topic_info = counted  # type: ignore[method-assign]
        await mq.publish_batch("orders", [b"1", b"2", b"3"])
        await state_when(mq, dead=3)
        assert len(asked) <= 1  # for its id, once


async def test_pausing_keeps_messages_and_deleting_keeps_the_group() -> None:
    async with running() as mq, target() as there:
        await webhook(mq, there.url)
        await mq.pause_webhook("orders", "hook")
        await state_when(mq, condition="paused")
        await mq.publish("orders", b"x")
        await mq.delete_webhook("orders", "hook")
        assert await mq.webhooks() == []
        assert (await mq.group_stats("orders", "hook")).lag == 1
        assert there.got == []
        [message] = await mq.poll("orders", "hook")
        assert message.delivery_count == 1


async def test_a_webhook_is_changed_only_where_that_is_said() -> None:
    async with running() as mq, target() as there, target() as other:
        made = await webhook(mq, there.url)
        assert await webhook(mq, there.url) == made
        with pytest.raises(flintmq.InvalidRequest, match="replace=True"):
            await webhook(mq, other.url)
        changed = await webhook(mq, other.url, replace=True)
        assert changed.secret == made.secret
        await mq.publish("orders", b"x")
        await other.wait_for(1)
        assert there.got == []


async def test_a_test_request_is_sent_at_once_and_its_answer_returned() -> None:
    async with running() as mq, target() as there:
        await webhook(mq, there.url)
        await state_when(mq, condition="delivering")
        assert (await mq.test_webhook("orders", "hook")).status == 204
        assert there.got[0].body == b'{"type":"flintmq.test","data":{}}'
        await mq.publish("orders", b"the first")
        message = (await there.wait_for(2))[1]
        ids = [got.headers["webhook-id"] for got in (there.got[0], message)]
        assert (ids[0][:5], ids[1][:4]) == ("test_", "msg_")  # no repeat of one another
        assert "x-flint-offset" not in there.got[0].headers
        there.answering = lambda got: answer(404)
        answered = await mq.test_webhook("orders", "hook")
        assert not answered.ok
        assert answered.error == "HTTP 404"


async def test_a_webhook_goes_with_its_topic() -> None:
    async with running() as mq, target() as there:
        await webhook(mq, there.url)
        await mq.delete_topic("orders")
        assert await mq.webhooks() == []


async def test_partitions_are_delivered_by_one_webhook() -> None:
    async with running() as mq, target() as there:
        await mq.create_topic("orders", partitions=3)
        await webhook(mq, there.url)
        for n in range(9):
            await mq.publish("orders", b"%d" % n, key=str(n))
        await state_when(mq, delivered=9)
        assert len({got.headers["webhook-id"] for got in there.got}) == 9


async def test_a_webhook_survives_a_restart(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders")
        made = await mq.create_webhook("orders", group="hook", url="https://a.example/")
        assert [one.condition for one in await mq.webhooks()] == ["stopped"]
        with pytest.raises(flintmq.InvalidRequest, match="flintmq serve"):
            await mq.test_webhook("orders", "hook")
    async with flintmq.connect(url, clock=ManualClock()) as mq:
        assert await mq.webhook("orders", "hook") == made


async def test_who_changes_a_definition_at_the_same_time_hears_of_it() -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.create_topic("orders")
        version = await mq._broker.define("thing", "orders", "a", b"1", 0)
        with pytest.raises(flintmq.DefinitionChanged):
            await mq._broker.define("thing", "orders", "a", b"2", 0)
        assert await mq._broker.define("thing", "orders", "a", b"2", version) > version
        [found] = await mq._broker.definitions("thing")
        assert found.value == b"2"
