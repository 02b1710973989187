"""Formats: what each writes, what it gives back, and as what."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import InvalidRequest, MissingExtra
from flintmq.serde.formats import (
    JSON,
    MSGPACK,
    AvroFormat,
    CustomFormat,
    Format,
    RawFormat,
    TextFormat,
    schema_fingerprint,
    schema_text,
)

ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PLAIN_ORDER = {"id": 7, "amount": 9.5, "tags": ["new", "für uns"]}


@dataclasses.dataclass
class OrderData:
    id: int
    amount: float
    tags: list[str]


class OrderStruct(msgspec.Struct):
    id: int
    amount: float
    tags: list[str]


class OrderDict(TypedDict):
    id: int
    amount: float
    tags: list[str]
    note: NotRequired[str]


class OrderModel(pydantic.BaseModel):
    id: int
    amount: float
    tags: list[str]


ORDERS: dict[str, tuple[Any, Any]] = {
    "dict": (dict, PLAIN_ORDER),
    "dataclass": (OrderData, OrderData(7, 9.5, ["new", "für uns"])),
    "msgspec Struct": (OrderStruct, OrderStruct(7, 9.5, ["new", "für uns"])),
    "TypedDict": (OrderDict, PLAIN_ORDER),
    "pydantic model": (OrderModel, OrderModel(id=7, amount=9.5, tags=["new", "für uns"])),
}


def avro(schema: Any = ORDER_SCHEMA) -> AvroFormat:
    return AvroFormat(schema_text(schema))


FORMATS: dict[str, Format] = {"json": JSON, "msgpack": MSGPACK, "avro": avro()}

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcü ", max_size=5), inner)
    ),
    max_leaves=12,
)


# --- there and back


@given(JSON_VALUES)
@settings(max_examples=100, deadline=None)
def test_json_values_come_back_from_json_and_msgpack(value: Any) -> None:
    for format in (JSON, MSGPACK):
        assert format.decode(format.encode(value), None) == value
    assert json.loads(JSON.encode(value)) == value


@given(st.binary(max_size=100), st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
@settings(max_examples=100, deadline=None)
def test_bytes_and_text_come_back(data: bytes, text: str) -> None:
    assert RawFormat().decode(RawFormat().encode(data), None) == data
    assert MSGPACK.decode(MSGPACK.encode(data), None) == data
    assert TextFormat().decode(TextFormat().encode(text), None) == text


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "amount": st.floats(allow_nan=False),
            "tags": st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4),
        }
    )
)
@settings(max_examples=100, deadline=None)
def test_records_come_back_from_avro(order: dict[str, Any]) -> None:
    assert FORMATS["avro"].decode(FORMATS["avro"].encode(order), None) == order


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("written_as", ORDERS)
@pytest.mark.parametrize("read_as", ORDERS)
def test_what_one_type_writes_another_reads(format: str, written_as: str, read_as: str) -> None:
    wanted, expected = ORDERS[read_as]
    data = FORMATS[format].encode(ORDERS[written_as][1])

    assert FORMATS[format].decode(data, None) == PLAIN_ORDER
    assert FORMATS[format].decode(data, wanted) == expected


@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_pydantic_models_may_stand_within_other_types(format: str) -> None:
    encoded = FORMATS[format].encode({"first": [PLAIN_ORDER], "second": None})
    model = ORDERS["pydantic model"][1]

    wanted = dict[str, list[OrderModel] | None]
    assert FORMATS[format].decode(encoded, wanted) == {"first": [model], "second": None}
    with pytest.raises(ValueError):
        FORMATS[format].decode(FORMATS[format].encode([{"id": "x"}]), list[OrderModel])


def test_avro_gives_pydantic_models_within_other_types() -> None:
    many = avro({"type": "array", "items": ORDER_SCHEMA})
    assert many.decode(many.encode([PLAIN_ORDER]), list[OrderModel]) == [
        ORDERS["pydantic model"][1]
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("wanted", [list[int], int, OrderStruct, OrderModel, OrderData])
def test_a_value_of_another_shape_does_not_decode_to_a_type(format: str, wanted: Any) -> None:
    other = FORMATS[format] if format != "avro" else avro('"string"')
    data = other.encode("just text")
    with pytest.raises(Exception, match=r"(?i)expected|valid"):
        other.decode(data, wanted)


def test_a_quick_decoder_does_what_decode_does() -> None:
    for format in (JSON, MSGPACK):
        data = format.encode(PLAIN_ORDER)
        for wanted, expected in ORDERS.values():
            assert format.quick_decoder(wanted)(data) == expected
        assert format.quick_decoder(None)(data) == PLAIN_ORDER


# --- json


def test_bytes_that_hold_json_are_taken_as_they_are() -> None:
    for encoded in (b' { "a": 1 } ', bytearray(b"[1]"), memoryview(b"null")):
        assert JSON.encode(encoded) == bytes(encoded)


@pytest.mark.parametrize("data", [b"", b"not json", b"{", b'{"a": 1} x', b'"\xff"', b"\xf5FM"])
def test_other_bytes_are_not_published_as_json(data: bytes) -> None:
    with pytest.raises(ValueError):
        JSON.encode(data)


def test_times_decimals_and_ids_come_back_by_type() -> None:
    class Facts(msgspec.Struct):
        at: datetime
        on: date
        price: Decimal
        id: UUID
        data: bytes

    facts = Facts(datetime(2024, 5, 1, tzinfo=UTC), date(2024, 5, 1), Decimal("1.10"), UUID(int=7),
                  b"\x00\xff")  # fmt: skip
    for format in (JSON, MSGPACK):
        assert format.decode(format.encode(facts), Facts) == facts


@pytest.mark.parametrize("format", [JSON, MSGPACK])
def test_what_has_no_form_is_an_error_that_names_its_type(format: Format) -> None:
    with pytest.raises(TypeError, match="object cannot be encoded"):
        format.encode({"deep": [object()]})


@pytest.mark.parametrize("format", [JSON, MSGPACK])
def test_depth_is_an_error_not_a_crash(format: Format) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000 if format.name == "json" else b"\x91" * 100_000 + b"\xc0"
    for wanted in (None, list[Any], OrderModel):
        with pytest.raises((RecursionError, ValueError)):
            format.decode(deep, wanted)


# --- raw and text


@pytest.mark.parametrize("value", ["text", 1, None, {"a": 1}, [b"x"]])
def test_raw_takes_bytes_only(value: Any) -> None:
    with pytest.raises(TypeError, match="raw takes bytes"):
        RawFormat().encode(value)


@pytest.mark.parametrize("value", [b"bytes", 1, None, ["x"]])
def test_text_takes_text_only(value: Any) -> None:
    with pytest.raises(TypeError, match="text takes str"):
        TextFormat().encode(value)


def test_raw_and_text_give_nothing_but_what_they_are() -> None:
    assert RawFormat().decode(b"x", bytes) == b"x"
    assert TextFormat().decode(b"x", str) == "x"
    for format in (RawFormat(), TextFormat()):
        with pytest.raises(TypeError, match="decoded to"):
            format.decode(b"x", int)
    with pytest.raises(UnicodeDecodeError):
        TextFormat().decode(b"\xff", None)


# --- avro

EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "data", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "old_hash", "type": "Hash"},
    ],
}


@dataclasses.dataclass
class Everything:
    data: bytes
    at: datetime
    on: date
    price: Decimal
    id: UUID
    kind: str
    hash: bytes
    counts: dict[str, int]
    note: str | None
    old_hash: bytes


def test_every_avro_type_comes_back_in_a_dataclass() -> None:
    format = avro(EVERYTHING)
    whole = Everything(
        b"\x00\xff", datetime(2024, 5, 1, 12, tzinfo=UTC), date(2024, 5, 1), Decimal("12.50"),
        UUID(int=7), "B", b"hash", {"a": 1}, None, b"HASH",
    )  # fmt: skip

    assert format.decode(format.encode(whole), Everything) == whole
    assert format.decode(format.encode(dataclasses.asdict(whole)), Everything) == whole


@pytest.mark.parametrize(
    "value",
    [{"id": 1, "amount": 1.0}, {"id": "x", "amount": 1.0, "tags": []}, {**PLAIN_ORDER, "more": 1},
     "text", 5, None, []],
)  # fmt: skip
def test_what_is_not_of_the_schema_is_not_written(value: Any) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
        avro().encode(value)


def test_bytes_left_over_behind_an_avro_value_are_an_error() -> None:
    with pytest.raises(ValueError, match="extra bytes"):
        avro().decode(avro().encode(PLAIN_ORDER) + b"x", None)


def test_a_schema_has_one_text_and_one_fingerprint() -> None:
    spaced = json.dumps(ORDER_SCHEMA, indent=2)

    assert schema_text(spaced) == schema_text(ORDER_SCHEMA) == schema_text(schema_text(spaced))
    assert schema_fingerprint(schema_text({"type": "string"})) == "00404e686415370f"
    assert avro().fingerprint == schema_fingerprint(schema_text(ORDER_SCHEMA))


@pytest.mark.parametrize("schema", ["{", "no json", object(), {1: object()}, b"bytes"])
def test_what_is_no_json_is_no_schema(schema: Any) -> None:
    with pytest.raises(InvalidRequest, match="schema"):
        avro(schema)


@pytest.mark.parametrize("schema", [{}, [], 5, {"type": "nonsense"}, '"Unknown"'])
def test_what_is_no_avro_schema_is_refused(schema: Any) -> None:
    if schema == []:  # an empty union: fastavro takes it, and nothing can be written by it
        with pytest.raises((ValueError, IndexError)):
            avro(schema).encode(None)
        return
    with pytest.raises(InvalidRequest, match="not an Avro schema"):
        avro(schema)


NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "x", "type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": NOTHING},
        {"type": "array", "items": {"type": "fixed", "name": "Zero", "size": 0}},
        {"type": "map", "values": {"type": "array", "items": "null"}},
        ["null", {"type": "array", "items": "null"}],
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "one", "type": NOTHING},
                {"name": "many", "type": {"type": "array", "items": "Nothing"}},
            ],
        },
    ],
)
def test_arrays_of_what_takes_no_bytes_are_refused_as_four_bytes_could_claim_billions(
    schema: Any,
) -> None:
    with pytest.raises(InvalidRequest, match="any length"):
        avro(schema)


RECURSIVE = """
from flintmq.serde.formats import AvroFormat, schema_text
node = {"type": "record", "name": "Node", "namespace": "a.b", "fields": [
    {"name": "next", "type": ["null", "Node"]}]}
