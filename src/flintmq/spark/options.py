"""What a reading user can say: `spark.read.format("flintmq").option(name, value)`. Pure.

`OPTIONS` is the table of them; docs/spark.md has the same one, and a test compares them. Names are
Spark's: case does not matter. A name that is not known is an error that says which one is near.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    ways: frozenset[Way]
    default: str
    meaning: str


TO_THE_BROKER = (
    Option("servers", BROKER, "", "`flint://host:port`, `flints://...`, or `host:port,host:port`"),
    Option("apiKey", BROKER, "", "the key to come in by"),
    Option("apiKeyFile", BROKER, "", "a file with the key, on every machine of the cluster"),
    Option("tlsCa", BROKER, "", "a file with the certificates to trust (PEM)"),
    Option("tlsCert", BROKER, "", "a file with the certificate to show (PEM)"),
    Option("tlsKey", BROKER, "", "a file with its private key (PEM)"),
    Option("brokerTimeout", BROKER, "60s", "how long a broker that went away is waited for"),
)
"""Of readers and writers."""
OPTIONS = (
    *TO_THE_BROKER,
    Option("path", frozenset({"direct"}), "", "a data directory, or copied segments: no broker"),
    Option("subscribe", ALL, "", "topics, with commas between"),
    Option("subscribePattern", ALL, "", "a pattern: `*` is one word, `>` the rest; no regex"),
    Option("startingOffsets", ALL, "", "`earliest`, `latest` (streams), or JSON"),
    Option("endingOffsets", AT_ONCE, "latest", "`latest`, or JSON"),
    Option("startingTimestamp", ALL, "", "ms since 1970, or ISO 8601; before startingOffsets"),
    Option("endingTimestamp", AT_ONCE, "", "the same; messages from then on are left out"),
    Option("minPartitions", ALL, "", "so many tasks at least"),
    Option("maxRecordsPerPartition", ALL, "", "so many messages in one task at most"),
    Option("filter", BROKER, "", "an expression; evaluated in the broker"),
    Option("includeHeaders", ALL, "false", "the column `headers` is there"),
    Option("includeExpired", ALL, "false", "messages whose ttl is over are not left out"),
    Option("failOnDataLoss", BROKER, "true", "messages gone before they were read are an error"),
    Option("group", STREAM, "", "the cursor group that stands for the query in the broker"),
    Option("maxOffsetsPerTrigger", STREAM, "", "so many messages in one micro-batch at most"),
    Option("maxBytesPerTrigger", STREAM, "", "about so many bytes (`64m`) in one micro-batch"),
    Option("minOffsetsPerTrigger", STREAM, "", "wait for so many messages ..."),
    Option("maxTriggerDelay", STREAM, "15m", "... but not longer than this"),
)

_BY_NAME = {option.name.lower(): option for option in OPTIONS}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What was said, checked."""

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    path: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str | datetime | dict[str, dict[int, int]] = "earliest"
    end: str | datetime | dict[str, dict[int, int]] = "latest"
    min_tasks: int | None = None
    task_rows_max: int | None = None
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
        """Whether the start means something else every time it is looked up."""
        if isinstance(self.start, dict):
            return any(LATEST in offsets.values() for offsets in self.start.values())
        return self.start != "earliest"

    def wants(self, topic: str) -> bool:
        if self.pattern is not None:
            return matches(self.pattern, topic)
        return topic in self.topics


def read_options(given: Mapping[str, str], *, streams: bool) -> ReadOptions:
    said = {name.lower(): str(value) for name, value in given.items() if value is not None}
    way: Way = "stream" if streams else "direct" if "path" in said else "batch"
    _check_names(said, way)
    says = OptionValues(said)
    topics = tuple(name.strip() for name in said.get("subscribe", "").split(",") if name.strip())
    pattern = said.get("subscribepattern")
    if bool(topics) == bool(pattern):
        raise InvalidRequest(
            "say what to read: one of subscribe (topics, with commas between) and "
            "subscribePattern (such as 'orders.>')"
        )
    for topic in topics:
        check_name(topic)
    if pattern:
        check_pattern(pattern)
    options = ReadOptions(
        settings=settings_of(said) if way != "direct" else BrokerSettings(),
        path=said.get("path"),
        topics=tuple(dict.fromkeys(topics)),
        pattern=pattern or None,
        start=_place(said, "starting", "latest" if streams else "earliest", streams=streams),
        end=_place(said, "ending", "latest", streams=streams),
        min_tasks=says.count("minPartitions"),
        task_rows_max=says.count("maxRecordsPerPartition"),
        filter=_checked_filter(said.get("filter")),
        headers=says.truth("includeHeaders"),
        expired=says.truth("includeExpired"),
        fail_on_loss=says.truth("failOnDataLoss", True),
        group=said.get("group"),
        trigger_rows_max=says.count("maxOffsetsPerTrigger"),
        trigger_bytes_max=says.bytes("maxBytesPerTrigger"),
        trigger_rows_min=says.count("minOffsetsPerTrigger"),
        trigger_delay=says.seconds("maxTriggerDelay", 900.0),
    )
    if options.group is not None:
        check_name(options.group, "group")
    _check_order(options)
    if streams and options.start_moves and options.group is None:
        raise InvalidRequest(
            "a stream that starts at 'latest' or at a time needs the option group: under that "
            "name the broker remembers where it began, or a restart before the first batch is "
            "done would begin later and lose what lies between. Say .option('group', 'some-name'), "
            "or startingOffsets=earliest"
        )
    return options


