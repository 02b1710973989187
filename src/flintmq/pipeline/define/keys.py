"""The keys of a pipeline's file: what each may be set to and what it means. Pure.

The reader goes by these tables, and docs/pipelines.md shows them: a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ...spark.decoding import From, To
from .definition import FileFormat, OutputMode

Kind = Literal[
    "text", "texts", "number", "whole number", "true or false", "table", "table of texts",
    "watermark", "tables",
]  # fmt: skip
"""`texts` is a list of texts, or one text; `table` has anything in it; `tables` has tables."""


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    kind: Kind
    meaning: str
    field: str = ""
    """Its name in the model, where that is another."""
    choices: tuple[str, ...] = ()
    is_needed: bool = False

    @property
    def into(self) -> str:
        return self.field or self.name


TOP = (
    Key(
        "name",
        "text",
        "what it is called, in the broker's groups and in checkpoints",
        is_needed=True,
    ),
    Key("servers", "text", "the broker of all who name none: `flint://host:port`"),
    Key("checkpoint", "text", "a directory; each flow keeps its place in one of its own in it"),
    Key("parameters", "tables", "values that differ from run to run"),
    Key("sources", "tables", "where rows come from, by name", is_needed=True),
    Key("steps", "tables", "tables made of other tables, by name"),
    Key("sinks", "tables", "where rows go, by name; each is a flow", is_needed=True),
    Key("spark", "table", 'settings of Spark: `"spark.sql.shuffle.partitions" = 8`'),
)
PARAMETER = (
    Key("default", "text", "its value where nothing else is said"),
    Key("env", "text", "the variable of the environment that sets it, not `FLINTMQ_PARAM_<NAME>`"),
    Key("about", "text", "what it is for, told where it has no value"),
)
WATERMARK = (
    Key("column", "text", "a timestamp column", is_needed=True),
    Key("delay", "text", "how late a row may come, as `10 seconds`", is_needed=True),
)
SOURCE = (
    Key("topic", "text", "a topic"),
    Key("topics", "texts", "several topics", field="topics"),
    Key("pattern", "text", "every topic that matches, also those that come later: `orders.>`"),
    Key("files", "text", "a directory of files, which new ones are added to"),
    Key("servers", "text", "the broker, where it is another"),
    Key(
        "start",
        "text",
        "`earliest` (the default), `latest`, or a time with its zone; a checkpoint decides",
    ),
    Key(
        "schema", "text", "the columns of values, as in SQL: `id bigint, at timestamp`; or of files"
    ),
    Key(
        "format",
        "text",
        "how values are written; `auto` goes by each message's content type",
        choices=get_args(From),
    ),
    Key("file_format", "text", "what files hold", choices=get_args(FileFormat)),
    Key("dead_letters", "text", "a topic for what does not decode; without one, that ends the run"),
    Key(
        "watermark",
        "watermark",
        "how late a row may come: `{ column = 'at', delay = '10 seconds' }`",
    ),
    Key(
        "static",
        "true or false",
        "a table, read as it is when the run begins; not a stream",
        field="is_static",
    ),
    Key("max_per_batch", "whole number", "so many messages (or files) in one micro-batch at most"),
    Key("options", "table of texts", "more [options of the data source](spark.md), as they are"),
)
STEP = (
    Key("sql", "text", "a query over the names of sources and steps"),
    Key("function", "text", "`file.py:name`, beside the pipeline's file, or `package.module:name`"),
    Key("inputs", "texts", "the sources and steps that the function gets, in order"),
    Key("arguments", "table", "what else the function gets, by keyword"),
    Key("watermark", "watermark", "as in a source, for a column that the step makes"),
)
SINK = (
    Key("from", "text", "the source or step whose rows go there", field="takes", is_needed=True),
    Key("topic", "text", "into a topic, exactly once"),
    Key("parquet", "text", "into Parquet files of this directory"),
    Key("json", "text", "into JSON files of this directory"),
    Key("console", "true or false", "onto the terminal"),
    Key(
        "foreach",
        "text",
        "to a function, as `file.py:name`: it gets each micro-batch and its number",
    ),
    Key("servers", "text", "of a topic: the broker, where it is another"),
    Key("key", "text", "of a topic: the column whose text is the message's key"),
    Key("format", "text", "of a topic: how values are written", choices=get_args(To)),
    Key("rate", "number", "of a topic: at most so many rows a second"),
    Key("pace", "text", "of a topic: a timestamp column; rows are as far apart as their times"),
    Key("speed", "number", "with `pace`: so many times as fast"),
    Key("partition_by", "texts", "of files: columns that become directories"),
    Key("compact", "true or false", "of Parquet: many small files of a partition become one"),
    Key("arguments", "table", "of foreach: what else the function gets, by keyword"),
    Key(
        "mode",
        "text",
        "new rows (`append`, the default), those that changed, or all each time",
        choices=get_args(OutputMode),
    ),
    Key("trigger", "text", "how often, as `10 seconds`; without it as soon as there is something"),
    Key("options", "table of texts", "more [options of the sink](spark-writing.md), as they are"),
)

SECTIONS = {
    "the file": TOP,
    "parameters": PARAMETER,
    "sources": SOURCE,
    "steps": STEP,
    "sinks": SINK,
    "watermark": WATERMARK,
}
