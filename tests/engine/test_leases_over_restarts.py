"""What was handed out before a restart: whose it is, and until when."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from flintmq.broker_api import Grant
from flintmq.engine.broker import Broker
from flintmq.engine.commands import Attempts, decode_command, encode_command
from flintmq.engine.host import durable_broker
from flintmq.errors import LeaseLost
from flintmq.fsync_policy import NEVER, FsyncPolicy
from flintmq.groups.queue_state import QueueState
from flintmq.testing import SimulatedFileSystem

from .stepping import small_sizes
from .test_queue_groups import Desk

GRACE = 5.0


class GraceDesk(Desk):
    """With a broker that keeps what was in work for a while."""

    policy: FsyncPolicy | None = None

    def _new(self) -> Broker:
        assert self.disk is not None
        self.clock._others.clear()
        self.clock.wait_also_for(self._step)
        return durable_broker(
            self.disk,
            clock=self.clock,
            journal_file_bytes=2048,
            reclaim_seconds=GRACE,
            fsync=self.policy,
        )

    async def stop(self) -> None:
        """In good order, with a checkpoint; and come back."""
        self.broker.end_deliveries()
        await self.run(self.broker.close())
        self.broker = self._new()
        await self.open()

    async def granted(self, *values: bytes, **options: str) -> Grant:
        await self.publish("t", *values)
        grant = await self.take(await self.join(**options))
        assert grant is not None
        return grant


@pytest.fixture
async def desk() -> AsyncIterator[GraceDesk]:
    with small_sizes():
        made = GraceDesk(SimulatedFileSystem())
        await made.open()
        yield made


@pytest.mark.parametrize("end", ["crash", "stop"])
async def test_a_token_from_before_settles_what_nobody_else_was_given(
    desk: GraceDesk, end: str
) -> None:
    grant = await desk.granted(b"0", b"1", b"2")
    await getattr(desk, end)()
    member = await desk.join()
    assert await desk.values(member) == [], "its holder may come back"
    assert _in_doubt(desk) == (3, 0)
    await desk.run(member.ack([(grant.token, [(0, 1)])]))
    assert _in_doubt(desk) == (2, 1)
    await desk.clock.advance(GRACE + 1)
    await desk.run(member.ack([(grant.token, [(1, 2)])]))

    assert await desk.values(member) == [b"2"]
    with pytest.raises(LeaseLost) as lost:
        await desk.run(member.ack([(grant.token, [(0, 3)])]))
    assert lost.value.offsets == [2], "what is settled is settled, and the other is another's"
    assert _in_doubt(desk) == (0, 2)


def _in_doubt(desk: GraceDesk) -> tuple[int, int]:
    """Of the group: what may be asked back, and what was."""
    figures = desk.broker.topic_figures("t")
    assert figures is not None
    (group,) = figures.groups
    return group.in_doubt, group.reclaimed


async def test_a_group_made_while_deliveries_end_is_handed_nothing(desk: GraceDesk) -> None:
    await desk.publish("t", b"0")
    desk.broker.end_deliveries()

    assert await desk.values(await desk.join(group="late")) == []


async def test_who_extends_in_time_keeps_it_beyond_the_grace_time(desk: GraceDesk) -> None:
    grant = await desk.granted(b"0", b"1")
    await desk.crash()
    member, other = await desk.join(), await desk.join(holder="other")
    await desk.run(member.extend([(grant.token, [(0, 1)])], 30.0))
    await desk.clock.advance(GRACE + 1)
    assert await desk.values(other) == [b"1"]
    with pytest.raises(LeaseLost):
        await desk.run(member.extend([(grant.token, [(1, 2)])], 30.0))
    await desk.run(member.close())

    assert await desk.values(other) == [b"0"], "it is the member's that extended it"


async def test_what_was_nacked_or_given_back_is_in_nobodys_hands(desk: GraceDesk) -> None:
    grant = await desk.granted(b"0", b"1", b"2")
    member = await desk.join()
    await desk.run(member.nack([(grant.token, [(0, 1)])], 0))
    await desk.run(member.release([(grant.token, [(1, 2)])]))
    await desk.crash()
    member = await desk.join()

    assert await desk.values(member) == [b"0", b"1"]
    with pytest.raises(LeaseLost):
        await desk.run(member.ack([(grant.token, [(0, 2)])]))


async def test_an_ack_whose_answer_was_lost_can_be_repeated(desk: GraceDesk) -> None:
    grant = await desk.granted(b"0")
    await desk.run((await desk.join()).ack([(grant.token, [(0, 1)])]))
    await desk.crash()

    await desk.run((await desk.join()).ack([(grant.token, [(0, 1)])]))


async def test_a_reject_whose_answer_was_lost_can_be_repeated(desk: GraceDesk) -> None:
    grant = await desk.granted(b"0", b"1")
    await desk.run((await desk.join()).reject([(grant.token, [(0, 1)])], "bad"))
    await desk.crash()
    member = await desk.join()

    await desk.run(member.reject([(grant.token, [(0, 1)])], "bad"))

    assert len(await desk.run(desk.broker.dead_letters("t", "g", 10))) == 1
    await desk.clock.advance(GRACE + 1)
    assert await desk.values(member) == [b"1"]
    with pytest.raises(LeaseLost):  # the second was not rejected, and another has it now
        await desk.run(member.reject([(grant.token, [(1, 2)])], "bad"))


async def test_the_next_of_a_key_waits_for_what_may_come_back(desk: GraceDesk) -> None:
    await desk.publish("t", b"0", b"1", key="k")
    grant = await desk.take(await desk.join(order="key"))
    assert grant is not None
    assert grant.rows.values == [b"0"]
    await desk.crash()
    member = await desk.join(order="key")
    assert await desk.values(member) == []
    await desk.run(member.ack([(grant.token, [(0, 1)])]))

    assert await desk.values(member) == [b"1"]


async def test_what_was_tried_keeps_its_turn_before_an_older_one_that_came_due_since(
    desk: GraceDesk,
) -> None:
    in_a_second = desk.clock.now_ms() + 1000
    await desk.publish("t", b"delayed", key="k", deliver_at=in_a_second)
    await desk.publish("t", b"at once", key="k")
    member = await desk.join(order="key")
    grant = await desk.take(member)
    assert grant is not None
    assert grant.rows.values == [b"at once"]
    await desk.run(member.nack([(grant.token, [(1, 2)])], 0))
    await desk.clock.advance(2)
    await desk.crash()
    member = await desk.join(order="key")
    again = await desk.take(member)
    assert again is not None
    assert again.rows.values == [b"at once"], "one at a time: this one was begun"
    await desk.run(member.ack([(again.token, [(1, 2)])]))

    assert await desk.values(member) == [b"delayed"]


async def test_a_second_delivery_is_not_handed_out_before_it_is_as_durable_as_the_policy_asks(
    desk: GraceDesk,
) -> None:
    grant = await desk.granted(b"0")
    member = await desk.join()
    await desk.run(member.nack([(grant.token, [(0, 1)])], 0))
    again = await desk.take(member)
    assert again is not None
    assert desk.disk is not None
    desk.disk = desk.disk.crash("nothing")  # all that was not synced is gone
    desk.broker = desk._new()
    await desk.open()
    member = await desk.join()

    with pytest.raises(LeaseLost):
        await desk.run(member.ack([(grant.token, [(0, 1)])]))
    await desk.run(member.ack([(again.token, [(0, 1)])]))


class PowerCut(GraceDesk):
    """What is written is synced at a stop, and not before."""

    policy = NEVER

    async def cut(self) -> None:
        """All that was not synced is gone."""
        assert self.disk is not None
        self.disk = self.disk.crash("nothing")
        self.broker = self._new()
        await self.open()

    async def lost_grant(self, *values: bytes, **options: str) -> Grant:
        """The messages and their group are durable, the first grant is not."""
        await self.publish("t", *values, key="k")
        await self.join(**options)
        await self.stop()  # so the group is of an earlier term than the grant
        member = await self.join(**options)
        grant = await self.take(member)
        assert grant is not None
        await self.cut()
        return grant


@pytest.fixture
async def power() -> AsyncIterator[PowerCut]:
    with small_sizes():
        made = PowerCut(SimulatedFileSystem())
        await made.open()
        yield made


@pytest.mark.parametrize("order", ["priority", "key", "log"])
async def test_a_grant_that_a_power_cut_took_counts_while_nobody_else_was_given_the_message(
    power: PowerCut, order: str
) -> None:
    grant = await power.lost_grant(b"0", b"1", order=order)
    member = await power.join()
    await power.run(member.ack([(grant.token, [(0, 1)])]))

    assert await power.values(member) == [b"1"]


@pytest.mark.parametrize("how", ["nack", "release", "extend"])
async def test_who_has_a_grant_that_a_power_cut_took_may_do_anything_with_it(
    power: PowerCut, how: str
) -> None:
    grant = await power.lost_grant(b"0")
    member = await power.join()
    seconds = [] if how == "release" else [30.0 if how == "extend" else 0.0]
    await power.run(getattr(member, how)([(grant.token, [(0, 1)])], *seconds))
    await power.crash()  # it is written down
    member = await power.join()
    again = await power.take(member)
    if how == "extend":
        assert again is None, "it is in doubt"
        return
    assert again is not None
    assert again.counts.get(0, 1) == (2 if how == "nack" else 1)
    with pytest.raises(LeaseLost):
        await power.run(member.ack([(grant.token, [(0, 1)])]))


async def test_a_grant_that_a_power_cut_took_is_lost_once_another_has_the_message(
    power: PowerCut,
) -> None:
    grant = await power.lost_grant(b"0")
    member = await power.join()
    again = await power.take(member)
    assert again is not None
    with pytest.raises(LeaseLost):
        await power.run(member.ack([(grant.token, [(0, 1)])]))
    await power.run(member.release([(again.token, [(0, 1)])]))
    with pytest.raises(LeaseLost):
        await power.run(member.ack([(grant.token, [(0, 1)])]))


async def test_a_grant_that_a_power_cut_took_is_lost_after_another_start(power: PowerCut) -> None:
    grant = await power.lost_grant(b"0")
    await power.stop()

    with pytest.raises(LeaseLost):
        await power.run((await power.join()).ack([(grant.token, [(0, 1)])]))


@pytest.mark.parametrize("how", ["reset", "made anew"])
async def test_a_token_from_before_a_reset_says_nothing_after_a_restart(
    power: PowerCut, how: str
) -> None:
    await power.publish("t", b"0")
    grant = await power.take(await power.join())
    assert grant is not None
    if how == "reset":
        await power.run(power.broker.reset_group("t", "g", "earliest"))
    else:
        await power.run(power.broker.delete_group("t", "g"))
        await power.join()
    await power.stop()
    member = await power.join()

    with pytest.raises(LeaseLost):
        await power.run(member.ack([(grant.token, [(0, 1)])]))
    assert await power.values(member) == [b"0"]


async def test_a_message_that_a_power_cut_took_is_not_the_one_that_has_its_offset_now(
    power: PowerCut,
) -> None:
    await power.publish("t", b"0")
    await power.join()
    await power.stop()
    member = await power.join()
    await power.publish("t", b"gone")
    grant = await power.take(member)
    assert grant is not None
    assert grant.rows.values == [b"0", b"gone"]
    await power.cut()
    await power.publish("t", b"another")
    member = await power.join()

    with pytest.raises(LeaseLost):
        await power.run(member.ack([(grant.token, [(1, 2)])]))
    assert await power.values(member) == [b"0", b"another"]


def test_counts_and_states_of_before_there_were_tokens_are_read() -> None:
    head, _ = encode_command(Attempts(1, "g", [], []))
    old = bytes(head) + msgspec.msgpack.encode(["attempts", 1, "g", [[0, 2, 1]], []])
    command = decode_command(old)
    assert isinstance(command, Attempts)
    assert (command.token, command.ended) == (0, [])

    state = msgspec.msgpack.decode(msgspec.msgpack.encode([3, [], [], []]), type=QueueState)
    assert (state.floor, state.tokens) == (3, [])
