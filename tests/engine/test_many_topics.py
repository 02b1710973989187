"""Topics that are made by the first publish, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.engine import topic_verbs
from flintmq.engine.broker import Broker
from flintmq.engine.commands import Command, CreateTopics
from flintmq.errors import InvalidRequest
from flintmq.loop.pace import Allowance
from flintmq.model import Receipt
from flintmq.testing import ManualClock, SimulatedFileSystem

from .stepping import Life


def first_publish(life: Life, topic: str) -> Coroutine[Any, Any, Receipt]:
    rows = BatchBuilder()
    rows.append(topic.encode())
    return life.broker.publish(topic, rows, qos=1, auto_create=True, timeout=None)


def commands_of(life: Life) -> list[Command]:
    proposed: list[Command] = []
    propose = life.broker.shard.proposer.propose

    def noted(command: Command, *arguments: Any, **keywords: Any) -> None:
        proposed.append(command)
        propose(command, *arguments, **keywords)

    life.broker.shard.proposer.propose = noted  # type: ignore[method-assign]
    return proposed


async def test_topics_wanted_at_once_are_made_by_one_command() -> None:
    life = await Life(SimulatedFileSystem()).open()
    proposed = commands_of(life)
    names = [f"topic-{number}" for number in range(50)]

    receipts = await life.do(*(first_publish(life, name) for name in [*names, *names]))

    assert [receipt.topic for receipt in receipts] == names * 2
    assert {receipt.offset for receipt in receipts} == {0, 1}
    made = [command for command in proposed if isinstance(command, CreateTopics)]
    assert [name for _, name in made[0].topics] == names
    assert len(made) == 1
    again = await Life(life.disk.crash("nothing")).open()
    assert [again.messages(name) for name in names] == [
        [(0, name.encode()), (1, name.encode())] for name in names
    ]


async def test_one_command_makes_no_more_than_a_turn_has_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_verbs, "TOPICS_MADE_AT_ONCE", 10)
    life = await Life(SimulatedFileSystem()).open()
    proposed = commands_of(life)

    await life.do(*(first_publish(life, f"topic-{number}") for number in range(25)))

    made = [command for command in proposed if isinstance(command, CreateTopics)]
    assert [len(command.topics) for command in made] == [10, 10, 5]
    ids = [id for command in made for id, _ in command.topics]
    assert ids == sorted(set(ids))


async def test_a_name_that_is_refused_or_who_leaves_keeps_no_other_from_its_topic() -> None:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("parted", {"partitions": 2}))
    leaving = asyncio.ensure_future(first_publish(life, "left"))

    async def leave() -> None:
        leaving.cancel()

    works = [first_publish(life, name) for name in ("good", "not.*", "parted")]
    good, bad, parted, _ = await life.do(*works, leave())

    assert good.offset == 0
    assert isinstance(bad, InvalidRequest)
    assert isinstance(parted, InvalidRequest)
    assert leaving.cancelled()
    assert "parted" not in life.broker.shard.topics


async def test_an_answer_about_many_topics_ends_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(ManualClock())
    for name in ("a", "b", "c"):
        await broker.create_topic(name, {})
    whole = await broker.stats_of(["a", "gone", "b", "c"])
    assert [one and one.name for one in whole] == ["a", None, "b", "c"]

    monkeypatch.setattr(Allowance, "is_over", lambda allowance: True)
    (some,) = await broker.stats_of(["a", "b", "c"])
    assert some is not None
    assert some.name == "a"
    await broker.close()
