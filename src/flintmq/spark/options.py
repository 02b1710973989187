"""Options of a read: `spark.read.format("flintmq").option(name, value)`. Pure.

`OPTIONS` is the table; docs/spark.md has the same one, and a test compares them. As everywhere in
Spark, case does not matter. For an unknown name, the error suggests the closest known one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal

from ..errors import FlintError, InvalidRequest
from ..patterns import check_name, check_pattern, matches
from ..serde.filters import compile_filter
from .connecting import BrokerSettings
from .offsets import LATEST, parse_offsets

Way = Literal["batch", "stream", "direct"]
"""A batch read, a stream, or segments read without a broker."""

ALL: frozenset[Way] = frozenset({"batch", "stream", "direct"})
BROKER: frozenset[Way] = frozenset({"batch", "stream"})
STREAM: frozenset[Way] = frozenset({"stream"})
AT_ONCE: frozenset[Way] = frozenset({"batch", "direct"})
WAYS: dict[Way, str] = {
    "batch": "batch reads",
    "stream": "streams",
    "direct": "direct reads of segments (option path)",
}


# --- values


def as_is(name: str, text: str) -> str:
    return text


def truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def count(name: str, text: str) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) < 2**62:
        raise InvalidRequest(f"{name} must be a whole number of at least 1, not {text!r}")
    return int(text)


_SIZE = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3}
_DURATION = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def size(name: str, text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _SIZE or not int(found[1]):
        raise InvalidRequest(f"{name} must be a number of bytes such as 64m, not {text!r}")
    return int(found[1]) * _SIZE[found[2]]


def seconds(name: str, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _DURATION:
        raise InvalidRequest(f"{name} must be a time such as 250ms, 30s or 15m, not {text!r}")
    return float(found[1]) * _DURATION[found[2]]


def filter_text(name: str, text: str) -> str:
    try:
        compile_filter(text)
    except FlintError as error:
        raise InvalidRequest(f"option {name}: {error}") from None
    return text


def view_name(name: str, text: str) -> str:
    if text.lower() not in ("all", "latest"):
        raise InvalidRequest(f"{name} must be all or latest, not {text!r}")
    return text.lower()


def pattern_text(name: str, text: str) -> str | None:
    if text:
        check_pattern(text)
    return text or None


def group_name(name: str, text: str) -> str:
    check_name(text, name)
    return text


# --- the table


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    ways: frozenset[Way]
    default: str
    meaning: str
    into: str = ""
    """The field of BrokerSettings or ReadOptions that it sets, if it sets exactly one."""
    parse: Callable[[str, str], Any] = as_is


TO_THE_BROKER = (
    Option("servers", BROKER, "", "`flint://host:port`, `flints://...`, or `host:port,host:port`",
           "servers"),
    Option("apiKey", BROKER, "", "API key", "api_key"),
    Option("apiKeyFile", BROKER, "", "file with the API key, on every machine of the cluster",
           "api_key_file"),
    Option("tlsCa", BROKER, "", "CA file used to verify the broker (PEM)", "tls_ca"),
    Option("tlsCert", BROKER, "", "client certificate (PEM)", "tls_cert"),
    Option("tlsKey", BROKER, "", "private key of the client certificate (PEM)", "tls_key"),
    Option("brokerTimeout", BROKER, "60s", "how long to wait for a broker that is gone",
           "patience", seconds),
)  # fmt: skip
"""For readers and writers."""
OPTIONS = (
    *TO_THE_BROKER,
    Option("path", frozenset({"direct"}), "", "data directory, or copied segments", "path"),
    Option("subscribe", ALL, "", "topics, separated by commas"),
    Option("subscribePattern", ALL, "", "topic pattern: `*` matches one word, `>` the rest",
           "pattern", pattern_text),
    Option("startingOffsets", ALL, "", "`earliest`, `latest` (streams), or JSON"),
    Option("endingOffsets", AT_ONCE, "latest", "`latest`, or JSON"),
    Option("startingTimestamp", ALL, "", "ms since 1970, or ISO 8601; wins over startingOffsets"),
    Option("endingTimestamp", AT_ONCE, "", "the same; messages from then on are left out"),
    Option("minPartitions", ALL, "", "minimum number of tasks", "min_tasks", count),
    Option("maxRecordsPerPartition", ALL, "", "maximum messages per task", "task_rows_max", count),
    Option("parallelism", ALL, "", "tasks that run at a time in the whole cluster, to plan for",
           "parallelism", count),
    Option("view", frozenset({"batch"}), "all", "`latest`: the last value of every key, of topics "
           "with compact=key", "view", view_name),
    Option("filter", BROKER, "", "expression, evaluated in the broker", "filter", filter_text),
    Option("includeHeaders", ALL, "false", "adds the column `headers`", "headers", truth),
    Option("includeExpired", ALL, "false", "also read messages whose ttl is over", "expired",
           truth),
    Option("failOnDataLoss", BROKER, "true", "fail if messages were deleted before they were read",
           "fail_on_loss", truth),
    Option("group", STREAM, "", "cursor group that shows the query in the broker", "group",
           group_name),
    Option("stopFile", STREAM, "", "path on the driver; once it exists, nothing more is offered",
           "stop_file"),
    Option("maxOffsetsPerTrigger", STREAM, "", "maximum messages per micro-batch",
           "trigger_rows_max", count),
    Option("maxBytesPerTrigger", STREAM, "", "approximate maximum bytes per micro-batch (`64m`)",
           "trigger_bytes_max", size),
    Option("minOffsetsPerTrigger", STREAM, "", "wait for at least this many messages ...",
           "trigger_rows_min", count),
    Option("maxTriggerDelay", STREAM, "15m", "... but not longer than this", "trigger_delay",
           seconds),
)  # fmt: skip

_BY_NAME = {option.name.lower(): option for option in OPTIONS}


def set_fields(options: Iterable[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """The fields that the given options set; names are in lower case."""
    return {
        option.into: option.parse(option.name, given[option.name.lower()])
        for option in options
        if option.into and option.name.lower() in given
    }


StartOrEnd = str | datetime | dict[str, dict[int, int]]
"""`earliest`, `latest`, a time, or offsets by topic and partition."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of a read, checked."""

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    path: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: StartOrEnd = "earliest"
    end: StartOrEnd = "latest"
    min_tasks: int | None = None
    task_rows_max: int | None = None
    parallelism: int | None = None
    view: str = "all"
    stop_file: str | None = None
    filter: str | None = None
    headers: bool = False
    expired: bool = False
    fail_on_loss: bool = True
    group: str | None = None
    trigger_rows_max: int | None = None
    trigger_bytes_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay: float = 900.0

    @property
    def start_moves(self) -> bool:
        """Whether the start means another offset every time it is resolved."""
        if isinstance(self.start, dict):
            return any(LATEST in offsets.values() for offsets in self.start.values())
        return self.start != "earliest"

    def wants(self, topic: str) -> bool:
        if self.pattern is not None:
            return matches(self.pattern, topic)
        return topic in self.topics


