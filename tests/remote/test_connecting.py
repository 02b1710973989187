"""The first connection, several servers, silence, a full send buffer, and the end of a broker."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest

import flintmq
from flintmq.net.remote import dialing
from flintmq.net.remote.address import parse_addresses
from flintmq.net.server.native import NativeServer

from ..patience import free_port, jump, until
from .proxy import Proxy
from .test_killed_brokers import BrokerProcess


def _is_up(mq: flintmq.Client) -> bool:
    return bool(mq._broker.link.is_up)  # type: ignore[attr-defined]


async def test_a_first_connect_that_fails_names_host_port_and_cause() -> None:
    port = free_port()

    with pytest.raises(flintmq.Disconnected, match=rf"127\.0\.0\.1:{port}.*refused"):
        await flintmq.connect(f"flint://127.0.0.1:{port}")
    with pytest.raises(flintmq.Disconnected, match=r"no-such-host\.invalid:7600"):
        await flintmq.connect("flint://no-such-host.invalid")


async def test_who_answers_otherwise_is_no_broker() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(flintmq.Disconnected, match="FLNT"):
            await flintmq.connect(f"flint://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("flint://a", [("a", 7600)]),
        ("flint://a:1,b:2/", [("a", 1), ("b", 2)]),
        ("flint://[::1]:9,127.0.0.1", [("::1", 9), ("127.0.0.1", 7600)]),
    ],
)
def test_a_url_may_name_several_servers(url: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(url) == addresses


@pytest.mark.parametrize(
    "url", ["flint://", "flint://,", "flint://a:x", "flint://a:99999", "flint://a/b", "flint://u@a"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        flintmq.connect(url)


async def test_a_connection_that_is_not_open_says_so() -> None:
    mq = flintmq.connect("flint://127.0.0.1:1")

    with pytest.raises(flintmq.InvalidRequest, match="not open"):
        await mq.publish("orders", b"x")
    await mq.close()


async def test_the_second_server_will_do(server: NativeServer, url: str) -> None:
    far = url.removeprefix("flint://")
    async with flintmq.connect(f"flint://127.0.0.1:{free_port()},{far}") as mq:
        assert (await mq.publish("orders", b"x")).offset == 0
    with pytest.raises(flintmq.Disconnected) as failed:
        await flintmq.connect(f"flint://127.0.0.1:{free_port()},127.0.0.1:{free_port()}")
    assert str(failed.value).count("refused") == 2


@pytest.mark.parametrize("way", ["up", "down"])
async def test_silence_is_noticed_and_the_session_goes_on(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(dialing, "SILENCE_SECONDS", 0.1)
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        proxy.silent.add(way)  # type: ignore[arg-type]
        publishing = asyncio.ensure_future(mq.publish("orders", b"1"))
        await until(lambda: proxy.swallowed > 0, "nothing was sent")
        assert not publishing.done()
        proxy.silent.clear()

        receipt = await asyncio.wait_for(publishing, 60)
        assert (receipt.offset, receipt.duplicate) == (1, False)
        assert (await mq.topic_stats("orders")).message_count == 2


@pytest.mark.slow
async def test_a_slow_network_only_takes_longer(url: str, proxy: Proxy) -> None:
    proxy.delay = 0.02
    async with flintmq.connect(url) as mq, mq.reader("orders") as reader:
        await asyncio.gather(*(mq.publish("orders", b"%d" % n) for n in range(50)))
        got: list[bytes] = []
        while len(got) < 50:
            got += (await reader.read_batch(7, timeout=60)).values
        assert got == [b"%d" % n for n in range(50)]


@pytest.mark.slow
async def test_while_there_is_no_connection_calls_end_with_their_time(
    url: str, proxy: Proxy
) -> None:
    async with flintmq.connect(url, timeout=0.3) as mq:
        await mq.publish("orders", b"0")
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not _is_up(mq), "still up")
        with pytest.raises(flintmq.Disconnected):
            await mq.publish("orders", b"1")
        with pytest.raises(flintmq.Disconnected):
            await mq.topics()
        proxy.refusing = False

        assert (await asyncio.wait_for(mq.publish("orders", b"2", timeout=60), 60)).offset == 1


async def test_the_time_without_a_connection_is_counted_anew_each_time(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flintmq.connect(url, timeout=60) as mq, mq.reader("orders") as reader:
        reading = asyncio.ensure_future(reader.read())
        for _ in range(5):
            proxy.refusing = True
            proxy.cut()
            await until(lambda: not _is_up(mq), "still up")
            jump(monkeypatch, 40)
            proxy.refusing = False
            await until(lambda: _is_up(mq), "not back")
        assert not reading.done()
        await mq.publish("orders", b"x")
        message = await reading
        assert message is not None


@pytest.mark.slow
async def test_a_reader_without_a_connection_says_so_and_goes_on_later(
    url: str, proxy: Proxy
) -> None:
    async with flintmq.connect(url, timeout=0.2) as mq, mq.reader("orders") as reader:
        proxy.refusing = True
        proxy.cut()
        for _ in range(2):
            with pytest.raises((flintmq.OutcomeUnknown, flintmq.Disconnected)):
                await asyncio.wait_for(reader.read(), 60)
        proxy.refusing = False
        await asyncio.wait_for(mq.publish("orders", b"x", timeout=60), 60)
        message = await asyncio.wait_for(reader.read(), 60)
        assert message is not None


@pytest.mark.slow
async def test_what_was_sent_and_not_answered_is_unknown_and_may_be_repeated(
    url: str, proxy: Proxy
) -> None:
    async with flintmq.connect(url, timeout=0.3) as mq:
        await mq.publish("orders", b"0", producer="me", sequence=0)
        proxy.silent.add("down")
        publishing = asyncio.ensure_future(
            mq.publish("orders", b"1", producer="me", sequence=1, timeout=0.3)
        )
        await until(lambda: proxy.swallowed > 0, "nothing was answered")
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(flintmq.OutcomeUnknown):
            await publishing
        proxy.refusing = False
        proxy.silent.clear()

        again = await asyncio.wait_for(
            mq.publish("orders", b"1", producer="me", sequence=1, timeout=60), 60
        )
        assert (again.offset, again.duplicate) == (1, True)


@pytest.mark.slow
async def test_a_full_send_buffer_raises_or_holds_back(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    value = bytes(1024 * 1024)
    async with (
        flintmq.connect(url, on_full="raise") as strict,
        flintmq.connect(url) as patient,
    ):
        proxy.delay = 0.001
        tasks = [asyncio.ensure_future(strict.publish("a", value)) for _ in range(40)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [one for one in outcomes if isinstance(one, flintmq.QueueFull)]
        assert len(refused) >= 20
        assert all(isinstance(one, flintmq.Receipt | flintmq.QueueFull) for one in outcomes)

        receipts = await asyncio.gather(*(patient.publish("b", value) for _ in range(40)))
        assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(40))


@pytest.mark.slow
async def test_a_broker_that_is_stopped_and_started_in_the_middle_of_a_stream_loses_nothing(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data")
    await broker.start()
    done = asyncio.Event()
    receipts: list[flintmq.Receipt] = []

    async def publish(mq: flintmq.Client) -> None:
        while not done.is_set():
            receipts.extend(await asyncio.gather(*(mq.publish("orders", b"x") for _ in range(20))))

    def has(count: int) -> bool:
        return len(receipts) >= count

    async with flintmq.connect(broker.url) as mq:
        publishing = asyncio.ensure_future(publish(mq))
        for _ in range(3):
            enough = len(receipts) + 40
            await until(partial(has, enough), "nothing is published")
            assert await broker.end(signal.SIGTERM) == 0
            await broker.start()
        done.set()
        await asyncio.wait_for(publishing, 60)
        stats = await mq.topic_stats("orders")
    assert await broker.end(signal.SIGINT) == 0
    assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(stats.message_count))
    assert stats.message_count == len(receipts) > 100
