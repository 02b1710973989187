"""Shared by the checks of sources, steps and sinks: places, names, times, options. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from ...errors import FlintError
from ...patterns import matches
from ...spark.connecting import BrokerSettings
from ..define.definition import FilePlace, Pipeline, Sink, Source, Step, Watermark
from ..define.durations import DURATION
from ..define.graph import tables
from ..define.problems import Defect, meant
from ..define.schemas import has

FUNCTION = re.compile(r"(?:[^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*")

RULE_NAME = re.compile(r"[A-Za-z0-9_-]+")
OURS = {
    "servers": "servers",
    "path": "files, or the data source itself",
    "subscribe": "topic or topics",
    "subscribepattern": "pattern",
    "startingoffsets": "start",
    "startingtimestamp": "start",
    "maxoffsetspertrigger": "max_per_batch",
    "group": "nothing: each flow has its own group",
    "topic": "topic",
    "transaction": "nothing: each flow has its own",
    "transactionversion": "nothing: batches are numbered",
    "checkpointlocation": "checkpoint of the pipeline",
}
"""Options of the data source that have a key in pipelines."""
AVRO_SCHEMA = "avro_schema"


def place_in(thing: Pipeline | Source | Step | Sink, field: str) -> FilePlace:
    """The place of a field, or of the whole if it is not set."""
    return thing.places.get(field, thing.place)


def place_in_sql(step: Step, offset: int) -> FilePlace:
    """The place of a character of a step's query."""
    if step.sql_layout is None:
        return step.sql_place if step.sql_place.line else step.place
    return FilePlace(step.sql_place.file, *step.sql_layout.spot(offset))


def unknown_table(pipeline: Pipeline, place: FilePlace, name: str) -> Defect:
    return Defect(
        place,
        f"unknown source or step {name!r}",
        meant(name, tables(pipeline), "there are"),
    )


def wrong(
    place: FilePlace, look: Callable[[], object], remedy: str = "", what: str = ""
) -> Iterator[Defect]:
    try:
        look()
    except FlintError as error:
        yield Defect(place, f"{what}: {error}" if what else str(error), remedy)


def wrong_servers(thing: Pipeline | Source | Sink) -> Iterator[Defect]:
    if thing.servers is not None:
        servers = thing.servers
        place = place_in(thing, "servers")
        if not servers.strip():
            yield Defect(place, "servers is empty", "set it to flint://host:port")
        else:
            yield from wrong(place, lambda: BrokerSettings(servers=servers).url)


def wrong_options(thing: Source | Sink, known: Iterable[str], more: set[str]) -> Iterator[Defect]:
    names = [name for name in known if name.lower() not in OURS]
    by_lower = {name.lower() for name in names} | more
    for name in thing.options:
        place = thing.places.get(f"options.{name}", place_in(thing, "options"))
        if instead := OURS.get(name.lower()):
            yield Defect(place, f"options: {name} cannot be set here", f"use {instead}")
        elif name.lower() not in by_lower:
            yield Defect(
                place,
                f"options: unknown option {name!r}",
                _meant_option(name, names),
            )


def _meant_option(name: str, names: list[str]) -> str:
    lower = {one.lower(): one for one in names}
    remedy = meant(name, lower, "there are")
    for one in lower:
        remedy = re.sub(rf"\b{one}\b", lower[one], remedy)
    return remedy


def wrong_function(thing: Step | Sink, field: str, function: object) -> Iterator[Defect]:
    if isinstance(function, str) and not FUNCTION.fullmatch(function):
        yield Defect(
            place_in(thing, field),
            f"{field} must be file.py:name or package.module:name, not {function!r}",
        )


def wrong_watermark(
    thing: Source | Step, watermark: Watermark, columns: Mapping[str, str] | None
) -> Iterator[Defect]:
    place = thing.places.get("watermark.column", place_in(thing, "watermark"))
    if columns is not None and not has(columns, watermark.column):
        yield Defect(
            place,
            f"the watermark column {watermark.column!r} does not exist in {thing.name}",
            meant(watermark.column, columns, "it has"),
        )
    elif columns is not None:
        kinds = {name.lower(): kind for name, kind in columns.items()}
        kind = kinds[watermark.column.split(".")[0].lower()]
        if kind not in ("timestamp", "timestamp_ltz", "timestamp_ntz", "struct"):
            yield Defect(
                place,
                f"the watermark column {watermark.column!r} has the type {kind}",
                "use a timestamp column",
            )
    if not DURATION.fullmatch(watermark.delay.strip()):
        yield no_duration(
            thing.places.get("watermark.delay", place_in(thing, "watermark")),
            "delay",
            watermark.delay,
        )


def wrong_rules(thing: Source | Step) -> Iterator[Defect]:
    letters = thing.dead_letters if isinstance(thing, Source) else None
    for rule in thing.expect:
        if not RULE_NAME.fullmatch(rule.name):
            yield Defect(
                rule.place,
                f"{rule.name!r} is not a valid rule name",
                "use letters, digits, _ and -",
            )
        if not rule.that.strip():
            yield Defect(rule.place, f"the rule {rule.name} is empty", "write a condition")
        if rule.otherwise == "dead-letter" and letters is None:
            is_source = isinstance(thing, Source)
            yield Defect(
                rule.place,
                f"the rule {rule.name} sends messages to dead letters, but {thing.name} has none",
                "add dead_letters to the source"
                if is_source
                else "rows of a step are not messages: move the rule to the source, or use drop",
            )
    if isinstance(thing, Source) and thing.expect and thing.schema is None and thing.files is None:
        yield Defect(
            thing.expect[0].place,
            f"the source {thing.name} has rules but no schema",
            "add a schema, or move the rules to a step",
        )


def no_duration(place: FilePlace, what: str, text: str) -> Defect:
    return Defect(
        place, f"{what} must be a time such as '10 seconds', not {text!r}", _spelled(text)
    )


def _spelled(text: str) -> str:
    """`10s` as Spark writes it."""
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None:
        return ""
    unit = units.get(found[2] or "s") or units.get(found[2][0])
    return f"did you mean '{found[1]} {unit}'?" if unit else ""


def reads_topic(source: Source, topic: str) -> bool:
    if source.pattern is None:
        return topic in source.topics
    try:
        return matches(source.pattern, topic)
    except FlintError:
        return False


def is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def names_of(options: Mapping[str, str]) -> set[str]:
    return {name.lower() for name in options}


def line_of(place: FilePlace) -> str:
    return f"line {place.line}" if place.line else str(place)
