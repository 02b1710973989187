"""The verbs of definitions: listing them, and changing one by its version; and of webhooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..errors import DefinitionChanged, InvalidRequest, TopicNotFound
from ..model import Definition
from ..patterns import check_name
from ..webhook_model import KIND, WebhookAnswer, WebhookState, resting_state, webhook_of
from .commands import Define
from .shard import Shard

VALUE_BYTES_MAX = 64 * 1024
SHARED_KINDS = frozenset({"api-key", "setting"})
"""What a cluster keeps for all of its nodes; it belongs to no topic."""
BYTES_MAX = 4 * 1024 * 1024
"""Of all together: a checkpoint writes them anew."""


class WebhookDeliverer(Protocol):
    """Who sends requests, where this broker runs as a process of its own."""

    def states(self, topic: str | None = None) -> list[WebhookState]: ...
    async def test(self, topic: str, group: str) -> WebhookAnswer: ...


class DefinitionVerbs:
    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._deliverer: WebhookDeliverer | None = None
        self.shared: dict[str, Callable[[str, bytes | None], object]] = {}
        """Of a node of a cluster: what it keeps for all nodes, by kind, and what raises for a name
        or a value that is none."""

    def deliver_webhooks_by(self, deliverer: WebhookDeliverer) -> None:
        self._deliverer = deliverer

    async def webhook_states(self, topic: str | None = None) -> list[WebhookState]:
        self._shard.check_open()
        if self._deliverer is not None:
            return self._deliverer.states(topic)
        found = map(webhook_of, self._shard.state.definitions.of(KIND, topic))
        return [resting_state(one) for one in found if one is not None]

    async def test_webhook(self, topic: str, group: str) -> WebhookAnswer:
        self._shard.check_open()
        if self._deliverer is None:
            raise InvalidRequest(
                "webhooks are delivered by a broker that runs as `flintmq serve`, not by one "
                "inside a program"
            )
        return await self._deliverer.test(topic, group)

    async def definitions(
        self, kind: str, topic: str | None = None, name: str | None = None
    ) -> list[Definition]:
        self._shard.check_open()
        known = self._shard.state.definitions
        if topic is None or name is None:
            return [one for one in known.of(kind, topic) if name in (None, one.name)]
        found = known.get(kind, topic, name)
        return [] if found is None else [found]

    async def define(
        self, kind: str, topic: str, name: str, value: bytes | None, version: int | None = None
    ) -> int:
        shard, known = self._shard, self._shard.state.definitions
        check_name(name, kind)
        size = 0 if value is None else len(value)
        if size > VALUE_BYTES_MAX:
            raise InvalidRequest(
                f"the {kind} {name!r} has {size:,} bytes; at most {VALUE_BYTES_MAX:,} are possible"
            )
        async with shard.deciding():  # so that what was decided before is applied
            shard.check_open()
            if kind in SHARED_KINDS:
                self._check_shared(kind, topic, name, value)
            elif topic not in shard.topics and f"{topic}/0" not in shard.topics:
                raise TopicNotFound(topic)
            found = known.get(kind, topic, name)
            if version is not None and version != (0 if found is None else found.version):
                raise DefinitionChanged(kind, topic, name)
            if value is None and found is None:
                return 0
            if known.byte_count + size > BYTES_MAX:
                raise InvalidRequest(
                    f"definitions may take {BYTES_MAX:,} bytes in all; remove some you do not need"
                )
            await shard.change(Define(kind, topic, name, value, known.last_version + 1))
            return known.last_version

    def _check_shared(self, kind: str, topic: str, name: str, value: bytes | None) -> None:
        if topic:
            raise InvalidRequest(f"{kind} does not belong to a topic; leave out {topic!r}")
        check = self.shared.get(kind)
        if check is None:
            raise InvalidRequest(
                "this broker is not a node of a cluster: add keys to its file with `flintmq key "
                "add --data-dir DIR` on its machine, and settings to its configuration"
            )
        check(name, value)
