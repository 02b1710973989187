"""The verbs of topics: make, change, purge, delete, list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ..errors import InvalidRequest
from ..model import (
    VALUE_OPTIONS,
    TopicInfo,
    TopicKeywords,
    TopicOptions,
    TopicStats,
    changed_options,
)
from ..serde.codec import Codec, CodecSettings, settings_of
from ..serde.formats import schema_text
from .context import ClientContext
from .polling import Pollers

DEFAULT_OPTIONS = TopicOptions()
STATS_AT_ONCE = 256
"""How many topics `stats_of` asks for in one request."""


class TopicAdmin:
    """The part of a client that deals with topics as a whole."""

    def __init__(self, context: ClientContext, codec: Codec, pollers: Pollers) -> None:
        self._broker = context.broker
        self._codec = codec
        self._pollers = pollers

    async def create_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Create a topic. Succeeds if it already exists, unless the given options differ.

        With `partitions=n` it has n partitions; limits then apply to each of them.
        """
        return await self._broker.create_topic(name, self._checked(options, DEFAULT_OPTIONS))

    async def configure_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Change options of a topic; the others stay as they are.

        Partitions can be added. Stored messages stay where they are, but a key may go to a
        different partition from then on, so order by key holds only for messages published
        afterwards.
        """
        current = (await self._broker.topic_info(name)).options
        return await self._broker.configure_topic(name, self._checked(options, current))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages. What reads it raises TopicDeleted."""
        await self._broker.delete_topic(name)
        await self._pollers.forget(name)

    async def purge_topic(self, name: str, before: int | None = None) -> int:
        """Delete all messages of a topic, or those before an offset; returns how many.

        The topic, its options, groups and offsets stay: new messages get the next offsets. Readers
        and groups that had not read the deleted messages continue after them. Each partition has
        its own offsets: purge one as in "orders/0", or all of them without an offset.
        """
        return await self._broker.purge_topic(name, before)

    async def topics(self, pattern: str = ">") -> list[str]:
        """List the names of matching topics, sorted."""
        return await self._broker.topics(pattern)

    async def topic_info(self, name: str) -> TopicInfo:
        """Return the id and options of a topic."""
        return await self._broker.topic_info(name)

    async def topic_stats(self, name: str) -> TopicStats:
        """Return the current statistics of a topic."""
        return await self._broker.topic_stats(name)

    async def stats_of(self, names: Sequence[str]) -> list[TopicStats]:
        """Return the statistics of many topics in a few requests. Missing topics are omitted."""
        found: list[TopicStats] = []
        done = 0
        while done < len(names):
            some = await self._broker.stats_of(names[done : done + STATS_AT_ONCE])
            found += [one for one in some if one is not None]
            done += len(some)
        return found

    def _checked(self, given: TopicKeywords, current: TopicOptions) -> dict[str, Any]:
        """Changes of a topic's options whose formats, hooks and so on this connection knows."""
        options: dict[str, Any] = {**given}
        if options.get("schema") is not None:
            options["schema"] = schema_text(options["schema"])
        named = {name: options[name] for name in VALUE_OPTIONS if name in options}
        settings = settings_of(changed_options(current, named))
        if settings.format != "object":
            self._codec.checked(settings)
        elif settings != CodecSettings(format="object"):
            raise InvalidRequest(
                "format='object' passes references: no other value option can be combined with it"
            )
        return options
