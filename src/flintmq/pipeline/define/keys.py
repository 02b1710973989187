"""The keys of a pipeline file: the kind of value of each, and its meaning. Pure.

The reader uses these tables, and docs/pipelines.md shows them: a test compares the two. Those of
sources, steps and sinks come from the fields of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin

from .definition import Case, CaseBatch, Expectation, GivenRow, Sink, Source, Step, Watermark

KeyKind = Literal[
    "text", "texts", "number", "whole number", "true or false", "table", "table of texts",
    "watermark", "tables", "rows", "batches",
    "rules",
]  # fmt: skip
"""`texts` is a list of texts, or one text; `table` has any values; `tables` has tables; `rows` has
lists of rows by name, or files of JSON lines beside the pipeline file."""
KINDS: dict[Any, KeyKind] = {
    tuple[str, ...]: "texts", float: "number", int: "whole number", bool: "true or false",
    Mapping[str, Any]: "table", Mapping[str, str]: "table of texts", Watermark: "watermark",
    Mapping[str, tuple[GivenRow, ...]]: "rows", tuple[CaseBatch, ...]: "batches",
    tuple[Expectation, ...]: "rules",
}  # fmt: skip
"""By the type of a field; everything else is text."""
NAMES = {"takes": "from", "is_static": "static"}
"""Fields that have another name in a file."""


@dataclass(frozen=True, slots=True)
class FileKey:
    name: str
    kind: KeyKind
    meaning: str
    field: str = ""
    """Its name in the model, if that is another one."""
    choices: tuple[str, ...] = ()
    is_needed: bool = False

    @property
    def into(self) -> str:
        return self.field or self.name


def keys_of(
    model: type[Source | Step | Sink | Watermark | Case | CaseBatch | Expectation],
) -> Iterator[FileKey]:
    """A key for every field with a meaning."""
    for one in fields(model):
        if get_origin(one.type) is Annotated:
            declared, meaning = get_args(one.type)
            kind = declared
            if declared not in KINDS:
                kind = next((part for part in get_args(declared) if part in KINDS), declared)
            yield FileKey(
                NAMES.get(one.name, one.name),
                KINDS.get(kind, "text"),
                meaning,
                field=one.name,
                choices=get_args(declared) if get_origin(declared) is Literal else (),
                is_needed=one.default is MISSING and one.default_factory is MISSING,
            )


TOP = (
    FileKey("name", "text", "its name, in groups of the broker and checkpoints", is_needed=True),
    FileKey("servers", "text", "the default broker: `flint://host:port`"),
    FileKey("checkpoint", "text", "directory for checkpoints; each flow has its own in it"),
    FileKey("parameters", "tables", "values that differ from run to run"),
    FileKey("sources", "tables", "where rows come from, by name", is_needed=True),
    FileKey("steps", "tables", "tables made from other tables, by name"),
    FileKey("sinks", "tables", "where rows go, by name; each is a flow", is_needed=True),
    FileKey("tests", "tables", "given and expected rows, for `flintmq pipeline test`"),
    FileKey("spark", "table", 'settings of Spark: `"spark.sql.shuffle.partitions" = 8`'),
)
PARAMETER = (
    FileKey("default", "text", "its default value"),
    FileKey("env", "text", "environment variable to use instead of `FLINTMQ_PARAM_<NAME>`"),
    FileKey("about", "text", "its purpose, shown if it has no value"),
)
WATERMARK = tuple(keys_of(Watermark))
SOURCE = (FileKey("topic", "text", "a topic"), *keys_of(Source))
STEP = tuple(keys_of(Step))
SINK = tuple(keys_of(Sink))
EXPECTATION = tuple(keys_of(Expectation))
CASE = tuple(keys_of(Case))
CASE_BATCH = tuple(keys_of(CaseBatch))

SECTIONS = {
    "the file": TOP,
    "parameters": PARAMETER,
    "sources": SOURCE,
    "steps": STEP,
    "sinks": SINK,
    "watermark": WATERMARK,
    "expect": EXPECTATION,
    "tests": CASE,
    "batches": CASE_BATCH,
}
