"""Schemas over HTTP: what is asked and answered, and how."""

from __future__ import annotations

from ...client.schema_verbs import SchemaVerbs
from ...schema_model import Compatibility, SchemaFormat, TopicSchema
from ...serde.codec import Codec
from .desk import ApiCall, Desk
from .models import Asked
from .shown import Model


class AddSchema(Asked):
    """`schema` is the text of it, as in a file."""

    schema: str
    format: SchemaFormat = "avro"
    compatibility: Compatibility | None = None
    """With all earlier versions. Default: that of the latest, at first `backward`."""


class SchemaList(Model):
    schemas: list[TopicSchema]


class SchemaVerdict(Model):
    compatible: bool
    problems: list[str]


async def all_schemas(desk: Desk, call: ApiCall) -> SchemaList:
    return SchemaList(schemas=await _verbs(desk).schemas())


async def schemas_of_topic(desk: Desk, call: ApiCall) -> SchemaList:
    await desk.broker.topic_info(call.path["topic"])  # raises if there is none
    return SchemaList(schemas=await _verbs(desk).schemas(call.path["topic"]))


async def add_schema(desk: Desk, call: ApiCall) -> TopicSchema:
    asked: AddSchema = call.body
    return await _verbs(desk).add_schema(
        call.path["topic"], asked.schema, format=asked.format, compatibility=asked.compatibility
    )


async def check_schema(desk: Desk, call: ApiCall) -> SchemaVerdict:
    asked: AddSchema = call.body
    await desk.broker.topic_info(call.path["topic"])  # raises if there is none
    problems = await _verbs(desk).check_schema(
        call.path["topic"], asked.schema, format=asked.format, compatibility=asked.compatibility
    )
    return SchemaVerdict(compatible=not problems, problems=problems)


def _verbs(desk: Desk) -> SchemaVerbs:
    return SchemaVerbs(desk.broker, Codec())
