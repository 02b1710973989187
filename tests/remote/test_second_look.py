"""What a second look at the network found: each of these once lost, doubled or hung something."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.errors import MalformedFrame, MessageTooLarge
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.remote.link import Link
from flintmq.net.remote.waiting import Waiters
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.operations import Op, TakenReply, TakeRequest
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem

from ..patience import jump, until
from .proxy import Proxy


def _link(mq: flintmq.Client) -> Link:
    link: Link = mq._broker.link  # type: ignore[attr-defined]
    return link


async def _arrived(mq: flintmq.Client) -> None:
    """Until the broker has what was begun before: the first call lets it be sent, and the second is
    answered behind it."""
    for _ in range(2):
        await mq.topics()


def _forget(server: NativeServer) -> None:
    """As the grace time does, or a restart."""
    for session in list(server.sessions.values()):
        session.end()


async def test_no_more_is_under_way_than_a_broker_can_tell_from_what_it_has(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    """A topic knows the last 100,000 sequences of a producer; what is sent again is among them."""
    async with flintmq.connect(url, timeout=60) as mq:
        await mq.publish("orders", b"0")
        proxy.silent.add("down")
        publishing = [
            asyncio.ensure_future(mq.publish_batch("orders", [b""] * 1000)) for _ in range(250)
        ]
        stats = await server.broker.topic_stats("orders")
        for _ in range(200):
            await asyncio.sleep(0.01)
            before, stats = stats, await server.broker.topic_stats("orders")
            if stats.message_count > 1 and before.message_count == stats.message_count:
                break
        _forget(server)
        proxy.silent.clear()
        proxy.cut()
        receipts = await asyncio.gather(*publishing)
        assert sum(receipt.count for receipt in receipts) == 250_000
        assert (await mq.topic_stats("orders")).message_count == 250_001


@pytest.mark.parametrize("name", [None, "n"])
async def test_a_reader_of_partitions_from_the_latest_goes_on_where_it_was(
    url: str, proxy: Proxy, server: NativeServer, name: str | None
) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        await mq.create_topic("orders", partitions=2)
        async with mq.reader("orders", start="latest", name=name) as reader:
            await other.publish("orders", b"0", partition=0)
            await other.publish("orders", b"1", partition=1)
            _forget(server)
            proxy.cut()
            await until(lambda: _link(mq).reconnects == 1, "not back")
            found: list[bytes] = []
            while len(found) < 2:
                found += (await reader.read_batch(10, timeout=60)).values
            found += (await reader.read_batch(10, timeout=0)).values
            assert sorted(found) == [b"0", b"1"]


async def test_what_was_taken_by_a_reader_and_never_came_is_read_again(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        async with mq.reader("orders", name="n") as reader:
            assert await reader.read() is not None
            reading = asyncio.ensure_future(reader.read())
            await _arrived(mq)
            proxy.silent.add("down")
            publishing = asyncio.ensure_future(mq.publish("orders", b"1"))

            async def is_published() -> bool:
                return (await server.broker.topic_stats("orders")).next_offset == 2

            await until(is_published, "not published")
            _forget(server)
            proxy.silent.clear()
            proxy.cut()
            await publishing
            message = await asyncio.wait_for(reading, 60)
            assert message is not None
            assert message.value == b"1"


async def test_what_was_too_much_for_a_reply_to_one_who_is_gone_is_read_by_others(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        await other.publish_batch("orders", [b"x" * 300_000] * 8)
        async with other.reader("orders", name="n") as rest:
            reader = await mq.reader("orders", name="n")
            stream = reader._api._number  # type: ignore[attr-defined]
            taking = mq._broker._requests.ask(Op.TAKE, TakeRequest(stream, 8, 0))  # type: ignore[attr-defined]
            frame = await taking
            assert len(msgspec.msgpack.decode(frame.control, type=TakenReply).runs) == 1
            next(s for s in server.sessions.values() if stream in s.streams).end()
            offsets: list[int | None] = []
            while len(offsets) < 8:  # and what was sent and not committed
                offsets += (await rest.read_batch(20, timeout=60)).offsets
            assert offsets == list(range(8))


@pytest.mark.slow
async def test_what_is_on_its_way_to_a_reader_is_not_committed(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        async with mq.reader("orders", name="n") as reader:
            assert await reader.read() is not None
            reading = asyncio.ensure_future(reader.read())
            await _arrived(mq)
            rows = BatchBuilder()
            rows.append(b"1")
            proxy.delay = 0.05
            await server.broker.publish("orders", rows, qos=1, auto_create=True, timeout=None)
            assert await reader.commit() == 1
            assert (await reading).value == b"1"
            assert await reader.commit() == 2


@pytest.mark.slow
async def test_a_reader_asked_twice_without_a_broker_says_so(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url, timeout=0.3) as mq:
        await mq.publish("orders", b"0")
        reader = await mq.reader("orders", name="n")
        assert await reader.read() is not None
        proxy.silent.add("down")
        link: Any = _link(mq)
        take_up = link.dialer._take_up

        def taken_up(connection: object, opened: object) -> None:
            take_up(connection, opened)
            proxy.refusing = True
            proxy.cut()

        link.dialer._take_up = taken_up
        proxy.silent.clear()
        _forget(server)
        proxy.cut()
        await until(lambda: proxy.refusing, "not back")
        with pytest.raises((flintmq.Disconnected, flintmq.OutcomeUnknown)):
            await asyncio.wait_for(reader.commit(), 60)
        link.dialer._take_up = take_up
        proxy.refusing = False
        await until(lambda: link.is_up, "not back")
        assert await asyncio.wait_for(reader.commit(), 60) == 1


async def test_a_broker_that_takes_less_than_before_is_told_no_more(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url, timeout=60) as mq:
        await mq.publish("orders", b"0")
        proxy.silent.add("up")
        publishing = asyncio.ensure_future(mq.publish("orders", b"x" * 300_000))
        await until(lambda: _link(mq)._frames.written == 2, "not sent")
        server.limits = Limits(frame_bytes=200_000, grace_seconds=3600.0)
        _forget(server)
        proxy.silent.clear()
        proxy.cut()
        with pytest.raises(MessageTooLarge):
            await asyncio.wait_for(publishing, 60)
        assert (await asyncio.wait_for(mq.publish("orders", b"1"), 60)).offset == 1


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "a\0b"])
async def test_what_is_no_name_of_a_host_is_said(host: str) -> None:
    with pytest.raises(flintmq.FlintError, match="is not a valid host name"):
        await flintmq.connect(f"flint://{host}:7600")


async def test_who_closes_the_connection_is_named_once() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(flintmq.Disconnected) as raised:
            await flintmq.connect(f"flint://127.0.0.1:{port}")
    assert str(raised.value).count("no connection") == 1


async def test_who_is_held_back_stays_so_on_a_new_connection(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        (session,) = server.sessions.values()
        session.publishes.is_held = True  # as when more waits for the disk than may
        proxy.cut()
        await until(lambda: _link(mq).reconnects == 1, "not back")
        publishing = asyncio.ensure_future(mq.publish("orders", b"1"))
        await asyncio.sleep(0.1)  # if it were not held back, it would come meanwhile
        assert not publishing.done()
        session.publishes.go_on()
        assert (await publishing).offset == 1


async def test_nothing_is_opened_in_a_session_that_has_ended(
    url: str, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("jobs", b"0")
        _forget(server)
        found = await mq.poll("jobs", "workers", 1, wait=60)
        assert found.values == [b"0"]
        assert _link(mq).reconnects == 1
    stats = await server.broker.group_stats("jobs", "workers")
    assert (stats.members, stats.in_flight) == (0, 0)


async def test_what_is_under_way_at_a_close_is_answered(tmp_path: Path) -> None:
    broker = durable_broker(LocalFileSystem(tmp_path), decoder=Codec())
    await broker.open()
    server = NativeServer(broker)
    host, port = await server.start("127.0.0.1", 0)
    mq = await flintmq.connect(f"flint://{host}:{port}")
    await mq.publish("orders", b"0")
    publishing = [asyncio.ensure_future(mq.publish("orders", b"1")) for _ in range(100)]
    await asyncio.sleep(0)
    await mq.close()
    receipts = await asyncio.gather(*publishing)
    assert [receipt.offset for receipt in receipts] == list(range(1, 101))
    await server.close()
    await broker.close()


async def test_a_close_that_is_cancelled_closes(url: str, proxy: Proxy) -> None:
    mq = await flintmq.connect(url)
    proxy.silent.add("down")
    closing = asyncio.ensure_future(mq.close())
    await asyncio.sleep(0.05)
    closing.cancel()
    await asyncio.wait([closing])
    assert not _link(mq).is_up


def _garble(server: NativeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (session,) = server.sessions.values()
    send = session.send
    monkeypatch.setattr(
        session, "send", lambda op, id, control, batches=(): send(op, id, b"\x93\x01\x02\x03")
    )


async def test_an_answer_that_makes_no_sense_is_an_error_and_no_silence(
    url: str, server: NativeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        _garble(server, monkeypatch)
        with pytest.raises(MalformedFrame, match="TopicStats"):
            await asyncio.wait_for(mq.topic_stats("orders"), 60)
        monkeypatch.undo()  # goodbye is answered again


async def test_a_publish_whose_receipt_makes_no_sense_ends_at_its_deadline(
    url: str, server: NativeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of receipts answers several publishes, and does not say which if it is damaged."""
    async with flintmq.connect(url, timeout=0.5) as mq:
        await mq.publish("orders", b"0")
        _garble(server, monkeypatch)
        with pytest.raises(flintmq.OutcomeUnknown):
            await asyncio.wait_for(mq.publish("orders", b"1"), 60)
        monkeypatch.undo()


