"""Where tasks are sent from: a connection, and the results that are waited for there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..client.client import Client
from ..errors import PermissionDenied, TopicNotFound
from ..model import Receipt, TopicKeywords
from .claims import UNTIL_DONE_SECONDS, Claim, end_claim, take_claim
from .handles import TaskHandle
from .results import KEPT_BY_KEY, ResultBook, ensure_topic
from .task_model import (
    CANCELS,
    JOINS,
    KEPT_SECONDS,
    RESULT_SECONDS,
    RESULT_TTL,
    TASK_ID,
    THEN,
    UNIQUE,
    Join,
    Planned,
    PlannedGroup,
    PlannedTask,
    TaskOutcome,
    checked_id,
    claim_name,
    deliveries_of,
    new_task_id,
    sent_ms,
)
from .tasks import RETRIES, Sending, Task, encoded_arguments

JSON_TYPE = "application/json"


def task_topic(retries: int) -> TopicKeywords:
    """Options of a topic of tasks: what is done stays for a day, what is not for ever."""
    return {
        "retention_age": KEPT_SECONDS,
        "keep_until_settled": True,
        "max_deliveries": deliveries_of(retries),
    }


async def allow_deliveries(mq: Client, topic: str, retries: int) -> None:
    """Have the broker hand out a task as often as it may be retried: who sent the first one did not
    always know."""
    wanted = deliveries_of(retries)
    with suppress(TopicNotFound, PermissionDenied):
        most = (await mq.topic_info(topic)).options.max_deliveries
        if most is not None and most != wanted:
            await mq.configure_topic(topic, max_deliveries=wanted)


class TaskDesk:
    """Sends tasks over one connection."""

    def __init__(self, mq: Client) -> None:
        self.mq = mq
        self.results = ResultBook(mq)
        self._made: set[str] = set()

    async def close(self) -> None:
        await self.results.close()

    async def make_topic(self, topic: str, options: TopicKeywords) -> None:
        if topic not in self._made:
            await ensure_topic(self.mq, topic, options)
            self._made.add(topic)

    # --- one task

    async def send(
        self, task: Task[Any, Any], bound: dict[str, Any], said: Sending
    ) -> TaskHandle[Any]:
        spec, now = task.spec, self.mq.clock.now_ms()
        data = encoded_arguments(spec, bound)
        await self.make_topic(spec.topic, task_topic(spec.consumer.retrying.retries or 0))
        own = None if said.id is None else checked_id(said.id)
        task_id = own or new_task_id(now)
        headers = {TASK_ID: task_id}
        if spec.result_ttl != RESULT_SECONDS:
            headers[RESULT_TTL] = f"{spec.result_ttl:g}"
        unique = said.unique if said.unique is not None else task.unique_key(bound)
        claim = None
        if unique is not None:
            claim = claim_name(spec.name, unique)
            until = now + round(1000 * self._claim_seconds(task, said, now))
            task_id = await take_claim(self.mq, spec.topic, claim, Claim(task_id, until))
            headers[TASK_ID] = task_id
            if spec.unique_for is None:
                headers[UNIQUE] = claim
        known: dict[str, Any] = {}
        if own is not None or claim is not None:
            known = {"producer": f"task:{task_id}", "sequence": 0}
        if said.delay is not None or said.at is not None:
            known |= {"delay": said.delay, "at": said.at}
        awaited = (
            self.results.expect_new(task_id, now)
            if own is None and claim is None
            else self.results.expect(task_id, sent_ms(task_id))
        )
        receipt = await self.mq.publish(
            spec.topic, data, key=said.key, priority=said.priority, headers=headers,
            content_type=JSON_TYPE, **known,
        )  # fmt: skip
        return TaskHandle(
            self, awaited, spec.result_type, receipt,
            claim=None if claim is None else (spec.topic, claim),
            keeps_result=spec.result_ttl > 0,
        )  # fmt: skip

    def _claim_seconds(self, task: Task[Any, Any], said: Sending, now: int) -> float:
        if task.spec.unique_for is not None:
            return task.spec.unique_for
        waits = said.delay or 0.0
        if said.at is not None:
            at = said.at if isinstance(said.at, int | float) else said.at.timestamp()
            waits = max(0.0, at - now / 1000)
        return waits + UNTIL_DONE_SECONDS

    def handle(self, task: Task[Any, Any], id: str) -> TaskHandle[Any]:
        awaited = self.results.expect(checked_id(id), sent_ms(id))
        return TaskHandle(
            self, awaited, task.spec.result_type, keeps_result=task.spec.result_ttl > 0
        )

    def handle_new(self, task: Task[Any, Any], id: str, now_ms: int) -> TaskHandle[Any]:
        """Of a task that is about to be sent as part of others."""
        awaited = self.results.expect_new(id, now_ms)
        return TaskHandle(
            self, awaited, task.spec.result_type, keeps_result=task.spec.result_ttl > 0
        )

    async def cancel(
        self,
        task_id: str,
        receipt: Receipt | None,
        claim: tuple[str, str] | None,
        keeps_result: bool,
    ) -> None:
        if receipt is not None and await self.mq.cancel(receipt):
            # It was not due yet, and is gone: no worker will say so.
            if keeps_result:
                await self.results.put(task_id, TaskOutcome(status="cancelled"), RESULT_SECONDS)
            if claim is not None:
                await end_claim(self.mq, *claim, task_id)
            return
        await self.make_topic(CANCELS, KEPT_BY_KEY)
        await self.mq.publish(CANCELS, b"{}", key=task_id, content_type=JSON_TYPE)

    # --- several

    async def send_planned(
        self, first: Planned, then: Sequence[Planned], result: bytes | None = None
    ) -> None:
        """Send what is next, which knows what follows it. Sent again, it is stored once."""
        if isinstance(first, PlannedTask):
            await self._send_one(first, then, result)
            return
        await asyncio.gather(*(self._send_one(one, (), result) for one in first.tasks))
        if then:
            join = Join(
                ids=[one.id for one in first.tasks],
                since_ms=min(sent_ms(one.id) or 0 for one in first.tasks),
                then=list(then),
            )
            await self.make_topic(JOINS, JOIN_TOPIC)
            await self.mq.publish(
                JOINS, msgspec.json.encode(join), headers={TASK_ID: first.id},
                content_type=JSON_TYPE, producer=f"task:{first.id}", sequence=0,
            )  # fmt: skip

    async def _send_one(
        self, one: PlannedTask, then: Sequence[Planned], result: bytes | None
    ) -> None:
        arguments = dict(one.arguments)
        if one.into is not None and result is not None:
            arguments[one.into] = msgspec.Raw(result)
        headers = {TASK_ID: one.id}
        if then:
            headers[THEN] = msgspec.json.encode(list(then)).decode()
        if one.result_ttl != RESULT_SECONDS:
            headers[RESULT_TTL] = f"{one.result_ttl:g}"
        await self.make_topic(one.topic, task_topic(RETRIES))
        await self.mq.publish(
            one.topic, msgspec.json.encode(arguments), key=one.key, priority=one.priority,
            headers=headers, delay=one.delay, content_type=JSON_TYPE,
            producer=f"task:{one.id}", sequence=0,
        )  # fmt: skip

    async def fail_planned(self, then: Sequence[Planned], why: str) -> None:
        """What was to follow will not: whoever waits for it is told."""
        for planned in then:
            tasks = planned.tasks if isinstance(planned, PlannedGroup) else [planned]
            for one in tasks:
                await self.results.put(
                    one.id, TaskOutcome(status="failed", error=why), one.result_ttl
                )


JOIN_TOPIC: TopicKeywords = {
    "retention_age": KEPT_SECONDS,
    "keep_until_settled": True,
    "max_deliveries": None,
}
