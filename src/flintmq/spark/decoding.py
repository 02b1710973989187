"""Values of messages as columns of Spark, and back: `from_value` and `to_value`.

JSON is decoded by Spark, in Java. MessagePack, Avro and `auto` go through Python, a batch at a
time: msgspec or fastavro decode to the types of the schema, and Arrow makes columns of the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_args

import msgspec

from ..errors import InvalidRequest
from ..rows import Origin
from ..serde.codec import Codec
from ..serde.content_type import ContentType, format_content_type
from ..serde.formats import JSON, MSGPACK, AvroFormat, schema_text
from .session import checked_pyspark
from .write_columns import COLUMNS

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

From = Literal["json", "msgpack", "avro", "auto"]
To = Literal["json", "msgpack", "avro"]

BAD = "_flintmq_bad"
DECODED = "_flintmq_decoded"
NOT_JSON = "not JSON of this schema"


def from_value(
    frame: DataFrame,
    schema: StructType | str,
    *,
    format: From = "json",
    column: str = "value",
    into: str = "data",
    error: str | None = None,
    avro_schema: dict[str, Any] | str | None = None,
    content_type: str = "content_type",
    schemas: Sequence[str] = (),
    once: bool = False,
) -> DataFrame:
    """Decode the values of messages: the frame with one column more, a struct of `schema`.

    A value that does not decode is null there; `error` names a column for the reason. A field that
    a value does not have is null. `format="auto"` uses the column `content_type` of each message,
    with compression; JSON if it is null. `avro_schema` is the schema that Avro values were written
    with; `schemas` are others that content types name by their ids, as `schemas_of` has them. With
    `once`, a value is decoded only once, however often it is used; filters on other columns are
    then applied after decoding.
    """
    checked_pyspark()
    from pyspark.sql import functions

    wanted = _struct(schema)
    _check_format(format, get_args(From), avro_schema)
    if column not in frame.columns:
        raise InvalidRequest(f"no column {column!r}; there are {', '.join(frame.columns)}")
    if format == "json":
        parsed = _parsed_json(functions.col(column), wanted)
        if once:
            frame = frame.withColumn(DECODED, _kept(parsed))
            parsed = functions.col(DECODED)
        decoded, why = _of_parsed(functions.col(column), parsed, wanted)
        result = frame.withColumn(into, decoded)
        result = result if error is None else result.withColumn(error, why)
        return result.drop(DECODED) if once else result
    inputs = [functions.col(column).cast("binary")]
    if format == "auto":
        if content_type not in frame.columns:
            raise InvalidRequest(
                f"format='auto' needs the column {content_type!r}; select it, or set the format"
            )
        inputs.append(functions.col(content_type))
    texts = tuple(_schema_text(one) for one in (avro_schema, *schemas) if one is not None)
    decode = _decoding_function(wanted, format, texts)
    both = _kept(decode(*inputs)) if once else decode(*inputs)
    result = frame.withColumn(DECODED, both).withColumn(into, functions.col(f"{DECODED}.data"))
    if error is not None:
        result = result.withColumn(error, functions.col(f"{DECODED}.error"))
    return result.drop(DECODED)


def reason_of(column: str, schema: StructType | str) -> Column:
    """Why a value is not JSON of a schema: the field, or the position in the text; null, if that is
    not known. Costs Python for every row that asks for it."""
    from pyspark.sql import functions

    decode = _decoding_function(_struct(schema), "auto", ())
    value = functions.col(column).cast("binary")
    found = decode(value, functions.lit(None).cast("string"))
    return found["error"]


def to_value(
    frame: DataFrame,
    *,
    format: To = "json",
    columns: Sequence[str] | None = None,
    avro_schema: dict[str, Any] | str | None = None,
) -> DataFrame:
    """Encode columns as the values of messages: the frame ready to be written.

    `columns` go into the value; by default all that are not columns of a message (key, topic,
    headers, ...). Those stay beside it, and `content_type` is set to the format of the value.
    """
    checked_pyspark()
    from pyspark.sql import functions

    _check_format(format, get_args(To), avro_schema)
    inside = [name for name in frame.columns if name not in COLUMNS] if columns is None else columns
    missing = [name for name in inside if name not in frame.columns]
    if missing or not inside:
        what = f"no column {missing[0]!r}" if missing else "no column left for the value"
        raise InvalidRequest(f"{what}; there are {', '.join(frame.columns)}")
    value, media = value_of(inside, format=format, avro_schema=avro_schema)
    beside = [
        functions.col(name)
        for name in frame.columns
        if name in COLUMNS and name not in ("value", "content_type")
    ]
    return frame.select(*beside, value.alias("value"), functions.lit(media).alias("content_type"))


def value_of(
    columns: Sequence[str], *, format: To = "json", avro_schema: dict[str, Any] | str | None = None
) -> tuple[Column, str]:
    """Columns as one column of values, and their content type."""
    from pyspark.sql import functions

    _check_format(format, get_args(To), avro_schema)
    whole = functions.struct(*(functions.col(f"`{name.replace('`', '``')}`") for name in columns))
    if format == "json":
        return functions.to_json(whole).cast("binary"), JSON.media_type
    value = _encoding_function(format, _schema_text(avro_schema))(whole)
    if format == "msgpack":
        return value, MSGPACK.media_type
    avro = _avro(_schema_text(avro_schema))
    return value, format_content_type(ContentType(avro.media_type, schema=avro.fingerprint))


# --- arguments


def _struct(schema: Any) -> Any:
    from pyspark.sql import types

    if isinstance(schema, str):
        schema = types.StructType.fromDDL(schema)
    if not isinstance(schema, types.StructType):
        raise InvalidRequest(
            f"schema must be a StructType or text such as 'id bigint', not {schema!r}"
        )
    if not schema.fields:
        raise InvalidRequest("the schema has no fields")
    return schema


def _check_format(format: str, known: Sequence[str], avro_schema: Any) -> None:
    if format not in known:
        raise InvalidRequest(f"format must be one of {', '.join(known)}, not {format!r}")
    if format == "avro" and avro_schema is None:
        raise InvalidRequest("format='avro' needs avro_schema, the schema of the values")


def _schema_text(avro_schema: Any) -> str:
    return "" if avro_schema is None else schema_text(avro_schema)


# --- JSON, in Java


def _parsed_json(value: Any, wanted: Any) -> Any:
    from pyspark.sql import functions, types

    with_bad = types.StructType([*wanted.fields, types.StructField(BAD, types.StringType())])
    return functions.from_json(
        value.cast("string"),
        with_bad,
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD},
    )


def _of_parsed(value: Any, parsed: Any, wanted: Any) -> tuple[Any, Any]:
    from pyspark.sql import functions

    is_good = parsed.isNotNull() & parsed[BAD].isNull()
    fields = [parsed[field.name].alias(field.name) for field in wanted.fields]
    why = functions.when(value.isNotNull() & ~is_good, functions.lit(NOT_JSON))
    return functions.when(is_good, functions.struct(*fields)), why


def _kept(column: Any) -> Any:
    """The same column, computed once. Spark copies an expression to every place that uses it, but
    not one that depends on the partition."""
    from pyspark.sql import functions

    return functions.when(functions.spark_partition_id() >= 0, column)


# --- other formats, in Python, a batch at a time


def _decoding_function(wanted: Any, format: str, avro_schemas: tuple[str, ...]) -> Any:
    from pyspark.sql import types

    text = wanted.json()
    python_type(wanted)  # fails now if a type cannot be decoded to

    def decode(*columns: Any) -> Any:
        return decoded(columns, text, format, avro_schemas)

    returned = types.StructType(
        [types.StructField("data", wanted), types.StructField("error", types.StringType())]
    )
    return _arrow_udf(decode, "columns", returned)


def _encoding_function(format: str, avro_schema: str) -> Any:
    def encode(rows: Any) -> Any:
        return encoded(rows, format, avro_schema)

    return _arrow_udf(encode, "rows", "binary")


def _arrow_udf(function: Callable[..., Any], parameter: str, returned: Any) -> Any:
    """Spark goes by the types in a function's annotations, which must not be text."""
    import pyarrow as pa

    function.__annotations__ = {parameter: pa.Array, "return": pa.Array}
    return import_module("pyspark.sql.functions").arrow_udf(function, returned)


