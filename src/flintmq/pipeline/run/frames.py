"""The tables of a flow as frames of Spark: sources are read and decoded, then come the steps.

Every flow has its own frames, since each is a query of its own. For SQL they are temporary views
while it is analysed; views of the same name are restored afterwards.

A decoded row of a topic has the fields of the schema, then those of the message:

    _key _topic _partition _offset _timestamp _priority _content_type [_headers]

and a row of a file has `_file`, the name of the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InvalidRequest
from ...spark.columns import HEADERS, SCHEMA
from ...spark.connecting import line_to
from ...spark.decoding import NOT_JSON, from_value, reason_of
from ...spark.failures import error_text
from ...spark.known_schemas import schemas_if_allowed
from ...spark.options import ReadOptions, read_options
from ...spark.planning import extents
from ..check.parts import place_in
from ..check.queries import place_of_error, table_of
from ..define import loading as named
from ..define.definition import Pipeline, Sink, Source, Step, Watermark
from ..define.flows import Flow
from ..define.graph import tables
from .expecting import expected, with_broken_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DATA, WHY, DETAIL = "_flintmq_data", "_flintmq_why", "_flintmq_detail"
OF_MESSAGES = (
    "key", "topic", "partition", "offset", "timestamp", "priority", "content_type", "headers",
)  # fmt: skip
OF_STREAMS = frozenset({"group", "maxOffsetsPerTrigger", "startingOffsets"})
COUNT = re.compile(r"count\s*\(\s*\*\s*\)")
WHATEVER_THERE_IS = re.compile(
    r"\* | \|> | \b(natural|pivot|unpivot|table)\b | (^|\()\s*from\b", re.VERBOSE
)
"""In SQL in lower case: what uses columns without naming them."""
WHY_HEADER, SOURCE_HEADER = "flintmq-why", "flintmq-source"
DETAIL_HEADER = "flintmq-detail"
"""The field or the position; apart from the reason, by which dead letters are counted."""

AccessOptions = Mapping[str, str]
"""Credentials, as options of the data source: apiKey, tlsCa and so on."""


def java_session(spark: SparkSession) -> Any:
    """The session in Java. A session of Spark Connect has none here."""
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidRequest(
            "a pipeline cannot run on a Spark Connect URL: use a master such as local[2] or "
            "spark://host:7077"
        )
    return spark._jsparkSession


class GivenReading(Protocol):
    """Reads a source from elsewhere: given rows, in a test."""

    def __call__(self, source: Source, *, is_static: bool, with_headers: bool) -> DataFrame: ...


class Frames:
    """Builds the tables of a flow."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        flow: Flow,
        access: AccessOptions | None = None,
        given: GivenReading | None = None,
        stop_file: Path | None = None,
    ) -> None:
        self._spark, self._pipeline, self._flow = spark, pipeline, flow
        self._access, self._given, self._stop_file = access or {}, given, stop_file
        self.of: dict[str, DataFrame] = {}

    def built(self) -> DataFrame:
        """The rows for the sink of the flow."""
        if self._flow.dead_letters_of is not None:
            return self._dead_letters(self._pipeline.sources[self._flow.dead_letters_of])
        with _views_restored(self._spark, self._flow.tables):
            for name in self._flow.tables:
                if name in self._pipeline.sources:
                    frame = self._source(self._pipeline.sources[name])
                else:
                    frame = self._step(self._pipeline.steps[name])
                self.of[name] = frame
                frame.createOrReplaceTempView(f"`{name}`")
        return self.of[self._flow.sink.takes]

    # --- steps

    def _step(self, step: Step) -> DataFrame:
        place = place_in(step, "function")
        try:
            function = None if step.function is None else named.load(step.function, place)
            table = table_of(self._spark, step, function, self.of)
            return _watermarked(expected(table, step), step.watermark)
        except Exception as error:
            if step.sql is not None:
                place = place_of_error(error, step)
            text = error_text(error).removeprefix(f"{place}: ")
            raise InvalidRequest(f"{place}: step {step.name!r}: {text}") from error

    # --- sources

    def _source(self, source: Source) -> DataFrame:
        try:
            frame = self._read(source, is_static=source.is_static)
            if source.schema is not None and _has_bad_rows(source):
                frame = self._decoded(source, frame)
            return _watermarked(expected(frame, source), source.watermark)
        except InvalidRequest:
            raise
        except Exception as error:
            raise InvalidRequest(
                f"{source.place}: source {source.name!r}: {error_text(error)}"
            ) from error

    def _read(self, source: Source, *, is_static: bool, with_headers: bool = False) -> DataFrame:
        if self._given is not None:
            return self._given(source, is_static=is_static, with_headers=with_headers)
        reader: Any = self._spark.read if is_static else self._spark.readStream
        if source.files is not None:
            return files_of(self._spark, reader, source, path_of(source.files), is_static=is_static)
        options = source_options(
            self._pipeline, source, self._access, self._flow.group(source.name)
        )
        if is_static:
            options = {k: v for k, v in options.items() if k not in OF_STREAMS}
            options.setdefault("endingOffsets", self._ends_now(options))
        elif self._stop_file is not None:
            options["stopFile"] = str(self._stop_file)
        if with_headers:
            options["includeHeaders"] = "true"
        elif source.schema is not None:
            reader = reader.schema(", ".join(columns_needed(self._pipeline, self._flow, source)))
        options.setdefault("parallelism", str(self._spark.sparkContext.defaultParallelism))
        frame: DataFrame = reader.format("flintmq").options(**options).load()
        return frame

    def _ends_now(self, options: Mapping[str, str]) -> str:
        """The current end: a table stays the same for the whole run, though every micro-batch reads
        it again."""
        checked = read_options(options, streams=False)
        known = extents(line_to(checked.settings), checked)
        return json.dumps(
            {
                name: {str(part.partition): part.next_offset for part in parts}
                for name, parts in known.items()
            }
        )

    # --- decoding

    def _schemas(self, source: Source) -> list[str]:
        """What the broker has of Avro schemas, where values name theirs by its id."""
        if source.format != "auto" or source.files is not None or self._given is not None:
            return []
        options = source_options(
            self._pipeline, source, self._access, self._flow.group(source.name)
        )
        line = line_to(read_options(options, streams=True).settings)
        return schemas_if_allowed(line, [None] if source.pattern is not None else source.topics)

    def _decoded(self, source: Source, frame: DataFrame) -> DataFrame:
        """The fields of the schema. A row that does not decode is left out if there is a topic for
        dead letters; else it fails the query, whatever columns that uses."""
        from pyspark.sql import functions

        frame = _with_reason(source, frame, self._schemas(source))
        good = functions.col(WHY).isNull()
        data = functions.col(DATA)
        if source.dead_letters is not None:
            frame = frame.where(good)
        else:
            # In the condition, for queries that use no field; and in the data, since Spark may
            # apply a condition of the query before ours.
            refused = functions.raise_error(_refusal(source))
            frame = frame.where(functions.when(good, True).otherwise(refused.cast("boolean")))
            kind = frame.schema[DATA].dataType
            data = functions.when(good, data).otherwise(refused.cast(kind))
        frame = frame.withColumn(DATA, data)
        decoded: Any = frame.schema[DATA].dataType
        beside = [
            column.alias(name)
            for name, column in _own_columns(source, frame).items()
            if name not in decoded.names
        ]
        return frame.select(f"{DATA}.*", *beside)

    def _dead_letters(self, source: Source) -> DataFrame:
        """The rows that do not decode, unchanged, with headers for the reason and the origin."""
        from pyspark.sql import functions

        read = self._read(source, is_static=False, with_headers=True)
        frame = _with_reason(source, read, self._schemas(source))
        frame = with_broken_rules(frame, source, DATA, WHY, _own_columns(source, frame))
        frame = frame.where(functions.col(WHY).isNotNull())
        headers = functions.array(
            _header(WHY_HEADER, functions.col(WHY)), _header(SOURCE_HEADER, _origin(source))
        )
        if source.schema is not None and _is_json(source):
            # Only for these rows: it takes Python to say what exactly is wrong.
            exactly = reason_of("value", source.schema)
            detail = functions.when(functions.col(WHY) == NOT_JSON, exactly)
            frame = frame.withColumn(DETAIL, detail)
            more = functions.array(_header(DETAIL_HEADER, functions.col(DETAIL)))
            headers = functions.when(frame[DETAIL].isNull(), headers).otherwise(
                functions.concat(headers, more)
            )
        if source.files is not None:
            return frame.select(functions.col("value"), headers.alias("headers"))
        theirs = functions.coalesce(functions.col("headers"), functions.array())
        return frame.select(
            "key",
            "value",
            "content_type",
            "priority",
            functions.concat(theirs, headers).alias("headers"),
        )