def settings_of(given: Mapping[str, str]) -> BrokerSettings:
    """How to reach the broker, of the options of a reader or a writer."""
    said = {name.lower(): value for name, value in given.items()}
    says = OptionValues(said)
    if not said.get("servers"):
        raise InvalidRequest(
            "say where the broker is: .option('servers', 'flint://host:7600'), or host:port, "
            "several with commas between"
        )
    if "apikey" in said and "apikeyfile" in said:
        raise InvalidRequest("apiKey or apiKeyFile, not both")
    return BrokerSettings(
        servers=said["servers"],
        api_key=said.get("apikey"),
        api_key_file=said.get("apikeyfile"),
        tls_ca=said.get("tlsca"),
        tls_cert=said.get("tlscert"),
        tls_key=said.get("tlskey"),
        patience=says.seconds("brokerTimeout", 60.0),
    )


def unknown_option(name: str, known: Iterable[str]) -> InvalidRequest:
    """The error for a name nobody knows, with the one that was probably meant."""
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    meant = f"; {by_lower[near[0]]} is near" if near else ""
    return InvalidRequest(
        f"unknown option {name!r}{meant}. There are {', '.join(sorted(by_lower.values()))}"
    )


def _check_names(said: Mapping[str, str], way: Way) -> None:
    for name in said:
        option = _BY_NAME.get(name)
        if option is None:
            raise unknown_option(name, (one.name for one in OPTIONS if way in one.ways))
        if way not in option.ways:
            what = {
                "batch": "a batch read",
                "stream": "a stream",
                "direct": "a read of segments (option path)",
            }
            of = ", ".join(what[one] for one in what if one in option.ways)
            raise InvalidRequest(f"option {option.name} is for {of}, not for {what[way]}")


def _check_order(options: ReadOptions) -> None:
    """An end before the start is a slip: nothing would be read, and nothing said."""
    least, most = options.trigger_rows_min, options.trigger_rows_max
    if least is not None and most is not None and least > most:
        raise InvalidRequest(
            f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}: no batch "
            "could ever be made"
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
                        f"startingOffsets of {topic!r} has {at} for partition {number}, which is "
                        f"behind the {until} of endingOffsets"
                    )


def _place(
    said: Mapping[str, str], which: str, default: str, *, streams: bool
) -> str | datetime | dict[str, dict[int, int]]:
    """Where to begin or to end. A time goes before offsets."""
    if (time := said.get(f"{which}timestamp")) is not None:
        return _time(time, f"{which}Timestamp")
    text = said.get(f"{which}offsets")
    if text is None:
        return default
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if which == "starting" and word == "latest" and not streams:
            raise InvalidRequest("startingOffsets=latest is for streams: a batch would be empty")
        if which == "ending" and word == "earliest":
            raise InvalidRequest("endingOffsets is latest or JSON: nothing ends at the earliest")
        return word
    return parse_offsets(text, f"{which}Offsets", earliest=which == "starting")


def _time(text: str, option: str) -> datetime:
    try:
        if re.fullmatch(r"-?\d+", text.strip()):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(
            f"{option} is milliseconds since 1970, or a time such as 2026-01-31T12:00:00+00:00; "
            f"not {text!r}"
        ) from None
    if found.tzinfo is None:
        raise InvalidRequest(f"{option}: {text!r} has no time zone; say +00:00 for UTC")
    return found


def _checked_filter(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        compile_filter(text)
    except FlintError as error:
        raise InvalidRequest(f"option filter: {error}") from None
    return text


_DURATION = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3}


class OptionValues:
    """Values by the kind they should be of."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self._said = said

    def truth(self, name: str, default: bool = False) -> bool:
        text = self._said.get(name.lower(), str(default)).lower()
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name} must be true or false, not {text!r}")
        return text == "true"

    def count(self, name: str) -> int | None:
        text = self._said.get(name.lower())
        if text is None:
            return None
        if not text.strip().isdecimal() or not 1 <= int(text) < 2**62:
            raise InvalidRequest(f"{name} is a whole number of at least 1, not {text!r}")
        return int(text)

    def bytes(self, name: str) -> int | None:
        text = self._said.get(name.lower())
        if text is None:
            return None
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
        if found is None or found[2] not in _SIZE or not int(found[1]):
            raise InvalidRequest(f"{name} is a number of bytes such as 64m, not {text!r}")
        return int(found[1]) * _SIZE[found[2]]

    def seconds(self, name: str, default: float) -> float:
        text = self._said.get(name.lower())
        if text is None:
            return default
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
        if found is None or found[2] not in _DURATION:
            raise InvalidRequest(f"{name} is a time such as 250ms, 30s or 15m, not {text!r}")
        return float(found[1]) * _DURATION[found[2]]
