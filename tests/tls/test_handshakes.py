"""Real handshakes with a throw-away CA: who gets in, who does not, and what they hear."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.server.limits import Limits
from flintmq.net.server.tls import ServerTls

from .conftest import Run
from .throw_away import Authority, Pair, eventually, failure, served


def tls(pair: Pair, client_ca: Path | None = None, **options: Any) -> ServerTls:
    return ServerTls(pair.cert, pair.key, client_ca, **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_right_certificate_lets_us_publish_and_read(run: Run, ca: Authority, host: str) -> None:
    async def story() -> None:
        async with (
            served(tls(ca.pair())) as (_, port),
            flintmq.connect(f"flints://{host}:{port}", tls_ca=ca.file) as mq,
            mq.reader("orders") as reader,
        ):
            large = bytes(3_000_000)
            await mq.publish("orders", b"one")
            await mq.publish("orders", large)
            assert (await reader.read(timeout=60)).value == b"one"  # type: ignore[union-attr]
            assert (await reader.read(timeout=60)).value == large  # type: ignore[union-attr]
            await mq.publish_batch("orders", [b"%d" % n for n in range(5000)])
            got: list[bytes] = []
            while len(got) < 5000:
                got += (await reader.read_batch(1000, timeout=60)).values
            assert got == [b"%d" % n for n in range(5000)]

    run(story())


def test_a_certificate_that_cannot_be_trusted_is_named_with_its_remedy(
    run: Run, ca: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")

    async def hears(pair: Pair, host: str = "127.0.0.1", ca_file: Path = ca.file) -> str:
        async with served(tls(pair)) as (_, port):
            error = await failure(f"flints://{host}:{port}", tls_ca=ca_file)
            assert isinstance(error, flintmq.TlsFailed)
            assert str(error).count("no connection to flints://") == 1
            return str(error)

    async def story() -> None:
        assert "has expired; renew it" in await hears(ca.expired())
        assert "not valid for '127.0.0.1'" in await hears(ca.pair("broker.example"))
        assert "not valid for 'localhost'" in await hears(ca.pair("broker.example"), "localhost")
        assert "tls_ca" in await hears(ca.pair(), ca_file=other.file)

    run(story())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_with_a_client_ca_lets_in_only_whom_it_has_signed(
    run: Run, ca: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    other = Authority(tmp_path, "other")

    async def story() -> None:
        secured = tls(ca.pair(), ca.file)
        secured.context.maximum_version = version
        async with served(secured) as (server, port):
            url = f"flints://127.0.0.1:{port}"
            mine, theirs, old = ca.pair("me"), other.pair("me"), ca.expired()
            async with flintmq.connect(
                url, tls_ca=ca.file, tls_cert=mine.cert, tls_key=mine.key
            ) as mq:
                assert (await mq.publish("orders", b"x")).offset == 0

            missing = await failure(url, tls_ca=ca.file)
            assert isinstance(missing, flintmq.TlsFailed)
            assert "client certificate" in str(missing)
            assert "tls_cert and tls_key" in str(missing)
            wrong = await failure(url, tls_ca=ca.file, tls_cert=theirs.cert, tls_key=theirs.key)
            assert "tls_client_ca" in str(wrong)
            expired = await failure(url, tls_ca=ca.file, tls_cert=old.cert, tls_key=old.key)
            assert "our client certificate has expired" in str(expired)
            assert server.sessions == {}

    run(story())


def test_each_scheme_on_the_other_port_hears_one_clear_sentence(
    run: Run, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with served(tls(ca.pair())) as (_, secure), served(None) as (_, plain):
            error = await failure(f"flint://127.0.0.1:{secure}")
            assert isinstance(error, flintmq.TlsFailed)
            assert str(error) == (
                f"no connection to flint://127.0.0.1:{secure}: "
                "this port uses TLS; connect with flints:// instead of flint://"
            )
            error = await failure(f"flints://127.0.0.1:{plain}", tls_ca=ca.file)
            assert isinstance(error, flintmq.TlsFailed)
            assert "does not use TLS on this port; connect with flint://" in str(error)
            for _ in range(5):
                await failure(f"flint://127.0.0.1:{secure}")
                await failure(f"flints://127.0.0.1:{plain}", tls_ca=ca.file)

    run(story())
    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([line for line in lines if "it does not use TLS" in line]) == 1
    assert len([line for line in lines if "it uses TLS, but this port does not" in line]) == 1
    assert len(lines) == 2


def test_who_speaks_something_else_is_let_go(run: Run, ca: Authority) -> None:
    async def story() -> None:
        async with served(tls(ca.pair())) as (server, port):
            too_long = b"\x16\x03\x01\xff\xff" + bytes(70_000)
            for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\x16", too_long):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(rubbish)
                writer.write_eof()
                answer = await reader.read()
                assert answer == b"" or answer[:1] == b"\x15", "nothing, or an alert"
                writer.close()
            await eventually(lambda: not server.connections)
            async with flintmq.connect(f"flints://127.0.0.1:{port}", tls_ca=ca.file) as mq:
                await mq.publish("orders", b"x")

    run(story())


def test_a_handshake_that_never_ends_holds_its_place_for_a_bounded_time(
    run: Run, ca: Authority
) -> None:
    async def story() -> None:
        limits = Limits(connections=3, handshake_seconds=60)
        async with served(tls(ca.pair()), limits) as (server, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            half = await asyncio.open_connection("127.0.0.1", port)
            half[1].write(client_hello()[:100])
            await eventually(lambda: len(server.connections) == 3)
            url = f"flints://127.0.0.1:{port}"
            full = await failure(url, tls_ca=ca.file)
            assert "connection table is full" in str(full)
            now = asyncio.get_running_loop().time()
            for connection in list(server.connections):
                assert connection._deadline is not None
                assert 0 < connection._deadline.when() - now <= 60
                connection._handshake_over()  # its time has come
            for reader, writer in [*silent, half]:
                assert await asyncio.wait_for(reader.read(), 60) == b""
                writer.close()
            async with flintmq.connect(url, tls_ca=ca.file) as mq:
                await mq.publish("orders", b"x")

    run(story())


def test_many_who_begin_a_handshake_at_once_do_not_hold_up_those_who_are_in(
    run: Run, ca: Authority
) -> None:
    async def story() -> None:
        async with (
            served(tls(ca.pair())) as (server, port),
            flintmq.connect(f"flints://127.0.0.1:{port}", tls_ca=ca.file) as mq,
        ):
            await mq.publish("orders", b"x")
            flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            hello = client_hello()
            for _, writer in flood:
                writer.write(hello)
            answered_when: list[int] = []
            while server._shaking_hands or not answered_when:
                await mq.publish("orders", b"x")
                answered_when.append(len(server._shaking_hands))
            assert max(answered_when) > 10, "we were answered while others had to wait"
            for reader, writer in flood:
                assert (await asyncio.wait_for(reader.read(1), 60)) == b"\x16"
                writer.transport.abort()

    run(story())


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def test_what_is_published_in_one_turn_is_one_write_over_tls_too(run: Run, ca: Authority) -> None:
    async def story() -> None:
        async with (
            served(tls(ca.pair())) as (_, port),
            flintmq.connect(f"flints://127.0.0.1:{port}", tls_ca=ca.file) as mq,
        ):
            assert isinstance(mq._broker, RemoteBroker)
            connection = mq._broker.link._connection
            assert connection is not None
            assert connection._tls is not None
            sizes: list[int] = []
            encrypt = connection._tls.encrypt

            def counted(data: bytes | memoryview) -> bytes:
                sizes.append(len(data))
                return encrypt(data)

            connection._tls.encrypt = counted  # type: ignore[method-assign]
            await asyncio.gather(*(mq.publish("orders", b"x" * 100) for _ in range(500)))
            assert len(sizes) == 1
            assert sizes[0] > 50_000

    run(story())


def test_a_connection_that_is_damaged_on_the_way_is_ended_and_made_anew(
    run: Run, ca: Authority
) -> None:
    async def story() -> None:
        async with (
            served(tls(ca.pair())) as (_, port),
            flintmq.connect(f"flints://127.0.0.1:{port}", tls_ca=ca.file) as mq,
        ):
            await mq.publish("orders", b"0")
            assert isinstance(mq._broker, RemoteBroker)
            link = mq._broker.link
            assert link._connection is not None
            assert link._connection._transport is not None
            link._connection._transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))
            receipt = await asyncio.wait_for(mq.publish("orders", b"1"), 60)
            assert (receipt.offset, receipt.duplicate) == (1, False)
            await eventually(lambda: link.reconnects == 1)
            assert (await mq.topic_stats("orders")).message_count == 2

    run(story())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nobody_comes_back_on_an_earlier_handshake(ca: Authority, version: ssl.TLSVersion) -> None:
    """Else a client certificate that is not trusted any more would do for hours."""
    secured = tls(ca.pair(), ca.file)
    context = ssl.create_default_context(cafile=ca.file)
    mine = ca.pair("me")
    context.load_cert_chain(mine.cert, mine.key)
    context.maximum_version = version

    def shake_hands(session: ssl.SSLSession | None) -> ssl.SSLObject:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = context.wrap_bio(incoming, outgoing, server_hostname="localhost", session=session)
        theirs = secured.pipe()
        for _ in range(5):
            with contextlib.suppress(ssl.SSLWantReadError):
                ours.do_handshake()
                ours.read()
            theirs.take(outgoing.read())
            theirs.advance()
            incoming.write(theirs.outgoing())
        assert theirs.is_open
        return ours

    first = shake_hands(None)
    assert not shake_hands(first.session).session_reused
