"""From what a caller hands in to the columns of a row, with errors that name what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..batch import BatchBuilder, HeaderValue, Key
from ..errors import InvalidRequest
from ..model import Seconds, check_priority, seconds

Value = bytes | bytearray | memoryview | str


class RowOptions(NamedTuple):
    """What can be said of a message beside its value."""

    key: Key | None = None
    headers: Mapping[str, HeaderValue] | None = None
    priority: int = 0
    ttl: Seconds | None = None
    delay: Seconds | None = None
    content_type: str | None = None


PLAIN = RowOptions()


def encoded(value: Value) -> bytes:
    """The bytes of a value."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _utf8(value, "value")
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidRequest(f"a value is bytes or str, not {type(value).__name__}")


def add_row(rows: BatchBuilder, value: bytes, options: RowOptions, now_ms: int) -> None:
    """Append one message, checked."""
    key, headers, priority, ttl, delay, content_type = options
    rows.append_row(
        value,
        key=None if key is None else _checked_text(key, "key"),
        headers=None if headers is None else _checked_headers(headers),
        priority=check_priority(priority),
        expiry=0 if ttl is None else now_ms + _milliseconds(ttl, "ttl"),
        deliver_at=0 if not delay else now_ms + _milliseconds(delay, "delay"),
        content_type=None if content_type is None else _checked_content_type(content_type),
    )


def batch_of(values: Iterable[Value], options: Mapping[str, Any], now_ms: int) -> BatchBuilder:
    """Rows of many values; each option is one for all or a list with one for each."""
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        raise InvalidRequest(
            f"publish_batch takes a list of values, not one {type(values).__name__}; see publish"
        )
    items = list(values)
    plain = items if set(map(type, items)) <= {bytes} else [encoded(value) for value in items]
    given = {name: value for name, value in options.items() if not _is_default(name, value)}
    if not given:
        return BatchBuilder.of(plain)  # type: ignore[arg-type]
    columns = {name: _column(name, option, len(items)) for name, option in given.items()}
    rows = BatchBuilder()
    for row, value in enumerate(plain):
        picked = {name: column[row] for name, column in columns.items()}
        add_row(rows, value, RowOptions(**picked), now_ms)  # type: ignore[arg-type]
    return rows


def _is_default(name: str, option: Any) -> bool:
    return option is None or (name == "priority" and type(option) is int and option == 0)


def _column(name: str, option: Any, count: int) -> list[Any]:
    if not isinstance(option, list):
        return [option] * count
    if len(option) != count:
        raise InvalidRequest(f"{name} has {len(option)} entries for {count} values")
    return [PLAIN._asdict()[name] if item is None else item for item in option]


def check_qos(qos: int) -> int:
    if qos not in (0, 1):
        raise InvalidRequest(f"qos is 0 (live feeds only, not stored) or 1 (stored), not {qos!r}")
    return qos


def _milliseconds(duration: Seconds, name: str) -> int:
    return max(1, round(seconds(duration, name, positive=True) * 1000))


def _checked_text(item: str | bytes, name: str) -> str | bytes:
    if isinstance(item, str):
        _utf8(item, name)
        return item
    if isinstance(item, bytes):
        return item
    raise InvalidRequest(f"a {name} is str or bytes, not {type(item).__name__}")


def _checked_headers(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers are a dict of str to str or bytes, not {headers!r}")
    checked: dict[str, HeaderValue] = {}
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"a header name is str, not {name!r}")
        _utf8(name, "header name")
        checked[name] = _checked_text(value, f"value of header {name!r}")
    return checked


def _checked_content_type(content_type: str) -> str:
    if not isinstance(content_type, str):
        raise InvalidRequest(f"content_type is a str, not {content_type!r}")
    _utf8(content_type, "content_type")
    return content_type


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the {name} is not valid Unicode: {error}") from None
