"""What is published in one turn of the event loop, to whichever topics, is one command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.broker_api import Placed
from flintmq.engine.commands import (
    AdvanceFirstOffset,
    Append,
    Appends,
    Command,
    DeleteTopics,
)
from flintmq.engine.pending import Pending
from flintmq.errors import NotLeader
from flintmq.model import Receipt
from flintmq.testing import SimulatedFileSystem
from tests.engine.stepping import Life, small_sizes

TOPICS = [f"t{number}" for number in range(8)]


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture
async def life() -> Life:
    life = await Life(SimulatedFileSystem()).open()
    for name in TOPICS:
        await life.run(life.broker.create_topic(name, {}))
    return life


class Told:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def applied(self) -> None:
        self.heard.append("applied")

    def failed(self, error: BaseException) -> None:
        self.heard.append(type(error))


def sealed(*values: bytes, producer: str = "", sequence: int = 0) -> Any:
    rows = BatchBuilder.of(list(values))
    return rows.seal(producer=producer or None, base_sequence=sequence)


def in_rows(life: Life, topic: str, *values: bytes, sequence: int, producer: str = "p") -> Any:
    return life.broker.publish_rows_nowait(topic, list(values), None, producer, sequence)


def placed(life: Life, topic: str, *values: bytes, sequence: int) -> Placed:
    found = in_rows(life, topic, *values, sequence=sequence)
    assert isinstance(found, Placed)
    return found


def in_batch(life: Life, topic: str, *values: bytes) -> Pending:
    found = life.broker.publish_nowait(topic, sealed(*values), qos=1, auto_create=False)
    assert isinstance(found, Pending)
    return found


def noted(life: Life) -> list[Command]:
    """The commands that are submitted from now on."""
    log = life.broker.shard.proposer.log
    commands: list[Command] = []
    submit = log.submit

    def submit_noted(command: Command, on_written: Any = None, **how: Any) -> Any:
        commands.append(command)
        return submit(command, on_written, **how)

    log.submit = submit_noted  # type: ignore[method-assign]
    return commands


async def nothing() -> None:
    """A turn, and what follows from it."""


def values(life: Life, topic: str) -> list[bytes]:
    return [value for _, value in life.messages(topic)]


async def test_publishes_to_many_topics_in_one_turn_are_one_command(life: Life) -> None:
    commands = noted(life)

    receipts = await life.do(*(life.publishing(name, b"x") for name in TOPICS))

    assert [receipt.offset for receipt in receipts] == [0] * len(TOPICS)
    assert [type(command) for command in commands] == [Appends]
    assert all(values(life, name) == [b"x"] for name in TOPICS)


async def test_a_batch_that_comes_alone_is_a_plain_append(life: Life) -> None:
    commands = noted(life)

    await life.publish("t0", b"one", b"two")

    assert [type(command) for command in commands] == [Append]


async def test_rows_of_one_turn_become_safe_together_and_are_there_after_a_restart(
    life: Life,
) -> None:
    told = Told()
    found = [placed(life, name, b"a", b"b", sequence=4) for name in TOPICS]
    found[0].shared.waiters.append(told)

    assert {id(one.shared) for one in found} == {id(found[0].shared)}
    assert [one.offset for one in found] == [0] * len(TOPICS)
    assert told.heard == []
    await life.run(nothing())
    await life.run(life.broker.settled())
    assert told.heard == ["applied"]

    after = await Life(life.disk.crash()).open()
    for name in TOPICS:
        assert values(after, name) == [b"a", b"b"]
        repeat = in_rows(after, name, b"a", b"b", sequence=4)
        assert isinstance(repeat, Receipt)
        assert (repeat.offset, repeat.duplicate) == (0, True)


async def test_rows_batches_and_values_keep_the_order_they_were_published_in(life: Life) -> None:
    broker = life.broker
    placed(life, "t0", b"0", sequence=0)
    in_batch(life, "t0", b"1", b"2")
    broker.publish_value_nowait("t0", b"3")
    broker.publish_value_nowait("t0", b"4")
    placed(life, "t0", b"5", sequence=1)
    placed(life, "t1", b"other", sequence=1)
    broker.publish_value_nowait("t0", b"6")
    in_batch(life, "t0", b"7")
    await life.run(broker.settled())

    expected = [b"%d" % number for number in range(8)]
    assert values(life, "t0") == expected
    after = await Life(life.disk.crash()).open()
    assert values(after, "t0") == expected
    assert values(after, "t1") == [b"other"]


async def test_a_row_that_is_sent_again_before_it_is_stored_is_answered_with_the_first(
    life: Life,
) -> None:
    first = placed(life, "t0", b"once", sequence=7)
    in_this_turn = in_rows(life, "t0", b"once", sequence=7)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    on_its_way = in_rows(life, "t0", b"once", sequence=7)
    await life.run(life.broker.settled())

    for repeat in (in_this_turn, on_its_way):
        assert isinstance(repeat, Pending)
        receipt = repeat.result()
        assert (receipt.offset, receipt.duplicate) == (first.offset, True)
    assert values(life, "t0") == [b"once"]


async def test_what_is_decided_behind_a_publish_is_behind_it_in_the_log(life: Life) -> None:
    commands = noted(life)
    await life.publish("t0", b"earlier")
    placed(life, "t0", b"row", sequence=0)
    done = life.topic("t0").purge(None)[1]  # type: ignore[union-attr]
    assert done is not None
    placed(life, "t1", b"row", sequence=0)
    await life.run(life.broker.delete_topic("t1"))

    kinds = [type(command) for command in commands]
    assert kinds == [Append, Appends, AdvanceFirstOffset, Appends, DeleteTopics]
    assert values(life, "t0") == [b"row"]


async def test_what_was_published_and_not_proposed_is_surely_not_done_when_the_lead_ends(
    life: Life,
) -> None:
    told = Told()
    placed(life, "t0", b"row", sequence=0).shared.waiters.append(told)
    batch = in_batch(life, "t1", b"batch")

    life.broker.shard.give_up_lead()

    assert told.heard == [NotLeader]
    assert isinstance(batch.exception(), NotLeader)
    await life.run(life.broker.shard.take_lead())
    assert values(life, "t0") == values(life, "t1") == []
    assert placed(life, "t0", b"row", sequence=0).offset == 0


async def test_a_turn_that_grows_large_is_more_than_one_command(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.engine.publish_turn.TURN_ROWS_MAX", 3)
    commands = noted(life)
    told = [Told() for _ in TOPICS]
    for who, name in zip(told, TOPICS, strict=True):
        placed(life, name, b"x", sequence=0).shared.waiters.append(who)
    await life.run(life.broker.settled())

    assert [len(command.rows) for command in commands if isinstance(command, Appends)] == [3, 3, 2]
    assert all(who.heard == ["applied"] for who in told)


async def test_a_checkpoint_takes_the_rows_that_are_being_joined_and_more_follow(
    life: Life,
) -> None:
    expected = []
    for number in range(13):
        value = b"%d" % number
        placed(life, "t0", value, sequence=number)
        expected.append(value)
        await life.run(life.broker.settled())
        if number % 4 == 1:
            await life.run(life.broker.host.kept[0].checkpoints.checkpoint())
        assert values(life, "t0") == expected

    after = await Life(life.disk.crash()).open()
    assert values(after, "t0") == expected


async def test_rows_are_in_one_record_of_the_journal(life: Life) -> None:
    before = life.broker.shard.proposer.log.index
    for name in TOPICS:
        placed(life, name, b"x", sequence=0)
    await life.run(life.broker.settled())

    assert life.broker.shard.proposer.log.index == before + 1


@pytest.mark.parametrize("reason", ["large", "many"])
async def test_what_is_more_than_a_few_small_rows_goes_as_a_batch(life: Life, reason: str) -> None:
    rows = [b"x" * (1 << 20)] if reason == "large" else [b"x"] * 64

    assert life.broker.publish_rows_nowait("t0", rows, None, "p", 0) is None


@pytest.mark.parametrize("option", [{"ttl": 5}, {"retention_age": 5}, {"format": "json"}])
async def test_rows_of_a_topic_whose_messages_expire_go_the_same_way(
    life: Life, option: dict[str, Any]
) -> None:
    await life.run(life.broker.create_topic("e", option))
    placed(life, "e", b"1", b"2", sequence=0)
    await life.run(life.broker.settled())
    assert values(life, "e") == [b"1", b"2"]

    await life.clock.advance(6)
    await life.run(life.broker.settled())

    assert values(life, "e") == ([b"1", b"2"] if "format" in option else [])


@pytest.mark.parametrize("option", [{"overflow": "reject"}, {"max_message_bytes": 5}])
async def test_rows_that_a_topic_may_refuse_go_as_a_batch(
    life: Life, option: dict[str, Any]
) -> None:
    await life.run(life.broker.create_topic("r", {"retention_count": 5, **option}))

    assert in_rows(life, "r", b"1", sequence=0) is None


async def test_rows_for_a_topic_in_memory_are_stored_at_once(life: Life) -> None:
    await life.run(life.broker.create_topic("m", {"storage": "memory"}))

    receipt = in_rows(life, "m", b"a", b"b", sequence=3)
    repeat = in_rows(life, "m", b"a", b"b", sequence=3)

    assert isinstance(receipt, Receipt)
    assert isinstance(repeat, Receipt)
    assert (receipt.offset, receipt.count, receipt.duplicate) == (0, 2, False)
    assert (repeat.offset, repeat.duplicate) == (0, True)
    assert values(life, "m") == [b"a", b"b"]


async def test_rows_reach_a_live_feed_that_was_opened_while_they_were_on_their_way(
    life: Life,
) -> None:
    placed(life, "t0", b"a", b"b", sequence=0)
    feed = await life.broker.open_feed("t0", capacity=10, overflow="drop_new", filter=None)
    await life.run(life.broker.settled())

    assert [message.value for message in feed.take(10)] == [b"a", b"b"]


async def test_values_that_follow_each_other_in_a_topic_share_their_rows(life: Life) -> None:
    commands = noted(life)
    for topic, value in (("t0", b"0"), ("t0", b"1"), ("t1", b"2"), ("t0", b"3"), ("t0", b"4")):
        assert isinstance(life.broker.publish_value_nowait(topic, value), Pending)
    placed(life, "t0", b"5", sequence=0)
    life.broker.publish_value_nowait("t0", b"6")
    await life.run(life.broker.settled())

    (command,) = commands
    assert isinstance(command, Appends)
    assert [rows[2] for rows in command.rows] == [
        [b"0", b"1"], [b"2"], [b"3", b"4"], [b"5"], [b"6"],
    ]  # fmt: skip
    assert values(life, "t0") == [b"0", b"1", b"3", b"4", b"5", b"6"]
