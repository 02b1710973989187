"""A schema of any format: its text in one form, its id, and how it goes with earlier ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ...errors import InvalidRequest
from ...schema_model import Compatibility, SchemaFormat, TopicSchema
from ..formats import schema_fingerprint, schema_text
from .avro import avro_problems, parsed_avro
from .json_schema import json_problems, parsed_json_schema
from .protobuf import parsed_proto, proto_problems


def canonical(schema: Any, format: SchemaFormat) -> str:
    """Its text, the same for the same schema. Raises InvalidRequest if it is none."""
    if format == "protobuf":
        if not isinstance(schema, str):
            raise InvalidRequest("a Protobuf schema is the text of a .proto file")
        parsed_proto(schema)
        return schema.strip() + "\n"
    text = schema_text(schema)
    parsed = json.loads(text)
    if format == "avro":
        parsed_avro(text, parsed)
    else:
        parsed_json_schema(parsed)
        json_problems(parsed, parsed)  # finds references that lead nowhere
    return text


def id_of(text: str) -> str:
    return schema_fingerprint(text)


def problems_with(
    text: str, format: SchemaFormat, earlier: Iterable[TopicSchema], rule: Compatibility
) -> list[str]:
    """Why a new version may not follow the earlier ones; each with the version it is about."""
    found = []
    for one in earlier:
        if rule == "none":
            break
        if one.format != format:
            found.append(f"version {one.version} is {one.format}, and this is {format}")
            continue
        if rule in ("backward", "full"):
            for problem in _unreadable(text, one.text, format):
                found.append(f"it does not read version {one.version}: {problem}")
        if rule in ("forward", "full"):
            for problem in _unreadable(one.text, text, format):
                found.append(f"version {one.version} does not read it: {problem}")
    return found


def _unreadable(reader: str, writer: str, format: SchemaFormat) -> list[str]:
    match format:
        case "protobuf":
            return proto_problems(reader, writer)
        case "avro":
            return avro_problems(json.loads(reader), json.loads(writer))
        case "json":
            return json_problems(json.loads(reader), json.loads(writer))
