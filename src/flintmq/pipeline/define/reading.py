"""Reads a pipeline file, TOML or YAML, and reports every fault of its form at once.

Keys must be known and values of the right kind, and parameters are filled in. `checking` checks
whether the pipeline makes sense.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, TypeVar

from ...config.documents import DocumentNode, FileUnreadable, Spot, read_document
from .definition import (
    Case,
    CaseBatch,
    Expectation,
    FilePlace,
    GivenRow,
    Pipeline,
    Sink,
    Source,
    Step,
    Watermark,
)
from .keys import (
    CASE,
    CASE_BATCH,
    EXPECTATION,
    PARAMETER,
    SINK,
    SOURCE,
    STEP,
    TOP,
    WATERMARK,
    FileKey,
)
from .parameters import NAME, Filled, Parameter, fill, values_of, variable_of
from .problems import Defect, PipelineInvalid, in_order, meant
from .row_files import rows_of_file

T = TypeVar("T", Source, Step, Sink, Case)

A_FILE = "a pipeline file"


def read_pipeline(
    file: str | Path,
    given: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Pipeline:
    """Read a file. `given` are parameters (--set); they win over `environ`.

    Raises PipelineInvalid with all faults of the form of the file.
    """
    path = Path(file)
    try:
        document = read_document(path, A_FILE)
    except FileUnreadable as error:
        raise PipelineInvalid([_unreadable(str(error), path)]) from None
    reader = _PipelineReader(
        str(path), document, given or {}, os.environ if environ is None else environ
    )
    if reader.problems:
        raise PipelineInvalid(in_order(reader.problems))
    return reader.pipeline


def read_parameters(path: Path) -> dict[str, Parameter]:
    """The parameters that a file declares, even if something else is wrong with it."""
    document = read_document(path, A_FILE)
    return _PipelineReader(str(path), document, {}, {}).parameters


def read_cases(path: Path) -> dict[str, Case]:
    """The tests that a file declares, even if something else is wrong with it."""
    reader = _PipelineReader(str(path), read_document(path, A_FILE), {}, {})
    return dict(reader.pipeline.tests)


def _unreadable(text: str, path: Path) -> Defect:
    found = re.match(rf"{re.escape(str(path))}(?::(\d+))?(?::(\d+))?: ", text)
    assert found is not None, "the error of a file begins with its name"
    place = FilePlace(str(path), int(found[1] or 0), int(found[2] or 0))
    return Defect(place, text[found.end() :])


class _UnfitEntry(Exception):
    """A value of the wrong kind; the text says what is expected."""


class _PipelineReader:
    def __init__(
        self,
        file: str,
        document: DocumentNode,
        given: Mapping[str, str],
        environ: Mapping[str, str],
    ) -> None:
        self._file = file
        self.problems: list[Defect] = []
        self._check_keys(document, TOP, "a pipeline")
        self.parameters = self._parameters(document.entries.get("parameters"))
        self._values, wrong = values_of(self.parameters, given, environ, file)
        self.problems += wrong
        top = self._fields(
            document,
            [key for key in TOP if key.kind == "text"],
            "a pipeline",
            FilePlace(file, 1, 1),
        )
        self.pipeline = Pipeline(
            name=top.get("name", ""),
            servers=top.get("servers"),
            checkpoint=top.get("checkpoint"),
            sources=self._all(document, "sources", self._source),
            steps=self._all(document, "steps", self._step),
            sinks=self._all(document, "sinks", self._sink),
            tests=self._all(document, "tests", self._case),
            spark=self._settings(document.entries.get("spark")),
            parameters=self._values,
            place=FilePlace(file, *document.key_spots.get("name", Spot(1, 1))),
            places=self._places(document, TOP),
        )

    def _place(self, spot: Spot) -> FilePlace:
        return FilePlace(self._file, spot.line, spot.column)

    def _wrong(self, where: Spot | FilePlace, text: str, remedy: str = "") -> None:
        place = where if isinstance(where, FilePlace) else self._place(where)
        self.problems.append(Defect(place, text, remedy))

    # --- tables

    def _tables(
        self, document: DocumentNode, section: str
    ) -> Iterator[tuple[str, DocumentNode, Spot]]:
        """The tables of a section: name, table, and place of the name."""
        found = document.entries.get(section)
        if found is None:
            return
        if not isinstance(found.value, dict):
            self._wrong(
                found.spot,
                f"{section} must be a table of tables, not {_said(found.value)}",
                f"write {self._table_form(section, 'NAME')}",
            )
            return
        for name, node in found.entries.items():
            spot = found.key_spots[name]
            if not isinstance(node.value, dict):
                self._wrong(
                    spot,
                    f"{section}.{name} must be a table, not {_said(node.value)}",
                    f"write {self._table_form(section, name)}, and its keys below it",
                )
                continue
            yield name, node, spot

    def _table_form(self, section: str, name: str) -> str:
        is_toml = self._file.endswith(".toml")
        return f"[{section}.{name}]" if is_toml else f"{name}: under {section}:"

    def _all(
        self,
        document: DocumentNode,
        section: str,
        make: Callable[[str, DocumentNode, FilePlace], T],
    ) -> dict[str, T]:
        return {
            name: make(name, node, self._place(spot))
            for name, node, spot in self._tables(document, section)
        }

    def _check_keys(self, node: DocumentNode, keys: Iterable[FileKey], what: str) -> None:
        names = [key.name for key in keys]
        for name in node.entries:
            if name not in names:
                self._wrong(node.key_spots[name], f"{what} has no {name!r}", meant(name, names))

    def _fields(
        self, node: DocumentNode, keys: Iterable[FileKey], what: str, place: FilePlace
    ) -> dict[str, Any]:
        """The values of a table, by their names in the model."""
        fields: dict[str, Any] = {}
        for key in keys:
            found = node.entries.get(key.name)
            if found is None:
                if key.is_needed:
                    self._wrong(place, f"{what} needs {key.name!r}: {key.meaning}")
                continue
            try:
                fields[key.into] = self._value(found, key)
            except _UnfitEntry as unfit:
                self._wrong(found.spot, f"{key.name} must be {unfit}, not {_said(found.value)}")
        return fields

    def _places(
        self, node: DocumentNode, keys: Iterable[FileKey], before: str = ""
    ) -> dict[str, FilePlace]:
        places: dict[str, FilePlace] = {}
        for key in keys:
            if (found := node.entries.get(key.name)) is None:
                continue
            places[f"{before}{key.into}"] = self._place(found.spot)
            for index, item in enumerate(found.items):
                places[f"{before}{key.into}.{index}"] = self._place(item.spot)
            for name, spot in found.key_spots.items():
                places[f"{before}{key.into}.{name}"] = self._place(spot)
            if key.kind == "watermark":
                places |= self._places(found, WATERMARK, f"{before}{key.into}.")
        if "topic" in places and any(key.name == "topics" for key in keys):
            places["topics"] = places["topic"]
        return places

    # --- their contents

    def _parameters(self, node: DocumentNode | None) -> dict[str, Parameter]:
        made: dict[str, Parameter] = {}
        if node is None:
            return made
        if not isinstance(node.value, dict):
            self._wrong(
                node.spot,
                f"parameters must be a table, not {_said(node.value)}",
                'write [parameters] and name = "default" below it',
            )
        for name, inner in node.entries.items():
            place = self._place(node.key_spots[name])
            if not NAME.fullmatch(name):
                self._wrong(
                    place, f"{name!r} is not a valid parameter name", "use letters, digits, _"
                )
            default, env, about = self._parameter(inner)
            made[name] = Parameter(name, default, env or variable_of(name), about or "", place)
        return made

    def _parameter(self, node: DocumentNode) -> tuple[str | None, str | None, str | None]:
        if not isinstance(node.value, dict):
            return self._plain_text(node, "the default of a parameter"), None, None
        self._check_keys(node, PARAMETER, "a parameter")
        default, env, about = (
            None
            if (found := node.entries.get(key.name)) is None
            else self._plain_text(found, f"{key.name} of a parameter")
            for key in PARAMETER
        )
        return default, env, about

    def _plain_text(self, node: DocumentNode, what: str) -> str | None:
        value = node.value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str) and (at := value.find("${")) >= 0:
            self._wrong(node.text_spot(at), f"{what} cannot contain parameters")
        if isinstance(value, str | int | float):
            return str(value)
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        self._wrong(node.spot, f"{what} must be text, not {_said(value)}")
        return None

    def _source(self, name: str, node: DocumentNode, place: FilePlace) -> Source:
        self._check_keys(node, SOURCE, "a source")
        fields = self._fields(node, SOURCE, f"the source {name}", place)
        if "files" in node.entries and "format" in node.entries:
            self._wrong(
                node.key_spots["format"],
                "format is for messages",
                "use file_format for files",
            )
        if "files" not in node.entries and "file_format" in node.entries:
            self._wrong(
                node.key_spots["file_format"],
                "file_format is only for files",
                "use format for topics",
            )
        ways = [key for key in ("topic", "topics", "pattern", "files") if key in node.entries]
        if len(ways) != 1:
            said = f"not {' and '.join(ways)}" if ways else "and has none"
            self._wrong(
                node.key_spots[ways[1]] if ways else place,
                f"the source {name} needs one of topic, topics, pattern and files, {said}",
            )
        if "topic" in fields:
            fields["topics"] = (fields.pop("topic"),)
        return Source(name=name, place=place, places=self._places(node, SOURCE), **fields)

    def _step(self, name: str, node: DocumentNode, place: FilePlace) -> Step:
        self._check_keys(node, STEP, "a step")
        fields = self._fields(node, STEP, f"the step {name}", place)
        if sql := node.entries.get("sql"):
            fields["sql_place"] = self._place(sql.text_spot(0))
            if isinstance(sql.value, str):
                fields["sql_layout"] = self._fill(sql, tell=False).layout
        return Step(name=name, place=place, places=self._places(node, STEP), **fields)

    def _sink(self, name: str, node: DocumentNode, place: FilePlace) -> Sink:
        self._check_keys(node, SINK, "a sink")
        fields: dict[str, Any] = {"takes": ""}
        fields |= self._fields(node, SINK, f"the sink {name}", place)
        return Sink(name=name, place=place, places=self._places(node, SINK), **fields)

    def _rules(self, node: DocumentNode) -> Iterator[Expectation]:
        if not isinstance(node.value, dict):
            raise _UnfitEntry("a table of rules, as { positive = 'amount > 0' }")
        for name, inner in node.entries.items():
            place = self._place(node.key_spots[name])
            if isinstance(inner.value, str):
                yield Expectation(name, self._fill(inner).text, place=place)
            elif isinstance(inner.value, dict):
                self._check_keys(inner, EXPECTATION, "a rule")
                fields = self._fields(inner, EXPECTATION, f"the rule {name}", place)
                if "that" in fields:
                    yield Expectation(name, **fields, place=place)
            else:
                self._wrong(inner.spot, f"the rule {name} must be a text or a table")

    def _case(self, name: str, node: DocumentNode, place: FilePlace) -> Case:
        self._check_keys(node, CASE, "a test")
        fields = self._fields(node, CASE, f"the test {name}", place)
        return Case(name=name, place=place, places=self._places(node, CASE), **fields)

    def _batch(self, node: DocumentNode) -> CaseBatch:
        if not isinstance(node.value, dict):
            raise _UnfitEntry("a list of tables")
        place = self._place(node.spot)
        self._check_keys(node, CASE_BATCH, "a batch")
        fields = self._fields(node, CASE_BATCH, "a batch", place)
        return CaseBatch(place=place, places=self._places(node, CASE_BATCH), **fields)

    def _rows(self, node: DocumentNode) -> dict[str, tuple[GivenRow, ...]]:
        """Lists of rows by name; a text names a file of JSON lines beside the pipeline file."""
        if not isinstance(node.value, dict):
            raise _UnfitEntry("a table of lists of rows")
        rows: dict[str, tuple[GivenRow, ...]] = {}
        for name, inner in node.entries.items():
            if isinstance(inner.value, str):
                rows[name] = self._rows_of_file(inner)
            elif isinstance(inner.value, list) and all(
                isinstance(item.value, dict | str) for item in inner.items
            ):
                rows[name] = tuple(self._plain(item) for item in inner.items)
            else:
                self._wrong(
                    inner.spot,
                    f"the rows of {name} must be a list of tables and texts, or a file, not "
                    f"{_said(inner.value)}",
                )
        return rows

    def _rows_of_file(self, node: DocumentNode) -> tuple[GivenRow, ...]:
        path = Path(self._file).parent / self._fill(node).text
        rows, problems = rows_of_file(path, self._place(node.spot))
        self.problems += problems
        return rows

    def _settings(self, node: DocumentNode | None) -> dict[str, Any]:
        """Settings of Spark; also written as `[spark.sql.shuffle] partitions = 2`."""
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self._wrong(node.spot, f"spark must be a table of settings, not {_said(node.value)}")
            return {}
        settings: dict[str, Any] = {}

        def take(table: DocumentNode, before: str) -> None:
            for key, inner in table.entries.items():
                name = f"{before}{key}"
                if isinstance(inner.value, dict):
                    take(inner, f"{name}.")
                elif isinstance(inner.value, str | int | float):
                    full = name if name.startswith("spark.") else f"spark.{name}"
                    settings[full] = self._plain(inner)
                else:
                    self._wrong(
                        inner.spot, f"{name} must be text or a number, not {_said(inner.value)}"
                    )

        take(node, "")
        return settings

    # --- values

    def _fill(self, node: DocumentNode, *, tell: bool = True) -> Filled:
        filled, problems = fill(
            node.value,
            node.layout,
            self._values,
            self.parameters,
            lambda offset: self._place(node.text_spot(offset)),
        )
        if tell:
            self.problems += problems
        return filled

    def _plain(self, node: DocumentNode) -> Any:
        """Any value, with parameters filled in."""
        if isinstance(node.value, dict):
            return {key: self._plain(inner) for key, inner in node.entries.items()}
        if isinstance(node.value, list):
            return [self._plain(item) for item in node.items]
        return self._fill(node).text if isinstance(node.value, str) else node.value

    def _value(self, node: DocumentNode, key: FileKey) -> Any:
        value = node.value
        match key.kind:
            case "text":
                return self._text(node, key)
            case "texts":
                nodes = node.items if isinstance(value, list) else (node,)
                if not all(isinstance(one.value, str) for one in nodes):
                    raise _UnfitEntry("a list of texts")
                return tuple(self._fill(one).text for one in nodes)
            case "number" | "whole number":
                return self._number(node, is_whole=key.kind == "whole number")
            case "true or false":
                return self._truth(node)
            case "table" | "table of texts":
                if not isinstance(value, dict):
                    raise _UnfitEntry("a table")
                return self._plain(node) if key.kind == "table" else self._texts(node, key.name)
            case "watermark":
                return self._watermark(node)
            case "rules":
                return tuple(self._rules(node))
            case "rows":
                return self._rows(node)
            case "batches":
                nodes = node.items if isinstance(value, list) else (node,)
                return tuple(self._batch(one) for one in nodes)
            case "tables":
                raise AssertionError("sections are read on their own")

    def _text(self, node: DocumentNode, key: FileKey) -> str:
        if isinstance(node.value, datetime):  # TOML and YAML have times
            return node.value.isoformat()
        if not isinstance(node.value, str):
            raise _UnfitEntry(f"one of {', '.join(key.choices)}" if key.choices else "a text")
        text = self._fill(node).text
        if key.choices and text not in key.choices:
            raise _UnfitEntry(f"one of {', '.join(key.choices)}")
        return text

    def _number(self, node: DocumentNode, *, is_whole: bool) -> int | float:
        unfit = _UnfitEntry("a whole number above 0" if is_whole else "a number above 0")
        value = node.value
        if isinstance(value, str) and (filled := self._fill(node)).had_parameters:
            try:
                value = int(filled.text) if is_whole else float(filled.text)
            except ValueError:
                raise _UnfitEntry(f"{unfit} (here {filled.text!r})") from None
        allowed = int if is_whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed) or not value > 0:
            raise unfit
        return value

    def _truth(self, node: DocumentNode) -> bool:
        value = node.value
        if isinstance(value, str) and (filled := self._fill(node)).had_parameters:
            value = {"true": True, "false": False}.get(filled.text.lower(), filled.text)
        if not isinstance(value, bool):
            raise _UnfitEntry("true or false")
        return value

    def _texts(self, node: DocumentNode, what: str) -> dict[str, str]:
        texts = {}
        for name, inner in node.entries.items():
            value = self._plain(inner)
            if isinstance(value, dict | list) or value is None:
                self._wrong(
                    inner.spot, f"{what}: {name} must be text or a number, not {_said(inner.value)}"
                )
                continue
            texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return texts

    def _watermark(self, node: DocumentNode) -> Watermark | None:
        if not isinstance(node.value, dict):
            raise _UnfitEntry('a table, as { column = "at", delay = "10 seconds" }')
        self._check_keys(node, WATERMARK, "a watermark")
        fields = self._fields(node, WATERMARK, "a watermark", self._place(node.spot))
        return Watermark(**fields) if len(fields) == len(WATERMARK) else None


def _said(value: Any) -> str:
    """A value in a file, short enough for one line."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str | int | float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
