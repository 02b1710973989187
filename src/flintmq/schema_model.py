"""The vocabulary of schemas: the versions that a topic has, and how they may change."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

KIND = "schema"
"""Of their definitions."""
SchemaFormat = Literal["avro", "json", "protobuf"]
SCHEMA_FORMATS: tuple[SchemaFormat, ...] = get_args(SchemaFormat)
Compatibility = Literal["backward", "forward", "full", "none"]
COMPATIBILITIES: tuple[Compatibility, ...] = get_args(Compatibility)


class TopicSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the schema of a topic's values."""

    topic: str
    version: int
    id: str
    """Sixteen hex digits that stand for the schema: in the content type of its messages."""
    format: SchemaFormat
    text: str
    compatibility: Compatibility = "backward"
    """What the next version has to keep: backward: it reads what all earlier ones wrote; forward:
    they read what it writes; full: both."""