def lowered(given: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in given.items() if value is not None}


def read_options(given: Mapping[str, str], *, streams: bool) -> ReadOptions:
    said = lowered(given)
    way: Way = "stream" if streams else "direct" if "path" in said else "batch"
    _check_names(said, way)
    topics = [name.strip() for name in said.get("subscribe", "").split(",") if name.strip()]
    pattern = said.get("subscribepattern")
    if bool(topics) == bool(pattern):
        raise InvalidRequest(
            "set one of subscribe (topics, separated by commas) and subscribePattern (such as "
            "'orders.>')"
        )
    for topic in topics:
        check_name(topic)
    options = ReadOptions(
        settings=settings_of(said) if way != "direct" else BrokerSettings(),
        topics=tuple(dict.fromkeys(topics)),
        start=_place(said, "starting", "latest" if streams else "earliest", streams=streams),
        end=_place(said, "ending", "latest", streams=streams),
        **set_fields(OPTIONS[len(TO_THE_BROKER) :], said),
    )
    _check_order(options)
    _check_view(options, said)
    if streams and options.start_moves and options.group is None:
        raise InvalidRequest(
            "a stream that starts at 'latest' or at a time needs the option group: the broker "
            "keeps the start under that name, so that a restart before the first batch is done "
            "does not skip messages. Add .option('group', 'some-name'), or use "
            "startingOffsets=earliest"
        )
    return options


