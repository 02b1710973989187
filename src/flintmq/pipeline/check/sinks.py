"""Checks a sink, by itself and with the rows it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ...errors import InvalidRequest
from ...patterns import check_name
from ...spark.write_options import WRITE_OPTIONS
from ..define.definition import Pipeline, Sink
from ..define.durations import DURATION
from ..define.graph import reaches, tables
from ..define.partitions import partition_of
from ..define.problems import Defect, meant
from ..define.schemas import columns_of_source, has
from .parts import (
    AVRO_SCHEMA,
    names_of,
    no_duration,
    place_in,
    reads_topic,
    unknown_table,
    wrong,
    wrong_function,
    wrong_options,
    wrong_servers,
)
from .table_sinks import table_problems

DESTINATIONS = ("topic", "parquet", "json", "delta", "iceberg", "console", "foreach")
TABLES = ("delta", "iceberg")
OF_DESTINATION = {
    "key": ("topic",),
    "format": ("topic",),
    "rate": ("topic",),
    "pace": ("topic",),
    "speed": ("topic",),
    "servers": ("topic",),
    "partition_by": ("parquet", "json", *TABLES),
    "compact": ("parquet", *TABLES),
    "keep_versions": TABLES,
    "arguments": ("foreach",),
}


def sink_problems(pipeline: Pipeline, sink: Sink) -> Iterator[Defect]:
    what = f"the sink {sink.name}"
    if sink.takes not in tables(pipeline):
        yield unknown_table(pipeline, place_in(sink, "takes"), sink.takes)
    places = [key for key in DESTINATIONS if getattr(sink, key) not in (None, False)]
    if len(places) != 1:
        said = f"not {' and '.join(places)}" if places else "and has none"
        yield Defect(
            place_in(sink, places[1]) if len(places) > 1 else sink.place,
            f"{what} needs one of {', '.join(DESTINATIONS[:-1])} and {DESTINATIONS[-1]}, {said}",
        )
    else:
        yield from _destination(pipeline, sink, places[0])
    if sink.trigger is not None and not DURATION.fullmatch(sink.trigger.strip()):
        yield no_duration(place_in(sink, "trigger"), "trigger", sink.trigger)


def _destination(pipeline: Pipeline, sink: Sink, destination: str) -> Iterator[Defect]:
    for field, allowed in OF_DESTINATION.items():
        default = type(sink).__dataclass_fields__[field].default
        value = getattr(sink, field)
        is_said = bool(value) if field == "arguments" else value != default
        if (is_said or field in sink.places) and destination not in allowed:
            yield Defect(
                place_in(sink, field),
                f"{field} is for {' and '.join(allowed)}; the sink {sink.name} goes to "
                f"{destination}",
                f"remove {field}",
            )
    if destination in ("parquet", "json", *TABLES) and sink.mode != "append":
        what = "tables" if destination in TABLES else "files"
        yield Defect(
            place_in(sink, "mode"),
            f"{what} can only be appended to, which mode {sink.mode} cannot do",
            "use mode = 'append' with a watermark on the source, or write to a topic",
        )
    if destination == "foreach":
        yield from wrong_function(sink, "foreach", sink.foreach)
    if destination == "topic":
        yield from _into_topic(pipeline, sink)
    if destination in TABLES:
        yield from table_problems(sink)
    yield from _partitions(sink)
    yield from _columns_named(pipeline, sink)


def _partitions(sink: Sink) -> Iterator[Defect]:
    names: set[str] = set()
    for number, text in enumerate(sink.partition_by):
        place = sink.places.get(f"partition_by.{number}", place_in(sink, "partition_by"))
        defects = list(wrong(place, partial(partition_of, text)))
        yield from defects
        if not defects:
            name = partition_of(text).name.lower()
            if name in names:
                yield Defect(place, f"partition_by has {text} twice", "remove one of them")
            names.add(name)


def _into_topic(pipeline: Pipeline, sink: Sink) -> Iterator[Defect]:
    topic = sink.topic or ""
    place = place_in(sink, "topic")
    yield from wrong(place, lambda: check_name(topic))
    yield from wrong_servers(sink)
    if sink.pace is None and ("speed" in sink.places or sink.speed != 1.0):
        yield Defect(
            place_in(sink, "speed"), "speed needs pace",
            "add pace = 'the timestamp column'",
        )  # fmt: skip
    if sink.pace is not None and sink.rate is not None:
        yield Defect(place_in(sink, "rate"), "rate and pace cannot be combined", "use one of them")
    for field in ("rate", "speed"):
        if (value := getattr(sink, field)) is not None and not value > 0:
            yield Defect(place_in(sink, field), f"{field} must be a number above 0, not {value!r}")
    if sink.format == "avro" and AVRO_SCHEMA not in names_of(sink.options):
        yield Defect(
            place_in(sink, "format"),
            "format avro needs the schema to write values with",
            f"add options = {{ {AVRO_SCHEMA} = '...' }}",
        )
    yield from wrong_options(sink, WRITE_OPTIONS, {AVRO_SCHEMA})
    servers = sink.servers or pipeline.servers
    for name in reaches(pipeline, sink.takes):
        source = pipeline.sources.get(name)
        if source is None or (source.servers or pipeline.servers) != servers:
            continue
        if reads_topic(source, topic) and not source.is_static:
            yield Defect(
                place,
                f"the sink {sink.name} writes to {topic}, which it also reads (source "
                f"{name}): its rows would loop forever",
                "use another topic",
            )


def _columns_named(pipeline: Pipeline, sink: Sink) -> Iterator[Defect]:
    """For a sink that takes a source; only Spark knows the columns of steps."""
    source = pipeline.sources.get(sink.takes)
    try:
        columns = None if source is None else columns_of_source(source)
    except InvalidRequest:
        return
    if columns is not None:
        yield from missing_columns(sink, columns)


def missing_columns(sink: Sink, columns: Mapping[str, str]) -> Iterator[Defect]:
    """Columns that a sink uses and its rows do not have."""
    named = [("key", sink.key), ("pace", sink.pace)]
    for number, text in enumerate(sink.partition_by):
        try:
            one = partition_of(text)
        except InvalidRequest:  # said before
            continue
        named.append((f"partition_by.{number}", one.column))
        kinds = {name.lower(): kind.lower() for name, kind in columns.items()}
        kind = kinds.get(one.column.lower())
        if kind is not None and not one.fits(kind):
            yield Defect(
                sink.places.get(f"partition_by.{number}", place_in(sink, "partition_by")),
                f"partition_by: {text} needs a timestamp, and {one.column} is {kind}",
                "cast it in a step, or use another column",
            )
    for field, column in named:
        if column is not None and not has(columns, column):
            word = field.partition(".")[0]
            yield Defect(
                sink.places.get(field, place_in(sink, word)),
                f"{word}: {sink.takes} has no column {column!r}",
                meant(column, columns, "it has"),
            )