def decoded(
    columns: Sequence[pyarrow.Array], schema_json: str, format: str, avro_schemas: tuple[str, ...]
) -> pyarrow.Array:
    """The values as a struct of data and error."""
    import pyarrow as pa

    decode, arrow_type = _decoder(schema_json, format, avro_schemas)
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    errors: list[str | None] = [None] * len(rows)
    try:
        data = pa.array([None if row[0] is None else decode(*row) for row in rows], arrow_type)
    except Exception:
        # At least one value is bad: try each by itself. A value may also decode and still not fit
        # the Arrow type.
        good = []
        for number, row in enumerate(rows):
            try:
                value = None if row[0] is None else decode(*row)
                pa.array([value], arrow_type)
            except Exception as error:
                value, errors[number] = None, f"{error}" or type(error).__name__
            good.append(value)
        data = pa.array(good, arrow_type)
    return pa.StructArray.from_arrays([data, pa.array(errors, pa.string())], ["data", "error"])


def encoded(rows: pyarrow.Array, format: str, avro_schema: str) -> pyarrow.Array:
    import pyarrow as pa

    encode = MSGPACK.encode if format == "msgpack" else _avro(avro_schema).encode
    return pa.array([encode(row) for row in rows.to_pylist()], pa.binary())


@lru_cache(maxsize=64)
def _decoder(
    schema_json: str, format: str, avro_schemas: tuple[str, ...]
) -> tuple[Callable[..., Any], Any]:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(schema_json))
    kind = python_type(schema)
    arrow_type = to_arrow_type(schema, timezone="UTC")
    if format == "msgpack":
        return MSGPACK.quick_decoder(kind), arrow_type
    if format == "avro":
        avro = _avro(avro_schemas[0])
        return lambda value: avro.decode(value, kind), arrow_type
    codec = Codec()
    for avro_schema in avro_schemas:
        codec.register_schema(avro_schema)
    json_decode = JSON.quick_decoder(kind)
    origin = Origin("value")

    def by_content_type(value: bytes, content_type: str | None) -> Any:
        if not content_type:
            return json_decode(value)
        return codec.decode(value, content_type, origin, kind)

    return by_content_type, arrow_type


