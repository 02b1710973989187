"""The HTTP server holds its ground: sizes, times, numbers, and errors that are always JSON."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import trustme
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from flintmq.errors import Disconnected, InvalidRequest, StorageFailed, TopicNotFound
from flintmq.frontends.http.budget import SAVED_SECONDS
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.server import HttpServer
from tests.patience import jump, until

from .running import Line, Running, Start


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def until_one_is_under_way(running: Running) -> None:
    async with asyncio.timeout(60):
        while not running.server.pages.under_way:  # noqa: ASYNC110
            await asyncio.sleep(0)


ECHO = Route("/echo", echo, methods=["POST"])


async def test_health_says_that_it_lives_and_no_more(start: Start) -> None:
    running = await start()

    answer = await running.ask("/health")

    assert answer.status == 200
    assert answer.json.keys() == {"status", "version", "uptime_seconds"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


async def test_health_says_when_the_disk_has_failed(start: Start) -> None:
    running = await start()
    running.state.failure = lambda: StorageFailed("sync", "/secret/place", "it broke")

    answer = await running.ask("/health")

    assert (answer.status, answer.json["status"]) == (503, "failed")
    assert b"secret" not in answer.body


async def test_ready_says_why_not(start: Start) -> None:
    running = await start()
    assert (await running.ask("/ready")).status == 200

    running.state.why_not_ready = lambda: "recovering"

    answer = await running.ask("/ready")
    assert (answer.status, answer.json["reason"]) == (503, "recovering")
    assert (await running.ask("/health")).status == 200


async def test_head_has_the_headers_and_no_body(start: Start) -> None:
    running = await start()
    async with running.line() as line:
        headed = await line.ask("/ready", "HEAD")
        whole = await line.ask("/ready")  # on the same connection: nothing was left over

    assert headed.status == 200
    assert headed.headers == whole.headers


@pytest.mark.parametrize(
    ("path", "method", "status", "kind"),
    [("/nothing", "GET", 404, "NotFound"), ("/health", "DELETE", 405, "MethodNotAllowed")],
)
async def test_what_is_not_there_is_told_in_json(
    start: Start, path: str, method: str, status: int, kind: str
) -> None:
    running = await start()

    answer = await running.ask(path, method)

    assert (answer.status, answer.kind) == (status, kind)
    assert answer.headers["content-type"] == "application/json"
    assert status != 405 or "GET" in answer.headers["allow"]


async def test_an_error_of_the_broker_is_told_by_its_kind(start: Start) -> None:
    async def missing(_: Request) -> Response:
        raise TopicNotFound("orders")

    running = await start(routes=[Route("/missing", missing)])

    answer = await running.ask("/missing")

    assert (answer.status, answer.kind) == (404, "TopicNotFound")


async def test_a_fault_of_ours_is_logged_and_not_shown(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: Request) -> Response:
        raise RuntimeError("a secret of the inside")

    running = await start(routes=[Route("/broken", broken)])
    async with running.line() as line:
        answer = await line.ask("/broken")
        assert (answer.status, answer.kind) == (500, "InternalError")
        assert b"secret" not in answer.body
        assert (await line.ask("/health")).status == 200

    assert "a secret of the inside" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_body_that_says_it_is_too_large_is_not_waited_for(start: Start) -> None:
    running = await start(routes=[ECHO], body_bytes=1000)
    async with running.line() as line:
        answer = await line.ask("/echo", "POST", content_length="1001")
        assert (answer.status, answer.kind) == (413, "RequestTooLarge")
        assert await line.is_closed()


async def test_a_body_that_turns_out_too_large_is_cut_off(start: Start) -> None:
    running = await start(routes=[ECHO], body_bytes=1000)
    async with running.line() as line:
        line.send("POST /echo HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n")
        line.send(b"200\r\n" + b"x" * 512 + b"\r\n")
        line.send(b"200\r\n" + b"x" * 512 + b"\r\n")
        answer = await line.answer()
        assert (answer.status, answer.kind) == (413, "RequestTooLarge")
        assert await line.is_closed()


async def test_a_body_as_large_as_may_be_arrives_whole(start: Start) -> None:
    running = await start(routes=[ECHO], body_bytes=300_000)
    async with running.line() as line:
        line.send("POST /echo HTTP/1.1\r\nHost: f\r\nContent-Length: 300000\r\n\r\n")
        line.send(bytes(range(250)) * 1200)
        answer = await line.answer()
        assert (answer.status, answer.body) == (200, bytes(range(250)) * 1200)
        assert (await line.ask("/health")).status == 200


async def test_headers_that_have_no_end_are_refused(start: Start) -> None:
    running = await start(header_bytes=4096)
    async with running.line() as line:
        line.send("GET /health HTTP/1.1\r\n" + "X-Filler: aaaaaaaaaaaaaaaa\r\n" * 400)
        answer = await line.answer()
        assert (answer.status, answer.kind) == (431, "HeadersTooLarge")
        assert await line.is_closed()


async def test_who_dribbles_headers_is_let_go(start: Start) -> None:
    running = await start(header_seconds=0.1)
    async with running.line() as line:
        for text in ("GET /health HTTP/1.1\r\n", "X-A: 1\r\n", "X-B: 2\r\n"):
            line.send(text)
            await asyncio.sleep(0.02)
        answer = await line.answer()
        assert (answer.status, answer.kind) == (408, "TooSlow")
        assert await line.is_closed()
    assert running.server.too_slow == 1


async def test_who_says_nothing_or_only_line_ends_is_let_go(start: Start) -> None:
    running = await start(header_seconds=0.1)
    async with running.line() as silent, running.line() as empty:
        empty.send("\r\n\r\n")
        assert await silent.is_closed()
        assert await empty.is_closed()


async def test_who_dribbles_a_body_is_let_go(start: Start) -> None:
    running = await start(routes=[ECHO], body_seconds=0.1)
    async with running.line() as line:
        line.send("POST /echo HTTP/1.1\r\nHost: f\r\nContent-Length: 10\r\n\r\nabc")
        answer = await line.answer()
        assert (answer.status, answer.kind) == (408, "TooSlow")
        assert await line.is_closed()


async def test_an_answer_that_takes_too_long_is_given_up(start: Start) -> None:
    async def endless(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    running = await start(routes=[Route("/endless", endless)], handler_seconds=0.05)

    answer = await running.ask("/endless")

    assert (answer.status, answer.kind) == (504, "TooSlow")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00",
        b"FLNT\x00\x01\x00\x00\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_told_so(start: Start, garbage: bytes) -> None:
    running = await start()
    async with running.line() as line:
        line.send(garbage)
        assert (await line.answer()).status == 400
        assert await line.is_closed()
    assert (await running.ask("/health")).status == 200


async def test_no_other_protocol_is_spoken(start: Start) -> None:
    running = await start()
    async with running.line() as line:
        answer = await line.ask("/health", connection="Upgrade", upgrade="websocket")
        assert answer.status == 200
        assert await line.is_closed()


async def test_requests_sent_behind_each_other_are_answered_in_order(start: Start) -> None:
    running = await start()
    async with running.line() as line:
        line.send(
            "GET /health HTTP/1.1\r\nHost: f\r\n\r\nGET /ready HTTP/1.1\r\nHost: f\r\n\r\n" * 100
        )
        for _ in range(100):
            assert "version" in (await line.answer()).json
            assert (await line.answer()).json == {"status": "ready"}


async def test_a_new_connection_takes_the_place_of_the_one_silent_for_longest(
    start: Start,
) -> None:
    running = await start(connections=2)
    async with running.line() as first, running.line() as second:
        assert (await first.ask("/health")).status == 200
        assert (await second.ask("/health")).status == 200
        assert (await first.ask("/health")).status == 200
        assert (await running.ask("/health")).status == 200
        assert await second.is_closed()
        assert (await first.ask("/health")).status == 200
    assert running.server.evicted == 1


async def test_where_all_are_being_answered_new_connections_wait(start: Start) -> None:
    go_on = asyncio.Event()

    async def waiting(_: Request) -> Response:
        await go_on.wait()
        return PlainTextResponse("done")

    running = await start(routes=[Route("/waiting", waiting)], connections=1)
    async with running.line() as first:
        first.send("GET /waiting HTTP/1.1\r\nHost: f\r\n\r\n")
        await until_one_is_under_way(running)
        async with running.line() as second:
            second.send("GET /health HTTP/1.1\r\nHost: f\r\n\r\n")
            await asyncio.sleep(0.02)
            assert running.server.accepted == 1
            go_on.set()
            assert (await first.answer()).body == b"done"
            assert (await second.answer()).status == 200


async def test_too_many_requests_at_a_time_are_told_to_come_again(start: Start) -> None:
    go_on = asyncio.Event()

    async def waiting(_: Request) -> Response:
        await go_on.wait()
        return PlainTextResponse("done")

    running = await start(routes=[Route("/waiting", waiting)], requests=1)
    async with running.line() as line:
        line.send("GET /waiting HTTP/1.1\r\nHost: f\r\n\r\n")
        await until_one_is_under_way(running)
        refused = await running.ask("/waiting")
        assert (refused.status, refused.kind) == (503, "Busy")
        assert refused.headers["retry-after"] == "1"
        assert (await running.ask("/health")).status == 200
        go_on.set()
        assert (await line.answer()).status == 200


async def test_an_idle_connection_is_closed_after_its_time(start: Start) -> None:
    running = await start(idle_seconds=1.0)
    async with running.line() as line:
        assert (await line.ask("/health")).status == 200
        connection = next(iter(running.server._connections))
        assert connection.timeout_keep_alive_task is not None
        connection.timeout_keep_alive_handler()
        assert await line.is_closed()


async def test_changes_are_not_taken_from_pages_of_other_sites(start: Start) -> None:
    running = await start(routes=[ECHO])

    foreign = await running.ask("/echo", "POST", sec_fetch_site="cross-site")
    ours = await running.ask("/echo", "POST", sec_fetch_site="same-origin")

    assert (foreign.status, ours.status) == (403, 200)


async def test_a_place_that_is_taken_is_named(start: Start) -> None:
    running = await start()
    host, port = running.address
    other = HttpServer(running.state)

    with pytest.raises(Disconnected, match=f"{host}:{port}.*cannot listen for HTTP"):
        await other.start(host, port)
    with pytest.raises((Disconnected, InvalidRequest), match="invalid"):
        await other.start("no.such.host.invalid", 0)
    await other.close()


async def test_draining_lets_what_is_under_way_end(start: Start) -> None:
    go_on = asyncio.Event()

    async def waiting(_: Request) -> Response:
        await go_on.wait()
        return PlainTextResponse("done")

    running = await start(routes=[Route("/waiting", waiting)])
    async with running.line() as line, running.line() as idle:
        await idle.ask("/health")
        line.send("GET /waiting HTTP/1.1\r\nHost: f\r\n\r\n")
        await until_one_is_under_way(running)
        draining = asyncio.create_task(running.server.drain(5))
        assert await idle.is_closed()
        go_on.set()
        await draining
        assert (await line.answer()).body == b"done"
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(*running.address)


async def test_closing_ends_what_is_under_way_and_complains_of_nothing(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def endless(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    running = await start(routes=[Route("/endless", endless)])
    async with running.line() as line:
        line.send("GET /endless HTTP/1.1\r\nHost: f\r\n\r\n")
        await until_one_is_under_way(running)
        await running.server.close()
        assert await line.is_closed()
    assert running.server.pages.under_way == 0
    assert caplog.records == []


async def test_who_does_not_read_the_answer_is_let_go(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def endless(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 16)

        return StreamingResponse(pieces())

    running = await start(routes=[Route("/endless", endless)], handler_seconds=0.2)
    async with running.line() as line:
        line.send("GET /endless HTTP/1.1\r\nHost: f\r\n\r\n")
        async with asyncio.timeout(60):
            while not running.server.pages.answers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert running.server.pages.under_way == 0
    assert caplog.records == []


async def test_a_client_that_leaves_before_its_answer_is_no_fault(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    running = await start(routes=[ECHO])
    async with running.line() as line:
        line.send("POST /echo HTTP/1.1\r\nHost: f\r\nContent-Length: 10\r\n\r\nabc")
        await until_one_is_under_way(running)
    async with asyncio.timeout(60):
        while running.server.pages.under_way:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert caplog.records == []
    assert (await running.ask("/health")).status == 200


async def test_what_new_connections_cost_is_paid_for(start: Start) -> None:
    running = await start()
    spent = running.server.turnstile.budget.spent_seconds
    for _ in range(20):
        async with running.line():
            pass
    await until(lambda: running.server.accepted == 20, "not all came in")
    assert running.server.turnstile.budget.spent_seconds - spent > 20 * 60e-6


async def test_both_families_of_a_name_are_listened_at(start: Start) -> None:
    running = await start()
    server = HttpServer(running.state)
    _, port = await server.start("localhost", 0)
    families = {
        family for family, *_ in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
    }
    assert len(server._listening) >= 1
    assert {one.family for one, _ in server._listening} <= families
    await server.close()


async def test_those_who_hammer_wait_for_each_other_and_not_the_loop_for_them(
    start: Start,
) -> None:
    share = 0.05
    running = await start(cpu_share=share)
    turnstile, loop = running.server.turnstile, asyncio.get_running_loop()
    turnstile.budget.spend(share * SAVED_SECONDS)  # what was saved is gone
    began = loop.time()

    async def hammer() -> int:
        asked = 0
        async with running.line() as line:
            while turnstile.held < 50:
                assert (await line.ask("/metrics")).status == 200
                asked += 1
        return asked

    asked = await asyncio.gather(*(hammer() for _ in range(8)))

    elapsed = loop.time() - began
    overdrawn = 8 * 0.005  # each may have begun something when the others spent the rest
    assert turnstile.budget.spent_seconds <= share * (elapsed + SAVED_SECONDS) + overdrawn
    assert min(asked) * 2 + 2 >= max(asked)  # in turn: nobody is left behind


async def test_handshakes_that_come_to_nothing_leave_room_for_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    running = await start(connections=2, header_seconds=60)
    encrypted = HttpServer(running.state, HttpLimits(connections=2, header_seconds=60))
    host, port = await encrypted.start("127.0.0.1", 0, context)
    silent = [await asyncio.open_connection(host, port) for _ in range(2)]
    await until(lambda: encrypted.accepted == 2, "not all came in")
    jump(monkeypatch, 100)
    theirs = ssl.create_default_context()
    authority.configure_trust(theirs)

    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(
            host, port, ssl=theirs, server_hostname="localhost"
        )
        assert (await Line(reader, writer).ask("/health")).status == 200

    for one in (writer, *(other for _, other in silent)):
        one.close()
        with suppress(OSError):
            await one.wait_closed()
    await encrypted.close()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /health HTTP/1.1\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET /health HTTP/1.0\r\n\r\n", 200),
    ],
)
async def test_a_request_of_http_1_1_names_its_host_once(
    start: Start, request_text: str, status: int
) -> None:
    running = await start()
    async with running.line() as line:
        line.send(request_text)
        assert (await line.answer()).status == status
