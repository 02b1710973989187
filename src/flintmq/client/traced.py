"""A client whose publishes are traced. The usual one pays nothing for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Unpack

from ..batch import BatchBuilder
from ..model import Receipt, Seconds, StoredReceipt
from ..observe.tracing import Publishing, Tracing
from ..rows import Message
from .client import Client
from .keywords import BatchKeywords, CallKeywords, PublishKeywords, RequestKeywords
from .values import Value, pair_list, value_list


@contextmanager
def _ending(publishing: Publishing) -> Iterator[Publishing]:
    """End the span with the block, by how that ends."""
    try:
        yield publishing
    except BaseException as error:
        publishing.end(error)
        raise
    publishing.end()


class TracedClient(Client):
    """Each publish is a producer span, and what is published carries its context."""

    _tracing: Tracing

    async def publish(
        self, topic: str, value: Value, **said: Unpack[PublishKeywords]
    ) -> StoredReceipt:
        with _ending(self._tracing.publishing(topic)) as publishing:
            said["headers"] = publishing.headers(said.get("headers"))
            receipt = await super().publish(topic, value, **said)
            publishing.message_id = str(receipt.offset)
            return receipt

    async def request(
        self,
        topic: str,
        value: Value,
        *,
        timeout: Seconds | None = None,
        **said: Unpack[RequestKeywords],
    ) -> Message:
        """The span lasts until the reply is there."""
        with _ending(self._tracing.publishing(topic)) as publishing:
            said["headers"] = publishing.headers(said.get("headers"))
            return await super().request(topic, value, timeout=timeout, **said)

    async def publish_batch(
        self, topic: str, values: Iterable[Value] | BatchBuilder, **said: Unpack[BatchKeywords]
    ) -> Receipt:
        if isinstance(values, BatchBuilder):  # its rows carry what they carry
            return await super().publish_batch(topic, values, **said)
        items = value_list(values)
        if not items:
            return await super().publish_batch(topic, items, **said)
        with _ending(self._tracing.publishing(topic, len(items))) as publishing:
            said["headers"] = publishing.headers_of_many(said.get("headers"))
            return await super().publish_batch(topic, items, **said)

    async def publish_many(
        self, messages: Iterable[tuple[str, Value]], **said: Unpack[CallKeywords]
    ) -> list[Receipt]:
        pairs = pair_list(messages)
        with _ending(self._tracing.publishing("(several)", len(pairs))) as publishing:
            return await self._publish_many(pairs, {"headers": publishing.headers(None)}, said)
