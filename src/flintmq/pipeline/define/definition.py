"""What a pipeline is: sources, steps and sinks, each with its place in the file.

Files (`reading`) and Python calls (`builder`) both end here, and checks, drawings, runs and exports
begin here. Parameters have their values already.

The annotation of a field is the meaning of its key in a file: `keys` makes its tables of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ...config.documents import TextLayout
from ...spark.decoding import From, To
from ...spark.session import SparkSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Text = str | None
OutputMode = Literal["append", "update", "complete"]
Otherwise = Literal["count", "drop", "fail", "dead-letter"]
FileFormat = Literal["parquet", "json", "csv"]
StepFunction = Callable[..., "DataFrame"]
"""Takes the frames of its step's `inputs`, in order, and returns one."""
GivenRow = Mapping[str, Any] | str
"""Columns, or a value as it is in a message."""
BatchFunction = Callable[["DataFrame", int], None]
"""Takes the rows of a micro-batch and its number, as in Spark's foreachBatch."""


def empty() -> Any:
    """An empty mapping as the default of a field."""
    return field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where something is in a file. Lines and columns start at 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


NOWHERE = FilePlace("<python>")
FilePlaces = Mapping[str, FilePlace]
"""The place of each field's value; for inner tables, as `watermark.column`."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may arrive, by the time in one of its columns."""

    column: Annotated[str, "a timestamp column"]
    delay: Annotated[str, "how late a row may arrive, as `10 seconds`"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that is to hold for every row of a table. It does not hold if it is null."""

    name: str
    that: Annotated[str, "the condition, as in `where`: `amount > 0`"]
    otherwise: Annotated[
        Otherwise,
        "for rows where it does not hold: only count them (the default), drop them, fail the run, "
        "or write their messages to `dead_letters` (of a source)",
    ] = "count"
    place: FilePlace = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A named table of topics or files. One of `topics`, `pattern` and `files` is set.

    Without a `schema` its columns are those of messages (key, value, topic, ...). With one, they
    are the fields of the schema, then those of the message with a leading `_` (`_key` as text,
    `_topic`, `_offset`, `_timestamp`, ...). Rows that do not decode go to the topic `dead_letters`;
    without it, the first one stops the run with an error that names it.
    """

    name: str
    topics: Annotated[tuple[str, ...], "several topics"] = ()
    pattern: Annotated[Text, "topics that match, also future ones: `orders.>`"] = None
    files: Annotated[Text, "a directory of files; new files are picked up"] = None
    servers: Annotated[Text, "the broker, if not the default one"] = None
    start: Annotated[
        str, "`earliest` (the default), `latest`, or a time with its zone; a checkpoint wins"
    ] = "earliest"
    schema: Annotated[
        Text, "columns of the values or files, as in SQL: `id bigint, at timestamp`"
    ] = None
    format: Annotated[From, "format of the values; `auto` uses each message's content type"] = (
        "json"
    )
    file_format: Annotated[FileFormat, "format of the files"] = "parquet"
    dead_letters: Annotated[
        Text, "topic for messages that do not decode; without it, the first one stops the run"
    ] = None
    watermark: Annotated[
        Watermark | None, "how late a row may arrive: `{ column = 'at', delay = '10 seconds' }`"
    ] = None
    expect: Annotated[
        tuple[Expectation, ...],
        "rules for rows, by name: `{ positive = 'amount > 0' }`; see [rules](#rules-for-rows)",
    ] = ()
    is_static: Annotated[bool, "a table, read when the run starts; not a stream"] = False
    max_per_batch: Annotated[int | None, "maximum messages (or files) per micro-batch"] = None
    options: Annotated[Mapping[str, str], "more [options of the data source](spark.md)"] = empty()
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made from other tables: by SQL over the names of sources and steps, or by a
    function."""

    name: str
    sql: Annotated[Text, "a query over the names of sources and steps"] = None
    sql_place: FilePlace = NOWHERE
    """The start of the SQL."""
    sql_layout: TextLayout | None = field(default=None, repr=False, compare=False)
    """The place of each character of the SQL in the file."""
    function: Annotated[
        str | StepFunction | None,
        "`file.py:name`, beside the pipeline file, or `package.module:name`",
    ] = None
    inputs: Annotated[tuple[str, ...], "sources and steps that the function takes, in order"] = ()
    arguments: Annotated[Mapping[str, Any], "keyword arguments of the function"] = empty()
    watermark: Annotated[Watermark | None, "as in a source, for a column of the step"] = None
    expect: Annotated[tuple[Expectation, ...], "rules for rows, as in a source"] = ()
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the rows of one source or step go: a flow, with its own query and checkpoint.

    One of `topic`, `parquet`, `json`, `delta`, `iceberg`, `console` and `foreach` is set.
    """

    name: str
    takes: Annotated[str, "the source or step to write"]
    topic: Annotated[Text, "write to a topic, exactly once"] = None
    parquet: Annotated[Text, "write Parquet files to this directory"] = None
    json: Annotated[Text, "write JSON files to this directory"] = None
    delta: Annotated[Text, "append to the Delta table here, made if need be"] = None
    iceberg: Annotated[Text, "append to this Iceberg table, `namespace.table`, made if need be"] = (
        None
    )
    console: Annotated[bool, "print to the terminal"] = False
    foreach: Annotated[
        str | BatchFunction | None,
        "call a function, `file.py:name`, with each micro-batch and its number",
    ] = None
    servers: Annotated[Text, "for a topic: the broker, if not the default one"] = None
    key: Annotated[Text, "for a topic: column with the message key, written as text"] = None
    format: Annotated[To, "for a topic: format of the values"] = "json"
    rate: Annotated[float | None, "for a topic: maximum rows per second"] = None
    pace: Annotated[
        Text, "for a topic: timestamp column; rows are sent as far apart as their times"
    ] = None
    speed: Annotated[float, "with `pace`: speed-up factor"] = 1.0
    partition_by: Annotated[
        tuple[str, ...],
        "for files and tables: columns, or parts of a time: `year(at)`, `month(at)`, `day(at)`, "
        "`hour(at)`",
    ] = ()
    compact: Annotated[bool, "for Parquet, Delta and Iceberg: merge small files"] = False
    keep_versions: Annotated[
        Text,
        "for Delta and Iceberg: delete what only versions older than this need, as `7 days`",
    ] = None
    arguments: Annotated[Mapping[str, Any], "for foreach: keyword arguments of the function"] = (
        empty()
    )
    mode: Annotated[
        OutputMode, "write new rows (`append`, the default), changed rows, or all rows each time"
    ] = "append"
    trigger: Annotated[
        Text, "interval of micro-batches, as `10 seconds`; by default as soon as there are rows"
    ] = None
    options: Annotated[Mapping[str, str], "more [options of the sink](spark-writing.md)"] = empty()
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBatch:
    """Rows that arrive together in a test, and those that are to come out of it."""

    after: Annotated[Text, "how long after the micro-batch before it, as `10 minutes`"] = None
    given: Annotated[Mapping[str, tuple[GivenRow, ...]], "rows that arrive, by source"] = empty()
    expected: Annotated[
        Mapping[str, tuple[GivenRow, ...]],
        "rows written since the last micro-batch with expected ones, by sink",
    ] = empty()
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test: rows of sources, and the rows that flows are to write for them."""

    name: str
    time: Annotated[
        str, "the time when the first rows arrive; `2026-01-01T00:00:00+00:00` by default"
    ] = "2026-01-01T00:00:00+00:00"
    set: Annotated[Mapping[str, str], "values of parameters"] = empty()
    given: Annotated[
        Mapping[str, tuple[GivenRow, ...]], "rows by source, if there is one micro-batch"
    ] = empty()
    expected: Annotated[
        Mapping[str, tuple[GivenRow, ...]], "rows by sink, if there is one micro-batch"
    ] = empty()
    batches: Annotated[tuple[CaseBatch, ...], "several micro-batches, in order"] = ()
    error: Annotated[Text, "a part of the error that is to end the flow"] = None
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Sources and steps by name, and a flow for each sink."""

    name: str
    servers: str | None = None
    checkpoint: str | None = None
    """A directory; each flow has its own in it."""
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    spark: Mapping[str, SparkSetting] = empty()
    """Settings of Spark."""
    parameters: Mapping[str, str] = empty()
    """The values of the parameters."""
    tests: Mapping[str, Case] = empty()
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)
