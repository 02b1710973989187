"""The command log of a cluster: what was proposed when the lead is lost, and what never was."""

from __future__ import annotations

from flintmq.cluster.replicated_log import ReplicatedLog
from flintmq.engine.commands import DeleteGroup


def test_what_was_gathered_and_not_proposed_is_surely_not_done_and_nothing_else_is() -> None:
    log = ReplicatedLog()
    log.on_gathered = lambda: None
    log.lead(term=2, last=10)
    log.begin_term(1, lambda: None)

    proposed = [log.submit(DeleteGroup(1, name))[0] for name in ("a", "b", "c")]
    assert len(log.take_gathered()) == 3
    gathered = [log.submit(DeleteGroup(1, name))[0] for name in ("d", "e")]

    assert (proposed, gathered) == ([11, 12, 13], [14, 15])
    assert log.give_up_lead() == 14
    assert log.gathered == []
