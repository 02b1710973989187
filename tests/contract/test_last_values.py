"""Compacted topics: the last message of every key stays; a late joiner gets that state first."""

from __future__ import annotations

from typing import Any

import pytest

import flintmq
from flintmq.engine.leading import compacting
from flintmq.testing import ManualClock

from .conftest import Connect


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few messages are enough for a compaction."""
    monkeypatch.setattr(compacting, "LOOK_ROWS", 4)
    monkeypatch.setattr(compacting, "DROP_ROWS_MIN", 4)


async def _all(mq: flintmq.Client, topic: str, **options: Any) -> list[tuple[Any, bytes]]:
    found: list[tuple[Any, bytes]] = []
    async with mq.reader(topic, **options) as reader:
        while rows := await reader.read_batch(1000, timeout=0):
            found += [(message.key, message.value) for message in rows]
    return found


async def _fill(mq: flintmq.Client, updates: int, keys: int = 5) -> dict[str, bytes]:
    state: dict[str, bytes] = {}
    for start in range(0, updates, 10):
        numbers = range(start, min(updates, start + 10))
        values = {f"k{n % keys}": b"%d" % n for n in numbers}
        await mq.publish_batch(
            "prices", [b"%d" % n for n in numbers], key=[f"k{n % keys}" for n in numbers]
        )
        state |= values
    return state


async def test_only_the_last_message_of_each_key_stays(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("prices", compact="key")
    state = await _fill(mq, 200)
    await clock.advance(0)
    rows = await _all(mq, "prices")
    assert dict(rows) == state
    assert len(rows) < 50, "what was superseded is gone"
    assert (await mq.topic_stats("prices")).next_offset == 200, "offsets stay"


async def test_a_late_joiner_gets_the_state_first_and_then_what_follows(
    mq: flintmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "DROP_ROWS_MIN", 10_000)  # nothing goes that is not read yet
    await mq.create_topic("prices", compact="key")
    state = await _fill(mq, 37)
    async with mq.reader("prices", start="last_per_key") as reader:
        first = await reader.read_batch(2)
        state_seen = {message.key: message.value for message in first}
        later = await _fill(mq, 20)
        rows = [*first]
        while got := await reader.read_batch(3, timeout=0):
            rows += got
        offsets = [message.offset for message in rows]
        assert offsets == sorted(set(offsets)), "in order, none twice"
        tail = [message for message in rows if message.offset is not None and message.offset >= 37]
        assert [message.offset for message in tail] == list(range(37, 57)), "all that follows"
        before = [message for message in rows if message not in tail]
        for message in before:
            assert state[message.key] == message.value, "nothing that was superseded"
        for key in state:
            assert key in {message.key for message in before} or key in later
        assert {message.key: message.value for message in rows} == {**state, **later}
        assert state_seen.keys() <= state.keys()


async def test_tombstones_are_left_out_of_the_state_and_go_after_a_day(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("prices", compact="key")
    await mq.publish("prices", b"1", key="a")
    await mq.publish("prices", b"2", key="b")
    await mq.publish("prices", b"", key="a")
    assert await _all(mq, "prices", start="last_per_key") == [("b", b"2")]
    await _fill(mq, 40)
    await clock.advance(0)
    assert ("a", b"") in await _all(mq, "prices"), "who follows the topic sees it"
    await clock.advance(24 * 3600 + 1)
    await _fill(mq, 40)
    await clock.advance(0)
    assert "a" not in dict(await _all(mq, "prices"))
    assert dict(await _all(mq, "prices", start="last_per_key"))["b"] == b"2"


async def test_what_a_queue_group_has_not_settled_is_kept(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("prices", compact="key")
    await mq.poll("prices", "slow", max=1, wait=0)
    state = await _fill(mq, 100)
    await clock.advance(0)
    assert len(await _all(mq, "prices")) == 100
    values: list[bytes] = []
    while found := await mq.poll("prices", "slow", max=30, wait=0):
        values += found.values
        await mq.ack(found)
    assert values == [b"%d" % n for n in range(100)]
    state |= await _fill(mq, 30)
    await clock.advance(0)
    rows = await _all(mq, "prices")
    assert len(rows) < 60
    assert dict(rows) == state


async def test_a_message_without_a_key_stays(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("prices", compact="key")
    await mq.publish("prices", b"note")
    await _fill(mq, 100)
    await clock.advance(0)
    assert (None, b"note") in await _all(mq, "prices")


async def test_a_topic_can_be_compacted_later_and_no_longer(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("prices")
    with pytest.raises(flintmq.InvalidRequest, match="compact='key'"):
        await mq.reader("prices", start="last_per_key")
    state = await _fill(mq, 100)
    await mq.configure_topic("prices", compact="key")
    assert dict(await _all(mq, "prices", start="last_per_key")) == state
    await _fill(mq, 10)
    await clock.advance(0)
    assert len(await _all(mq, "prices")) < 60
    await mq.configure_topic("prices", compact=None)
    await _fill(mq, 100)
    await clock.advance(0)
    assert len(await _all(mq, "prices")) > 100


async def test_partitions_are_compacted_each(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("prices", compact="key", partitions=3)
    state = await _fill(mq, 300, keys=12)
    await clock.advance(0)
    found = await _all(mq, "prices", start="last_per_key")
    assert dict(found) == state
    assert len(found) == len(state), "each key once"


@pytest.mark.parametrize(
    "options",
    [{"retention_count": 5}, {"overflow": "reject"}, {"keep_until_settled": True}],
    ids=str,
)
async def test_limits_that_would_break_the_promise_are_refused(
    connect: Connect, options: dict[str, Any]
) -> None:
    async with connect() as mq:
        with pytest.raises(flintmq.InvalidRequest, match="compact='key'"):
            await mq.create_topic("prices", compact="key", **options)
        with pytest.raises(flintmq.InvalidRequest, match="compact must be 'key'"):
            await mq.create_topic("prices", compact="value")  # type: ignore[arg-type]


async def test_a_filter_sees_the_state_and_what_follows(mq: flintmq.Client) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    for n in range(20):
        await mq.publish("prices", {"n": n}, key=f"k{n % 4}")
    async with mq.reader("prices", start="last_per_key", filter="value.n > 17") as reader:
        assert (await reader.read_batch(10, timeout=0)).decode() == [{"n": 18}, {"n": 19}]
        await mq.publish_batch("prices", [{"n": 3}, {"n": 30}], key=["k0", "k1"])
        assert (await reader.read_batch(10)).decode() == [{"n": 30}]