@lru_cache(maxsize=16)
def _avro(schema: str) -> AvroFormat:
    return AvroFormat(schema)


# --- types

PLAIN = {
    "StringType": str,
    "BinaryType": bytes,
    "BooleanType": bool,
    "FloatType": float,
    "DoubleType": float,
    "DecimalType": Decimal,
    "DateType": date,
    "TimestampType": datetime,
    "TimestampNTZType": datetime,
}


def python_type(kind: Any, path: str = "value") -> Any:
    """The type that msgspec decodes to, for a type of Spark. Everything may be null or missing."""
    name = type(kind).__name__
    if name == "StructType":
        fields = {
            field.name: python_type(field.dataType, f"{path}.{field.name}") | None
            for field in kind.fields
        }
        made: Any = TypedDict
        return made("Value", fields, total=False)
    if name == "ArrayType":
        items: Any = python_type(kind.elementType, f"{path}[]")
        return list[items | None]
    if name == "MapType":
        keys: Any = python_type(kind.keyType, f"{path} (key)")
        values: Any = python_type(kind.valueType, f"{path}[]")
        return dict[keys, values | None]
    bits = {"ByteType": 8, "ShortType": 16, "IntegerType": 32, "LongType": 64}.get(name)
    if bits is not None:
        most = 2 ** (bits - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    if name not in PLAIN:
        raise InvalidRequest(f"{path} is {kind.simpleString()}, which values cannot be decoded to")
    return PLAIN[name]
