"""Segments read without a broker, while one works on them and after."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.engine.host import Host
from flintmq.errors import InvalidRequest, MessagesLost
from flintmq.serde.codec import Codec
from flintmq.spark import direct_bounds
from flintmq.spark.source import FlintDataSource
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.testing import ManualClock
from tests.spark.brokers import ThreadedBroker
from tests.spark.readers import column, read_all, schema

pytestmark = pytest.mark.spark


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path / "data")
    yield broker
    broker.end()


def direct(path: Path, *columns: str, **options: str) -> Any:
    if "subscribePattern" not in options:
        options.setdefault("subscribe", "orders")
    return FlintDataSource({"path": str(path), **options}).reader(schema(*columns))


def fill(broker: ThreadedBroker, count: int = 3000, topic: str = "orders") -> None:
    for first in range(0, count, 500):
        broker.publish(topic, *[b"%d" % n for n in range(first, min(count, first + 500))])


def test_what_is_in_segments_is_read_while_a_broker_works_on_them(broker: ThreadedBroker) -> None:
    fill(broker)
    broker.checkpoint()
    broker.publish("orders", b"only in the journal")

    rows = read_all(direct(broker.directory, "value", "offset"))

    assert column(rows, "value") == [b"%d" % n for n in range(3000)]
    assert column(rows, "offset") == list(range(3000))


def test_it_says_up_to_where_it_sees(broker: ThreadedBroker) -> None:
    broker.create("parted", partitions=2)
    fill(broker)
    broker.publish("parted", b"x", b"y", partition=1)
    broker.checkpoint()
    broker.publish("orders", b"only in the journal")

    assert direct_bounds(str(broker.directory)) == {
        "orders": {0: (0, 3000)},
        "parted": {0: (0, 0), 1: (0, 2)},
    }


def test_nothing_is_written_and_nothing_locked(broker: ThreadedBroker, tmp_path: Path) -> None:
    fill(broker)
    broker.checkpoint()

    def state() -> dict[str, tuple[int, int]]:
        """Of every file but the spares, which the broker makes when it gets to it."""
        return {
            str(path): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in broker.directory.rglob("*")
            if path.is_file() and not path.name.startswith("spare-")
        }

    before = state()
    read_all(direct(broker.directory, "value"))

    assert state() == before
    missing = tmp_path / "missing"
    with pytest.raises(InvalidRequest, match="not a directory"):
        direct(missing, "value").partitions()
    assert not missing.exists()


def test_tasks_share_a_topic(broker: ThreadedBroker) -> None:
    fill(broker)
    broker.checkpoint()
    reader = direct(broker.directory, "offset", minPartitions="4")

    parts = reader.partitions()

    assert len(parts) == 4
    assert column(read_all(reader, parts), "offset") == list(range(3000))


def test_offsets_and_times_say_where_to_begin_and_end(broker: ThreadedBroker) -> None:
    fill(broker)
    broker.checkpoint()
    some = direct(
        broker.directory,
        "offset",
        startingOffsets='{"orders": {"0": 700}}',
        endingOffsets='{"orders": {"0": 1300}}',
    )
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    assert column(read_all(some), "offset") == list(range(700, 1300))
    assert read_all(direct(broker.directory, "offset", startingTimestamp=soon)) == []
    assert len(read_all(direct(broker.directory, "offset", startingTimestamp=past))) == 3000
    assert read_all(direct(broker.directory, "offset", endingTimestamp=past)) == []


def test_a_time_between_two_messages_parts_them(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"early")
    moment = datetime.now(UTC) + timedelta(milliseconds=2)
    while datetime.now(UTC) < moment + timedelta(milliseconds=1):
        pass
    broker.publish("orders", b"late")
    broker.checkpoint()
    border = str(round(moment.timestamp() * 1000))

    late = read_all(direct(broker.directory, "value", startingTimestamp=border))
    early = read_all(direct(broker.directory, "value", endingTimestamp=border))

    assert (column(early, "value"), column(late, "value")) == ([b"early"], [b"late"])


def test_partitions_and_patterns_are_read(broker: ThreadedBroker) -> None:
    broker.create("orders.eu", partitions=2)
    broker.publish("orders.eu", b"a", partition=0)
    broker.publish("orders.eu", b"b", partition=1)
    broker.publish("orders.us", b"c")
    broker.publish("other", b"d")
    broker.checkpoint()

    rows = read_all(
        direct(broker.directory, "topic", "partition", "value", subscribePattern="orders.*")
    )

    assert sorted(tuple(row.values()) for row in rows) == [
        ("orders.eu", 0, b"a"),
        ("orders.eu", 1, b"b"),
        ("orders.us", 0, b"c"),
    ]


def test_expired_messages_are_left_out_unless_asked_for(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"stays", b"gone", b"also", ttl=[3600, 0.001, None])
    broker.checkpoint()
    late = datetime.now(UTC) + timedelta(milliseconds=5)
    while datetime.now(UTC) < late:
        pass

    assert column(read_all(direct(broker.directory, "value")), "value") == [b"stays", b"also"]
    every = direct(broker.directory, "value", includeExpired="true")
    assert column(read_all(every), "value") == [b"stays", b"gone", b"also"]


def test_copied_segments_without_a_manifest_are_known_by_id(
    broker: ThreadedBroker, tmp_path: Path
) -> None:
    fill(broker)
    broker.checkpoint()
    copy = tmp_path / "copy"
    copy.mkdir()
    for segment in (broker.directory / "segments").iterdir():
        shutil.copy(segment, copy)
    id = str(broker.run(broker.client.topic_info("orders")).id)

    rows = read_all(direct(copy, "value", "topic", subscribe=id))

    assert column(rows, "value") == [b"%d" % n for n in range(3000)]
    with pytest.raises(InvalidRequest, match=f"it has {id}"):
        direct(copy, "value").partitions()


def test_a_copy_that_lacks_a_segment_is_an_error_not_a_gap(
    broker: ThreadedBroker, tmp_path: Path
) -> None:
    for first in range(0, 3000, 1000):
        broker.publish("orders", *[b"x" * 1000 for _ in range(first, first + 1000)])
        broker.checkpoint()
    copy = tmp_path / "copy"
    shutil.copytree(broker.directory / "segments", copy)
    segments = sorted(copy.iterdir())
    assert len(segments) == 3
    segments[1].unlink()
    id = str(broker.run(broker.client.topic_info("orders")).id)

    with pytest.raises(MessagesLost, match="1,000 messages of topic '1' from offset 1000 on"):
        read_all(direct(copy, "offset", subscribe=id))


def test_what_retention_removes_under_a_read_is_an_error(broker: ThreadedBroker) -> None:
    for _ in range(3):
        broker.publish("orders", *[b"x" * 1000] * 1000)
        broker.checkpoint()
    reader = direct(broker.directory, "offset")
    parts = reader.partitions()
    broker.run(broker.client.configure_topic("orders", retention_count=500))
    broker.publish("orders", b"y")
    broker.checkpoint()
    assert len(list((broker.directory / "segments").glob("*.seg"))) < 4

    with pytest.raises(MessagesLost, match="Retention has removed them"):
        read_all(reader, parts)


def test_segments_that_were_joined_under_a_read_are_found_again(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"a")
    broker.checkpoint()
    reader = direct(broker.directory, "value")
    parts = reader.partitions()
    before = set((broker.directory / "segments").iterdir())
    for _ in range(12):
        broker.publish("orders", b"more")
        broker.checkpoint()
    assert not before & set((broker.directory / "segments").iterdir()), "nothing was joined"

    assert column(read_all(reader, parts), "value") == [b"a"]


def test_a_missing_topic_names_those_that_are_there(broker: ThreadedBroker) -> None:
    fill(broker)
    broker.checkpoint()

    with pytest.raises(InvalidRequest, match=r"no topic 'nowhere' .* it has orders"):
        direct(broker.directory, subscribe="nowhere").partitions()


async def test_topics_of_every_group_are_read(tmp_path: Path) -> None:
    host = Host(LocalFileSystem(tmp_path))
    brokers = [Broker(ManualClock(), host=host, group=group) for group in range(3)]
    await host.open()
    for group, broker in enumerate(brokers):
        client = Client(broker, Codec(), auto_create=True, timeout=30.0)
        await client.publish(f"orders.{group}", b"of group %d" % group)
    await host.checkpoint()

    rows = read_all(direct(tmp_path, "topic", "value", subscribePattern="orders.*"))

    assert sorted(row["topic"] for row in rows) == ["orders.0", "orders.1", "orders.2"]
    assert sorted(row["value"] for row in rows) == [b"of group %d" % n for n in range(3)]
    assert list(direct_bounds(str(tmp_path))) == ["orders.0", "orders.1", "orders.2"]
    late = direct(tmp_path, "value", subscribe="orders.2", startingTimestamp="0")
    assert column(read_all(late), "value") == [b"of group 2"]
    await host.close()


async def test_a_topic_in_two_groups_is_refused_since_only_the_broker_knows_which_one_counts(
    tmp_path: Path,
) -> None:
    host = Host(LocalFileSystem(tmp_path))
    brokers = [Broker(ManualClock(), host=host, group=group) for group in range(2)]
    await host.open()
    for broker in brokers:
        client = Client(broker, Codec(), auto_create=True, timeout=30.0)
        await client.publish("orders", b"x")
    await host.close()

    with pytest.raises(InvalidRequest, match=r"groups 0 and 1 .* Read it through the broker"):
        direct(tmp_path, "value").partitions()
