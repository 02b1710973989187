"""From what a caller hands in to the rows of a batch, with errors that name what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Any, NamedTuple

from ..batch import BatchBuilder, HeaderValue, Key
from ..errors import InvalidRequest
from ..model import SECONDS_MAX, Seconds, TopicOptions, check_priority, hook_names, seconds
from ..serde.codec import UNSAID, Codec, CodecSettings, EncodePlan, settings_of
from ..serde.formats import schema_text
from .keywords import BatchKeywords, When, check_keywords

Value = Any
"""Bytes, str, or any object that the format can encode."""


class RowOptions(NamedTuple):
    """What can be said of a message beside its value."""

    key: Key | None = None
    headers: Mapping[str, HeaderValue] | None = None
    priority: int = 0
    ttl: Seconds | datetime | None = None
    delay: Seconds | None = None
    content_type: str | None = None
    at: When | None = None


PLAIN = RowOptions()


_ROW_NAMES = frozenset(RowOptions._fields)
_SETTING_NAMES = frozenset(CodecSettings._fields)


def said_of_one(
    verb: str, said: Mapping[str, Any], keywords: Any
) -> tuple[RowOptions, CodecSettings]:
    """What one call says of its message, and of its value."""
    if _ROW_NAMES.issuperset(said):
        return RowOptions(**said), UNSAID
    check_keywords(verb, said, keywords)
    if _ROW_NAMES.isdisjoint(said):
        return PLAIN, call_settings(said)
    of_row = {name: value for name, value in said.items() if name in _ROW_NAMES}
    return RowOptions(**of_row), call_settings(said)


def call_settings(said: Mapping[str, Any]) -> CodecSettings:
    """What one call or one publisher says of its values."""
    if _SETTING_NAMES.isdisjoint(said):
        return UNSAID
    named = {
        name: _SETTING_CHECKS[name](value, name)
        for name, value in said.items()
        if name in _SETTING_NAMES and value is not None
    }
    return CodecSettings(**named) if named else UNSAID


def _checked_str(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a str, not {value!r}")
    return value


_SETTING_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "format": _checked_str,
    "compression": _checked_str,
    "pre_hooks": hook_names,
    "post_hooks": hook_names,
    "magic_header": _checked_str,
    "schema": lambda schema, name: schema_text(schema),
}


class Encoder:
    """Makes rows of values, for one connection."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.default = codec.plan(UNSAID)

    def plan(
        self, topic: str, options: TopicOptions | None, settings: CodecSettings
    ) -> EncodePlan | None:
        """How values for a topic are encoded; None where they are passed as objects."""
        if options is None and settings is UNSAID:
            return self.default
        of_topic = settings_of(options)
        resolved = settings.over(of_topic)
        if "object" in (resolved.format, of_topic.format):
            _check_objects(topic, of_topic.format, settings)
            return None
        taken_for_granted = of_topic.format or "raw"
        if of_topic.magic_header not in (None, "none"):
            taken_for_granted = "header"
        return self._codec.plan(resolved, taken_for_granted)

    def one(
        self, value: Value, plan: EncodePlan | None, options: RowOptions, now_ms: int
    ) -> BatchBuilder:
        """A batch of one message."""
        rows = BatchBuilder(objects=plan is None)
        self.add(rows, value, plan, options, now_ms)
        return rows

    def add(
        self,
        rows: BatchBuilder,
        value: Value,
        plan: EncodePlan | None,
        options: RowOptions,
        now_ms: int,
    ) -> None:
        """Append one message, encoded and checked."""
        content_type = _checked_content_type(options.content_type)
        if plan is not None:
            value, content_type = plan.encode(value, content_type)
            if options is PLAIN:
                rows.append_typed(value, content_type)
                return
            if content_type != options.content_type:
                options = options._replace(content_type=content_type)
        _append(rows, value, options, now_ms)

    def batch(
        self,
        topic: str,
        options: TopicOptions | None,
        values: Iterable[Value] | BatchBuilder,
        said: BatchKeywords,
        now_ms: int,
    ) -> BatchBuilder:
        """Rows for one publish of many, by what it says of them; a builder is rows already."""
        if isinstance(values, BatchBuilder):
            if any(said.get(name) for name in (*RowOptions._fields, *CodecSettings._fields)):
                raise InvalidRequest(
                    "a BatchBuilder carries all options: set them when you add messages to it"
                )
            return values
        of_rows = {name: value for name, value in said.items() if name in _ROW_NAMES}
        formats, compressions = said.get("format"), said.get("compression")
        if not isinstance(formats, list) and not isinstance(compressions, list):
            plan = self.plan(topic, options, call_settings(said))
            return self.many(values, plan, of_rows, now_ms)
        items = value_list(values)
        each = zip(
            one_for_each("format", formats, len(items)),
            one_for_each("compression", compressions, len(items)),
            strict=True,
        )
        plans = [
            self.plan(topic, options, call_settings({**said, "format": one, "compression": other}))
            for one, other in each
        ]
        return self.each(items, plans, of_rows, now_ms)

    def many(
        self,
        values: Iterable[Value],
        plan: EncodePlan | None,
        options: Mapping[str, Any],
        now_ms: int,
    ) -> BatchBuilder:
        """Rows of many values; each option is one for all or a list with one for each."""
        items = value_list(values)
        if all(_is_default(name, option) for name, option in options.items()):
            return self._plain(items, plan)
        return self.each(items, [plan] * len(items), options, now_ms)

    def each(
        self,
        items: Sequence[Value],
        plans: Sequence[EncodePlan | None],
        options: Mapping[str, Any],
        now_ms: int,
    ) -> BatchBuilder:
        """The same, with a way of encoding for each value."""
        count = len(items)
        if options.get("at") is not None:
            _check_one_time(options.get("delay"))
        columns = {
            _COLUMN_NAMES[name]: _checked_column(name, option, count, now_ms)
            for name, option in options.items()
            if not _is_default(name, option)
        }
        types = columns.pop("content_types", None) or [None] * count
        if plans and plans[0] is None:
            rows = BatchBuilder.of_objects(list(items))
            rows.set_content_types(types)
        else:
            rows = BatchBuilder()
            for value, plan, content_type in zip(items, plans, types, strict=True):
                assert plan is not None
                rows.append_typed(*plan.encode(value, content_type))
        rows.set_columns(**columns)
        return rows

    def _plain(self, items: list[Value], plan: EncodePlan | None) -> BatchBuilder:
        if plan is None:
            return BatchBuilder.of_objects(items)
        if plan is self.default and set(map(type, items)) == {bytes}:
            return BatchBuilder.of(items)
        encoded = [plan.encode(value) for value in items]
        types = {content_type for _, content_type in encoded}
        if len(types) == 1:
            return BatchBuilder.of([data for data, _ in encoded], types.pop())
        rows = BatchBuilder()
        for data, content_type in encoded:
            rows.append_typed(data, content_type)
        return rows


