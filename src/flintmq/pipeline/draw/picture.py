"""The layout of a picture of a pipeline: the column and row of each box, and the lines. Pure.

Sources are on the left, sinks on the right, and each step is right of everything it depends on. A
line that passes a column gets a row of its own there, so it crosses no box. `text` and `svg` draw
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..define.definition import Pipeline, Sink, Source, Step, Watermark
from ..define.flows import DEAD_LETTERS
from ..define.graph import inputs_of

BoxKind = Literal["source", "static source", "step", "sink", "dead letters", "line"]
LONG = 44
SWEEPS = 4


@dataclass(eq=False, slots=True)
class Box:
    """A box in the picture; of kind `line`, only a line that passes a column."""

    name: str
    kind: BoxKind
    about: tuple[str, ...] = ()
    column: int = 0
    before: list[Box] = field(default_factory=list)
    """Where lines come from."""
    after: list[Box] = field(default_factory=list)

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.name, *self.about)


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    columns: list[list[Box]]
    """From left to right; each from top to bottom."""

    def boxes(self) -> list[Box]:
        return [box for column in self.columns for box in column if box.kind != "line"]

    def links(self) -> list[tuple[Box, Box]]:
        """From box to box, without the lines between."""
        return [(box, end) for box in self.boxes() for end in _ends(box)]


def _ends(box: Box) -> Iterator[Box]:
    for after in box.after:
        if after.kind == "line":
            yield from _ends(after)
        else:
            yield after


def picture_of(pipeline: Pipeline, *, long: int = LONG) -> Picture:
    """The picture of a pipeline that passes `check`. Text in boxes is cut after `long` letters."""
    boxes = _boxes(pipeline)
    for box in boxes:
        box.about = tuple(_short(line, long) for line in box.about)
    _set_columns(boxes)
    columns = _with_lines(boxes)
    for _ in range(SWEEPS):
        _untangle(columns)
    return Picture(pipeline.name, columns)


# --- the boxes


def _boxes(pipeline: Pipeline) -> list[Box]:
    tables: dict[str, Box] = {}
    rest: list[Box] = []
    for source in pipeline.sources.values():
        kind: BoxKind = "static source" if source.is_static else "source"
        box = tables[source.name] = Box(source.name, kind, about_source(source))
        if source.dead_letters is not None:
            letters = Box(
                source.name + DEAD_LETTERS,
                "dead letters",
                (f"topic {source.dead_letters}", "what does not decode"),
            )
            _link(box, letters)
            rest.append(letters)
    for step in pipeline.steps.values():
        tables[step.name] = Box(step.name, "step", _about_step(step))
    for step in pipeline.steps.values():
        for name in inputs_of(step, pipeline):
            _link(tables[name], tables[step.name])
    for sink in pipeline.sinks.values():
        box = Box(sink.name, "sink", about_sink(sink))
        _link(tables[sink.takes], box)
        rest.append(box)
    return [*tables.values(), *rest]


def _link(before: Box, after: Box) -> None:
    before.after.append(after)
    after.before.append(before)


def about_source(source: Source) -> tuple[str, ...]:
    if source.files is not None:
        first = f"{source.file_format} {source.files}"
    elif source.pattern is not None:
        first = f"pattern {source.pattern}"
    else:
        first = f"topic{'s' if len(source.topics) > 1 else ''} {', '.join(source.topics)}"
    more = [
        "a table, read once" if source.is_static else "",
        f"from {source.start}" if source.start != "earliest" else "",
        _about_watermark(source.watermark),
    ]
    return tuple(line for line in (first, *more) if line)


def _about_step(step: Step) -> tuple[str, ...]:
    if step.sql is not None:
        what = " ".join(step.sql.split())
    elif isinstance(step.function, str):
        what = step.function
    else:
        what = f"{getattr(step.function, '__name__', 'a function')}()"
    return tuple(line for line in (what, _about_watermark(step.watermark)) if line)


def about_sink(sink: Sink) -> tuple[str, ...]:
    if sink.topic is not None:
        first = f"topic {sink.topic}"
    elif sink.parquet is not None or sink.json is not None:
        first = f"{'parquet' if sink.parquet else 'json'} {sink.parquet or sink.json}"
    elif sink.delta is not None or sink.iceberg is not None:
        first = f"{'delta' if sink.delta else 'iceberg'} {sink.delta or sink.iceberg}"
    elif sink.console:
        first = "console"
    elif isinstance(sink.foreach, str):
        first = f"foreach {sink.foreach}"
    else:
        first = f"foreach {getattr(sink.foreach, '__name__', 'a function')}()"
    more = [
        f"key {sink.key}" if sink.key else "",
        f"by {', '.join(sink.partition_by)}" if sink.partition_by else "",
        "compacted" if sink.compact else "",
        f"{sink.mode} mode" if sink.mode != "append" else "",
        f"every {sink.trigger}" if sink.trigger else "",
        f"{sink.rate:g} rows a second" if sink.rate else "",
        f"at the pace of {sink.pace}" if sink.pace else "",
    ]
    said = ", ".join(one for one in more if one)
    return tuple(line for line in (first, said) if line)


def _about_watermark(watermark: Watermark | None) -> str:
    return "" if watermark is None else f"watermark {watermark.column}, {watermark.delay}"


def _short(text: str, long: int) -> str:
    return text if len(text) <= long else f"{text[: long - 1]}…"


# --- their places


def _set_columns(boxes: Sequence[Box]) -> None:
    for _ in boxes:
        for box in boxes:
            box.column = max((before.column + 1 for before in box.before), default=0)
    last = max((box.column for box in boxes), default=0)
    for box in boxes:
        if box.kind == "sink":
            box.column = last


def _with_lines(boxes: Sequence[Box]) -> list[list[Box]]:
    """The columns, with a row in each for every line that passes it."""
    columns: list[list[Box]] = [
        [] for _ in range(1 + max((box.column for box in boxes), default=0))
    ]
    for box in boxes:
        columns[box.column].append(box)
    for box in boxes:
        passing: dict[int, Box] = {}
        """Lines from one box share a path as long as possible."""
        for target in list(box.after):
            if target.column == box.column + 1:
                continue
            box.after.remove(target)
            target.before.remove(box)
            before = box
            for column in range(box.column + 1, target.column):
                if column not in passing:
                    passing[column] = Box("", "line", column=column)
                    columns[column].append(passing[column])
                    _link(before, passing[column])
                before = passing[column]
            _link(before, target)
    return columns


def _untangle(columns: list[list[Box]]) -> None:
    """Move each box near the middle of its neighbours, so that fewer lines cross."""
    for column, neighbours in zip(columns[1:], columns, strict=False):
        _sort(column, {id(box): row for row, box in enumerate(neighbours)}, "before")
    for column, neighbours in zip(columns[-2::-1], columns[:0:-1], strict=False):
        _sort(column, {id(box): row for row, box in enumerate(neighbours)}, "after")


def _sort(column: list[Box], rows: dict[int, int], side: Literal["before", "after"]) -> None:
    def middle(place: tuple[int, Box]) -> float:
        row, box = place
        linked = [rows[id(one)] for one in getattr(box, side) if id(one) in rows]
        found = sum(linked) / len(linked) if linked else row
        return found + (0.5 if box.kind == "dead letters" else 0.0)  # less important: below

    column[:] = [box for _, box in sorted(enumerate(column), key=middle)]