def source_options(
    pipeline: Pipeline, source: Source, access: AccessOptions, group: str
) -> dict[str, str]:
    """The options of the data source for a source of topics that is read as a stream."""
    to_broker = broker_options(pipeline, source, access)
    return {**to_broker, "group": group, **reading_options(source)}


def streams_of(
    pipeline: Pipeline, flow: Flow, access: AccessOptions
) -> Iterator[tuple[str, ReadOptions]]:
    """The topics that a flow reads as streams, by source."""
    for name in flow.sources:
        source = pipeline.sources[name]
        if source.files is None:
            options = source_options(pipeline, source, access, flow.group(name))
            yield name, read_options(options, streams=True)


def broker_options(
    pipeline: Pipeline, thing: Source | Sink, access: AccessOptions
) -> dict[str, str]:
    """The broker, credentials, and the options in the file.

    Credentials are for the pipeline's own broker, and not for others in the file.
    """
    servers = thing.servers or pipeline.servers
    if servers is None:
        raise InvalidRequest(
            f"{thing.place}: {type(thing).__name__.lower()} {thing.name!r} has no broker: set "
            "servers = 'flint://host:7600' in the pipeline, or use --server"
        )
    return {
        "servers": servers,
        **(access if servers == pipeline.servers else {}),
        **{k: v for k, v in thing.options.items() if k.lower() != "avro_schema"},
    }