async def test_a_topic_of_another_broker_under_the_same_address_is_not_the_same(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    empty = Broker(None, Codec())
    other = NativeServer(empty)
    async with flintmq.connect(url) as mq:
        await mq.publish_batch("orders", [b"0"] * 10)
        reader = await mq.reader("orders")
        named = await mq.reader("orders", name="n")
        assert len(await reader.read_batch(10)) == len(await named.read_batch(10)) == 10
        proxy._target = await other.start("127.0.0.1", 0)
        proxy.cut()
        await mq.publish_batch("orders", [b"new"] * 3)
        for one in (reader, named):
            with pytest.raises(flintmq.FlintError):
                print(await one.read_batch(10, timeout=60))
    await other.close()
    await empty.close()


@pytest.mark.slow
async def test_the_cost_of_calls_without_a_connection_does_not_grow_with_their_number(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    due = Waiters._due

    def counted(waiters: Waiters, id: int) -> float:
        nonlocal looked
        looked += 1
        return due(waiters, id)

    async with flintmq.connect(url, timeout=0.5) as mq:
        await mq.publish("orders", b"0")
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not _link(mq).is_up, "still up")
        monkeypatch.setattr(Waiters, "_due", counted)
        calls = [asyncio.ensure_future(mq.topic_stats("orders")) for _ in range(3000)]
        await asyncio.wait(calls)
        assert all(isinstance(call.exception(), flintmq.Disconnected) for call in calls)
        assert looked < 100 * len(calls)


async def test_a_publish_to_a_broker_that_says_nothing_ends_in_its_own_time(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        proxy.silent.add("down")
        with pytest.raises(flintmq.OutcomeUnknown, match="did not answer in time"):
            await asyncio.wait_for(mq.publish("orders", b"1", timeout=0.05), 60)
        proxy.silent.clear()
        proxy.cut()  # the session is resumed: what was not answered then is answered now
        assert (await mq.publish("orders", b"2")).offset == 2
        assert cast(RemoteBroker, mq._broker)._send_buffer._bytes == 0


async def test_a_client_that_was_held_up_hears_what_the_broker_has_said_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own delay does not make the outcome unknown: the answer is here, and not read yet."""
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders", retention_count=1, overflow="block")
        await mq.publish("orders", b"full")
        publishing = asyncio.ensure_future(mq.publish("orders", b"1", timeout=5))
        await _arrived(mq)
        assert not publishing.done()
        jump(monkeypatch, 70)
        with pytest.raises(flintmq.TopicFull):
            await publishing


async def test_a_program_that_was_killed_and_started_again_reads_what_it_had_not_committed(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(_direct(proxy)) as again:
        await mq.publish_batch("orders", [b"%d" % number for number in range(20)])
        async with mq.reader("orders", name="n") as killed:
            assert len(await killed.read_batch(10, timeout=60)) == 10
            proxy.refusing = True
            proxy.cut()
            await until(lambda: len(server.connections) == 1, "not away")
            async with again.reader("orders", name="n") as reader:
                assert (await reader.read_batch(5, timeout=60)).values == [
                    b"0",
                    b"1",
                    b"2",
                    b"3",
                    b"4",
                ]
                # It was not killed after all, only away: it goes on as one of two.
                proxy.refusing = False
                await until(lambda: _link(mq).reconnects == 1, "not back")
                both = [await killed.read(timeout=60), await reader.read(timeout=60)]
                assert all(message is not None for message in both)


async def test_who_is_only_away_goes_on_while_another_of_the_name_is_there(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(_direct(proxy)) as other:
        await mq.publish_batch("orders", [b"%d" % number for number in range(9)])
        async with (
            mq.reader("orders", name="n") as away,
            other.reader("orders", name="n") as there,
        ):
            assert len(await away.read_batch(3, timeout=60)) == 3
            proxy.refusing = True
            proxy.cut()
            await until(lambda: len(server.connections) == 1, "not away")
            async with other.reader("orders", name="n") as third:
                assert (await third.read_batch(3, timeout=60)).values == [b"3", b"4", b"5"]
                await third.commit()
            proxy.refusing = False
            await until(lambda: _link(mq).reconnects == 1, "not back")
            found = [*await away.read_batch(9, timeout=60), *await there.read_batch(9, timeout=0)]
            assert [row.value for row in found] == [b"6", b"7", b"8"]


async def _offsets(reader: flintmq.Reader, count: int) -> list[int | None]:
    found: list[int | None] = []
    while len(found) < count:
        found += (await reader.read_batch(count - len(found), timeout=60)).offsets
    return found


async def _anew(server: NativeServer, proxy: Proxy, *clients: flintmq.Client) -> None:
    """The broker knows of no session any more."""
    before = [_link(mq).reconnects for mq in clients]
    _forget(server)
    proxy.cut()

    def are_back() -> bool:
        now = [_link(mq).reconnects for mq in clients]
        return all(count > once for count, once in zip(now, before, strict=True))

    await until(are_back, "not back")
    for mq in clients:
        await mq.topics()  # behind the readers that were opened anew


async def test_what_a_reader_held_that_ended_with_the_broker_is_read_by_others_of_its_name(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    """Else the name goes on where the furthest of its readers is, and passes over them."""
    async with flintmq.connect(url) as mq, flintmq.connect(url) as gone:
        await mq.publish_batch("orders", [b"%d" % number for number in range(20)])
        await gone.reader("orders", name="n")
        killed = await gone.reader("orders", name="n")
        async with mq.reader("orders", name="n") as reader:
            assert await _offsets(killed, 5) == [0, 1, 2, 3, 4]
            assert await _offsets(reader, 5) == [5, 6, 7, 8, 9]
            await _link(gone).close()
            await _anew(server, proxy, mq)

            assert await _offsets(reader, 5) == [0, 1, 2, 3, 4]
            assert await _offsets(reader, 1) == [10]
            assert await reader.commit() == 11


async def test_readers_of_a_name_have_what_they_held_over_a_restart(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as one, flintmq.connect(url) as two:
        await one.publish_batch("orders", [b"%d" % number for number in range(20)])
        async with one.reader("orders", name="n") as a, two.reader("orders", name="n") as b:
            assert await _offsets(a, 5) == [0, 1, 2, 3, 4]
            assert await _offsets(b, 5) == [5, 6, 7, 8, 9]
            await _anew(server, proxy, one, two)

            assert await _offsets(b, 1) == [10]
            assert await b.commit() == 0, "the other has not committed"
            assert await a.commit() == 11


async def test_what_a_seek_passed_over_does_not_come_back_with_a_restart(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish_batch("orders", [b"%d" % number for number in range(20)])
        async with mq.reader("orders", name="n") as reader:
            await reader.seek(10)
            await _anew(server, proxy, mq)
            assert await _offsets(reader, 2) == [10, 11]
            await _anew(server, proxy, mq)
            assert await _offsets(reader, 1) == [12]
            assert await reader.commit() == 13


async def test_what_one_of_a_name_had_committed_does_not_come_again_for_what_another_holds(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(url) as slow:
        await mq.publish_batch("orders", [b"%d" % number for number in range(20)])
        async with slow.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
            assert await _offsets(a, 1) == [0]
            assert await _offsets(b, 9) == list(range(1, 10))
            assert await b.commit() == 0
            await _anew(server, proxy, slow, mq)

            assert await _offsets(b, 1) == [10]


async def test_who_has_some_of_what_was_asked_for_does_not_wait_for_the_rest_of_a_lost_session(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish_batch("orders", [b"x" * 300_000] * 8)
        async with mq.reader("orders") as reader:
            stream: Any = reader._api
            take_in = stream._take_in

            def taken_in(frame: Any) -> bool:
                came: bool = take_in(frame)
                assert stream._missing, "one reply carries all"
                stream._take_in = take_in
                proxy.silent.add("down")
                return came

            stream._take_in = taken_in
            reading = asyncio.ensure_future(reader.read_batch(8))
            await until(lambda: "down" in proxy.silent, "no reply")
            _forget(server)
            proxy.silent.clear()
            proxy.cut()

            first = await asyncio.wait_for(reading, 60)
            assert 0 < len(first) < 8
            assert first.offsets + await _offsets(reader, 8 - len(first)) == list(range(8))


def _direct(proxy: Proxy) -> str:
    host, port = proxy._target
    return f"flint://{host}:{port}"