tree = {"type": "record", "name": "Tree", "fields": [
    {"name": "leaf", "type": {"type": "record", "name": "Leaf", "fields": [
        {"name": "trees", "type": {"type": "array", "items": "Tree"}}]}}]}
mapped = {"type": "record", "name": "Mapped", "fields": [
    {"name": "m", "type": {"type": "map", "values": "Mapped"}}]}
for schema, bomb in ((node, b"\\x02" * 300_000), (tree, b"\\x02" * 300_000),
                     (mapped, b"\\x02\\x00" * 300_000)):
    try:
        AvroFormat(schema_text(schema)).decode(bomb, None)
    except RecursionError:
        print("refused")
value = {"next": {"next": {"next": None}}}
format = AvroFormat(schema_text(node))
assert format.decode(format.encode(value), None) == value
"""


def test_bytes_for_a_schema_that_contains_itself_do_not_crash_the_process() -> None:
    # In a process of its own: a stack that overflows would take the tests with it.
    done = subprocess.run([sys.executable, "-c", RECURSIVE], capture_output=True, text=True)

    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * 3), done.stderr[-500:]


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_never_hang_a_decoder(data: bytes) -> None:
    for format in (*FORMATS.values(), avro(EVERYTHING), RawFormat(), TextFormat()):
        with suppress(Exception):
            format.decode(data, None)


def test_avro_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtra, match=r"\[avro\]"):
        avro()


# --- one's own


def test_a_format_of_ones_own_gives_bytes_and_gets_them() -> None:
    format = CustomFormat(
        "csv", lambda row: ",".join(row).encode(), lambda data: data.decode().split(","), "text/csv"
    )

    assert format.encode(["a", "b"]) == b"a,b"
    assert format.decode(b"a,b", None) == ["a", "b"]
    assert format.decode(b"a,b", tuple[str, str]) == ("a", "b")


@pytest.mark.parametrize("result", ["text", None, bytearray(b"x"), 5])
def test_an_encoder_that_gives_no_bytes_is_an_error(result: Any) -> None:
    format = CustomFormat("odd", lambda value: result, lambda data: data, "application/x-odd")
    with pytest.raises(TypeError, match="not bytes"):
        format.encode(1)


# --- only some fields, for filters

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, width=32)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["a", "b", "x-id", "_c", "é", 'q"'])  | st.text(), inner),
    max_leaves=12,
)  # fmt: skip


@given(plain, st.sampled_from([("a",), ("b", "x-id"), ("_c", "é", 'q"'), ("\ud800",)]))
def test_some_fields_are_what_they_are_in_the_whole_value(
    value: object, names: tuple[str, ...]
) -> None:
    for format in (JSON, MSGPACK):
        data = format.encode(value)
        whole, some = format.decode(data, None), format.decode_fields(data, names)
        for name in names:
            assert isinstance(some, dict) >= isinstance(whole, dict)
            if isinstance(whole, dict):
                assert (name in some) == (name in whole)
                assert some.get(name) == whole.get(name)


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1} x', b'{"b": [}', b"nonsense"])
def test_some_fields_of_what_is_no_json_are_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        JSON.decode_fields(data, ("a",))
