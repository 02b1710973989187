"""The verbs of schemas: adding versions to a topic's, listing and checking them.

Each version is a definition that is kept with its topic. A version is never changed; of two that
are added at once, each gets a number of its own, and is compared with the other.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from ..broker_api import BrokerApi
from ..errors import DefinitionChanged, InvalidRequest
from ..schema_model import (
    COMPATIBILITIES,
    KIND,
    SCHEMA_FORMATS,
    Compatibility,
    SchemaFormat,
    TopicSchema,
)
from ..serde.codec import Codec
from ..serde.schemas.comparing import canonical, id_of, problems_with

DEFAULT: Compatibility = "backward"


class SchemaVerbs:
    """The part of a client that deals with schemas."""

    def __init__(self, broker: BrokerApi, codec: Codec) -> None:
        self._broker, self._codec = broker, codec

    async def add_schema(
        self,
        topic: str,
        schema: Any,
        *,
        format: SchemaFormat = "avro",
        compatibility: Compatibility | None = None,
    ) -> TopicSchema:
        """Add a version of the schema of a topic's values: Avro, JSON Schema or Protobuf.

        It must be compatible with all earlier versions: `backward` (it reads what they wrote),
        `forward` (they read what it writes), `full` (both) or `none`. The default is that of the
        latest version, for the first one backward. An identical schema is not added again.
        """
        _check(format, compatibility)
        text = canonical(schema, format)
        while True:
            there = await self.schemas(topic)
            known = next((one for one in there if one.id == id_of(text)), None)
            if known is not None and compatibility in (None, known.compatibility):
                return known
            rule = compatibility or (there[-1].compatibility if there else DEFAULT)
            if problems := problems_with(text, format, there, rule):
                raise InvalidRequest(
                    f"the schema is not {rule} compatible with those of {topic!r}: "
                    f"{'; '.join(problems)}"
                )
            made = TopicSchema(
                topic=topic,
                version=there[-1].version + 1 if there else 1,
                id=id_of(text),
                format=format,
                text=text,
                compatibility=rule,
            )
            with suppress(DefinitionChanged):  # somebody else has added one: look again
                value = msgspec.json.encode(made)
                await self._broker.define(KIND, topic, str(made.version), value, 0)
                return made

    async def schemas(self, topic: str | None = None) -> list[TopicSchema]:
        """List all versions, of a topic or of all, oldest first."""
        found = [
            msgspec.json.decode(one.value, type=TopicSchema)
            for one in await self._broker.definitions(KIND, topic)
        ]
        return sorted(found, key=lambda one: (one.topic, one.version))

    async def schema(self, topic: str, version: int | None = None) -> TopicSchema:
        """Return a version, or the latest."""
        found = await self.schemas(topic)
        for one in reversed(found):
            if version in (None, one.version):
                return one
        which = "schema" if version is None else f"version {version} of a schema"
        raise InvalidRequest(f"topic {topic!r} has no {which}; add one with add_schema")

    async def check_schema(
        self,
        topic: str,
        schema: Any,
        *,
        format: SchemaFormat = "avro",
        compatibility: Compatibility | None = None,
    ) -> list[str]:
        """Return why add_schema would reject the schema, or an empty list. Nothing is added."""
        _check(format, compatibility)
        there = await self.schemas(topic)
        rule = compatibility or (there[-1].compatibility if there else DEFAULT)
        return problems_with(canonical(schema, format), format, there, rule)

    async def use_schemas(self, topic: str) -> list[TopicSchema]:
        """Decode values of all Avro versions of a topic from now on; returns the versions."""
        found = await self.schemas(topic)
        for one in found:
            if one.format == "avro":
                self._codec.register_schema(one.text)
        return found

    async def delete_schema(self, topic: str, version: int) -> None:
        """Delete a version. Its messages stay, and need it to be decoded."""
        await self.schema(topic, version)
        await self._broker.define(KIND, topic, str(version), None)


def _check(format: str, compatibility: str | None) -> None:
    if format not in SCHEMA_FORMATS:
        raise InvalidRequest(f"format must be one of {', '.join(SCHEMA_FORMATS)}, not {format!r}")
    if compatibility is not None and compatibility not in COMPATIBILITIES:
        raise InvalidRequest(
            f"compatibility must be one of {', '.join(COMPATIBILITIES)}, not {compatibility!r}"
        )
