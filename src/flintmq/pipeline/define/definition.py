"""What a pipeline is: sources, steps and sinks, each with the place it was written at.

Files (`reading`) and Python calls (`builder`) both end here, and whatever looks at a pipeline
(checks, drawings, runs, exports) begins here. Parameters have been put in already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...documents import Layout
from ...spark.decoding import From, To
from ...spark.session import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode = Literal["append", "update", "complete"]
FileFormat = Literal["parquet", "json", "csv"]
StepFunction = Callable[..., "DataFrame"]
"""Takes the frames of its step's `inputs`, in order, and gives one back."""
BatchFunction = Callable[["DataFrame", int], None]
"""Takes the rows of a micro-batch and its number, as Spark's foreachBatch does."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written. Lines and columns begin at 1; 0 is not known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


NOWHERE = Place("<python>")
Places = Mapping[str, Place]
"""Where the value of each field was written; of those in tables, as `watermark.column`."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may come, by the time in one of its columns."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows by a name: of topics, or of files. One of `topics`, `pattern` and `files` is given.

    Without a `schema` its columns are those of messages (key, value, topic, ...). With one, they
    are the fields of the schema, then the message's own under names that begin with `_` (`_key`
    as text, `_topic`, `_offset`, `_timestamp`, ...). Rows that do not decode go to the topic
    `dead_letters`; where none is named, the first one ends the run with an error that names it.
    """

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    files: str | None = None
    servers: str | None = None
    start: str = "earliest"
    """`earliest`, `latest` or a time, ISO 8601 with a zone; where a checkpoint is, it decides."""
    schema: str | None = None
    format: From = "json"
    file_format: FileFormat = "parquet"
    dead_letters: str | None = None
    watermark: Watermark | None = None
    is_static: bool = False
    """Read as a table as it is when a run begins, not as a stream."""
    max_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the data source (docs/spark.md), as they are."""
    place: Place = NOWHERE
    places: Places = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made of others: by SQL over the names of sources and steps, or by a function."""

    name: str
    sql: str | None = None
    sql_place: Place = NOWHERE
    """Where the text of the SQL begins."""
    sql_layout: Layout | None = field(default=None, repr=False, compare=False)
    """Where each of its characters stands in the file, so that its own lines can be named."""
    function: str | StepFunction | None = None
    """`file.py:name` beside the pipeline's file, `package.module:name`, or the function itself."""
    inputs: tuple[str, ...] = ()
    """Of a function; SQL names its own."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Given to the function by keyword."""
    watermark: Watermark | None = None
    place: Place = NOWHERE
    places: Places = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the rows of one source or step go: a flow, with a query and a checkpoint of its own.

    One of `topic`, `parquet`, `json`, `console` and `foreach` is given.
    """

    name: str
    takes: str
    """The source or step (`from` in files)."""
    topic: str | None = None
    servers: str | None = None
    key: str | None = None
    """The column whose text is the message's key; it stays in the value too."""
    format: To = "json"
    rate: float | None = None
    """Into a topic, at most so many rows a second."""
    pace: str | None = None
    """A timestamp column: rows come as far apart as their times are ..."""
    speed: float = 1.0
    """... divided by this."""
    parquet: str | None = None
    json: str | None = None
    partition_by: tuple[str, ...] = ()
    compact: bool = False
    """Of Parquet: many small files of a partition become one."""
    console: bool = False
    foreach: str | BatchFunction | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    mode: OutputMode = "append"
    trigger: str | None = None
    """How often, as `10 seconds`; without one, as soon as there is something."""
    options: Mapping[str, str] = field(default_factory=dict)
    place: Place = NOWHERE
    places: Places = field(default_factory=dict, repr=False, compare=False)


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
    spark: Mapping[str, Setting] = field(default_factory=dict)
    """Settings of Spark."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What each parameter was set to."""
    place: Place = NOWHERE
    places: Places = field(default_factory=dict, repr=False, compare=False)
