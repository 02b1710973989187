"""What a pipeline is: sources, steps and sinks, each with the place it was written at.

Files (`reading`) and Python calls (`builder`) both end here, and whatever looks at a pipeline
(checks, drawings, runs, exports) begins here. Parameters have been put in already.

What a field is annotated with is what its key in a file means: `keys` makes its tables of it.
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
FileFormat = Literal["parquet", "json", "csv"]
StepFunction = Callable[..., "DataFrame"]
"""Takes the frames of its step's `inputs`, in order, and gives one back."""
BatchFunction = Callable[["DataFrame", int], None]
"""Takes the rows of a micro-batch and its number, as Spark's foreachBatch does."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where something was written. Lines and columns begin at 1; 0 is not known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


NOWHERE = FilePlace("<python>")
FilePlaces = Mapping[str, FilePlace]
"""Where the value of each field was written; of those in tables, as `watermark.column`."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may come, by the time in one of its columns."""

    column: Annotated[str, "a timestamp column"]
    delay: Annotated[str, "how late a row may come, as `10 seconds`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows by a name: of topics, or of files. One of `topics`, `pattern` and `files` is given.

    Without a `schema` its columns are those of messages (key, value, topic, ...). With one, they
    are the fields of the schema, then the message's own under names that begin with `_` (`_key`
    as text, `_topic`, `_offset`, `_timestamp`, ...). Rows that do not decode go to the topic
    `dead_letters`; where none is named, the first one ends the run with an error that names it.
    """

    name: str
    topics: Annotated[tuple[str, ...], "several topics"] = ()
    pattern: Annotated[Text, "every topic that matches, also those that come later: `orders.>`"] = (
        None
    )
    files: Annotated[Text, "a directory of files, which new ones are added to"] = None
    servers: Annotated[Text, "the broker, where it is another"] = None
    start: Annotated[
        str, "`earliest` (the default), `latest`, or a time with its zone; a checkpoint decides"
    ] = "earliest"
    schema: Annotated[
        Text, "the columns of values, as in SQL: `id bigint, at timestamp`; or of files"
    ] = None
    format: Annotated[
        From, "how values are written; `auto` goes by each message's content type"
    ] = "json"
    file_format: Annotated[FileFormat, "what files hold"] = "parquet"
    dead_letters: Annotated[
        Text, "a topic for what does not decode; without one, that ends the run"
    ] = None
    watermark: Annotated[
        Watermark | None, "how late a row may come: `{ column = 'at', delay = '10 seconds' }`"
    ] = None
    is_static: Annotated[bool, "a table, read as it is when the run begins; not a stream"] = False
    max_per_batch: Annotated[int | None, "maximum messages (or files) per micro-batch"] = None
    options: Annotated[
        Mapping[str, str], "more [options of the data source](spark.md), as they are"
    ] = field(default_factory=dict)
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made of others: by SQL over the names of sources and steps, or by a function."""

    name: str
    sql: Annotated[Text, "a query over the names of sources and steps"] = None
    sql_place: FilePlace = NOWHERE
    """Where the text of the SQL begins."""
    sql_layout: TextLayout | None = field(default=None, repr=False, compare=False)
    """Where each of its characters stands in the file, so that its own lines can be named."""
    function: Annotated[
        str | StepFunction | None,
        "`file.py:name`, beside the pipeline's file, or `package.module:name`",
    ] = None
    inputs: Annotated[
        tuple[str, ...], "the sources and steps that the function gets, in order"
    ] = ()
    arguments: Annotated[Mapping[str, Any], "what else the function gets, by keyword"] = field(
        default_factory=dict
    )
    watermark: Annotated[Watermark | None, "as in a source, for a column that the step makes"] = (
        None
    )
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the rows of one source or step go: a flow, with a query and a checkpoint of its own.

    One of `topic`, `parquet`, `json`, `console` and `foreach` is given.
    """

    name: str
    takes: Annotated[str, "the source or step whose rows go there"]
    topic: Annotated[Text, "into a topic, exactly once"] = None
    parquet: Annotated[Text, "into Parquet files of this directory"] = None
    json: Annotated[Text, "into JSON files of this directory"] = None
    console: Annotated[bool, "onto the terminal"] = False
    foreach: Annotated[
        str | BatchFunction | None,
        "to a function, as `file.py:name`: it gets each micro-batch and its number",
    ] = None
    servers: Annotated[Text, "of a topic: the broker, where it is another"] = None
    key: Annotated[Text, "of a topic: the column whose text is the message's key"] = None
    format: Annotated[To, "of a topic: how values are written"] = "json"
    rate: Annotated[float | None, "for a topic: maximum rows per second"] = None
    pace: Annotated[
        Text, "of a topic: a timestamp column; rows are as far apart as their times"
    ] = None
    speed: Annotated[float, "with `pace`: speed-up factor"] = 1.0
    partition_by: Annotated[tuple[str, ...], "of files: columns that become directories"] = ()
    compact: Annotated[bool, "of Parquet: many small files of a partition become one"] = False
    arguments: Annotated[
        Mapping[str, Any], "of foreach: what else the function gets, by keyword"
    ] = field(default_factory=dict)
    mode: Annotated[
        OutputMode, "new rows (`append`, the default), those that changed, or all each time"
    ] = "append"
    trigger: Annotated[
        Text, "how often, as `10 seconds`; without it as soon as there is something"
    ] = None
    options: Annotated[
        Mapping[str, str], "more [options of the sink](spark-writing.md), as they are"
    ] = field(default_factory=dict)
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
    spark: Mapping[str, SparkSetting] = field(default_factory=dict)
    """Settings of Spark."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What each parameter was set to."""
    place: FilePlace = NOWHERE
    places: FilePlaces = field(default_factory=dict, repr=False, compare=False)
