"""An outbox: what is published while the broker is away is kept, and sent in order, once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.client import outbox as outboxes
from flintmq.client import outbox_line
from flintmq.net.server.native import NativeServer
from flintmq.testing import ManualClock
from tests.patience import PATIENCE_SECONDS, free_port

from .outbox_kill_rounds import OutboxRounds
from .proxy import Proxy


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(outboxes, "BACKOFF_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(outbox_line, "PAUSE_SECONDS", (0.001, 0.01))


@pytest.fixture
async def direct(server: NativeServer, proxy: Proxy) -> AsyncIterator[flintmq.Client]:
    """The broker, by a connection that is never away."""
    host, port = proxy._target
    async with flintmq.connect(f"flint://{host}:{port}") as mq:
        yield mq


def device(url: str, directory: Path, **options: Any) -> flintmq.Client:
    return flintmq.connect(url, outbox=directory, fsync="never", **options)


async def sent(mq: flintmq.Client) -> None:
    assert await mq.flush_outbox(PATIENCE_SECONDS)


async def values(mq: flintmq.Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    async with mq.reader(topic) as reader:
        while rows := await reader.read_batch(timeout=0):
            found += rows.values
    return found


async def test_what_is_published_while_the_broker_is_away_is_sent_in_order_when_it_is_back(
    url: str, proxy: Proxy, direct: flintmq.Client, tmp_path: Path
) -> None:
    proxy.refusing = True
    async with device(url, tmp_path / "outbox") as mq:
        for number in range(50):
            receipt = await mq.publish("readings", b"%d" % number)
            assert receipt.durability == "queued"
            offset: int | None = receipt.offset
            assert offset is None
        await mq.publish_batch("readings", [b"%d" % number for number in range(50, 100)])
        async with mq.publisher("readings") as publisher:
            for number in range(100, 150):
                publisher.send(b"%d" % number)
        stats = await mq.outbox_stats()
        assert (stats.messages, stats.sent, stats.is_connected) == (150, 0, False)
        assert stats.last_error is not None
        assert not await mq.flush_outbox(0)
        proxy.refusing = False
        await sent(mq)
        assert await values(direct, "readings") == [b"%d" % number for number in range(150)]
        stats = await mq.outbox_stats()
        assert (stats.messages, stats.bytes, stats.sent, stats.last_error) == (0, 0, 150, None)
        assert stats.is_connected


async def test_what_was_not_sent_is_sent_by_the_next_connection_with_the_directory(
    url: str, direct: flintmq.Client, tmp_path: Path
) -> None:
    away = f"flint://127.0.0.1:{free_port()}"
    for number in range(3):
        async with device(away, tmp_path) as mq:
            assert (await mq.outbox_stats()).messages == 2 * number
            await mq.publish_batch("readings", [b"%d" % number, b"more"], key="k")
    async with device(url, tmp_path) as mq:
        await sent(mq)
    assert await values(direct, "readings") == [b"0", b"more", b"1", b"more", b"2", b"more"]


async def test_a_device_that_forgot_what_it_had_sent_sends_it_again_and_nothing_is_doubled(
    url: str, direct: flintmq.Client, tmp_path: Path
) -> None:
    away = f"flint://127.0.0.1:{free_port()}"
    async with device(away, tmp_path / "first") as mq:
        await mq.publish_batch("readings", [b"%d" % number for number in range(100)])
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    async with device(url, tmp_path / "first") as mq:
        await sent(mq)  # the broker has 100; then the device is killed before it knows
    async with device(away, tmp_path / "second") as mq:
        await mq.publish_batch("readings", [b"%d" % number for number in range(100, 170)])
    async with device(url, tmp_path / "second") as mq:
        await sent(mq)
        assert (await mq.outbox_stats()).refused == 0
    assert await values(direct, "readings") == [b"%d" % number for number in range(170)]


async def test_connections_that_are_cut_lose_and_double_nothing(
    url: str, proxy: Proxy, direct: flintmq.Client, tmp_path: Path
) -> None:
    async with device(url, tmp_path) as mq:
        for number in range(60):
            if number % 6 == 0:
                proxy.cut_at = ("up" if number % 12 else "down", 700 + 37 * number)
            await mq.publish_batch("readings", [b"%d-%d" % (number, n) for n in range(20)])
            await asyncio.sleep(0)
        await sent(mq)
    assert await values(direct, "readings") == [
        b"%d-%d" % (number, n) for number in range(60) for n in range(20)
    ]
    assert proxy.cuts > 0


async def test_a_full_outbox_says_so_and_takes_more_once_it_is_sent(
    url: str, proxy: Proxy, direct: flintmq.Client, tmp_path: Path
) -> None:
    proxy.refusing = True
    async with device(url, tmp_path, outbox_bytes_max=10_000) as mq:
        for _ in range(9):
            await mq.publish("readings", b"x" * 1000)
        with pytest.raises(flintmq.OutboxFull, match="outbox_bytes_max") as raised:
            await mq.publish("readings", b"x" * 1000)
        assert raised.value.bytes_max == 10_000
        proxy.refusing = False
        await sent(mq)
        await mq.publish("readings", b"y")
        await sent(mq)
    assert await values(direct, "readings") == [b"x" * 1000] * 9 + [b"y"]


async def test_a_message_that_will_never_be_taken_is_laid_aside_and_the_others_go_on(
    url: str, direct: flintmq.Client, tmp_path: Path
) -> None:
    await direct.create_topic("readings", max_message_bytes=100)
    async with device(url, tmp_path) as mq:
        await mq.publish_batch("readings", [b"a", b"b", b"c" * 200, b"d"])
        await mq.publish("readings", b"e")
        await sent(mq)
        stats = await mq.outbox_stats()
        assert (stats.refused, stats.messages) == (1, 0)
    assert await values(direct, "readings") == [b"a", b"b", b"d", b"e"]
    async with flintmq.connect(f"file://{tmp_path}") as kept:
        async with kept.reader(outboxes.REFUSED) as reader:
            message = await reader.read()
        assert message.value == b"c" * 200
        assert message.headers["outbox-topic"] == "readings"
        assert "100" in str(message.headers["outbox-error"])


async def test_everything_of_a_message_arrives_and_its_time_to_live_counts_from_publishing(
    url: str, direct: flintmq.Client, tmp_path: Path
) -> None:
    async with device(f"flint://127.0.0.1:{free_port()}", tmp_path) as mq:
        await mq.publish(
            "readings", {"n": 1}, key="k", headers={"a": "b"}, priority=3, ttl=3600, delay=1800
        )
    async with device(url, tmp_path) as mq:
        await sent(mq)
    async with direct.reader("readings") as reader:
        message = await reader.read()
    assert (message.decode(), message.key, message.headers) == ({"n": 1}, "k", {"a": "b"})
    assert message.priority == 3
    assert message.expires_at is not None
    assert message.deliver_at is not None
    assert 1799 < message.expires_at - message.deliver_at < 1801
    assert message.expires_at < message.timestamp + 3600 + 0.001


async def test_what_expires_on_the_device_is_not_sent_and_does_not_fill_the_outbox(
    url: str, proxy: Proxy, direct: flintmq.Client, tmp_path: Path
) -> None:
    proxy.refusing = True
    clock = ManualClock()
    async with device(url, tmp_path, clock=clock) as mq:
        await mq.publish_batch("readings", [b"x" * 100] * 20, ttl=5)
        await mq.publish("readings", b"stays")
        await mq.publish_batch("readings", [b"x" * 100] * 20, ttl=5)
        assert (await mq.outbox_stats()).messages == 41
        await clock.advance(6)
        proxy.refusing = False
        await sent(mq)
        stats = await mq.outbox_stats()
        assert (stats.messages, stats.bytes, stats.sent) == (0, 0, 1)
    assert await values(direct, "readings") == [b"stays"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_keys_find_their_partition_and_keep_their_order_though_it_was_not_known(
    url: str, direct: flintmq.Client, tmp_path: Path, is_known: bool
) -> None:
    away = f"flint://127.0.0.1:{free_port()}"
    await direct.create_topic("readings", partitions=3)
    if is_known:
        async with device(url, tmp_path) as mq:
            await mq.publish("readings", b"first", key="k0")
            await sent(mq)
    async with device(away, tmp_path) as mq:
        for number in range(200):
            await mq.publish("readings", b"%d" % number, key=f"k{number % 7}")
    async with device(url, tmp_path) as mq:
        for number in range(200, 300):
            await mq.publish("readings", b"%d" % number, key=f"k{number % 7}")
        await sent(mq)
    by_key: dict[Any, list[int]] = {}
    where: dict[Any, set[int]] = {}
    async with direct.reader("readings") as reader:
        while rows := await reader.read_batch(timeout=0):
            for message in rows:
                where.setdefault(message.key, set()).add(message.partition)
                if message.value != b"first":
                    by_key.setdefault(message.key, []).append(int(message.value))
    assert by_key == {f"k{n}": list(range(n, 300, 7)) for n in range(7)}
    assert all(len(partitions) == 1 for partitions in where.values())


async def test_reading_needs_the_broker_and_says_so_while_it_is_away(
    url: str, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.refusing = True
    async with device(url, tmp_path, timeout=0.05) as mq:
        with pytest.raises(flintmq.Disconnected) as raised:
            await mq.topics()
        assert str(raised.value).count("no connection to") == 1
        proxy.refusing = False
        await mq.publish("readings", b"x")
        await sent(mq)
        assert await mq.topics() == ["readings"]
        assert await values(mq, "readings") == [b"x"]


async def test_what_an_outbox_cannot_do_is_refused_with_the_reason(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="flint://"):
        flintmq.connect("memory://", outbox=tmp_path)
    async with flintmq.connect("memory://") as mq:
        with pytest.raises(flintmq.InvalidRequest, match="outbox=DIRECTORY"):
            await mq.outbox_stats()
    async with device(url, tmp_path) as mq:
        with pytest.raises(flintmq.InvalidRequest, match="producer and sequence"):
            await mq.publish("readings", b"x", producer="p", sequence=1)
        with pytest.raises(flintmq.InvalidRequest, match="topic"):
            await mq.publish("not a name >", b"x")
        with pytest.raises(flintmq.DataDirectoryInUse):
            await device(url, tmp_path)


def test_without_an_event_loop_it_is_the_same(tmp_path: Path) -> None:
    away = f"flint://127.0.0.1:{free_port()}"
    with flintmq.connect_sync(away, outbox=tmp_path, fsync="never") as mq:
        assert mq.publish("readings", b"x").durability == "queued"
        assert mq.outbox_stats().messages == 1
        assert not mq.flush_outbox(0.01)
    with flintmq.connect_sync(away, outbox=tmp_path, fsync="never") as mq:
        assert mq.outbox_stats().messages == 1


@pytest.mark.slow
async def test_a_device_and_a_broker_that_are_killed_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    rounds = OutboxRounds(tmp_path, seed=4, most_seconds=0.6)
    result = await rounds.run(2)
    assert not result.faults, str(result)
    assert result.device_kills == 2


@pytest.mark.slow
async def test_a_device_and_the_leader_of_three_nodes_that_are_killed_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    rounds = OutboxRounds(tmp_path, seed=3, most_seconds=0.5, cluster=True)
    result = await rounds.run(1)
    assert not result.faults, str(result)
    assert result.broker_kills == 1