def settings_of(said: Mapping[str, str]) -> BrokerSettings:
    """How to reach the broker, by the options of a reader or a writer; names are in lower case."""
    if not said.get("servers"):
        raise InvalidRequest(
            "set the address of the broker: .option('servers', 'flint://host:7600'), or host:port; "
            "separate several with commas"
        )
    if "apikey" in said and "apikeyfile" in said:
        raise InvalidRequest("set apiKey or apiKeyFile, not both")
    return BrokerSettings(**set_fields(TO_THE_BROKER, said))


def unknown_option(name: str, known: Iterable[str]) -> InvalidRequest:
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    meant = f"; did you mean {by_lower[near[0]]}?" if near else "."
    return InvalidRequest(
        f"unknown option {name!r}{meant} Known options: {', '.join(sorted(by_lower.values()))}"
    )


def _check_names(said: Mapping[str, str], way: Way) -> None:
    for name in said:
        option = _BY_NAME.get(name)
        if option is None:
            raise unknown_option(name, (one.name for one in OPTIONS if way in one.ways))
        if way not in option.ways:
            allowed = " and ".join(WAYS[one] for one in WAYS if one in option.ways)
            raise InvalidRequest(f"option {option.name} is for {allowed}, not for {WAYS[way]}")


_NOT_WITH_VIEW = (
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "minPartitions",
    "maxRecordsPerPartition", "includeExpired",
)  # fmt: skip


def _check_view(options: ReadOptions, said: Mapping[str, str]) -> None:
    wrong = [name for name in _NOT_WITH_VIEW if name.lower() in said]
    if options.view == "latest" and wrong:
        raise InvalidRequest(
            f"view=latest is the state of now: it cannot be combined with {wrong[0]}"
        )


def _check_order(options: ReadOptions) -> None:
    """Refuse an end before the start: the read would be empty without an error."""
    least, most = options.trigger_rows_min, options.trigger_rows_max
    if least is not None and most is not None and least > most:
        raise InvalidRequest(
            f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}: no batch "
            "could ever start"
        )
    start, end = options.start, options.end
    if isinstance(start, datetime) and isinstance(end, datetime) and start > end:
        raise InvalidRequest(
            f"startingTimestamp {start.isoformat()} is after endingTimestamp {end.isoformat()}"
        )
    if isinstance(start, dict) and isinstance(end, dict):
        for topic, partitions in start.items():
            for number, at in partitions.items():
                until = end.get(topic, {}).get(number, LATEST)
                if LATEST < until < at:
                    raise InvalidRequest(
                        f"partition {number} of {topic!r} starts at {at} (startingOffsets), after "
                        f"its end {until} (endingOffsets)"
                    )


def _place(said: Mapping[str, str], which: str, default: str, *, streams: bool) -> StartOrEnd:
    """Where to begin or to end. A time wins over offsets."""
    if (time := said.get(f"{which}timestamp")) is not None:
        return _time(time, f"{which}Timestamp")
    text = said.get(f"{which}offsets")
    if text is None:
        return default
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if which == "starting" and word == "latest" and not streams:
            raise InvalidRequest(
                "startingOffsets=latest is for streams: a batch read would be empty"
            )
        if which == "ending" and word == "earliest":
            raise InvalidRequest("endingOffsets must be latest or JSON, not earliest")
        return word
    return parse_offsets(text, f"{which}Offsets", earliest=which == "starting")


def _time(text: str, option: str) -> datetime:
    try:
        if re.fullmatch(r"-?\d+", text.strip()):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(
            f"{option} must be milliseconds since 1970, or a time such as "
            f"2026-01-31T12:00:00+00:00, not {text!r}"
        ) from None
    if found.tzinfo is None:
        raise InvalidRequest(f"{option}: {text!r} has no time zone; add +00:00 for UTC")
    return found
