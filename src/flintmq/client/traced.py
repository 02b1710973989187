"""A client whose publishes are traced. The usual one pays nothing for that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from ..batch import BatchBuilder
from ..model import Receipt, StoredReceipt
from ..observe.tracing import Publishing, Tracing
from .client import Client
from .keywords import BatchKeywords, PublishKeywords
from .values import Value, pair_list, value_list


class TracedClient(Client):
    """Each publish is a producer span, and what is published carries its context."""

    _tracing: Tracing
    _many: Publishing | None = None

    async def publish(
        self, topic: str, value: Value, **said: Unpack[PublishKeywords]
    ) -> StoredReceipt:
        publishing = self._tracing.publishing(topic)
        try:
            said["headers"] = publishing.headers(said.get("headers"))
            receipt = await super().publish(topic, value, **said)
        except BaseException as error:
            publishing.end(error)
            raise
        publishing.message_id = str(receipt.offset)
        publishing.end()
        return receipt

    async def publish_batch(
        self, topic: str, values: Iterable[Value] | BatchBuilder, **said: Unpack[BatchKeywords]
    ) -> Receipt:
        if isinstance(values, BatchBuilder):  # its rows carry what they carry
            return await super().publish_batch(topic, values, **said)
        items = value_list(values)
        if not items:
            return await super().publish_batch(topic, items, **said)
        publishing = self._tracing.publishing(topic, len(items))
        try:
            said["headers"] = publishing.headers_of_many(said.get("headers"))
            receipt = await super().publish_batch(topic, items, **said)
        except BaseException as error:
            publishing.end(error)
            raise
        publishing.end()
        return receipt

    async def publish_many(
        self, messages: Iterable[tuple[str, Value]], **options: Any
    ) -> list[Receipt]:
        pairs = pair_list(messages)
        publishing = self._tracing.publishing("(several)", len(pairs))
        self._many = publishing  # it is asked for before anything is waited for
        try:
            receipts = await super().publish_many(pairs, **options)
        except BaseException as error:
            self._many = None
            publishing.end(error)
            raise
        publishing.end()
        return receipts

    def _options_of_many(self) -> dict[str, Any]:
        many, self._many = self._many, None
        return {} if many is None else {"headers": many.headers(None)}
