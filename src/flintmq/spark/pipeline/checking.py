"""Whether a pipeline makes sense, by itself: no Spark, no broker, no files are looked at. Pure.

What its queries say is looked at by `sql_checking`, its functions by `function_checking`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial

from ...errors import FlintError, InvalidRequest
from ...patterns import check_name, check_pattern, matches
from ..connecting import Settings
from ..options import OPTIONS
from ..write_options import WRITE_OPTIONS
from .definition import Pipeline, Place, Sink, Source, Step, Watermark
from .problems import PipelineInvalid, Problem, in_order, meant
from .schemas import columns_of, columns_of_source, has
from .sql_names import mentions

TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FLOW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
FUNCTION = re.compile(r"(?:[^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*")
_UNIT = r"(?:microsecond|millisecond|second|minute|hour|day|week)s?"
DURATION = re.compile(rf"(?:interval\s+)?\d+\s+{_UNIT}(?:\s+\d+\s+{_UNIT})*", re.IGNORECASE)

OURS = {
    "servers": "servers",
    "path": "files, or the data source itself",
    "subscribe": "topic or topics",
    "subscribepattern": "pattern",
    "startingoffsets": "start",
    "startingtimestamp": "start",
    "maxoffsetspertrigger": "max_per_batch",
    "group": "nothing: each flow has a group of its own",
    "topic": "topic",
    "transaction": "nothing: each flow has one of its own",
    "transactionversion": "nothing: batches are counted",
    "checkpointlocation": "checkpoint, of the pipeline",
}
"""Options of the data source that keys of a pipeline stand for."""
AVRO_SCHEMA = "avro_schema"
DESTINATIONS = ("topic", "parquet", "json", "console", "foreach")
OF_DESTINATION = {
    "key": ("topic",),
    "format": ("topic",),
    "rate": ("topic",),
    "pace": ("topic",),
    "speed": ("topic",),
    "servers": ("topic",),
    "partition_by": ("parquet", "json"),
    "compact": ("parquet",),
    "arguments": ("foreach",),
}


def check(pipeline: Pipeline) -> list[Problem]:
    """Everything that is wrong with it, in the order of the file."""
    return in_order(_Check(pipeline).problems())


def checked(pipeline: Pipeline) -> Pipeline:
    """The pipeline itself, if nothing is wrong with it; else PipelineInvalid."""
    if problems := check(pipeline):
        raise PipelineInvalid(problems)
    return pipeline


def inputs_of(step: Step, pipeline: Pipeline) -> tuple[str, ...]:
    """The sources and steps that a step reads, by their own names."""
    if step.sql is None:
        return tuple(name for name in step.inputs if name in tables(pipeline))
    by_lower = {name.lower(): name for name in tables(pipeline)}
    found = (by_lower.get(mention.name.lower()) for mention in mentions(step.sql))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def tables(pipeline: Pipeline) -> dict[str, Source | Step]:
    return {**pipeline.sources, **pipeline.steps}


def reaches(pipeline: Pipeline, start: str) -> list[str]:
    """A source or step, and all that it is made of."""
    found, waiting = [], [start]
    while waiting:
        name = waiting.pop()
        if name in found or name not in tables(pipeline):
            continue
        found.append(name)
        if name in pipeline.steps:
            waiting += inputs_of(pipeline.steps[name], pipeline)
    return found


def is_stream(pipeline: Pipeline, name: str) -> bool:
    """Whether rows come to it for ever."""
    sources = (pipeline.sources.get(one) for one in reaches(pipeline, name))
    return any(one is not None and not one.is_static for one in sources)


def place_in(thing: Pipeline | Source | Step | Sink, field: str) -> Place:
    """Where a field was written; else where the whole was."""
    return thing.places.get(field, thing.place)


class _Check:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._tables = tables(pipeline)

    def problems(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        if not FLOW_NAME.fullmatch(pipeline.name):
            yield Problem(
                place_in(pipeline, "name"),
                f"{pipeline.name!r} is no name of a pipeline",
                "use letters, digits, _ and -",
            )
        yield from _wrong_servers(pipeline)
        for what, there in (("source", pipeline.sources), ("sink", pipeline.sinks)):
            if not there:
                yield Problem(pipeline.place, f"there is no {what}", f"write [{what}s.NAME]")
        yield from self._names()
        for source in pipeline.sources.values():
            yield from self._source(source)
        for step in pipeline.steps.values():
            yield from self._step(step)
        for sink in pipeline.sinks.values():
            yield from self._sink(sink)
        yield from self._circles()
        yield from self._unused()
        yield from self._shared_directories()

    # --- names

    def _names(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        known: dict[str, Source | Step] = {}
        for kind, things in (("source", pipeline.sources), ("step", pipeline.steps)):
            for thing in things.values():
                if not TABLE_NAME.fullmatch(thing.name):
                    yield Problem(
                        thing.place,
                        f"{thing.name!r} is no name of a {kind}: queries could not name it",
                        "use letters, digits and _",
                    )
                if (other := known.get(thing.name.lower())) is not None:
                    yield Problem(
                        thing.place,
                        f"the {kind} {thing.name} has the name of another table, which is at "
                        f"{_short(other.place)}",
                        "queries could not tell them apart: call one of them otherwise",
                    )
                known[thing.name.lower()] = thing
        seen: dict[str, Sink] = {}
        for sink in pipeline.sinks.values():
            if not FLOW_NAME.fullmatch(sink.name):
                yield Problem(
                    sink.place,
                    f"{sink.name!r} is no name of a sink",
                    "use letters, digits, _ and -",
                )
            if (before := seen.get(sink.name.lower())) is not None:
                yield Problem(
                    sink.place,
                    f"the sink {sink.name} differs from {before.name} in case only",
                    "their checkpoints could be the same directory: call one of them otherwise",
                )
            seen[sink.name.lower()] = sink

    # --- sources

    def _source(self, source: Source) -> Iterator[Problem]:
        what = f"the source {source.name}"
        ways = [
            key for key in ("topics", "pattern", "files") if getattr(source, key) not in (None, ())
        ]
        if len(ways) != 1:
            said = f"not {' and '.join(ways)}" if ways else "and none is there"
            yield Problem(
                source.place, f"{what} reads one of topic, topics, pattern and files, {said}"
            )
        yield from _wrong_servers(source)
        for number, topic in enumerate(source.topics):
            place = source.places.get(f"topics.{number}", place_in(source, "topics"))
            remedy = "for many topics, say pattern" if "*" in topic or ">" in topic else ""
            yield from _wrong(place, partial(check_name, topic), remedy)
        if source.pattern is not None:
            pattern = source.pattern
            yield from _wrong(place_in(source, "pattern"), lambda: check_pattern(pattern))
        yield from self._start(source)
        yield from self._decoding(source)
        yield from self._source_watermark(source)
        if source.is_static and source.max_per_batch is not None:
            yield Problem(
                place_in(source, "max_per_batch"),
                f"{what} is static: it is read as a whole, not in micro-batches",
                "take max_per_batch out, or static",
            )
        if source.files is None:
            ways_of = "batch" if source.is_static else "stream"
            known = [option.name for option in OPTIONS if ways_of in option.ways]
            yield from _wrong_options(source, known, {AVRO_SCHEMA})

    def _start(self, source: Source) -> Iterator[Problem]:
        place = place_in(source, "start")
        if source.start == "earliest":
            return
        if source.files is not None:
            yield Problem(place, "start is for topics: of files, all are read", "take it out")
        elif source.start == "latest":
            if source.is_static:
                yield Problem(
                    place,
                    f"the source {source.name} is static and starts at the latest: it would be "
                    "empty",
                    "say start = 'earliest', or a time",
                )
        elif not _is_time(source.start):
            yield Problem(
                place,
                f"start is earliest, latest or a time with its zone, not {source.start!r}",
                "as 2026-01-31T12:00:00+00:00",
            )

    def _decoding(self, source: Source) -> Iterator[Problem]:
        if source.schema is not None:
            schema = source.schema
            yield from _wrong(place_in(source, "schema"), lambda: columns_of(schema), "", "schema")
        elif source.files is None and source.format != "json":
            yield Problem(
                place_in(source, "format"),
                f"the source {source.name} has no schema, so nothing is decoded",
                f"say schema, or take format = {source.format!r} out",
            )
        if source.format == "avro" and AVRO_SCHEMA not in _lower(source.options):
            yield Problem(
                place_in(source, "format"),
                "format avro needs the schema that values were written with",
                f"say options = {{ {AVRO_SCHEMA} = '...' }}",
            )
        if source.dead_letters is None:
            return
        place, topic = place_in(source, "dead_letters"), source.dead_letters
        yield from _wrong(place, lambda: check_name(topic))
        if source.files is not None and source.file_format == "parquet":
            yield Problem(
                place,
                "Parquet has types of its own: nothing fails to decode",
                "take dead_letters out",
            )
        elif source.schema is None:
            yield Problem(
                place,
                f"the source {source.name} has no schema: nothing is decoded, so nothing fails to",
                "say schema, or take dead_letters out",
            )
        if _reads_topic(source, topic):
            yield Problem(
                place,
                f"the source {source.name} reads {topic} itself: its dead letters would come back",
                "name another topic",
            )

    def _source_watermark(self, source: Source) -> Iterator[Problem]:
        if source.watermark is None:
            return
        if source.is_static:
            yield Problem(
                place_in(source, "watermark"),
                f"the source {source.name} is static: nothing of it is late",
                "take watermark out, or static",
            )
        try:
            columns = columns_of_source(source)
        except InvalidRequest:
            columns = None  # the schema is told of already
        yield from _wrong_watermark(source, source.watermark, columns)

    # --- steps

    def _step(self, step: Step) -> Iterator[Problem]:
        if (step.sql is None) == (step.function is None):
            said = "not both" if step.sql is not None else "and neither is there"
            yield Problem(step.place, f"the step {step.name} has one of sql and function, {said}")
            return
        if step.sql is not None:
            yield from self._sql(step, step.sql)
        else:
            yield from _wrong_function(step, "function", step.function)
            if not step.inputs:
                yield Problem(
                    step.place,
                    f"the step {step.name} has a function and no inputs",
                    "say inputs = ['...']: the sources and steps it gets",
                )
            for number, name in enumerate(step.inputs):
                place = step.places.get(f"inputs.{number}", place_in(step, "inputs"))
                if name not in self._tables:
                    yield self._unknown(place, name)
        if step.watermark is not None:
            yield from _wrong_watermark(step, step.watermark, None)

    def _sql(self, step: Step, sql: str) -> Iterator[Problem]:
        for field in ("inputs", "arguments"):
            if getattr(step, field):
                yield Problem(
                    place_in(step, field),
                    f"{field} is for functions: a query names its tables itself",
                    f"take {field} out",
                )
        if not sql.strip():
            yield Problem(step.sql_place, f"the step {step.name} has an empty query")
        known = {name.lower() for name in self._tables}
        for mention in mentions(sql):
            if mention.name.lower() not in known:
                yield self._unknown(place_in_sql(step, mention.offset), mention.name)

    def _unknown(self, place: Place, name: str) -> Problem:
        return Problem(
            place, f"there is no source or step {name!r}", meant(name, self._tables, "there are")
        )

    # --- sinks

    def _sink(self, sink: Sink) -> Iterator[Problem]:
        what = f"the sink {sink.name}"
        if sink.takes not in self._tables:
            yield self._unknown(place_in(sink, "takes"), sink.takes)
        elif not is_stream(self._pipeline, sink.takes):
            yield Problem(
                place_in(sink, "takes"),
                f"{what} takes {sink.takes}, which is all of static sources: nothing would flow",
                "let one of them be a stream: take static out",
            )
        places = [key for key in DESTINATIONS if getattr(sink, key) not in (None, False)]
        if len(places) != 1:
            said = f"not {' and '.join(places)}" if places else "and none is there"
            yield Problem(
                place_in(sink, places[1]) if len(places) > 1 else sink.place,
                f"{what} has one of {', '.join(DESTINATIONS[:-1])} and {DESTINATIONS[-1]}, {said}",
            )
        else:
            yield from self._destination(sink, places[0])
        if sink.trigger is not None and not DURATION.fullmatch(sink.trigger.strip()):
            yield _no_duration(place_in(sink, "trigger"), "trigger", sink.trigger)

    def _destination(self, sink: Sink, destination: str) -> Iterator[Problem]:
        for field, allowed in OF_DESTINATION.items():
            default = type(sink).__dataclass_fields__[field].default
            value = getattr(sink, field)
            is_said = bool(value) if field == "arguments" else value != default
            if (is_said or field in sink.places) and destination not in allowed:
                yield Problem(
                    place_in(sink, field),
                    f"{field} is for {' and '.join(allowed)}; the sink {sink.name} goes to "
                    f"{destination}",
                    f"take {field} out",
                )
        if destination in ("parquet", "json") and sink.mode != "append":
            yield Problem(
                place_in(sink, "mode"),
                f"files are added to: mode {sink.mode} would have to change what is in them",
                "say mode = 'append' with a watermark on the source, or write into a topic",
            )
        if destination == "foreach":
            yield from _wrong_function(sink, "foreach", sink.foreach)
        if destination == "topic":
            yield from self._into_topic(sink)
        yield from self._columns_named(sink)

    def _into_topic(self, sink: Sink) -> Iterator[Problem]:
        topic = sink.topic or ""
        place = place_in(sink, "topic")
        yield from _wrong(place, lambda: check_name(topic))
        yield from _wrong_servers(sink)
        if sink.pace is None and ("speed" in sink.places or sink.speed != 1.0):
            yield Problem(
                place_in(sink, "speed"), "speed is how fast against pace, which is not there",
                "say pace = 'the column with the time'",
            )  # fmt: skip
        if sink.pace is not None and sink.rate is not None:
            yield Problem(place_in(sink, "rate"), "rate and pace are two ways to wait", "say one")
        for field in ("rate", "speed"):
            if (value := getattr(sink, field)) is not None and not value > 0:
                yield Problem(place_in(sink, field), f"{field} is a number above 0, not {value!r}")
        if sink.format == "avro" and AVRO_SCHEMA not in _lower(sink.options):
            yield Problem(
                place_in(sink, "format"),
                "format avro needs the schema to write values with",
                f"say options = {{ {AVRO_SCHEMA} = '...' }}",
            )
        yield from _wrong_options(sink, WRITE_OPTIONS, {AVRO_SCHEMA})
        servers = sink.servers or self._pipeline.servers
        for name in reaches(self._pipeline, sink.takes):
            source = self._pipeline.sources.get(name)
            if source is None or (source.servers or self._pipeline.servers) != servers:
                continue
            if _reads_topic(source, topic) and not source.is_static:
                yield Problem(
                    place,
                    f"the sink {sink.name} writes into {topic}, which it reads (the source "
                    f"{name}): its rows would go round for ever",
                    "name another topic",
                )

    def _columns_named(self, sink: Sink) -> Iterator[Problem]:
        """Of a sink that takes a source as it is; what steps make is known to Spark only."""
        source = self._pipeline.sources.get(sink.takes)
        try:
            columns = None if source is None else columns_of_source(source)
        except InvalidRequest:
            return
        if columns is not None:
            yield from missing_columns(sink, columns)

    # --- the whole

    def _circles(self) -> Iterator[Problem]:
        done: set[str] = set()
        for name in self._pipeline.steps:
            path: list[str] = []

            def walk(name: str, path: list[str] = path) -> list[str] | None:
                if name in path:
                    return [*path[path.index(name) :], name]
                if name in done or name not in self._pipeline.steps:
                    return None
                path.append(name)
                for needed in inputs_of(self._pipeline.steps[name], self._pipeline):
                    if found := walk(needed):
                        return found
                path.pop()
                done.add(name)
                return None

            if circle := walk(name):
                done.update(circle)
                yield Problem(
                    self._pipeline.steps[circle[0]].place,
                    f"the steps need each other in a circle: {' -> '.join(circle)}",
                    "let one of them read a source instead",
                )

    def _unused(self) -> Iterator[Problem]:
        used = {sink.takes for sink in self._pipeline.sinks.values()}
        for step in self._pipeline.steps.values():
            used.update(name for name in inputs_of(step, self._pipeline) if name != step.name)
        for kind, things in (("source", self._pipeline.sources), ("step", self._pipeline.steps)):
            for name, thing in things.items():
                if name not in used and self._pipeline.sinks:
                    yield Problem(
                        thing.place,
                        f"nobody takes the {kind} {name}",
                        f"write a sink with from = {name!r}, or take the {kind} out",
                    )

    def _shared_directories(self) -> Iterator[Problem]:
        seen: dict[str, str] = {}
        for sink in self._pipeline.sinks.values():
            for field in ("parquet", "json"):
                directory = getattr(sink, field)
                if directory is None:
                    continue
                if (other := seen.get(directory.rstrip("/"))) is not None:
                    yield Problem(
                        place_in(sink, field),
                        f"the sink {sink.name} writes where {other} writes, {directory}",
                        "two flows would spoil each other's lists of files: give each its own",
                    )
                seen[directory.rstrip("/")] = sink.name


def place_in_sql(step: Step, offset: int) -> Place:
    """Where a character of a step's query stands."""
    if step.sql_layout is None:
        return step.sql_place if step.sql_place.line else step.place
    return Place(step.sql_place.file, *step.sql_layout.spot(offset))


