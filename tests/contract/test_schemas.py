"""Schemas of topics: versions that are compatible, ids, and decoding by them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import flintmq
from tests.contract.conftest import Connect

FIRST: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}],
}  # fmt: skip
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "at", "type": "long", "default": 0}]}
WRONG = {**FIRST, "fields": [{"name": "id", "type": "string"}]}


async def test_versions_are_added_listed_and_deleted(mq: flintmq.Client) -> None:
    await mq.create_topic("orders")

    one = await mq.add_schema("orders", FIRST)
    again = await mq.add_schema("orders", FIRST)
    two = await mq.add_schema("orders", SECOND, compatibility="full")

    assert (one.version, two.version) == (1, 2)
    assert again == one
    assert one.id != two.id
    assert await mq.schemas("orders") == await mq.schemas() == [one, two]
    assert await mq.schema("orders") == two
    assert await mq.schema("orders", 1) == one
    await mq.delete_schema("orders", 1)
    assert await mq.schemas("orders") == [two]
    with pytest.raises(flintmq.InvalidRequest, match="has no version 1 of a schema"):
        await mq.schema("orders", 1)


async def test_a_version_that_does_not_fit_is_refused_with_the_reason(mq: flintmq.Client) -> None:
    await mq.create_topic("orders")
    await mq.add_schema("orders", FIRST)
    problem = "it does not read version 1: field 'id': int cannot be read as string"

    assert await mq.check_schema("orders", WRONG) == [problem]
    assert await mq.check_schema("orders", SECOND) == []
    with pytest.raises(flintmq.InvalidRequest) as refused:
        await mq.add_schema("orders", WRONG)
    assert str(refused.value) == (
        f"the schema is not backward compatible with those of 'orders': {problem}"
    )
    assert [one.version for one in await mq.schemas("orders")] == [1]
    assert (await mq.add_schema("orders", WRONG, compatibility="none")).version == 2


async def test_of_versions_that_are_added_at_once_each_has_its_own_number(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders")
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(4)]

    await asyncio.gather(*(mq.add_schema("orders", {**FIRST, "fields": [one]}) for one in fields))

    found = await mq.schemas("orders")
    assert [one.version for one in found] == [1, 2, 3, 4]
    assert len({one.id for one in found}) == 4


async def test_messages_carry_the_id_and_are_decoded_by_it(
    mq: flintmq.Client, connect: Connect
) -> None:
    await mq.create_topic("orders")
    one, two = await mq.add_schema("orders", FIRST), await mq.add_schema("orders", SECOND)
    await mq.publish("orders", {"id": 1}, format="avro", schema=one.text)
    await mq.publish("orders", {"id": 2, "at": 7}, format="avro", schema=two.text)

    assert await mq.use_schemas("orders") == [one, two]
    async with mq.reader("orders") as reader:
        found = [await reader.read() for _ in range(2)]

    assert [message.decode() for message in found] == [{"id": 1}, {"id": 2, "at": 7}]
    assert [f"schema={one.id}" in (m.content_type or "") for m in found] == [True, False]


async def test_a_topic_of_partitions_has_schemas_too(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=2)
    proto = "message Order { int32 id = 1; }"

    made = await mq.add_schema("orders", proto, format="protobuf")

    assert await mq.schema("orders") == made
    assert made.format == "protobuf"


async def test_what_makes_no_sense_is_refused(mq: flintmq.Client) -> None:
    await mq.create_topic("orders")
    for said, keywords in (
        ("format must be one of avro, json, protobuf", {"format": "xml"}),
        ("compatibility must be one of backward, forward, full, none", {"compatibility": "some"}),
    ):
        with pytest.raises(flintmq.InvalidRequest, match=said):
            await mq.add_schema("orders", FIRST, **keywords)  # type: ignore[arg-type]
    with pytest.raises(flintmq.TopicNotFound):
        await mq.add_schema("nowhere", FIRST)
    with pytest.raises(flintmq.InvalidRequest, match="topic 'orders' has no schema; add one"):
        await mq.schema("orders")
