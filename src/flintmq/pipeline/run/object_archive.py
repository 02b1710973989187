"""An archive in object storage: plain Parquet files, each row once, as `archiving` on a disk.

There is no rename in object storage. So tasks write beside the archive; then an intent is stored,
in one object; then the files are copied to their places, and what was copied is deleted. Doing it
twice is the same as doing it once, and the next run finishes it.

    <parent>/.<name>.flintmq/<owner>.json    the intent, and what the owner remembers
    <parent>/.<name>.flintmq/<owner>/...     files that are not in place yet
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InvalidRequest
from ..define.definition import BatchFunction
from ..define.partitions import partitions_of
from ..lake.data_files import write_files
from ..lake.fitting import with_parts
from ..lake.storage import ObjectPlaces, storage_options
from .landing import FileChanges
from .merging import BYTES_MAX, FILES_MAX, files_to_merge, merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OF_FILES = ("compression",)


def into_objects(
    url: str,
    *,
    format: str,
    partition_by: Sequence[str],
    compact: bool,
    options: Mapping[str, str] | None,
) -> BatchFunction:
    """For foreachBatch: write every micro-batch below the URL, once."""
    if format != "parquet":
        raise InvalidRequest(f"{url}: {format} cannot go to object storage: use parquet")
    given = storage_options(options or {})
    known = {*given, *OF_FILES}
    if unknown := [name for name in options or {} if name.lower() not in known]:
        raise InvalidRequest(
            f"{url}: unknown option {unknown[0]!r}: use compression, or those of the storage "
            "(aws_endpoint_url ...)"
        )
    compression = {k.lower(): v for k, v in (options or {}).items()}.get("compression", "zstd")
    return for_each_query(
        lambda query: ObjectArchive(
            ObjectPlaces(url.rstrip("/"), given),
            owner=query,
            partition_by=partition_by,
            compact=compact,
            compression=compression,
        )
    )


class TakesBatches(Protocol):
    """What micro-batches are written to."""

    def write(self, frame: DataFrame, number: int) -> None: ...


def for_each_query(archive_of: Callable[[str], TakesBatches]) -> BatchFunction:
    """Write the micro-batches of each streaming query to an archive of its own."""
    archives: dict[str, TakesBatches] = {}

    def write(frame: DataFrame, number: int) -> None:
        query = query_of(frame)
        if query not in archives:
            archives[query] = archive_of(query)
        archives[query].write(frame, number)

    return write


def query_of(frame: DataFrame) -> str:
    """The id of the streaming query that a micro-batch belongs to."""
    return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "batch"


class ObjectArchive:
    """Only one process at a time may use it, for each owner."""

    def __init__(
        self,
        places: ObjectPlaces,
        *,
        owner: str,
        partition_by: Sequence[str] = (),
        compact: bool = False,
        compression: str = "zstd",
        files_max: int = FILES_MAX,
    ) -> None:
        self._places, self._files = places, places.filesystem()
        parent, _, name = places.url.rpartition("/")
        self._own = replace(places, url=f"{parent}/.{name}.flintmq/{owner}")
        self._mark = re.sub(r"[^0-9A-Za-z]", "", owner)[:8]
        self._partitions = partitions_of(partition_by)
        self._is_compacted, self._compression = compact, compression
        self._files_max = files_max
        self._facts: Mapping[str, Any] = {}

    def write(self, frame: DataFrame, number: int) -> None:
        self._finish()
        touched: set[str] = set()
        if number > self._facts.get("batch", -1):
            touched = self._land_batch(with_parts(frame, self._partitions), number)
        if self._is_compacted:
            self._compact(touched)

    def _land_batch(self, rows: DataFrame, number: int) -> set[str]:
        staged = replace(self._own, url=f"{self._own.url}/batch-{number}")
        self._clear(staged.directory)
        names = [one.name for one in self._partitions]
        written = write_files(rows, staged, names, "rows", self._compression)
        moves = []
        touched = set()
        for count, one in enumerate(sorted(written, key=lambda one: one.path)):
            partition, _, _ = one.path.rpartition("/")
            name = f"batch-{number:08d}-{count:03d}-{self._mark}.parquet"
            moves.append((f"batch-{number}/{one.path}", _joined(partition, name)))
            touched.add(partition)
        still_open = sorted({*self._facts.get("open", ()), *touched}) if self._is_compacted else []
        facts = {**self._facts, "batch": number, "open": still_open}
        self._land(FileChanges(tuple(moves), facts=facts))
        return touched

    def _compact(self, touched: set[str]) -> None:
        for partition in self._facts.get("open", ()):
            sizes = self._mine(partition)
            files_max = 2 if partition not in touched else self._files_max
            chosen = files_to_merge(sizes, files_max=files_max, bytes_max=BYTES_MAX)
            facts = dict(self._facts)
            if partition not in touched:
                facts["open"] = [other for other in facts["open"] if other != partition]
            facts["merges"] = facts.get("merges", 0) + 1
            merged = f"{self._own.directory}/merged.parquet"
            at = _joined(self._places.directory, partition)
            if chosen and merge([f"{at}/{name}" for name in chosen], merged, self._files):
                name = f"merged-{facts['merges']:08d}-{self._mark}.parquet"
                moves = (("merged.parquet", _joined(partition, name)),)
                drops = tuple(_joined(partition, name) for name in chosen)
                self._land(FileChanges(moves, drops, facts))
            elif facts["open"] != self._facts["open"]:
                self._land(FileChanges(facts=facts))

    def _mine(self, partition: str) -> dict[str, int]:
        from pyarrow import fs

        at = _joined(self._places.directory, partition)
        found = self._files.get_file_info(fs.FileSelector(at, allow_not_found=True))
        mine = f"-{self._mark}.parquet"
        return {one.base_name: one.size for one in found if one.base_name.endswith(mine)}

    # --- the intent

    def _finish(self) -> None:
        path = f"{self._own.directory}.json"
        if not self._is_there(path):
            return
        with self._files.open_input_stream(path) as file:
            written = json.loads(file.read())
        moves = tuple((source, target) for source, target in written["moves"])
        change = FileChanges(moves, tuple(written["drops"]), written["facts"])
        if change.moves or change.drops:
            self._do(change)
        self._facts = change.facts

    def _land(self, change: FileChanges) -> None:
        self._store(change)
        self._do(change)
        self._facts = change.facts

    def _do(self, change: FileChanges) -> None:
        for source, target in change.moves:
            moved = f"{self._own.directory}/{source}"
            if self._is_there(moved):  # else it was copied before
                self._files.copy_file(moved, f"{self._places.directory}/{target}")
                self._files.delete_file(moved)
        for name in change.drops:
            if self._is_there(path := f"{self._places.directory}/{name}"):
                self._files.delete_file(path)
        self._store(FileChanges(facts=change.facts))

    def _store(self, change: FileChanges) -> None:
        said = {"moves": change.moves, "drops": change.drops, "facts": dict(change.facts)}
        # An object is replaced as a whole.
        with self._files.open_output_stream(f"{self._own.directory}.json") as file:
            file.write(json.dumps(said).encode())

    def _is_there(self, path: str) -> bool:
        from pyarrow import fs

        return bool(self._files.get_file_info(path).type != fs.FileType.NotFound)

    def _clear(self, directory: str) -> None:
        self._files.delete_dir_contents(directory, missing_dir_ok=True)


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
