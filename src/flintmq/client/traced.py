"""A client whose publishes are traced. The usual one pays nothing for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..batch import BatchBuilder, HeaderValue
from ..model import Receipt, StoredReceipt
from ..tracing import Publishing, Tracing
from .client import Client
from .values import Value, pair_list, value_list


class TracedClient(Client):
    """Each publish is a producer span, and what is published carries its context."""

    _tracing: Tracing
    _many: Publishing | None = None

    async def publish(
        self,
        topic: str,
        value: Value,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        **options: Any,
    ) -> StoredReceipt:
        publishing = self._tracing.publishing(topic)
        try:
            stamped = publishing.headers(headers)
            receipt = await super().publish(topic, value, headers=stamped, **options)
        except BaseException as error:
            publishing.end(error)
            raise
        publishing.message_id = str(receipt.offset)
        publishing.end()
        return receipt

    async def publish_batch(
        self,
        topic: str,
        values: Iterable[Value] | BatchBuilder,
        *,
        headers: Mapping[str, HeaderValue] | list[Mapping[str, HeaderValue] | None] | None = None,
        **options: Any,
    ) -> Receipt:
        if isinstance(values, BatchBuilder):  # its rows carry what they carry
            return await super().publish_batch(topic, values, headers=headers, **options)
        items = value_list(values)
        if not items:
            return await super().publish_batch(topic, items, headers=headers, **options)
        publishing = self._tracing.publishing(topic, len(items))
        try:
            stamped = publishing.headers_of_many(headers)
            receipt = await super().publish_batch(topic, items, headers=stamped, **options)
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
