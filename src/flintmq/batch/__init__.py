"""The record batch: the one form in which messages travel, rest and are analysed.

`format` draws it byte for byte; `RecordBatch` reads it, `BatchBuilder` makes it.
"""

from __future__ import annotations

from .builder import BatchBuilder, absolute, concat, lost_rows, slice_batch
from .compression import check_compression
from .format import (
    CONTENT_TYPES,
    DELIVER_AT,
    EXPIRY,
    HEADERS,
    KEY_HASH,
    KEYS,
    NOT_PLAIN,
    OBJECTS,
    PRIORITY,
    PRODUCER,
    RELATIVE,
    TIMES,
    UNSTAMPED,
    HeaderValue,
    Key,
    RowSource,
    key_hash,
)
from .record_batch import DecodeCache, LostBatch, RecordBatch, decode_all

__all__ = [
    "BatchBuilder",
    "RecordBatch",
    "RowSource",
    "DecodeCache",
    "absolute",
    "LostBatch",
    "concat",
    "lost_rows",
    "slice_batch",
    "decode_all",
    "check_compression",
    "key_hash",
    "Key",
    "HeaderValue",
    "UNSTAMPED",
    "PRIORITY",
    "EXPIRY",
    "DELIVER_AT",
    "KEY_HASH",
    "PRODUCER",
    "RELATIVE",
    "KEYS",
    "HEADERS",
    "CONTENT_TYPES",
    "TIMES",
    "OBJECTS",
    "NOT_PLAIN",
]