def missing_columns(sink: Sink, columns: Mapping[str, str]) -> Iterator[Problem]:
    """Columns that a sink names and its rows do not have."""
    named = [("key", sink.key), ("pace", sink.pace)]
    named += [(f"partition_by.{n}", column) for n, column in enumerate(sink.partition_by)]
    for field, column in named:
        if column is not None and not has(columns, column):
            word = field.partition(".")[0]
            yield Problem(
                sink.places.get(field, place_in(sink, word)),
                f"{word}: {sink.takes} has no column {column!r}",
                meant(column, columns, "it has"),
            )


def _wrong(
    place: Place, look: Callable[[], object], remedy: str = "", what: str = ""
) -> Iterator[Problem]:
    try:
        look()
    except FlintError as error:
        yield Problem(place, f"{what}: {error}" if what else str(error), remedy)


def _wrong_servers(thing: Pipeline | Source | Sink) -> Iterator[Problem]:
    if thing.servers is not None:
        servers = thing.servers
        place = place_in(thing, "servers")
        if not servers.strip():
            yield Problem(place, "servers is empty", "say flint://host:port")
        else:
            yield from _wrong(place, lambda: Settings(servers=servers).url)


def _wrong_options(thing: Source | Sink, known: Iterable[str], more: set[str]) -> Iterator[Problem]:
    names = [name for name in known if name.lower() not in OURS]
    by_lower = {name.lower() for name in names} | more
    for name in thing.options:
        if instead := OURS.get(name.lower()):
            yield Problem(
                place_in(thing, "options"), f"options: {name} is not for options", f"say {instead}"
            )
        elif name.lower() not in by_lower:
            yield Problem(
                place_in(thing, "options"),
                f"options: there is no {name!r}",
                _meant_option(name, names),
            )


