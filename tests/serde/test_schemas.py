"""Which schema reads what was written by which, for each format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flintmq.errors import InvalidRequest
from flintmq.schema_model import Compatibility, SchemaFormat, TopicSchema
from flintmq.serde.schemas.avro import avro_problems
from flintmq.serde.schemas.comparing import canonical, id_of, problems_with
from flintmq.serde.schemas.json_schema import json_problems
from flintmq.serde.schemas.protobuf import proto_problems


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def avro(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


NODE = record(avro("next", ["null", "Node"]), name="Node")
ENUM = {"type": "enum", "name": "Region", "symbols": ["EU", "US"]}
LESS = {**ENUM, "symbols": ["EU"]}


@pytest.mark.parametrize(
    ("reader", "writer", "problems"),
    [
        (record(avro("id", "long")), record(avro("id", "int")), []),
        (
            record(avro("id", "int")),
            record(avro("id", "long")),
            ["field 'id': long cannot be read as int"],
        ),
        (record(), record(avro("id", "long")), []),
        (record(avro("x", "int", default=0)), record(), []),
        (record(avro("x", "int")), record(), ["field 'x' is not written, and has no default"]),
        (record(avro("new", "int", aliases=["old"])), record(avro("old", "int")), []),
        (record(avro("x", ["null", "string"])), record(avro("x", "string")), []),
        (
            record(avro("x", "string")),
            record(avro("x", ["null", "string"])),
            ["field 'x': null cannot be read as string"],
        ),
        (
            record(avro("x", ["null", "int"])),
            record(avro("x", "string")),
            ["field 'x': string is none of null, int"],
        ),
        (LESS, ENUM, ["the value: the symbols US are missing"]),
        ({**LESS, "default": "EU"}, ENUM, []),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
        (
            record(avro("m", {"type": "map", "values": "int"})),
            record(avro("m", {"type": "map", "values": "string"})),
            ["field 'm[]': string cannot be read as int"],
        ),
        (NODE, NODE, []),
        (
            {"type": "fixed", "name": "Key", "size": 8},
            {"type": "fixed", "name": "Key", "size": 4},
            ["the value: fixed(4) cannot be read as fixed(8)"],
        ),
    ],
)
def test_avro_goes_by_its_specification(reader: Any, writer: Any, problems: list[str]) -> None:
    assert avro_problems(reader, writer) == problems


def objects(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


NUMBER, TEXT, WHOLE = {"type": "number"}, {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("reader", "writer", "problems"),
    [
        (objects({"id": NUMBER}), objects({"id": WHOLE}), []),
        (
            objects({"id": WHOLE}),
            objects({"id": NUMBER}),
            ["property 'id' could be number, and must be integer"],
        ),
        (objects({"id": WHOLE, "new": TEXT}), objects({"id": WHOLE}), []),
        (
            objects({"id": WHOLE}, required=["id"]),
            objects({"id": WHOLE}),
            ["property 'id' is required, and was not"],
        ),
        (objects({}), objects({"old": TEXT}), []),
        (
            objects({}, additionalProperties=False),
            objects({"old": TEXT}),
            ["property 'old' is not allowed any more"],
        ),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, []),
        (
            {"enum": ["a"]},
            {"enum": ["a", "b"]},
            ["the value could be one of ['b'], which is not allowed any more"],
        ),
        ({"minimum": 0}, {"minimum": 5}, []),
        ({"maximum": 3}, {"maximum": 5}, ["the value: maximum is 3, and was 5"]),
        ({"maximum": 3}, {}, ["the value: maximum is 3, and was not set"]),
        ({"pattern": "a"}, {"pattern": "b"}, ["the value: pattern has changed"]),
        (
            {"type": "array", "items": TEXT},
            {"type": "array", "items": WHOLE},
            ["property '[]' could be integer, and must be string"],
        ),
        (
            {"$ref": "#/$defs/o", "$defs": {"o": objects({"a": TEXT})}},
            {"$ref": "#/$defs/o", "$defs": {"o": objects({"a": WHOLE})}},
            ["property 'a' could be integer, and must be string"],
        ),
        (True, {"type": "string"}, []),
        (False, {}, ["the value is not allowed any more"]),
    ],
)
def test_json_schemas_are_compared_by_keywords(
    reader: Any, writer: Any, problems: list[str]
) -> None:
    assert json_problems(reader, writer) == problems


def proto(*fields: str, more: str = "") -> str:
    return f'syntax = "proto3"; message Order {{ {" ".join(fields)} {more} }}  // comment'


COLOUR = "enum Colour { RED = 0; BLUE = 1; }"


@pytest.mark.parametrize(
    ("reader", "writer", "problems"),
    [
        (proto("int64 id = 1;", "string new = 2;"), proto("int32 id = 1;"), []),
        (proto(), proto("int32 id = 1;"), []),
        (proto("string renamed = 1;"), proto("bytes id = 1;"), []),
        (
            proto("string id = 1;"),
            proto("int32 id = 1;"),
            ["field 1 of Order (id) was int32, and is string"],
        ),
        (
            proto("repeated int32 id = 1;"),
            proto("int32 id = 1;"),
            ["field 1 of Order (id) was single, and is repeated"],
        ),
        (
            proto("required int32 id = 1;"),
            proto(),
            ["field 1 of Order (id) is required, and was not"],
        ),
        (proto("Colour c = 1;", more=COLOUR), proto("int32 c = 1;"), []),
        (
            proto("oneof which { map<string, int32> a = 1; }", more="reserved 4, 5;"),
            proto("map<string, bool> a = 1 [deprecated = true];"),
            ["field 1 of Order (a) was map<string,bool>, and is map<string,int32>"],
        ),
        ("message New { }", proto(), ["message Order is gone"]),
    ],
)
def test_protobuf_goes_by_the_numbers(reader: str, writer: str, problems: list[str]) -> None:
    assert proto_problems(reader, writer) == problems


@pytest.mark.parametrize(
    ("schema", "format", "said"),
    [
        ("{", "avro", "schema must be"),
        ('{"type": "rekord"}', "avro", "not an Avro schema"),
        ("[]", "json", "a JSON Schema is an object"),
        ('{"$ref": "#/nowhere"}', "json", "leads nowhere"),
        ('{"$ref": "http://elsewhere"}', "json", "is not within the schema"),
        ("nothing", "protobuf", "not a Protobuf schema"),
        ("message A { int32 a = x; }", "protobuf", "a of A has no number"),
        ("message A { int32 a = 1; int32 b = 1; }", "protobuf", "number 1 of A is used twice"),
    ],
)
def test_what_is_no_schema_is_refused(schema: str, format: SchemaFormat, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        canonical(schema, format)


OLD = json.dumps(record(avro("id", "int")))
NEW = json.dumps(record(avro("id", "long")))


@pytest.mark.parametrize(
    ("rule", "problems"),
    [
        ("backward", []),
        ("forward", ["version 1 does not read it: field 'id': long cannot be read as int"]),
        ("full", ["version 1 does not read it: field 'id': long cannot be read as int"]),
        ("none", []),
    ],
)
def test_the_rule_says_who_reads_whom(rule: Compatibility, problems: list[str]) -> None:
    text = canonical(OLD, "avro")
    old = TopicSchema(topic="orders", version=1, id=id_of(text), format="avro", text=text)

    assert problems_with(canonical(NEW, "avro"), "avro", [old], rule) == problems
    if rule != "none":
        assert problems_with("{}", "json", [old], rule) == ["version 1 is avro, and this is json"]
