"""Rows that lie in a segment of the hidden log, and not in memory: what a large writer has staged.

They stand for a run of record batches that follow each other there. A commit gives them their place
in a topic, as it does with batches; who reads them asks the segment (`storage/topic_log.py`), until
a checkpoint has moved them to segments of the topic.
"""

from __future__ import annotations


class RestingRows:
    __slots__ = (
        "append_time",
        "base_offset",
        "byte_length",
        "columns",
        "file",
        "place",
        "row_count",
        "total",
    )

    def __init__(
        self,
        file: str,
        place: int,
        row_count: int,
        byte_length: int,
        total: int,
        columns: int,
        append_time: int,
    ) -> None:
        self.file = file
        self.place = place
        """The offset of the first in the hidden log."""
        self.row_count = row_count
        self.byte_length = byte_length
        self.total = total
        """What all of them count for in bytes."""
        self.columns = columns
        """The column bits of all the batches."""
        self.base_offset = place
        self.append_time = append_time

    def at(self, offset: int, time: int) -> RestingRows:
        """The same rows at a place in a topic."""
        placed = RestingRows(
            self.file, self.place, self.row_count, self.byte_length, self.total, self.columns, time
        )
        placed.base_offset = offset
        return placed

    def time(self, row: int) -> int:
        return self.append_time

    def size(self, start: int, stop: int) -> int:
        """Evenly: which row is how large is on the disk."""
        return self.total * stop // self.row_count - self.total * start // self.row_count