def _meant_option(name: str, names: list[str]) -> str:
    lower = {one.lower(): one for one in names}
    remedy = meant(name, lower, "there are")
    for one in lower:
        remedy = re.sub(rf"\b{one}\b", lower[one], remedy)
    return remedy


def _wrong_function(thing: Step | Sink, field: str, function: object) -> Iterator[Problem]:
    if isinstance(function, str) and not FUNCTION.fullmatch(function):
        yield Problem(
            place_in(thing, field),
            f"{field} is file.py:name or package.module:name, not {function!r}",
        )


def _wrong_watermark(
    thing: Source | Step, watermark: Watermark, columns: Mapping[str, str] | None
) -> Iterator[Problem]:
    place = thing.places.get("watermark.column", place_in(thing, "watermark"))
    if columns is not None and not has(columns, watermark.column):
        yield Problem(
            place,
            f"the watermark is of {watermark.column!r}, a column that {thing.name} does not have",
            meant(watermark.column, columns, "it has"),
        )
    elif columns is not None:
        kinds = {name.lower(): kind for name, kind in columns.items()}
        kind = kinds[watermark.column.split(".")[0].lower()]
        if kind not in ("timestamp", "timestamp_ltz", "timestamp_ntz", "struct"):
            yield Problem(
                place,
                f"the watermark is of {watermark.column!r}, a column of type {kind}",
                "it has to be a timestamp",
            )
    if not DURATION.fullmatch(watermark.delay.strip()):
        yield _no_duration(
            thing.places.get("watermark.delay", place_in(thing, "watermark")),
            "delay",
            watermark.delay,
        )


def _no_duration(place: Place, what: str, text: str) -> Problem:
    return Problem(place, f"{what} is a time such as '10 seconds', not {text!r}", _spelled(text))


def _spelled(text: str) -> str:
    """`10s` as Spark would have it."""
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None:
        return ""
    unit = units.get(found[2] or "s") or units.get(found[2][0])
    return f"is '{found[1]} {unit}' meant?" if unit else ""


def _reads_topic(source: Source, topic: str) -> bool:
    if source.pattern is None:
        return topic in source.topics
    try:
        return matches(source.pattern, topic)
    except FlintError:
        return False


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _lower(options: Mapping[str, str]) -> set[str]:
    return {name.lower() for name in options}


def _short(place: Place) -> str:
    return f"line {place.line}" if place.line else str(place)
