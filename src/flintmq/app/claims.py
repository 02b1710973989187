"""Unique tasks: who of several senders of one key sends, decided by the broker.

A claim is a definition of the task's topic that has the id of the task. Of two senders one makes
it; the other finds the id of the first, and sends under that id too: the broker stores one of them,
so a sender that died between claim and message has done no harm. The worker that ends the task
removes the claim; a claim that is over by its time may be taken over by anybody.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ..client.client import Client
from ..errors import DefinitionChanged, OutcomeUnknown
from ..model import Definition

KIND = "unique"
UNTIL_DONE_SECONDS = 86_400.0
"""How long a claim lasts that ends with its task: if that never ends, the key is free again."""


class Claim(msgspec.Struct):
    """The task that has a key."""

    id: str
    until_ms: int


async def take_claim(mq: Client, topic: str, name: str, ours: Claim) -> str:
    """Claim a key for a task; the id of the task that has it: ours, or another's."""
    value = msgspec.json.encode(ours)
    version = 0
    while True:
        with suppress(DefinitionChanged, OutcomeUnknown):  # in both cases: see what is there
            await mq._broker.define(KIND, topic, name, value, version)
            return ours.id
        found = await _found(mq, topic, name)
        if found is None:
            version = 0
            continue
        theirs = _claim_of(found)
        if theirs is not None and theirs.until_ms > mq.clock.now_ms():
            return theirs.id
        version = found.version


async def end_claim(mq: Client, topic: str, name: str, task_id: str) -> None:
    """Free a key, if it is this task that has it."""
    while True:
        found = await _found(mq, topic, name)
        theirs = None if found is None else _claim_of(found)
        if found is None or theirs is None or theirs.id != task_id:
            return
        with suppress(DefinitionChanged, OutcomeUnknown):
            await mq._broker.define(KIND, topic, name, None, found.version)
            return


async def sweep_claims(mq: Client, topic: str) -> int:
    """Remove the claims of a task that are over by their time; how many."""
    now = mq.clock.now_ms()
    over = [
        one
        for one in await mq._broker.definitions(KIND, topic)
        if (claim := _claim_of(one)) is None or claim.until_ms <= now
    ]
    for one in over:
        with suppress(DefinitionChanged):
            await mq._broker.define(KIND, topic, one.name, None, one.version)
    return len(over)


async def _found(mq: Client, topic: str, name: str) -> Definition | None:
    found = await mq._broker.definitions(KIND, topic, name)
    return found[0] if found else None


def _claim_of(definition: Definition) -> Claim | None:
    try:
        return msgspec.json.decode(definition.value, type=Claim)
    except msgspec.DecodeError:
        return None
