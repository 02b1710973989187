"""What `@app.cron` and `@app.every` say, and how it gets to the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ..client.client import Client
from ..engine.broker import Broker
from ..errors import InvalidRequest
from ..schedule_model import Schedule, WhenMissed, checked_schedule
from ..schedules.running import ScheduleRunner
from .arguments import place_of


class ScheduleSpec(NamedTuple):
    """When a task is due."""

    kind: Literal["cron", "every"]
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    missed: WhenMissed = "once"

    def check(self, function: Callable[..., Any]) -> None:
        """Raises InvalidRequest, which names the function."""
        try:
            checked_schedule(
                Schedule(
                    name="checked", topic="checked", cron=self.cron, every=self.every,
                    timezone=self.timezone, missed=self.missed,
                )
            )  # fmt: skip
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.kind} {place_of(function)}: {error}") from None

    async def define(self, mq: Client, name: str, topic: str) -> None:
        """Have the broker keep it. One that is there as it should be stays as it is."""
        await mq.create_schedule(
            name, topic, {}, cron=self.cron, every=self.every, timezone=self.timezone,
            missed=self.missed, replace=True,
        )  # fmt: skip


def runner_of(mq: Client) -> ScheduleRunner | None:
    """Who publishes, where the broker is in this process; else that is done by its own."""
    broker = mq._broker
    if not isinstance(broker, Broker):
        return None
    return ScheduleRunner(mq, broker.shard.state.definitions, leads=lambda: True)