def _append(rows: BatchBuilder, value: Any, options: RowOptions, now_ms: int) -> None:
    key, headers, priority, ttl, delay, content_type, at = options
    deliver_at = 0 if delay is None else _deliver_at(delay)
    if at is not None:
        _check_one_time(delay)
        deliver_at = _deliver_at_time(at, now_ms)
    rows.append_row(
        value,
        key=None if key is None else _checked_text(key, "key"),
        headers=None if headers is None else _checked_headers(headers),
        priority=check_priority(priority),
        expiry=0 if ttl is None else _expiry(ttl),
        deliver_at=deliver_at,
        content_type=content_type,
    )


def _expiry(ttl: Seconds | datetime) -> int:
    """Below 0: a duration, which the broker counts from when it takes the message in. Our own clock
    may be wrong. A datetime is the end itself, as of a message that is passed on."""
    if isinstance(ttl, datetime):
        return max(1, round(ttl.timestamp() * 1000))
    return -_milliseconds(ttl, "ttl", positive=True)


def _deliver_at(delay: Seconds) -> int:
    return -_milliseconds(delay, "delay") if delay else 0


def _deliver_at_time(at: When, now_ms: int) -> int:
    """A time in milliseconds. Whether it has passed is for the broker to say."""
    if isinstance(at, datetime):
        try:
            at = at.timestamp()
        except (ValueError, OverflowError, OSError):
            raise InvalidRequest(f"{at!r} is out of range for a time on this machine") from None
    if isinstance(at, bool) or not isinstance(at, int | float) or not isfinite(at):
        raise InvalidRequest(f"at must be a datetime or seconds since 1970, not {at!r}")
    due = -int(-at * 1000 // 1)  # never early
    if due - now_ms > SECONDS_MAX * 1000:
        raise InvalidRequest(f"at must be at most {SECONDS_MAX:,} seconds from now, not {at!r}")
    return max(1, due)


def _check_one_time(delay: object) -> None:
    if delay is not None:
        raise InvalidRequest("delay and at both set the delivery time: pass only one of them")


def _check_objects(topic: str, topic_format: str | None, settings: CodecSettings) -> None:
    if topic_format != "object":
        raise InvalidRequest(
            f"format='object' is an option of the whole topic: create_topic({topic!r}, "
            "format='object')"
        )
    if settings.format not in (None, "object") or settings._replace(format=None) != UNSAID:
        raise InvalidRequest(
            f"topic {topic!r} passes objects by reference: no other format, compression, "
            "hooks or header can be used"
        )


def _is_default(name: str, option: Any) -> bool:
    return option is None or (name == "priority" and type(option) is int and option == 0)


def value_list(values: Iterable[Value]) -> list[Value]:
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(
        values, Iterable
    ):
        raise InvalidRequest(
            f"publish_batch takes a list of values, not one {type(values).__name__}; use "
            "publish for a single value"
        )
    return list(values)


def pair_list(messages: Iterable[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """(topic, value) pairs, checked."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequest("publish_many takes a list of (topic, value) pairs")
    pairs = list(messages)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidRequest(f"publish_many takes (topic, value) pairs, not {pair!r}")
    return pairs


def one_for_each(name: str, option: Any, count: int) -> list[Any]:
    """What is said of each of `count` messages: one for all, or a list with one for each."""
    if not isinstance(option, list):
        return [option] * count
    if len(option) != count:
        raise InvalidRequest(f"{name} has {len(option)} entries for {count} values")
    return option


_COLUMN_NAMES = {
    "key": "keys",
    "headers": "headers",
    "priority": "priorities",
    "ttl": "expiries",
    "delay": "deliver_ats",
    "at": "deliver_ats",
    "content_type": "content_types",
}


def _checked_column(name: str, option: Any, count: int, now_ms: int) -> list[Any]:
    """What is said of each message, checked; what is said of all is checked once."""
    check = _CHECKS[name]
    if not isinstance(option, list):
        return [check(option, now_ms)] * count
    items = one_for_each(name, option, count)
    return [None if item is None else check(item, now_ms) for item in items]


def check_qos(qos: int) -> int:
    if qos not in (0, 1):
        raise InvalidRequest(
            f"qos must be 0 (live feeds only, not stored) or 1 (stored), not {qos!r}"
        )
    return qos


def _milliseconds(duration: Seconds, name: str, *, positive: bool = False) -> int:
    length = seconds(duration, name, positive=positive)
    if length > SECONDS_MAX:
        raise InvalidRequest(
            f"{name} must be at most {SECONDS_MAX:,} seconds; leave it out for no limit"
        )
    return max(1, round(length * 1000)) if length else 0


def _checked_text(item: str | bytes, name: str) -> str | bytes:
    if isinstance(item, str):
        _utf8(item, name)
        return item
    if isinstance(item, bytes):
        return item
    raise InvalidRequest(f"a {name} must be str or bytes, not {type(item).__name__}")


def _checked_headers(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers must be a dict of str to str or bytes, not {headers!r}")
    checked: dict[str, HeaderValue] = {}
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"a header name must be str, not {name!r}")
        _utf8(name, "header name")
        checked[name] = _checked_text(value, f"value of header {name!r}")
    return checked


def _checked_content_type(content_type: str | None) -> str | None:
    if content_type is None:
        return None
    if not isinstance(content_type, str) or len(content_type) > CONTENT_TYPE_LENGTH_MAX:
        raise InvalidRequest(
            f"content_type must be a str of at most {CONTENT_TYPE_LENGTH_MAX} characters, "
            f"not {str(content_type)[:60]!r}"
        )
    _utf8(content_type, "content_type")
    return content_type


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the {name} is not valid Unicode: {error}") from None


CONTENT_TYPE_LENGTH_MAX = 1024

_CHECKS: dict[str, Callable[[Any, int], Any]] = {
    "key": lambda key, now_ms: _checked_text(key, "key"),
    "headers": lambda headers, now_ms: _checked_headers(headers),
    "priority": lambda priority, now_ms: check_priority(priority),
    "ttl": lambda ttl, now_ms: _expiry(ttl),
    "delay": lambda delay, now_ms: _deliver_at(delay),
    "at": _deliver_at_time,
    "content_type": lambda content_type, now_ms: _checked_content_type(content_type),
}
