"""Small values on the wire that MessagePack has no words for: receipts, times, starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ...errors import InvalidRequest
from ...model import Missed, Receipt

TIME = "time"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def receipt_fields(receipt: Receipt) -> list[Any]:
    r = receipt
    return [r.topic, r.offset, r.count, r.partition, r.dropped, r.duplicate, r.durability]


def receipt_of(fields: list[Any]) -> Receipt:
    return Receipt(*fields)


def gap_fields(gap: Missed | None) -> list[Any] | None:
    return None if gap is None else [gap.topic, gap.first, gap.next, gap.count]


def gap_of(fields: list[Any] | None) -> Missed | None:
    return None if fields is None else Missed(*fields)


def start_fields(start: Any) -> Any:
    """Where to begin, as it travels: a word, an offset, [time, ms], or offsets by partition."""
    if isinstance(start, datetime):
        try:
            return [TIME, -int(-start.timestamp() * 1000 // 1)]
        except (ValueError, OverflowError, OSError):
            raise InvalidRequest(f"{start!r} is out of range for a time on this machine") from None
    if isinstance(start, Mapping):
        return dict(start)
    if start is None or isinstance(start, str | int | float):
        return start
    raise InvalidRequest(
        "start must be 'earliest', 'latest', 'committed', 'last_per_key', an offset or a datetime, "
        f"not {start!r}"
    )


def start_of(fields: Any) -> Any:
    if isinstance(fields, list):
        if len(fields) == 2 and fields[0] == TIME and type(fields[1]) is int:
            try:
                # Half a millisecond less: rounded up to milliseconds it is the very same.
                return _EPOCH + timedelta(microseconds=fields[1] * 1000 - 500)
            except OverflowError:
                pass
        raise InvalidRequest(f"{fields!r} is not a valid start")
    return fields
