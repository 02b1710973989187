"""The Avro schemas that a broker keeps for its topics, for values that name theirs by its id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from ..errors import PermissionDenied, TopicNotFound
from ..schema_model import KIND, TopicSchema
from .connecting import BrokerLine, line_to
from .options import read_options


def schemas_of(*topics: str, servers: str, options: Mapping[str, str] | None = None) -> list[str]:
    """The Avro schemas of topics, as text, for `from_value(..., format="auto", schemas=...)`.

    `options` are those of the data source that say how to reach the broker: apiKey, tlsCa and so
    on. It takes the permission `administer` on one of the topics.
    """
    given = {**(options or {}), "servers": servers, "subscribe": ",".join(topics)}
    settings = read_options(given, streams=False).settings
    return kept_schemas(line_to(settings), topics)


def kept_schemas(line: BrokerLine, topics: Iterable[str | None]) -> list[str]:
    """The same over a connection; of all topics for None."""

    async def ask() -> list[TopicSchema]:
        found = await asyncio.gather(*(line.broker.definitions(KIND, topic) for topic in topics))
        return [msgspec.json.decode(one.value, type=TopicSchema) for each in found for one in each]

    return sorted({one.text for one in line.ask(ask()) if one.format == "avro"})


def schemas_if_allowed(line: BrokerLine, topics: Iterable[str | None]) -> list[str]:
    """Nothing for who may not ask, or of a topic that is not there yet: of a value that names a
    schema it is then said that this is unknown."""
    try:
        return kept_schemas(line, topics)
    except (PermissionDenied, TopicNotFound):
        return []