def reading_options(source: Source) -> dict[str, str]:
    """The keys of a source of topics as options of the data source."""
    options = {}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.start in ("earliest", "latest"):
        options["startingOffsets"] = source.start
    else:
        options["startingTimestamp"] = source.start
    if source.max_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_per_batch)
    return options


def columns_needed(pipeline: Pipeline, flow: Flow, source: Source) -> list[str]:
    """The columns of messages that a flow may use, with their types. Pure.

    Spark does not tell a source which columns a query uses, and each one costs time. So a column is
    left out if all steps are SQL that names its columns, and none contains its name.
    """
    given = {name.lower(): value.lower() for name, value in source.options.items()}
    columns = [one.strip() for one in SCHEMA.split(",")]
    if given.get("includeheaders") == "true":
        columns.append(HEADERS)
    steps = [pipeline.steps[name] for name in flow.tables if name in pipeline.steps]
    texts = [COUNT.sub("", (step.sql or "*").lower()) for step in steps]
    if flow.sink.takes == source.name or any(map(WHATEVER_THERE_IS.search, texts)):
        return columns
    texts += [rule.that.lower() for name in flow.tables for rule in tables(pipeline)[name].expect]
    asked = " ".join([*texts, "" if source.watermark is None else source.watermark.column.lower()])
    always = {"value", "topic", "partition", "offset"}
    if source.format == "auto":
        always.add("content_type")
    return [
        column for column in columns if (name := column.split()[0]) in always or f"_{name}" in asked
    ]


