"""The verbs of webhooks: defining, listing, pausing and removing them.

A webhook is a definition that is kept with its topic. The node of the broker that leads delivers.
"""

from __future__ import annotations

from typing import Unpack

import msgspec

from ..broker_api import BrokerApi, Joining
from ..errors import DefinitionChanged, InvalidRequest, WebhookNotFound
from ..model import Definition
from ..patterns import check_name
from ..webhook_model import (
    KIND,
    Webhook,
    WebhookAnswer,
    WebhookKeywords,
    WebhookState,
    checked_webhook,
    new_secret,
)
from .keywords import check_keywords
from .membership import checked_filter
from .routing import partition_name
from .sending import partitions_of

OF_GROUPS = ("order", "filter", "start")


class WebhookVerbs:
    """The part of a client that deals with webhooks."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker

    async def create_webhook(
        self,
        topic: str,
        *,
        group: str,
        url: str,
        secret: str | None = None,
        replace: bool = False,
        **said: Unpack[WebhookKeywords],
    ) -> Webhook:
        """Make the broker send the messages of a group to a URL, as POST requests.

        Each request is signed with `secret`, as Standard Webhooks describes. Without a `secret`,
        one is generated and returned. A 2xx response acknowledges the message. Other responses are
        retried with growing pauses, then the message becomes a dead letter. While the target is
        unreachable, messages wait.

        At most `concurrency` requests (4) are in flight, at most `rate` per second, each with a
        timeout of `timeout` seconds (15). `retries`, `backoff` and `backoff_max` are as for
        `process`. `order`, `filter` and `start` are those of the group, which is created if needed.
        With `replace=True` an existing webhook is changed; otherwise different settings are an
        error.

        The webhook is stored with the topic. It needs a broker that runs as `flintmq serve`.
        """
        check_keywords("create_webhook", said, WebhookKeywords)
        check_name(group, "group")
        settings = {name: value for name, value in said.items() if name not in OF_GROUPS}
        found = await self._found(topic, group)
        known = None if found is None else _decoded(found)
        if secret is None:
            secret = known.secret if known is not None else new_secret()
        try:
            webhook = msgspec.convert(
                {"topic": topic, "group": group, "url": url, "secret": secret, **settings}, Webhook
            )
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"create_webhook: {error}") from None
        checked_webhook(webhook)
        if known is not None and not replace:
            if known == webhook:
                return known
            raise InvalidRequest(
                f"group {group!r} of topic {topic!r} has a webhook with other settings; pass "
                "replace=True (flintmq webhook add --replace) to change it"
            )
        await self._make_group(topic, group, said)
        await self._define(webhook, 0 if found is None else found.version)
        return webhook

    async def _make_group(self, topic: str, group: str, said: WebhookKeywords) -> None:
        options = (await self._broker.topic_info(topic)).options
        filter = checked_filter(said.get("filter"))
        count = partitions_of(topic, options)
        names = [topic] if count is None else [partition_name(topic, n) for n in range(count)]
        for name in names:
            member = await self._broker.join_group(
                Joining(name, group, "webhook", said.get("order"), filter, said.get("start"), False)
            )
            await member.close()

    async def webhooks(self, topic: str | None = None) -> list[WebhookState]:
        """List the webhooks of a topic, or all, with their state."""
        return await self._broker.webhook_states(topic)

    async def webhook(self, topic: str, group: str) -> Webhook:
        """Return the definition of a webhook."""
        return _decoded(await self._known(topic, group))

    async def pause_webhook(self, topic: str, group: str) -> None:
        """Pause a webhook: it sends nothing until resumed; messages wait."""
        await self._set_paused(topic, group, True)

    async def resume_webhook(self, topic: str, group: str) -> None:
        """Resume a webhook. Messages that waited are sent first."""
        await self._set_paused(topic, group, False)

    async def test_webhook(self, topic: str, group: str) -> WebhookAnswer:
        """Send a test request now, and return the response."""
        return await self._broker.test_webhook(topic, group)

    async def delete_webhook(self, topic: str, group: str) -> None:
        """Delete a webhook. The group and its messages stay."""
        await self._broker.define(KIND, topic, group, None)

    async def _set_paused(self, topic: str, group: str, paused: bool) -> None:
        while True:
            found = await self._known(topic, group)
            webhook = msgspec.structs.replace(_decoded(found), paused=paused)
            try:
                return await self._define(webhook, found.version)
            except DefinitionChanged:
                continue  # somebody else was faster: on top of that

    async def _define(self, webhook: Webhook, version: int) -> None:
        value = msgspec.json.encode(webhook)
        await self._broker.define(KIND, webhook.topic, webhook.group, value, version)

    async def _known(self, topic: str, group: str) -> Definition:
        found = await self._found(topic, group)
        if found is None:
            raise WebhookNotFound(topic, group)
        return found

    async def _found(self, topic: str, group: str) -> Definition | None:
        found = await self._broker.definitions(KIND, topic)
        return next((one for one in found if one.name == group), None)


def _decoded(definition: Definition) -> Webhook:
    try:
        return msgspec.json.decode(definition.value, type=Webhook)
    except msgspec.DecodeError as error:
        raise InvalidRequest(
            f"the webhook of group {definition.name!r} was defined by a newer FlintMQ ({error})"
        ) from None
