"""All webhooks of a broker, at the node that leads: started, changed and stopped as defined."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ..batch import BatchBuilder
from ..client.client import Client
from ..errors import InvalidRequest, WebhookNotFound
from ..model import Definition, TopicOptions
from ..observe.logs import event
from ..rows import Message, Origin
from ..webhook_model import (
    KIND,
    Webhook,
    WebhookAnswer,
    WebhookState,
    resting_state,
    webhook_of,
)
from .addresses import IpNetwork
from .delivering import WebhookDelivery

_log = logging.getLogger(__name__)

TEST_VALUE = b'{"type":"flintmq.test","data":{}}'


class DefinitionSource(Protocol):
    """What is applied here of definitions."""

    on_change: list[Callable[[str], object]]

    def of(self, kind: str, topic: str | None = None) -> list[Definition]: ...


class WebhookRunner:
    def __init__(
        self,
        mq: Client,
        definitions: DefinitionSource,
        *,
        leads: Callable[[], bool],
        allowed: Sequence[IpNetwork] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`leads` says whether messages are delivered by this node."""
        self._mq, self._definitions, self._leads = mq, definitions, leads
        self.allowed = allowed
        self._tls = tls or ssl.create_default_context()
        self._running: dict[tuple[str, str], tuple[int, WebhookDelivery]] = {}
        self._gone_for: dict[tuple[str, str], str] = {}
        """What targets said that wanted no more."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        definitions.on_change.append(self._defined)
        mq._broker.on_topic_changed(self._topic_changed)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep_up())
        self.look_again()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._stop(list(self._running))

    def look_again(self) -> None:
        """Who leads has changed, or what is defined."""
        self._changed.set()

    def _defined(self, kind: str) -> None:
        if kind == KIND:
            self._changed.set()

    def _topic_changed(self, topic: str, options: TopicOptions | None) -> None:
        for (of, _), (_, delivery) in self._running.items():
            if of == topic:
                delivery.topic_changed(options)

    async def _keep_up(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted()
            await self._stop(
                [
                    name
                    for name, (version, _) in self._running.items()
                    if name not in wanted or wanted[name][0] != version
                ]
            )
            for name, (version, webhook) in wanted.items():
                if name not in self._running:
                    delivery = WebhookDelivery(
                        self._mq, webhook, self.allowed, self._tls, self._gone
                    )
                    self._running[name] = version, delivery
                    self._gone_for.pop(name, None)

    def _wanted(self) -> dict[tuple[str, str], tuple[int, Webhook]]:
        if not self._leads():
            return {}
        return {
            (one.topic, one.name): (one.version, webhook)
            for one in self._definitions.of(KIND)
            if (webhook := webhook_of(one)) is not None and not webhook.paused
        }

    async def _stop(self, names: list[tuple[str, str]]) -> None:
        stopped = [self._running.pop(name)[1] for name in names]
        await asyncio.gather(*(one.stop() for one in stopped))

    def _gone(self, webhook: Webhook, why: str) -> None:
        """The target has said 410: pause it, as `pause_webhook` does."""
        self._gone_for[webhook.topic, webhook.group] = why
        event(
            _log,
            logging.WARNING,
            "webhook_gone",
            f"webhook {webhook.topic}/{webhook.group} is paused, its target wants no more "
            f"requests: {why}",
            topic=webhook.topic,
            group=webhook.group,
        )
        paused = msgspec.structs.replace(webhook, paused=True)
        task = asyncio.get_running_loop().create_task(self._redefine(paused))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _redefine(self, webhook: Webhook) -> None:
        known = self._running.get((webhook.topic, webhook.group))
        version = None if known is None else known[0]
        await self._mq._broker.define(
            KIND, webhook.topic, webhook.group, msgspec.json.encode(webhook), version
        )

    # --- looking

    def states(self, topic: str | None = None) -> list[WebhookState]:
        found = []
        for one in self._definitions.of(KIND, topic):
            webhook = webhook_of(one)
            known = self._running.get((one.topic, one.name))
            if known is not None:
                found.append(known[1].state())
            elif webhook is not None:
                found.append(resting_state(webhook, self._gone_for.get((one.topic, one.name), "")))
        return found

    async def test(self, topic: str, group: str) -> WebhookAnswer:
        """Send a test request, of the content type application/json, at once."""
        known = self._running.get((topic, group))
        if known is None:
            if not any(one.name == group for one in self._definitions.of(KIND, topic)):
                raise WebhookNotFound(topic, group)
            raise InvalidRequest(f"the webhook of group {group!r} is paused; resume it first")
        rows = BatchBuilder()
        rows.append_typed(TEST_VALUE, "application/json")
        message = Message(rows.seal(), 0, Origin(topic, 0))
        return await known[1].test(message)
