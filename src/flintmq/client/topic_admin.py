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
        """Make a topic. One that is there already is fine, unless options named here differ.

        With `partitions=n` it has n partitions; limits then hold for each of them.
        """
        return await self._broker.create_topic(name, self._checked(options, DEFAULT_OPTIONS))

    async def configure_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Change options of a topic; those not named stay as they are.

        Partitions can be added. What is stored stays where it is; from then on a key may go to
        another partition than before, so order by key holds for what is published afterwards only.
        """
        current = (await self._broker.topic_info(name)).options
        return await self._broker.configure_topic(name, self._checked(options, current))

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and what it holds. Its readers, feeds and subscriptions end with
        TopicDeleted."""
        await self._broker.delete_topic(name)
        await self._pollers.forget(name)

    async def purge_topic(self, name: str, before: int | None = None) -> int:
        """Delete every message of a topic, or those before an offset; returns how many.

        The topic stays, with its options, groups and offsets: new messages get the next offsets.
        Readers and groups that had not read the deleted messages continue after them. Partitions
        have offsets of their own: purge one as in "orders/0", or all of them without an offset.
        """
        return await self._broker.purge_topic(name, before)

    async def topics(self, pattern: str = ">") -> list[str]:
        """The names of the topics that match, sorted."""
        return await self._broker.topics(pattern)

    async def topic_info(self, name: str) -> TopicInfo:
        """A topic's id and options."""
        return await self._broker.topic_info(name)

    async def topic_stats(self, name: str) -> TopicStats:
        """A topic's figures right now."""
        return await self._broker.topic_stats(name)

    async def stats_of(self, names: Sequence[str]) -> list[TopicStats]:
        """The figures of many topics, in a few requests. Topics that do not exist are left out."""
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
