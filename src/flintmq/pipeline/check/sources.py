"""Checks a source by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...errors import InvalidRequest
from ...patterns import check_name, check_pattern
from ...spark.options import OPTIONS
from ..define.definition import Source
from ..define.problems import Defect
from ..define.schemas import columns_of, columns_of_source
from .parts import (
    AVRO_SCHEMA,
    is_time,
    names_of,
    place_in,
    reads_topic,
    wrong,
    wrong_options,
    wrong_rules,
    wrong_servers,
    wrong_watermark,
)


def source_problems(source: Source) -> Iterator[Defect]:
    what = f"the source {source.name}"
    ways = [key for key in ("topics", "pattern", "files") if getattr(source, key) not in (None, ())]
    if len(ways) != 1:
        said = f"not {' and '.join(ways)}" if ways else "and has none"
        yield Defect(source.place, f"{what} needs one of topic, topics, pattern and files, {said}")
    yield from wrong_servers(source)
    for number, topic in enumerate(source.topics):
        place = source.places.get(f"topics.{number}", place_in(source, "topics"))
        remedy = "use pattern for many topics" if "*" in topic or ">" in topic else ""
        yield from wrong(place, partial(check_name, topic), remedy)
    if source.pattern is not None:
        pattern = source.pattern
        yield from wrong(place_in(source, "pattern"), lambda: check_pattern(pattern))
    yield from _start(source)
    yield from _decoding(source)
    yield from _source_watermark(source)
    yield from wrong_rules(source)
    if source.is_static and source.max_per_batch is not None:
        yield Defect(
            place_in(source, "max_per_batch"),
            f"{what} is static: it is read as a whole, not in micro-batches",
            "remove max_per_batch, or static",
        )
    if source.files is None:
        ways_of = "batch" if source.is_static else "stream"
        known = [option.name for option in OPTIONS if ways_of in option.ways]
        yield from wrong_options(source, known, {AVRO_SCHEMA})


def _start(source: Source) -> Iterator[Defect]:
    place = place_in(source, "start")
    if source.start == "earliest":
        return
    if source.files is not None:
        yield Defect(place, "start is only for topics; all files are read", "remove it")
    elif source.start == "latest":
        if source.is_static:
            yield Defect(
                place,
                f"the source {source.name} is static and starts at latest, so it would be empty",
                "use start = 'earliest', or a time",
            )
    elif not is_time(source.start):
        yield Defect(
            place,
            f"start must be earliest, latest or a time with its zone, not {source.start!r}",
            "for example 2026-01-31T12:00:00+00:00",
        )


def _decoding(source: Source) -> Iterator[Defect]:
    if source.schema is not None:
        schema = source.schema
        yield from wrong(place_in(source, "schema"), lambda: columns_of(schema), "", "schema")
    elif source.files is None and source.format != "json":
        yield Defect(
            place_in(source, "format"),
            f"the source {source.name} has no schema, so values are not decoded",
            f"add schema, or remove format = {source.format!r}",
        )
    if source.format == "avro" and AVRO_SCHEMA not in names_of(source.options):
        yield Defect(
            place_in(source, "format"),
            "format avro needs the schema that values were written with",
            f"add options = {{ {AVRO_SCHEMA} = '...' }}",
        )
    if source.dead_letters is None:
        return
    place, topic = place_in(source, "dead_letters"), source.dead_letters
    yield from wrong(place, lambda: check_name(topic))
    if source.files is not None and source.file_format == "parquet":
        yield Defect(
            place,
            "dead_letters has no effect on Parquet files: they are always decoded",
            "remove dead_letters",
        )
    elif source.schema is None:
        yield Defect(
            place,
            f"the source {source.name} has no schema, so values are not decoded and cannot fail",
            "add schema, or remove dead_letters",
        )
    if reads_topic(source, topic):
        yield Defect(
            place,
            f"the source {source.name} also reads {topic}: its dead letters would be read again",
            "use another topic",
        )


def _source_watermark(source: Source) -> Iterator[Defect]:
    if source.watermark is None:
        return
    if source.is_static:
        yield Defect(
            place_in(source, "watermark"),
            f"the source {source.name} is static and cannot have a watermark",
            "remove watermark, or static",
        )
    try:
        columns = columns_of_source(source)
    except InvalidRequest:
        columns = None  # the schema is reported already
    yield from wrong_watermark(source, source.watermark, columns)
