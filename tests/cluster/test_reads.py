"""Who looks waits until it is certain that we lead, and until all that was committed is applied."""

from __future__ import annotations

import pytest

from flintmq.cluster.reads import WaitingReads
from flintmq.errors import NotLeader
from flintmq.raft import ReadState


async def test_a_look_is_answered_once_its_index_is_applied() -> None:
    reads = WaitingReads()
    context, answered = reads.ask()
    reads.serve(5)
    assert not answered.done(), "nobody has confirmed it"

    reads.confirmed([ReadState(7, context)])
    reads.serve(6)
    assert not answered.done(), "what it has to see is not applied"

    reads.serve(7)
    assert answered.done()
    await answered


async def test_each_look_waits_for_its_own_index() -> None:
    reads = WaitingReads()
    (one, first), (other, second) = reads.ask(), reads.ask()

    reads.confirmed([ReadState(3, one), ReadState(5, other)])
    reads.serve(4)

    assert first.done()
    assert not second.done()


async def test_who_waits_when_the_lead_is_lost_hears_of_it() -> None:
    reads = WaitingReads()
    context, answered = reads.ask()
    reads.confirmed([ReadState(7, context)])

    reads.fail(NotLeader(1, 2))
    reads.serve(9)

    with pytest.raises(NotLeader):
        await answered
