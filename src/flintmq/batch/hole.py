"""Rows that a compaction has dropped: they keep their offsets, and nothing else."""

from __future__ import annotations

from .format import HeaderValue, Key
from .record_batch import RecordBatch


class HoleBatch(RecordBatch):
    """Stands for dropped rows, in memory only. Nobody is handed them; who asks finds them empty."""

    __slots__ = ()

    def values(self, start: int = 0, stop: int | None = None) -> tuple[bytes, ...]:
        return (b"",) * ((self.row_count if stop is None else stop) - start)

    def value(self, row: int) -> bytes:
        return b""

    def key(self, row: int) -> Key | None:
        return None

    def headers(self, row: int) -> dict[str, HeaderValue]:
        return {}

    def size(self, start: int, stop: int) -> int:
        return 0


def hole(base_offset: int, count: int, time: int) -> HoleBatch:
    return HoleBatch(
        columns=0, row_count=count, body=b"", control_length=0, payload_length=0, raw_length=0,
        base_offset=base_offset, append_time=time,
    )  # fmt: skip