def _has_bad_rows(source: Source) -> bool:
    """Whether decoding can fail. Parquet has types of its own."""
    return source.files is None or source.file_format != "parquet"


def _with_reason(source: Source, frame: DataFrame, schemas: Sequence[str] = ()) -> DataFrame:
    """Add what a row decodes to, or the reason why it does not."""
    from pyspark.sql import functions

    assert source.schema is not None
    if source.files is not None and source.file_format == "csv":
        data = functions.from_csv(
            "value",
            f"{source.schema}, {WHY} string",
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": WHY, **source.options},
        )
        bad = functions.when(data[WHY].isNotNull(), functions.lit("not CSV of this schema"))
        return frame.withColumn(DATA, data.dropFields(WHY)).withColumn(WHY, bad)
    format = "json" if source.files is not None else source.format
    given = {name.lower(): value for name, value in source.options.items()}
    return from_value(
        frame,
        source.schema,
        format=format,
        into=DATA,
        error=WHY,
        avro_schema=given.get("avro_schema"),
        schemas=schemas,
        once=True,
    )


def _is_json(source: Source) -> bool:
    if source.files is not None:
        return source.file_format == "json"
    return source.format == "json"


def _own_columns(source: Source, frame: DataFrame) -> dict[str, Column]:
    from pyspark.sql import functions

    if source.files is not None:
        return {"_file": functions.col("_file")}
    own = {f"_{name}": functions.col(name) for name in OF_MESSAGES if name in frame.columns}
    if "_key" in own:
        own["_key"] = own["_key"].cast("string")
    return own


def _origin(source: Source) -> Column:
    from pyspark.sql import functions

    if source.files is not None:
        return functions.col("_file")
    return functions.concat_ws("/", "topic", "partition", "offset")


def _refusal(source: Source) -> Column:
    from pyspark.sql import functions

    return functions.concat(
        functions.lit(f"source {source.name!r}: "),
        _origin(source),
        functions.lit(" does not decode: "),
        functions.col(WHY),
        functions.lit(". To write such rows to a topic, set dead_letters = 'some-topic'"),
    )


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions

    return functions.struct(functions.lit(name).alias("key"), value.cast("binary").alias("value"))


def _watermarked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


# --- files


def files_of(
    spark: SparkSession, reader: Any, source: Source, path: str, *, is_static: bool
) -> DataFrame:
    """The rows of the files in a directory."""
    from pyspark.sql import functions

    if not is_static and source.max_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.max_per_batch)
    is_parquet = source.file_format == "parquet"
    if is_parquet or source.schema is None:
        reader = reader.options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        elif not is_static:
            # A stream needs a schema; take it from the files that exist.
            seen = spark.read.options(**source.options).format(source.file_format)
            reader = reader.schema(seen.load(path).schema)
        frame: DataFrame = reader.format(source.file_format).load(path)
        return frame
    lines = reader.format("text").load(path)
    return lines.select("value", functions.col("_metadata.file_path").alias("_file"))


def has_scheme(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) is not None


def path_of(path: str) -> str:
    """A path that Spark understands everywhere: without a scheme it is an absolute local path."""
    return path if has_scheme(path) else os.path.abspath(os.path.expanduser(path))


@contextmanager
def _views_restored(spark: SparkSession, names: tuple[str, ...]) -> Iterator[None]:
    # Not listTables(): it takes seconds in a Java that has just started.
    catalog = java_session(spark).sessionState().catalog()
    before = {
        name: spark.table(f"`{name}`") for name in names if catalog.getTempView(name).isDefined()
    }
    try:
        yield
    finally:
        for name in names:
            if name in before:
                before[name].createOrReplaceTempView(f"`{name}`")
            else:
                spark.catalog.dropTempView(name)
