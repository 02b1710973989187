"""What queue groups hand out and settle in one turn of the event loop is one command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.broker_api import Grant, Joining, TakeMode
from flintmq.engine.commands import Attempts, Command, GroupChanges, ResetGroup, Settle
from flintmq.engine.group_turn import CHANGES_MAX
from flintmq.engine.leading.member import GroupMember
from flintmq.group_model import Lease
from flintmq.testing import SimulatedFileSystem
from tests.engine.stepping import Life, small_sizes

TOPICS = ("orders", "bills")
GROUPS = [(topic, f"g{number}") for topic in TOPICS for number in range(4)]


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


async def joined(life: Life, places: list[tuple[str, str]]) -> list[GroupMember]:
    return [
        await life.run(
            life.broker.join_group(
                Joining(
                    topic,
                    group,
                    order=None,
                    filter=None,
                    start=None,
                    holder="me",
                    auto_create=False,
                )
            )
        )
        for topic, group in places
    ]


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


def leases(grant: Grant) -> list[Lease]:
    return [
        (grant.token, [(offset, offset + 1) for offset in grant.rows.offsets if offset is not None])
    ]


def shapes(commands: list[Command]) -> list[tuple[str, int]]:
    """The kinds of commands, and how many changes each holds."""
    return [
        (type(one).__name__, len(one.changes) if isinstance(one, GroupChanges) else 1)
        for one in commands
    ]


async def test_grants_of_one_turn_are_one_command_and_so_are_acks(life: Life) -> None:
    members = await joined(life, GROUPS)
    for topic in TOPICS:
        await life.publish(topic, b"one")
    commands = noted(life)

    grants = await life.do(*(member.take(1, 30.0, 0) for member in members))
    assert shapes(commands) == [("GroupChanges", 8)]
    commands.clear()
    await life.do(
        *(member.ack(leases(grant)) for member, grant in zip(members, grants, strict=True))
    )
    assert shapes(commands) == [("GroupChanges", 8)]
    assert [type(change) for change in commands[0].changes] == [Settle] * 8  # type: ignore[union-attr]


async def test_groups_that_wait_are_served_with_one_command(life: Life) -> None:
    members = await joined(life, GROUPS)
    commands = noted(life)
    waiting = [member.take(1, 30.0, 60, TakeMode(auto_ack=True)) for member in members[:4]]

    *grants, _ = await life.do(*waiting, life.publishing("orders", b"one"))
    assert [grant.rows.values for grant in grants] == [[b"one"]] * 4
    assert shapes(commands)[1:] == [("GroupChanges", 4)]


async def test_a_group_alone_writes_what_it_always_wrote(life: Life) -> None:
    (member,) = await joined(life, GROUPS[:1])
    await life.publish("orders", b"one")
    commands = noted(life)
    (grant,) = await life.do(member.take(1, 30.0, 0))
    await life.do(member.ack(leases(grant)))
    assert [type(command) for command in commands] == [Attempts, Settle]


@pytest.mark.slow
async def test_a_turn_with_very_many_changes_is_several_commands(life: Life) -> None:
    count = CHANGES_MAX + 10
    members = await joined(life, [("orders", f"g{number}") for number in range(count)])
    await life.publish("orders", b"one")
    commands = noted(life)
    await life.do(*(member.take(1, 30.0, 0) for member in members))
    assert shapes(commands) == [("GroupChanges", CHANGES_MAX), ("GroupChanges", 10)]


async def test_what_is_decided_behind_them_is_behind_them_in_the_log(life: Life) -> None:
    first, second = await joined(life, GROUPS[:2])
    await life.publish("orders", b"one")
    grant, _ = await life.do(first.take(1, 30.0, 0), second.take(1, 30.0, 0))
    commands = noted(life)
    await life.do(first.ack(leases(grant)), life.broker.reset_group("orders", "g0", 0))
    assert [type(command) for command in commands] == [Settle, ResetGroup]


async def test_what_they_say_is_there_after_a_restart(life: Life) -> None:
    members = await joined(life, GROUPS)
    for topic in TOPICS:
        await life.publish(topic, b"one", b"two")
    grants = await life.do(*(member.take(2, 30.0, 0) for member in members))
    await life.do(
        *(member.ack([(grant.token, [(0, 1)])]) for member, grant in zip(members, grants))  # noqa: B905
    )
    again = await Life(life.disk.crash("everything")).open()

    for topic, group in GROUPS:
        state = again.broker.shard.topics[topic].state.groups[group]
        assert (state.floor, state.queue.count_of(1)) == (1, 1)
