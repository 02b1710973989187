"""A stream against a real broker: the calls that Spark makes, in its order, and in bad order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from flintmq.errors import (
    FlintError,
    InvalidRequest,
    MessagesLost,
    TopicNotFound,
    TopicReplaced,
)
from flintmq.spark.connecting import BrokerLine, close_lines, line_to
from flintmq.spark.planning import extents
from tests.spark.brokers import ThreadedBroker
from tests.spark.readers import column, read_all, stream_reader

pytestmark = pytest.mark.spark

ALL = ReadAllAvailable()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path / "data")
    yield broker
    close_lines()
    broker.end()


@pytest.fixture
def url(broker: ThreadedBroker) -> str:
    return broker.url


def earliest(url: str, **options: str) -> Any:
    if "subscribePattern" not in options:
        options.setdefault("subscribe", "orders")
    options.setdefault("startingOffsets", "earliest")
    return stream_reader(url, "topic", "partition", "offset", "value", **options)


def latest(url: str, **options: str) -> Any:
    options.setdefault("group", "query")
    return earliest(url, startingOffsets="latest", **options)


def as_kept(offset: dict[str, Any]) -> dict[str, Any]:
    """A position as a checkpoint gives it back."""
    return dict(json.loads(json.dumps(offset)))


def next_batch(reader: Any, start: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """One micro-batch: where it ended, and what it brought."""
    end = as_kept(reader.latestOffset(start, reader.getDefaultReadLimit()))
    if end == start:
        return end, []
    return end, column(read_all(reader, reader.partitions(start, end)), "value")


# --- batches follow each other


def test_batches_follow_each_other_without_a_gap(broker: ThreadedBroker, url: str) -> None:
    reader = earliest(url)
    broker.publish("orders", b"1", b"2")
    start = as_kept(reader.initialOffset())

    end, first = next_batch(reader, start)
    broker.publish("orders", b"3")
    reader.commit(end)
    _, second = next_batch(reader, end)

    assert (first, second) == ([b"1", b"2"], [b"3"])


def test_nothing_new_is_the_very_same_text(broker: ThreadedBroker, url: str) -> None:
    broker.create("orders", partitions=12)
    broker.publish("orders", b"1", partition=11)
    reader = earliest(url)
    start = as_kept(reader.initialOffset())
    end = reader.latestOffset(start, ALL)

    # Another process, and the keys in another order than they were written in.
    mixed = {
        topic: {"next": dict(reversed(at["next"].items())), "id": at["id"]}
        for topic, at in as_kept(end).items()
    }

    assert json.dumps(earliest(url).latestOffset(mixed, ALL)) == json.dumps(end)


def test_a_new_topic_without_messages_makes_no_batch(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders.a", b"1")
    reader = earliest(url, subscribePattern="orders.*")
    start = as_kept(reader.initialOffset())
    end = as_kept(reader.latestOffset(start, ALL))

    broker.create("orders.b")

    assert json.dumps(reader.latestOffset(end, ALL)) == json.dumps(end)


def test_an_idle_stream_waits_a_moment_and_hears_of_what_comes(
    broker: ThreadedBroker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish("orders", b"1")
    reader = earliest(url)
    end = as_kept(reader.latestOffset(as_kept(reader.initialOffset()), ALL))

    before = time.monotonic()
    assert reader.latestOffset(end, ALL) == end
    assert time.monotonic() - before >= 0.2, "it did not wait"

    monkeypatch.setattr("flintmq.spark.stream_reader.POLL_SECONDS", 60.0)
    later = threading.Timer(0.05, broker.publish, ["orders", b"2"])
    later.start()
    assert reader.latestOffset(end, ALL) != end, "it was not woken"
    later.join()


def test_a_stream_that_is_to_stop_offers_nothing_more(
    broker: ThreadedBroker, url: str, tmp_path: Path
) -> None:
    broker.publish("orders", b"1")
    reader = earliest(url, stopFile=str(tmp_path / "stop"))
    end, values = next_batch(reader, as_kept(reader.initialOffset()))
    broker.publish("orders", b"2")
    (tmp_path / "stop").touch()

    assert (values, reader.latestOffset(end, ALL)) == ([b"1"], end)
    (tmp_path / "stop").unlink()
    assert next_batch(reader, end)[1] == [b"2"]


def test_a_wide_topic_is_read_by_few_requests_and_shows_its_lag(
    broker: ThreadedBroker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("orders", partitions=200)
    for number in range(0, 200, 2):
        broker.publish("orders", b"%d" % number, partition=number)
    reader = earliest(url, group="query")
    asked: list[object] = []
    begin = BrokerLine.begin

    def counted(line: BrokerLine, work: Any) -> Any:
        asked.append(work)
        return begin(line, work)

    monkeypatch.setattr(BrokerLine, "begin", counted)
    start = as_kept(reader.initialOffset())

    end, values = next_batch(reader, start)
    assert sorted(values) == sorted(b"%d" % number for number in range(0, 200, 2))
    reader.commit(end)
    reader.latestOffset(end, ReadMaxRows(1))

    assert len(asked) < 20, "not one for each partition"
    line = line_to(reader._options.settings)
    assert line.run(line.broker.group_stats("orders", "query")).lag == 0


# --- new topics and partitions


def test_new_topics_of_a_pattern_are_read_from_their_beginning(
    broker: ThreadedBroker, url: str
) -> None:
    reader = latest(url, subscribePattern="orders.*")
    broker.publish("orders.a", b"old")
    start = as_kept(reader.initialOffset())
    broker.publish("orders.b", b"new")

    end, rows = next_batch(reader, start)

    assert rows == [b"new"]
    assert sorted(end) == ["orders.a", "orders.b"]


def test_new_partitions_are_read_from_their_beginning(broker: ThreadedBroker, url: str) -> None:
    broker.create("orders", partitions=1)
    broker.publish("orders", b"1", partition=0)
    reader = earliest(url)
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    broker.run(broker.client.configure_topic("orders", partitions=2))
    broker.publish("orders", b"2", partition=1)

    _, rows = next_batch(reader, end)

    assert rows == [b"2"]


def test_a_pattern_that_matches_nothing_yet_waits(broker: ThreadedBroker, url: str) -> None:
    reader = earliest(url, subscribePattern="orders.*")
    start = as_kept(reader.initialOffset())
    assert start == {}
    assert reader.latestOffset(start, ALL) == {}
    broker.publish("orders.a", b"1")

    assert next_batch(reader, start)[1] == [b"1"]


# --- the traps that lose messages without a word


def test_the_start_is_the_same_however_often_it_is_asked_for(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", b"old")
    reader = latest(url)
    first = reader.initialOffset()

    broker.publish("orders", b"new")

    assert reader.initialOffset() == first
    assert next_batch(reader, as_kept(reader.initialOffset()))[1] == [b"new"]


def test_a_restart_before_the_first_batch_is_done_begins_where_it_began(
    broker: ThreadedBroker, url: str
) -> None:
    """Batch 0 is in the log and was never committed: Spark asks for the start anew."""
    broker.publish("orders", b"old")
    reader = latest(url)
    start = as_kept(reader.initialOffset())
    broker.publish("orders", b"1", b"2")
    end = as_kept(reader.latestOffset(start, ALL))
    close_lines()  # the process is gone
    broker.publish("orders", *[b"more"] * 50)

    again = latest(url)

    assert as_kept(again.initialOffset()) == start
    parts = again.partitions(as_kept(again.initialOffset()), end)
    assert column(read_all(again, parts), "value") == [b"1", b"2"]


def test_a_pinned_start_survives_a_restart_of_the_broker(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", b"old")
    start = as_kept(latest(url).initialOffset())
    close_lines()
    broker.publish("orders", b"1")
    broker.stop()
    broker.start()

    assert as_kept(latest(url).initialOffset()) == start


def test_a_topic_that_came_before_the_restart_is_still_read_from_its_beginning(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders.a", b"old")
    reader = latest(url, subscribePattern="orders.*")
    start = as_kept(reader.initialOffset())
    broker.publish("orders.b", b"new")
    end = as_kept(reader.latestOffset(start, ALL))
    close_lines()
    broker.publish("orders.b", b"newer")

    again = latest(url, subscribePattern="orders.*")
    parts = again.partitions(as_kept(again.initialOffset()), end)

    assert column(read_all(again, parts), "value") == [b"new"]


def test_once_the_first_batch_is_done_a_new_query_looks_its_start_up_anew(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", b"old")
    reader = latest(url)
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    broker.publish("orders", b"1")
    end, _ = next_batch(reader, end)
    reader.commit(end)
    close_lines()
    broker.publish("orders", b"2", b"3")

    assert as_kept(latest(url).initialOffset())["orders"]["next"] == {"0": 4}
    names = {group.name for group in broker.run(broker.client.groups("orders"))}
    assert "query" in names


def test_a_batch_that_would_start_behind_its_end_is_an_error(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", *[b"x"] * 10)
    reader = earliest(url)
    at = as_kept(reader.latestOffset(as_kept(reader.initialOffset()), ALL))
    before = as_kept(at)
    before["orders"]["next"]["0"] = 5

    with pytest.raises(InvalidRequest, match="would be lost"):
        reader.partitions(at, before)


def test_a_head_that_goes_back_is_not_reported(broker: ThreadedBroker, url: str) -> None:
    """A broker that lost its newest messages, or a follower that is behind for a moment."""
    broker.publish("orders", *[b"x"] * 10)
    reader = earliest(url)
    start = as_kept(reader.latestOffset(as_kept(reader.initialOffset()), ALL))
    beyond = as_kept(start)
    beyond["orders"]["next"]["0"] = 12

    assert reader.latestOffset(beyond, ALL) == beyond
    assert reader.reportLatestOffset()["orders"]["next"]["0"] == 10


def test_a_head_that_was_seen_stays_for_the_next_look(
    broker: ThreadedBroker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish("orders", *[b"x"] * 10)
    reader = earliest(url)
    start = as_kept(reader.initialOffset())
    end = reader.latestOffset(start, ALL)

    def shorter(*arguments: Any, **keywords: Any) -> Any:
        return {
            name: [replace(part, next_offset=6) for part in parts]
            for name, parts in extents(*arguments, **keywords).items()
        }

    monkeypatch.setattr("flintmq.spark.stream_reader.extents", shorter)

    assert reader.latestOffset(start, ALL) == end
    assert reader.reportLatestOffset() == end


def test_a_topic_made_anew_is_an_error_that_says_so(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", b"1", b"2")
    reader = earliest(url)
    end = as_kept(reader.latestOffset(as_kept(reader.initialOffset()), ALL))
    broker.run(broker.client.delete_topic("orders"))
    broker.publish("orders", b"another", b"topic", b"now")

    with pytest.raises(TopicReplaced, match="deleted and created again"):
        reader.latestOffset(end, ALL)
    with pytest.raises(TopicReplaced):
        reader.partitions(end, end)

    lenient = earliest(url, failOnDataLoss="false")
    assert next_batch(lenient, end)[1] == [b"another", b"topic", b"now"]


def test_a_topic_that_is_gone_is_an_error_unless_it_may_be(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders.a", b"1")
    broker.publish("orders.b", b"2")
    reader = earliest(url, subscribePattern="orders.*")
    end = as_kept(reader.latestOffset(as_kept(reader.initialOffset()), ALL))
    broker.run(broker.client.delete_topic("orders.b"))
    broker.publish("orders.a", b"3")

    with pytest.raises(
        TopicNotFound, match=r"deleted while the query ran. Start with a new checkpoint"
    ):
        reader.latestOffset(end, ALL)
    lenient = earliest(url, subscribePattern="orders.*", failOnDataLoss="false")
    assert next_batch(lenient, end)[1] == [b"3"]


def test_retention_that_passes_the_checkpoint_is_an_error_unless_it_may(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", *[b"%d" % n for n in range(10)])
    reader = earliest(url, maxOffsetsPerTrigger="2")
    start, _ = next_batch(reader, as_kept(reader.initialOffset()))
    broker.run(broker.client.configure_topic("orders", retention_count=3))
    broker.publish("orders", b"10")
    end = as_kept(reader.latestOffset(start, ALL))

    with pytest.raises(MessagesLost, match="6 messages of topic 'orders' from offset 2"):
        reader.partitions(start, end)
    lenient = earliest(url, failOnDataLoss="false")
    rows = read_all(lenient, lenient.partitions(start, end))
    assert column(rows, "value") == [b"8", b"9", b"10"]


def test_a_topic_that_is_not_subscribed_to_any_more_is_not_said_to_be_gone(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", b"1")
    broker.publish("bills", b"2")
    reader = earliest(url, subscribe="orders,bills")
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))

    with pytest.raises(InvalidRequest, match="'bills', which is no longer subscribed to"):
        earliest(url, subscribe="orders").latestOffset(end, ALL)


def test_a_named_topic_that_is_gone_may_come_back_where_loss_is_allowed(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", b"1")
    reader = earliest(url, failOnDataLoss="false")
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    broker.run(broker.client.delete_topic("orders"))

    end, rows = next_batch(reader, end)
    assert rows == []
    broker.publish("orders", b"2")
    assert next_batch(reader, end)[1] == [b"2"]
    with pytest.raises(TopicNotFound):
        earliest(url, subscribe="never.there", failOnDataLoss="false").initialOffset()


def test_retention_that_passes_a_first_batch_that_was_not_done_is_loss_and_may_be_allowed(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", b"0", b"1", b"2")
    reader = earliest(url)
    end = as_kept(reader.latestOffset(as_kept(reader.initialOffset()), ALL))
    broker.run(broker.client.configure_topic("orders", retention_count=1))
    broker.publish("orders", *[b"%d" % n for n in range(3, 10)])

    again = earliest(url)
    with pytest.raises(MessagesLost):
        again.partitions(as_kept(again.initialOffset()), end)
    lenient = earliest(url, failOnDataLoss="false")
    parts = lenient.partitions(as_kept(lenient.initialOffset()), end)
    assert read_all(lenient, parts) == []
    assert next_batch(lenient, end)[1] == [b"9"]


def test_what_expired_was_not_lost(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", *[b"x"] * 5, ttl=0.001)
    broker.publish("orders", b"stays")
    while broker.run(broker.client.topic_stats("orders")).first_offset < 5:
        pass
    reader = earliest(url, startingOffsets='{"orders": {"0": 0}}')

    assert next_batch(reader, as_kept(reader.initialOffset()))[1] == [b"stays"]


def test_a_batch_that_is_run_again_reads_the_same(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", b"1", b"2")
    reader = earliest(url)
    start = as_kept(reader.initialOffset())
    end = as_kept(reader.latestOffset(start, ALL))
    broker.publish("orders", b"3")
    close_lines()

    again = earliest(url)

    rows = read_all(again, again.partitions(start, end))
    assert column(rows, "value") == [b"1", b"2"]


# --- limits


def test_a_limit_in_rows_is_kept_and_shared_out(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders.a", *[b"a"] * 90)
    broker.publish("orders.b", *[b"b"] * 10)
    reader = earliest(url, subscribePattern="orders.*", maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    at = as_kept(reader.initialOffset())
    counts = []

    for _ in range(5):
        at, rows = next_batch(reader, at)
        counts.append((rows.count(b"a"), rows.count(b"b")))

    assert counts[0] == (18, 2)
    assert [sum(pair) for pair in counts] == [20] * 5


def test_a_limit_in_bytes_is_about_kept(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", *[b"x" * 1000] * 100)
    reader = earliest(url, maxBytesPerTrigger="10k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(10 * 1024)

    _, rows = next_batch(reader, as_kept(reader.initialOffset()))

    assert 5 <= len(rows) <= 11


def test_so_many_messages_are_waited_for_but_not_for_ever(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", b"1")
    patient = earliest(url, minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    hasty = earliest(url, minOffsetsPerTrigger="3", maxTriggerDelay="0ms")
    start = as_kept(patient.initialOffset())
    limit = patient.getDefaultReadLimit()
    assert limit == ReadMinRows(3)

    assert patient.latestOffset(start, limit) == start
    assert hasty.latestOffset(start, limit) != start
    broker.publish("orders", b"2", b"3")
    assert patient.latestOffset(start, limit) != start


def test_waiting_for_more_messages_does_not_keep_the_broker_busy(
    broker: ThreadedBroker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish("orders", b"1")
    reader = earliest(url, minOffsetsPerTrigger="3")
    start = as_kept(reader.initialOffset())
    waits: list[float] = []

    async def waited(offsets: Any, timeout: float) -> bool:
        waits.append(timeout)
        return False

    monkeypatch.setattr(reader._line.broker, "wait_beyond", waited)

    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert waits == [0.25]


def test_a_group_that_is_a_queue_is_refused_in_one_sentence(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", b"1")
    broker.run(broker.client.poll("orders", "query", max=1))

    with pytest.raises(FlintError, match="query"):
        latest(url).latestOffset(as_kept(latest(url).initialOffset()), ALL)


def test_options_that_make_no_stream_are_said_whatever_spark_asks_first(url: str) -> None:
    refused = stream_reader(url, subscribe="orders", startingOffset="earliest")

    for ask in (
        refused.initialOffset,
        refused.prepareForTriggerAvailableNow,
        refused.getDefaultReadLimit,
        lambda: refused.latestOffset({}, ALL),
        lambda: refused.partitions({}, {}),
        lambda: refused.commit({}),
    ):
        with pytest.raises(InvalidRequest, match="did you mean startingOffsets"):
            ask()
    refused.stop()


def test_available_now_reads_what_was_there_in_limited_batches(
    broker: ThreadedBroker, url: str
) -> None:
    broker.publish("orders", *[b"x"] * 25)
    reader = earliest(url, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    reader.prepareForTriggerAvailableNow()
    broker.publish("orders", *[b"later"] * 5)
    broker.publish("orders.new", b"later")
    at = as_kept(reader.initialOffset())
    sizes = []

    before = time.monotonic()
    while True:
        after, rows = next_batch(reader, at)
        if after == at:
            break
        at = after
        sizes.append(len(rows))
        assert b"later" not in rows

    assert sizes == [10, 10, 5]
    assert time.monotonic() - before < 60


def test_available_now_does_not_wait_for_more(broker: ThreadedBroker, url: str) -> None:
    broker.create("orders")
    reader = earliest(url)
    reader.prepareForTriggerAvailableNow()
    waited: list[Any] = []
    reader._wait = waited.append

    assert reader.latestOffset(as_kept(reader.initialOffset()), ALL) == reader.initialOffset()
    assert waited == []


# --- what the broker sees


def test_the_broker_shows_where_the_query_is(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", *[b"x"] * 10)
    reader = earliest(url, group="billing", maxOffsetsPerTrigger="4")
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    stats = broker.run(broker.client.group_stats("orders", "billing"))
    assert (stats.position, stats.lag, stats.members) == (0, 10, 1)

    reader.commit(end)
    stats = broker.run(broker.client.group_stats("orders", "billing"))

    assert (stats.kind, stats.position, stats.lag) == ("cursor", 4, 6)
    reported = reader.reportLatestOffset()
    assert reported["orders"]["next"]["0"] - end["orders"]["next"]["0"] == 6


def test_an_idle_query_shows_no_lag_although_spark_says_nothing(
    broker: ThreadedBroker, url: str
) -> None:
    """Spark says that a batch is done when it begins the next; of the last one it says nothing."""
    broker.publish("orders", *[b"x"] * 10)
    reader = earliest(url, group="billing")
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    assert broker.run(broker.client.group_stats("orders", "billing")).lag == 10

    assert reader.latestOffset(end, ALL) == end

    assert broker.run(broker.client.group_stats("orders", "billing")).lag == 0


def test_a_query_without_a_group_is_seen_while_it_runs(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", *[b"x"] * 10)
    reader = earliest(url)
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    reader.commit(end)

    assert list(broker.run(broker.client.topic_stats("orders")).lag.values()) == [0]
    assert broker.run(broker.client.groups("orders")) == []
    close_lines()
    assert broker.run(broker.client.topic_stats("orders")).lag == {}


def test_a_broker_that_cannot_be_told_of_progress_does_not_end_the_query(
    broker: ThreadedBroker, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.publish("orders", b"1")
    reader = earliest(url, group="billing", brokerTimeout="100ms")
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    broker.stop()

    reader.commit(end)

    assert "could not report the position of the query" in caplog.text
    broker.start()


def test_a_broker_restart_is_survived(broker: ThreadedBroker, url: str) -> None:
    broker.publish("orders", b"1")
    reader = earliest(url, group="billing")
    end, _ = next_batch(reader, as_kept(reader.initialOffset()))
    broker.stop()
    broker.start()
    broker.publish("orders", b"2")

    reader.commit(end)
    _, rows = next_batch(reader, end)

    assert rows == [b"2"]
    stats = broker.run(broker.client.group_stats("orders", "billing"))
    assert stats.position == 1
