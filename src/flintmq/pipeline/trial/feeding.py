"""The sources of a pipeline as files of given rows: no broker is needed.

Every source has a directory, and the rows that arrive together are a file in it. A message is a
line of JSON with the columns that the data source gives, so everything behind it (decoding, dead
letters, steps) is what runs in production.
"""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest
from ...serde.formats import MSGPACK, AvroFormat, schema_text
from ...spark.columns import HEADERS, SCHEMA
from ..define.definition import GivenRow, Source
from ..define.schemas import columns_of
from ..run.frames import OF_MESSAGES, files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIX = {"csv": "csv", "json": "json", "parquet": "json"}
"""Parquet has types and needs Spark to write it: such rows are given as JSON."""


class GivenFiles:
    """Writes given rows, and reads them as the frames of sources."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self._next: Counter[str] = Counter()
        """The next offset of each topic."""
        self._count = 0

    def put(self, source: Source, rows: tuple[GivenRow, ...], now: datetime) -> None:
        """Rows arrive at a source, together."""
        if not rows:
            return
        if source.files is None:
            lines = [json.dumps(self._message(source, row, now), default=_text) for row in rows]
        else:
            lines = [_line(source, row) for row in rows]
        self._count += 1
        suffix = "json" if source.files is None else SUFFIX[source.file_format]
        name = f"{self._count:06}.{suffix}"
        # Renamed, so that a stream never sees half of it.
        hidden = self._directory(source) / f"_{name}"
        hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        hidden.rename(hidden.with_name(name))

    def frame(self, source: Source, *, is_static: bool, with_headers: bool) -> DataFrame:
        """The rows of a source, as `run.frames` reads them from a broker or from files."""
        reader: Any = self._spark.read if is_static else self._spark.readStream
        path = str(self._directory(source))
        if source.files is not None and (source.schema is None or source.file_format != "parquet"):
            return files_of(self._spark, reader, source, path, is_static=is_static)
        schema = source.schema
        if source.files is None:
            given = {name.lower(): value.lower() for name, value in source.options.items()}
            asks_for_headers = with_headers or given.get("includeheaders") == "true"
            schema = f"{SCHEMA}, {HEADERS}" if asks_for_headers else SCHEMA
        frame: DataFrame = reader.schema(schema).json(path)
        return frame

    def _directory(self, source: Source) -> Path:
        directory = self._root / source.name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _message(self, source: Source, row: GivenRow, now: datetime) -> dict[str, Any]:
        own, value = _parts(source, row)
        topic = str(own.get("topic") or (source.topics[0] if source.topics else source.pattern))
        offset = int(own.get("offset", self._next[topic]))
        self._next[topic] = max(self._next[topic], offset + 1)
        headers = own.get("headers") or {}
        return {
            "partition": 0,
            "priority": 0,
            "timestamp": now,
            **{name: one for name, one in own.items() if name in OF_MESSAGES},
            "topic": topic,
            "offset": offset,
            "key": None if own.get("key") is None else _bytes(own["key"]),
            "value": None if value is None else _bytes(value),
            "headers": [{"key": name, "value": _bytes(one)} for name, one in headers.items()],
        }


def _parts(source: Source, row: GivenRow) -> tuple[dict[str, Any], Any]:
    """The columns of the message itself, by their names there, and its value."""
    if isinstance(row, str):
        return {}, row
    if source.schema is None:
        return dict(row), row.get("value")
    fields = {column.name.lower() for column in columns_of(source.schema)}
    own = {
        name[1:]: one
        for name, one in row.items()
        if name.startswith("_") and name[1:] in OF_MESSAGES and name.lower() not in fields
    }
    value = {name: one for name, one in row.items() if name[1:] not in own or name[:1] != "_"}
    return own, _encoded(source, value)


def _encoded(source: Source, value: Mapping[str, Any]) -> bytes:
    if source.format == "msgpack":
        return MSGPACK.encode(value)
    if source.format == "avro":
        given = {name.lower(): one for name, one in source.options.items()}
        return AvroFormat(schema_text(given["avro_schema"])).encode(value)
    return json.dumps(value, default=_text).encode()


def _line(source: Source, row: GivenRow) -> str:
    """A line of a file."""
    if isinstance(row, str):
        return row
    if source.file_format != "csv":
        return json.dumps(row, default=_text)
    if source.schema is None:
        raise InvalidRequest(
            f"{source.place}: source {source.name!r} is CSV without a schema: "
            "give its rows as texts"
        )
    line = io.StringIO()
    names = [column.name for column in columns_of(source.schema)]
    csv.writer(line, lineterminator="").writerow(
        _text(one) if isinstance(one := row.get(name), date | time) else one for name in names
    )
    return line.getvalue()


def _bytes(value: Any) -> str:
    """Bytes as Spark reads them from JSON."""
    if isinstance(value, Mapping | list):
        value = json.dumps(value, default=_text)
    data = value if isinstance(value, bytes) else str(value).encode()
    return b64encode(data).decode()


def _text(value: Any) -> str:
    """Times are written as TOML and YAML read them."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    raise InvalidRequest(f"a row has {value!r}, which JSON has no form for")
