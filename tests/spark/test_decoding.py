"""Values as columns, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import flintmq
from flintmq.client.blocking.client import BlockingClient
from flintmq.spark import from_value, schemas_of, to_value
from flintmq.spark.decoding import decoded

from .fixtures import BrokerProcess

ORDER = "id bigint, amount double, tags array<string>, who struct<name:string>"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"]},
    ],
}
GOOD = {"id": 1, "amount": 2.5, "tags": ["a", "b"], "who": {"name": "x"}}
OTHER = {"id": 2, "more": True}


def frame_of(spark: Any, *values: bytes | None, types: list[str | None] | None = None) -> Any:
    rows = [
        (number, value, types[number] if types else None) for number, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, "n int, value binary, content_type string")


def plain(row: Any) -> Any:
    return None if row is None else row.asDict(recursive=True)


def collected(frame: Any, *columns: str) -> list[Any]:
    return [tuple(row[column] for column in columns) for row in frame.orderBy("n").collect()]


@pytest.mark.parametrize(
    ("format", "encode"), [("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode)]
)
def test_values_become_a_struct_and_what_is_not_there_is_null(
    spark: Any, format: Any, encode: Any
) -> None:
    frame = frame_of(spark, encode(GOOD), encode(OTHER), None)

    data = [plain(row) for (row,) in collected(from_value(frame, ORDER, format=format), "data")]

    assert data == [
        GOOD,
        {"id": 2, "amount": None, "tags": None, "who": None},
        None,
    ]


@pytest.mark.parametrize(
    ("format", "bad"),
    [
        ("json", [b"{", b'{"id": "x"}', b'{"id": 1.5}', b"", b"[1]"]),
        (
            "msgpack",
            [b"\xc1", *map(msgspec.msgpack.encode, [{"id": "x"}, {"id": 2**63}, [1]]), b""],
        ),
    ],
)
def test_a_value_that_does_not_decode_is_null_and_the_others_are_fine(
    spark: Any, format: Any, bad: list[bytes]
) -> None:
    encode = msgspec.json.encode if format == "json" else msgspec.msgpack.encode
    frame = frame_of(spark, encode(GOOD), *bad, encode(OTHER), None)

    rows = collected(from_value(frame, ORDER, format=format, error="why"), "data", "why")

    assert [row.id if row is not None else None for row, _ in rows] == [
        1,
        *[None] * len(bad),
        2,
        None,
    ]
    assert [why is None for _, why in rows] == [True, *[False] * len(bad), True, True]


def test_avro_is_read_with_the_schema_it_was_written_with(spark: Any) -> None:
    from flintmq.serde.formats import AvroFormat, schema_text

    avro = AvroFormat(schema_text(AVRO))
    frame = frame_of(spark, avro.encode({"id": 7, "amount": None}), b"\x02")

    rows = collected(
        from_value(frame, "id bigint, amount double", format="avro", avro_schema=AVRO, error="why"),
        "data",
        "why",
    )

    assert plain(rows[0][0]) == {"id": 7, "amount": None}
    assert rows[1][0] is None
    assert rows[1][1]


def test_auto_goes_by_what_each_message_says_it_is(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.publish(topic, {"id": 0}, format="json")
    mq.publish(topic, {"id": 1}, format="msgpack")
    mq.publish(topic, {"id": 2}, format="json", compression="gzip")
    mq.publish(topic, {"id": 3}, format="avro", schema=AVRO | {"fields": AVRO["fields"][:1]})
    mq.publish(topic, b'{"id": 4}')
    mq.publish(topic, "text")
    frame = (
        spark.read.format("flintmq").option("servers", broker.url).option("subscribe", topic).load()
    ).withColumnRenamed("offset", "n")

    rows = collected(
        from_value(
            frame,
            "id bigint",
            format="auto",
            avro_schema=AVRO | {"fields": AVRO["fields"][:1]},
            error="why",
        ),
        "data",
        "why",
    )

    assert [row and row.id for row, _ in rows] == [0, 1, 2, 3, 4, None]
    assert "text" in rows[5][1]


def test_avro_values_are_decoded_by_the_ids_of_the_schemas_that_the_broker_keeps(
    broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    newer = AVRO | {"fields": [*AVRO["fields"], {"name": "more", "type": "int", "default": 0}]}
    mq.create_topic(topic)
    order = {"id": 7, "amount": 2.5}
    for schema, value in ((AVRO, order), (newer, {**order, "more": 1})):
        mq.add_schema(topic, schema)
        mq.publish(topic, value, format="avro", schema=schema)
    unknown = {"type": "record", "name": "Other", "fields": [{"name": "id", "type": "long"}]}
    mq.publish(topic, {"id": 8}, format="avro", schema=unknown)
    with mq.reader(topic, start="earliest") as reader:
        rows = reader.read_batch(3)
    columns = [pa.array([row.value for row in rows]), pa.array([row.content_type for row in rows])]
    wanted = StructType().add("id", "long").add("more", "integer").json()

    schemas = schemas_of(topic, servers=broker.url)
    found = decoded(columns, wanted, "auto", tuple(schemas)).to_pylist()

    assert len(schemas) == 2
    assert [row["data"] for row in found] == [
        {"id": 7, "more": None},
        {"id": 7, "more": 1},
        None,
    ]
    assert "Avro schema" in found[2]["error"]
    assert "is unknown here" in found[2]["error"]


def test_every_type_that_values_have_comes_through(spark: Any) -> None:
    schema = (
        "a tinyint, b smallint, c int, d float, e boolean, f binary, g decimal(10,2), h date,"
        " i timestamp, j map<string,int>, k array<struct<x:int>>"
    )
    value = {
        "a": 1, "b": 2, "c": 3, "d": 0.5, "e": True, "f": b"x", "g": Decimal("1.25"),
        "h": datetime(2026, 1, 2, tzinfo=UTC).date(), "i": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "j": {"y": 1}, "k": [{"x": 9}],
    }  # fmt: skip
    frame = frame_of(spark, msgspec.msgpack.encode(value))

    ((row,),) = collected(from_value(frame, schema, format="msgpack"), "data")

    found = plain(row)
    found["i"] = found["i"].astimezone(UTC)
    found["f"] = bytes(found["f"])
    assert found == value


@pytest.mark.parametrize("format", ["json", "msgpack", "avro"])
def test_columns_become_values_that_clients_decode(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, format: Any
) -> None:
    frame = spark.createDataFrame(
        [(5, 2.5, "k", topic)], "id bigint, amount double, key string, topic string"
    )
    avro_schema = AVRO if format == "avro" else None
    mq.register_schema(AVRO)

    to_value(frame, format=format, avro_schema=avro_schema).write.format("flintmq").mode(
        "append"
    ).option("servers", broker.url).save()

    with mq.reader(topic) as reader:
        (message,) = reader.read_batch(10, timeout=0)
    assert (message.key, message.decode()) == ("k", {"id": 5, "amount": 2.5})


def test_what_was_encoded_comes_back(spark: Any) -> None:
    frame = spark.createDataFrame([(1, "a", [1, None])], "id bigint, name string, list array<int>")

    again = from_value(
        to_value(frame, format="msgpack"), "id bigint, name string, list array<int>", format="auto"
    )

    assert [plain(row.data) for row in again.collect()] == [
        {"id": 1, "name": "a", "list": [1, None]}
    ]


def test_the_schema_and_the_names_are_checked_at_once(spark: Any) -> None:
    frame = frame_of(spark, b"{}")

    with pytest.raises(flintmq.InvalidRequest, match="no column 'nothing'"):
        from_value(frame, ORDER, column="nothing")
    with pytest.raises(flintmq.InvalidRequest, match="format must be one of json, msgpack"):
        from_value(frame, ORDER, format="xml")  # type: ignore[arg-type]
    with pytest.raises(flintmq.InvalidRequest, match="needs avro_schema"):
        from_value(frame, ORDER, format="avro")
    with pytest.raises(flintmq.InvalidRequest, match="needs the column 'content_type'"):
        from_value(frame.drop("content_type"), ORDER, format="auto")
    with pytest.raises(flintmq.InvalidRequest, match=r"value\.x is variant"):
        from_value(frame, "x variant", format="msgpack")
    with pytest.raises(flintmq.InvalidRequest, match="no column left for the value"):
        to_value(frame.select("value"))
