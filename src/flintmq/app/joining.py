"""Groups of tasks that something follows: waiting for all of them, then sending what is next.

A group's message stays in its topic until all of its tasks have ended. A worker that has it waits
for their results, which costs nothing; if the worker dies, another one looks again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..client.delivery import Delivery
from ..client.retrying import Retrying
from .arguments import WantedArguments
from .calling import Caller
from .consumers import ConsumerSpec
from .desk import JOIN_TOPIC, TaskDesk
from .middleware import Invocation
from .task_model import GROUP, JOINS, Join

WAIT_SECONDS = 60.0
"""After this a group goes back to the topic, for whoever is next."""
AT_ONCE = 256

_join = msgspec.json.Decoder(Join)


def _nothing() -> None:
    """Joins are worked on by `JoinWork.perform`."""


JOIN_SPEC = ConsumerSpec(
    JOINS, JOINS, False, GROUP, Caller(_nothing, WantedArguments(())), Retrying(), AT_ONCE, None,
    None, {"prefetch": AT_ONCE},
)  # fmt: skip


class JoinWork:
    """Waits for the tasks of groups."""

    kind = "join"

    def __init__(self, desk: TaskDesk) -> None:
        self._desk = desk

    def called(self, name: str, message: Delivery) -> Invocation:
        return Invocation(name, self.kind, (message,))

    async def make_topic(self) -> None:
        await self._desk.make_topic(JOINS, JOIN_TOPIC)

    async def perform(self, call: Invocation) -> Any:
        message = call.message
        join = _join.decode(message.unpacked())
        results = self._desk.results
        awaited = [results.expect(one, join.since_ms) for one in join.ids]
        outcomes = await results.wait_all(awaited, WAIT_SECONDS)
        failed = next(
            (
                (task_id, one)
                for task_id, one in zip(join.ids, outcomes, strict=True)
                if one is not None and one.status != "done"
            ),
            None,
        )
        if failed is not None:
            task_id, outcome = failed
            how = "was cancelled" if outcome.status == "cancelled" else f"failed: {outcome.error}"
            await self._desk.fail_planned(
                join.then, f"it follows a group of tasks; {task_id} of it {how}"
            )
        elif None in outcomes:
            await message.nack()
        else:
            done = [bytes(one.value) for one in outcomes if one is not None]
            await self._desk.send_planned(
                join.then[0], join.then[1:], b"[" + b",".join(done) + b"]"
            )
        return None

    async def failed(self, call: Invocation, error: Exception, is_dead: bool) -> None:
        """It is tried again."""
