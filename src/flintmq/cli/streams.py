"""Standard output and error whose every write waits until all of its bytes have left.

Whether a pipe blocks is a flag of the pipe, which every process that shares it may set. A write to
a non-blocking pipe writes what fits, and the caller has to write the rest.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any, TextIO


class PatientFile(io.RawIOBase):
    """A file descriptor whose writes are always complete, whether or not it blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
        return size


def patient(stream: TextIO) -> TextIO:
    """The same stream with writes that wait. Unchanged if it was already replaced by something
    else."""
    if stream not in (sys.__stdout__, sys.__stderr__) or not isinstance(stream, io.TextIOWrapper):
        return stream
    is_unbuffered = isinstance(stream.buffer, io.FileIO)  # by PYTHONUNBUFFERED
    raw = stream.buffer if is_unbuffered else getattr(stream.buffer, "raw", None)
    if not isinstance(raw, io.FileIO):
        return stream
    stream.flush()
    file = PatientFile(raw.fileno())
    buffer: Any = file if is_unbuffered else io.BufferedWriter(file)
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
